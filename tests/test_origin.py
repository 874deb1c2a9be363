"""Where a backend is, and how a connection to it is opened: URLs, TLS, client certificates, an outbound proxy."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.origin import Origin
from proxy.upstream import Pool, Request, Timeouts, UpstreamFault
from tests.stage import HOST, Peer, Stage, replies, whole

GET = Request(b"GET", b"/v1/models", [])


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url, host, port, header, target",
    [
        ("https://api.x.ai/v1", "api.x.ai", 443, b"api.x.ai", b"/v1/chat/completions"),
        ("https://api.x.ai/v1/", "api.x.ai", 443, b"api.x.ai", b"/v1/chat/completions"),
        ("https://api.x.ai", "api.x.ai", 443, b"api.x.ai", b"/v1/chat/completions"),
        ("https://api.x.ai/", "api.x.ai", 443, b"api.x.ai", b"/v1/chat/completions"),
        ("https://api.x.ai/openai/v1", "api.x.ai", 443, b"api.x.ai", b"/openai/v1/chat/completions"),
        ("https://api.x.ai/api/paas/v4", "api.x.ai", 443, b"api.x.ai", b"/api/paas/v4/chat/completions"),
        ("http://localhost:8000", "localhost", 8000, b"localhost:8000", b"/v1/chat/completions"),
        ("http://[::1]:8000/v1", "::1", 8000, b"[::1]:8000", b"/v1/chat/completions"),
        ("http://x:80/v1", "x", 80, b"x", b"/v1/chat/completions"),
        ("https://x:80/v1", "x", 80, b"x:80", b"/v1/chat/completions"),
    ],
)
def test_a_base_url_is_read_and_its_path_stands_for_v1(
    url: str, host: str, port: int, header: bytes, target: bytes
) -> None:
    origin = Origin.of(url)
    assert (origin.host, origin.port, origin.host_header) == (host, port, header)
    assert origin.target("/v1/chat/completions") == target


@pytest.mark.parametrize(
    "path, target",
    [
        ("/v1", b"/p"),
        ("/v1?a=b", b"/p?a=b"),
        ("/v1/models/a%2Fb?x=%20y&x=z", b"/p/models/a%2Fb?x=%20y&x=z"),
        ("/v1/files/\u00e9", "/p/files/\u00e9".encode()),
        ("/v1/files/\udcff", b"/p/files/\xff"),
    ],
)
def test_a_path_is_never_re_encoded(path: str, target: bytes) -> None:
    assert Origin.of("http://x/p").target(path) == target


@pytest.mark.parametrize(
    "url, said",
    [
        ("api.x.ai/v1", "not an http:// or https:// URL"),
        ("ftp://x/v1", "not an http:// or https:// URL"),
        ("", "not an http:// or https:// URL"),
        ("http:///v1", "not an http:// or https:// URL"),
        ("http://x/v1?key=1", "no query"),
        ("http://x:99999/v1", "not an http:// or https:// URL"),
        ("http://[::1/v1", "not an http:// or https:// URL"),
        ("http://x y/v1", "not an http:// or https:// URL"),
        ("http://\u00fcber\n/v1", "not an http:// or https:// URL"),
    ],
)
def test_what_is_no_url_is_refused_in_one_line(url: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        Origin.of(url)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://me:sk-secret@x/v1", "ftp://me:sk-secret@x/v1", "http://x/v1?key=sk-secret"])
def test_a_secret_in_a_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        Origin.of(url)
    assert "sk-secret" not in str(caught.value)


# -- TLS against a local authority -----------------------------------------------------------------

CA = trustme.CA()
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


def server(cert: trustme.LeafCert, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert.configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    CA.cert_pem.write_to_path(str(path))
    return path


async def status(back: Stage, **options: Any) -> int:
    """The status of one answer, or the fault."""
    pool = Pool(Origin.of(back.url, **options), Timeouts())
    over = asyncio.get_running_loop().create_future()

    class Sink:
        status = 0

        def on_head(self, at: float, status: int, headers: Any) -> None:
            self.status = status

        def on_chunk(self, at: float, data: bytes) -> None: ...

        def on_end(self, at: float) -> None:
            over.set_result(self.status)

        def on_fault(self, at: float, fault: UpstreamFault) -> None:
            over.set_exception(fault)

    try:
        await pool.send(GET, Sink())
        return int(await asyncio.wait_for(over, 10))
    finally:
        await pool.close()


async def test_a_certificate_of_the_configured_authority_is_good(stage: Any, ca_file: Path) -> None:
    back = await stage(replies(whole(b"x")), tls=server(CA.issue_cert(HOST)))
    assert await status(back, ca_file=ca_file) == 200


@pytest.mark.parametrize(
    "cert, said",
    [
        (CA.issue_cert(HOST, not_before=NOW - 2 * DAY, not_after=NOW - DAY), "expired"),
        (CA.issue_cert(HOST, not_before=NOW + DAY, not_after=NOW + 2 * DAY), "not yet valid"),
        (CA.issue_cert("another.host"), "IP address mismatch"),
        (trustme.CA().issue_cert(HOST), "unable to get local issuer certificate"),
    ],
    ids=["expired", "not yet valid", "of another host", "of another authority"],
)
async def test_a_bad_certificate_makes_a_backend_unreachable_and_says_why(
    stage: Any, ca_file: Path, cert: trustme.LeafCert, said: str
) -> None:
    back = await stage(replies(whole(b"x")), tls=server(cert))
    with pytest.raises(UpstreamFault) as caught:
        await status(back, ca_file=ca_file)
    assert (caught.value.outcome, caught.value.code) == ("unreachable", "tls")
    assert said in caught.value.message
    assert f"cannot connect to {HOST}:{back.port}: its certificate: " in caught.value.message
    assert not back.asked


async def test_a_self_signed_certificate_is_refused_unless_verification_is_off(stage: Any, tmp_path: Path) -> None:
    alone = trustme.CA()
    back = await stage(replies(whole(b"x")), tls=server(alone.issue_cert(HOST)))
    with pytest.raises(UpstreamFault) as caught:
        await status(back)  # the system's authorities do not know it
    assert (caught.value.outcome, caught.value.code) == ("unreachable", "tls")
    assert "self-signed certificate" in caught.value.message or "local issuer" in caught.value.message
    assert await status(back, verify=False) == 200
    alone.cert_pem.write_to_path(str(tmp_path / "own.pem"))
    assert await status(back, ca_file=tmp_path / "own.pem") == 200


async def test_a_server_that_speaks_no_tls_is_unreachable(stage: Any, ca_file: Path) -> None:
    async def talks(peer: Peer) -> None:
        peer.send(b"220 mail.x ESMTP\r\n")
        await peer.gone.wait()

    back = await stage(talks)
    back_url = back.url.replace("http:", "https:")
    pool = Pool(Origin.of(back_url, ca_file=ca_file), Timeouts())
    with pytest.raises(UpstreamFault) as caught:
        await pool.send(GET, None)  # type: ignore[arg-type]
    assert (caught.value.outcome, caught.value.code) == ("unreachable", "tls")
    await pool.close()


async def test_a_client_certificate_is_shown_where_one_is_asked_for(stage: Any, ca_file: Path, tmp_path: Path) -> None:
    own = CA.issue_cert("the-proxy")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    back = await stage(replies(whole(b"x")), tls=server(CA.issue_cert(HOST), clients=CA))
    assert await status(back, ca_file=ca_file, client_cert=tmp_path / "client.pem") == 200
    with pytest.raises(UpstreamFault) as caught:
        await status(back, ca_file=ca_file)
    assert caught.value.outcome == "backend_error"


@pytest.mark.parametrize("field", ["ca_file", "client_cert"])
def test_a_certificate_file_that_cannot_be_read_is_named(field: str, tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")
    for name in ("missing.pem", "broken.pem"):
        with pytest.raises(ValueError) as caught:
            Origin.of("https://x/v1", **{field: tmp_path / name})
        assert str(caught.value).startswith(f"{field}: ")
        assert name in str(caught.value)


# -- through an outbound proxy ---------------------------------------------------------------------

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Tunnel:
    """An HTTP proxy: what it answers to CONNECT, and then a pipe."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        if self.answer == ESTABLISHED:
            port = int(self.asked[-1].split()[1].rpartition(b":")[2])
            there, back = await asyncio.open_connection(HOST, port)
            await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)
        writer.close()


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
    target.close()


