"""Where a backend is: the parts of its URL, and how to open a connection to it.

Name look-up, happy eyeballs (RFC 8305), TLS with verification, a client certificate, and an outbound proxy
(HTTP CONNECT) live here, so that `upstream` only sees a transport that is ready.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

_PORTS = {"http": 80, "https": 443}
_HEAD_LIMIT = 16 * 1024
_PLAIN = re.compile(r"[!-~]+")  # what may stand in a request's head


@dataclass(frozen=True, slots=True)
class Origin:
    """One server. `prefix` is the path of its base URL: it stands for a client's `/v1`."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    tls: ssl.SSLContext | None = field(default=None, compare=False, repr=False)
    proxy: Origin | None = None

    @classmethod
    def of(
        cls,
        url: str,
        *,
        ca_file: Path | None = None,
        client_cert: Path | None = None,
        proxy: str | None = None,
        verify: bool = True,
    ) -> Origin:
        """Raises ValueError, in one line that starts with the argument's name."""
        scheme, host, port, prefix = _parts("url", url)
        through = cls(*_parts("proxy", proxy)) if proxy else None
        if through is not None and through.scheme != "http":
            raise ValueError("proxy: only http:// proxies (with CONNECT) are spoken to")
        return cls(
            scheme, host, port, prefix, _context(ca_file, client_cert, verify) if scheme == "https" else None, through
        )

    @property
    def host_header(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}").encode("ascii")

    def target(self, path: str) -> bytes:
        """The request target for a client's path, which starts with /v1: never doubled, never re-encoded."""
        if self.prefix and (path == "/v1" or path.startswith(("/v1/", "/v1?"))):
            path = self.prefix + path[3:]
        return path.encode("utf-8", "surrogateescape")

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """Open a connection and hand it to a new protocol. Raises OSError and ssl.SSLError as they come."""
        loop = asyncio.get_running_loop()
        if self.proxy is not None:
            return await _through(self.proxy, self, factory)
        sock = await _dial(loop, self.host, self.port)
        try:
            _, protocol = await loop.create_connection(
                factory, sock=sock, ssl=self.tls, server_hostname=self.host if self.tls else None
            )
        except BaseException:
            sock.close()
            raise
        return protocol


def _parts(field: str, url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of a base URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{field}: not an http:// or https:// URL: {error}") from None
    if parts.query or parts.fragment or "@" in parts.netloc:  # it may hold a secret, and is not shown
        raise ValueError(f"{field}: must have no query, fragment, user or password (a backend's key goes under `key`)")
    if parts.scheme not in _PORTS or not host or not _PLAIN.fullmatch(url):
        raise ValueError(f"{field}: not an http:// or https:// URL with a host, in plain ASCII: {url!r}")
    return parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/")


async def _dial(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    sock = await start_connection(infos, happy_eyeballs_delay=0.25, interleave=1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _context(ca_file: Path | None, client_cert: Path | None, verify: bool) -> ssl.SSLContext:
    field, path = "ca_file", ca_file
    try:
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        if client_cert:
            field, path = "client_cert", client_cert
            context.load_cert_chain(str(client_cert))
    except OSError as error:  # ssl's own errors are among them
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"{field}: {path} cannot be used: {why or 'it holds no PEM certificate'}") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Tunnel(asyncio.Protocol):
    """The start of a connection through a proxy: its answer to CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open: asyncio.Future[None] = loop.create_future()
        self.transport: asyncio.Transport | None = None
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.open.done():
            return
        if b"\r\n\r\n" in self._head:
            status = self._head.split(b"\r\n", 1)[0].decode("latin-1")
            if status[9:12] == "200":
                self.open.set_result(None)
            else:
                self.open.set_exception(ConnectionError(f"the outbound proxy answered {status[9:60]!r}"))
        elif len(self._head) > _HEAD_LIMIT:
            self.open.set_exception(ConnectionError("the outbound proxy's answer is too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open.done():
            self.open.set_exception(ConnectionError("the outbound proxy closed the connection"))


async def _through(proxy: Origin, origin: Origin, factory: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
    loop = asyncio.get_running_loop()
    try:
        tunnel = cast(_Tunnel, await proxy.connect(lambda: _Tunnel(loop)))
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise ConnectionError(f"the outbound proxy {proxy.host}:{proxy.port}: {why}") from error
    assert tunnel.transport is not None
    transport: asyncio.Transport = tunnel.transport
    try:
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        transport.write(f"CONNECT {host}:{origin.port} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n\r\n".encode())
        await tunnel.open
        if transport.is_closing():
            raise ConnectionError("the outbound proxy closed the connection")
        protocol = factory()
        if origin.tls is None:
            transport.set_protocol(protocol)
        else:
            upgraded = await loop.start_tls(transport, protocol, origin.tls, server_hostname=origin.host)
            transport = cast(asyncio.Transport, upgraded)
        protocol.connection_made(transport)
    except BaseException:
        transport.abort()
        raise
    return protocol
