"""What crosses the proxy, and what does not."""

from __future__ import annotations

import pytest

from proxy.headers import credential, to_backend, to_client, value_of

HOP = [
    (b"Connection", b"keep-alive, X-Mine ,"),
    (b"Keep-Alive", b"timeout=5"),
    (b"Proxy-Authenticate", b"Basic"),
    (b"Proxy-Authorization", b"Basic eDp5"),
    (b"Proxy-Connection", b"keep-alive"),
    (b"TE", b"trailers"),
    (b"Trailer", b"x-sum"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Upgrade", b"h2c"),
    (b"x-mine", b"named by Connection"),
]


def test_a_backend_gets_what_crosses_and_its_own_key() -> None:
    sent = [
        *HOP,
        (b"Host", b"proxy:8080"),
        (b"Content-Length", b"12"),
        (b"Accept-Encoding", b"gzip, br"),
        (b"Expect", b"100-continue"),
        (b"Cookie", b"session=secret"),
        (b"Authorization", b"Bearer client-key"),
        (b"X-Api-Key", b"client-key"),
        (b"api-key", b"client-key"),
        (b"X-Manometer-Strict", b"1"),
        (b"x-diffusion-steps", b"8"),
        (b"User-Agent", b"OpenAI/Python"),
        (b"X-Stainless-Lang", b"python"),
        (b"OpenAI-Beta", b"a"),
        (b"OpenAI-Beta", b"b"),
        (b"Content-Type", b"application/json"),
    ]
    assert to_backend(sent, "backend-key", passthrough=False) == [
        (b"User-Agent", b"OpenAI/Python"),
        (b"X-Stainless-Lang", b"python"),
        (b"OpenAI-Beta", b"a"),
        (b"OpenAI-Beta", b"b"),
        (b"Content-Type", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"authorization", b"Bearer backend-key"),
    ]


def test_a_clients_key_goes_on_only_by_passthrough() -> None:
    sent = [(b"Authorization", b"Bearer mine"), (b"x-api-key", b"mine")]
    identity = (b"accept-encoding", b"identity")
    assert to_backend(sent, None, passthrough=True) == [*sent, identity]
    assert to_backend(sent, "never", passthrough=True) == [*sent, identity]
    assert to_backend(sent, None, passthrough=False) == [identity]


def test_connection_cannot_be_used_to_lose_what_the_proxy_adds() -> None:
    sent = [(b"Connection", b"authorization, content-type, accept-encoding"), (b"Content-Type", b"application/json")]
    assert to_backend(sent, "key", passthrough=False) == [
        (b"accept-encoding", b"identity"),
        (b"authorization", b"Bearer key"),
    ]


def test_a_client_gets_everything_but_what_belongs_to_one_connection() -> None:
    answered = [
        *HOP,
        (b"Content-Type", b"text/event-stream"),
        (b"Content-Length", b"12"),
        (b"Content-Encoding", b"gzip"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"x-ratelimit-remaining-tokens", b"149984"),
        (b"Retry-After", b"3"),
        (b"x-request-id", b"req_1"),
        (b"x-name", "naïve".encode()),
    ]
    assert to_client(answered) == [
        ("Content-Type", "text/event-stream"),
        ("Content-Length", "12"),
        ("Content-Encoding", "gzip"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("Retry-After", "3"),
        ("x-request-id", "req_1"),
        ("x-name", "naïve"),
    ]


@pytest.mark.parametrize(
    "headers, key",
    [
        ([(b"Authorization", b"Bearer k")], "k"),
        ([(b"authorization", b"bearer  k ")], "k"),
        ([(b"x-api-key", b"k")], "k"),
        ([(b"api-key", b"k")], "k"),
        ([(b"Authorization", b"Basic eDp5"), (b"x-api-key", b"k")], "k"),
        ([(b"Authorization", b"Bearer "), (b"api-key", b"k")], "k"),
        ([(b"Authorization", b"Bearer a"), (b"x-api-key", b"b")], "a"),
        ([(b"Authorization", b"Basic eDp5")], ""),
        ([(b"Authorization", b"k")], ""),
        ([], ""),
    ],
)
def test_where_clients_show_their_key(headers: list[tuple[bytes, bytes]], key: str) -> None:
    assert credential(headers) == key


def test_the_first_of_equal_headers_counts() -> None:
    assert value_of([(b"A", b"1"), (b"a", b"2")], b"a") == "1"
    assert value_of([], b"a") == ""