@pytest.fixture
async def tunnel() -> AsyncIterator[Callable[[bytes], Awaitable[Tunnel]]]:
    servers: list[asyncio.Server] = []

    async def start(answer: bytes) -> Tunnel:
        through = Tunnel(answer)
        servers.append(await asyncio.start_server(through.serve, HOST, 0))
        through.url = f"http://{HOST}:{servers[-1].sockets[0].getsockname()[1]}"
        return through

    yield start
    for each in servers:
        each.close()
        await each.wait_closed()


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_a_backend_is_reached_through_an_outbound_proxy(
    stage: Any, tunnel: Any, ca_file: Path, secure: bool
) -> None:
    back = await stage(replies(whole(b"x")), tls=server(CA.issue_cert(HOST)) if secure else None)
    through = await tunnel(ESTABLISHED)
    assert await status(back, ca_file=ca_file if secure else None, proxy=through.url) == 200
    assert through.asked == [f"CONNECT {HOST}:{back.port} HTTP/1.1\r\nHost: {HOST}:{back.port}\r\n\r\n".encode()]
    assert back.asked[0].header("host") == f"{HOST}:{back.port}"


@pytest.mark.parametrize(
    "answer, said",
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", "502 Bad Gateway"),
        (b"", "the outbound proxy closed the connection"),
        (b"x" * 20_000, "the outbound proxy's answer is too long"),
    ],
)
async def test_an_outbound_proxy_that_does_not_connect_makes_the_backend_unreachable(
    stage: Any, tunnel: Any, answer: bytes, said: str
) -> None:
    back = await stage(replies(whole(b"x")))
    through = await tunnel(answer)
    with pytest.raises(UpstreamFault) as caught:
        await status(back, proxy=through.url)
    assert caught.value.outcome == "unreachable"
    assert said in caught.value.message
    assert not back.asked


async def test_an_outbound_proxy_that_is_not_there_is_named(stage: Any) -> None:
    back = await stage(replies(whole(b"x")))
    with pytest.raises(UpstreamFault) as caught:
        await status(back, proxy="http://127.0.0.1:1")
    assert caught.value.outcome == "unreachable"
    assert "the outbound proxy 127.0.0.1:1: Connection refused" in caught.value.message
