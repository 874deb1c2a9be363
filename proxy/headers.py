"""What may cross, both ways.

1. Hop-by-hop headers (RFC 9110, 7.6.1) and those that `Connection` names belong to one connection.
2. The client's credentials are for the proxy. They go on only where a backend's key is `passthrough`.
3. The length and the framing are the sender's own. A backend is asked for `identity`: a compressed stream
   can't be read without delay, and one that is compressed all the same passes with its label.
4. Everything else crosses as it came: rate limits, request ids, retry hints, vendors' own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

Header = tuple[bytes, bytes]

_HOP = (
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
)
_LOCAL = (b"host", b"content-length", b"accept-encoding", b"expect", b"cookie")  # of a request, for us alone
_CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
_USUAL = frozenset((b"close", b"keep-alive"))
_OURS = (b"x-manometer-", b"x-diffusion-")
_IDENTITY = (b"accept-encoding", b"identity")

# The kinds of headers, and which of them cross whither.
_ANY, _CONNECTION, _NEVER, _MINE, _KEY = range(5)
_KINDS = (
    {b"connection": _CONNECTION}
    | dict.fromkeys(_HOP, _NEVER)
    | dict.fromkeys(_LOCAL, _MINE)
    | dict.fromkeys(_CREDENTIALS, _KEY)
)
_TO_BACKEND = frozenset((_ANY,))
_TO_BACKEND_WITH_KEYS = frozenset((_ANY, _KEY))
_TO_CLIENT = frozenset((_ANY, _MINE, _KEY))


@lru_cache(maxsize=1024)  # a few dozen names are all that most headers ever have
def _kind(name: bytes) -> int:
    lower = name.lower()
    return _NEVER if lower.startswith(_OURS) else _KINDS.get(lower, _ANY)


@lru_cache(maxsize=1024)
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def by_name(headers: Iterable[Header]) -> dict[str, str]:
    """As text, by lower-case name; of several with one name the last."""
    return {_lower(name): value.decode("latin-1") for name, value in headers}


def to_backend(headers: Iterable[Header], key: str | None, passthrough: bool) -> list[Header]:
    """The request headers that a backend gets. `key`: its own; `passthrough`: the client's credentials go on."""
    kept = _crossing(headers, _TO_BACKEND_WITH_KEYS if passthrough else _TO_BACKEND)
    kept.append(_IDENTITY)
    if key and not passthrough:
        kept.append((b"authorization", b"Bearer " + key.encode()))
    return kept


def crossing(headers: Iterable[Header]) -> list[Header]:
    """The response headers that a client gets, as they came. Content-Length is among them where there was one."""
    return _crossing(headers, _TO_CLIENT)


def to_client(headers: Iterable[Header]) -> list[tuple[str, str]]:
    """The same as text."""
    return [(_text(name), _text(value)) for name, value in crossing(headers)]


def _crossing(headers: Iterable[Header], kinds: frozenset[int]) -> list[Header]:
    """Those of these kinds, without what `Connection` names."""
    kept = []
    named: set[bytes] = set()
    for header in headers:
        kind = _kind(header[0])
        if kind in kinds:
            kept.append(header)
        elif kind == _CONNECTION:
            named |= {part.strip() for part in header[1].lower().split(b",")}
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
