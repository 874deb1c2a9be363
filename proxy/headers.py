"""What may cross, both ways.

1. Hop-by-hop headers (RFC 9110, 7.6.1) and those that `Connection` names belong to one connection.
2. The client's credentials are for the proxy. They go on only where a backend's key is `passthrough`.
3. The length and the framing are the sender's own. A backend is asked for `identity`: a compressed stream
   can't be read without delay, and one that is compressed all the same passes with its label.
4. Everything else crosses as it came: rate limits, request ids, retry hints, vendors' own.
"""

from __future__ import annotations

from collections.abc import Iterable

Header = tuple[bytes, bytes]

_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key"))
_NOT_TO_BACKEND = _HOP | {b"host", b"content-length", b"accept-encoding", b"expect", b"cookie"}
_NOT_TO_BACKEND_BUT_KEYS = _NOT_TO_BACKEND | _CREDENTIALS
_USUAL = frozenset((b"close", b"keep-alive"))
_OURS = (b"x-manometer-", b"x-diffusion-")
_IDENTITY = (b"accept-encoding", b"identity")


def to_backend(headers: Iterable[Header], key: str | None, passthrough: bool) -> list[Header]:
    """The request headers that a backend gets. `key`: its own; `passthrough`: the client's credentials go on."""
    kept = _without(headers, _NOT_TO_BACKEND if passthrough else _NOT_TO_BACKEND_BUT_KEYS)
    kept.append(_IDENTITY)
    if key and not passthrough:
        kept.append((b"authorization", b"Bearer " + key.encode()))
    return kept


def crossing(headers: Iterable[Header]) -> list[Header]:
    """The response headers that a client gets, as they came. Content-Length is among them where there was one."""
    return _without(headers, _HOP)


def to_client(headers: Iterable[Header]) -> list[tuple[str, str]]:
    """The same as text."""
    return [(_text(name), _text(value)) for name, value in crossing(headers)]


def _without(headers: Iterable[Header], barred: frozenset[bytes]) -> list[Header]:
    """Those that may cross: not barred, not ours, not named in `Connection`."""
    kept = []
    named: set[bytes] = set()
    for header in headers:
        lower = header[0].lower()
        if lower not in barred:
            if not lower.startswith(_OURS):
                kept.append(header)
        elif lower == b"connection":
            named |= {part.strip() for part in header[1].lower().split(b",")}
    named -= barred
    return [header for header in kept if header[0].lower() not in named] if named - _USUAL else kept


def value_of(headers: Iterable[Header], name: bytes) -> str:
    """The first value of a header; empty when it is not there. `name` in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return _text(value)
    return ""


def credential(headers: Iterable[Header]) -> str:
    """The key that a client shows: a bearer token, `x-api-key` or `api-key`. Empty: none."""
    shown = value_of(headers, b"authorization")
    scheme, _, token = shown.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return value_of(headers, b"x-api-key") or value_of(headers, b"api-key")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
