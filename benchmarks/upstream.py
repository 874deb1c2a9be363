"""The scripted backend: says what the request's own text asks for, as cheaply as Python can.

1. The script travels in the prompt (`Script`), because every gateway passes that on untouched.
2. Whatever has no body, a gateway's look at its models or its health, is answered with the one model.
3. Timers instead of tasks, answers made of bytes that exist already, one write for each event.
4. It writes to the socket itself, not through the event loop's queue, so that the time in the text of the
   first output is the time at which that text was handed to the kernel: what a reading's TTFT is held to.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from typing import NamedTuple, cast

import uvloop

HOST = "127.0.0.1"
STAMP = b" at "  # what stands before the time in the first output's text
_SCRIPT = re.compile(rb"script (\d+) ([\d.]+) ([\d.]+) ([\d.]+)")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": *true')
_USAGE = re.compile(rb'"include_usage": *true')


class Script(NamedTuple):
    """What a request asks for: milliseconds after its arrival, and between events."""

    events: int
    head: float  # the head and the role
    first: float  # the first output
    gap: float  # between outputs; 0: as fast as they are taken

    def __str__(self) -> str:
        return f"script {self.events} {self.head:g} {self.first:g} {self.gap:g}"

    @classmethod
    def find(cls, body: bytes) -> Script:
        found = _SCRIPT.search(body)
        if found is None:
            return cls(16, 0.0, 0.0, 0.0)
        events, head, first, gap = found.groups()
        return cls(int(events), float(head), float(first), float(gap))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(rest: bytes) -> bytes:
    start = b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1764500000,"model":"m","choices":'
    return _chunk(start + rest + b"}\n\n")


def _output(text: bytes) -> bytes:
    return _event(b'[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]' % text)


_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_OPENING = _HEAD + _event(b'[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]')
_OUTPUTS = [_output(b" word%d" % i) for i in range(1024)]
_FINISH = _event(b'[{"index":0,"delta":{},"finish_reason":"stop"}]')
_DONE = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_TOKENS = b'"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}'
_ANSWER = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1764500000,"model":"m","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"One chunk."},"finish_reason":"stop"}],' + _TOKENS % (10, 20) + b"}"
)
_MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":1764500000,"owned_by":"bench"}]}'


def _json(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


_JSON = _json(_ANSWER)
_LIST = _json(_MODELS)


class Connection(asyncio.Protocol):
    """One request at a time, each answered by its script."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer = b""
        self._script = Script(0, 0, 0, 0)
        self._usage = False
        self._sent = 0
        self._due = 0.0
        self._paused = False
        self._timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._fd: int = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._script.gap == 0 and self._sent:
            self._timer = self._loop.call_soon(self._next)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if length is not None:
            if len(body) < int(length[1]):
                return
        elif b"chunked" in head.lower() and not body.endswith(b"0\r\n\r\n"):
            return
        self._buffer = b""
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        if not body:
            return self._write(_LIST)
        self._script = script = Script.find(body)
        self._sent = 0
        now = self._loop.time()
        if _STREAM.search(body):
            self._usage = bool(_USAGE.search(body))
            self._due = now + script.first / 1000
            self._later(now + script.head / 1000, self._open)
        else:
            self._later(now + script.head / 1000, self._whole)
        return None

    def _later(self, due: float, what: object) -> None:
        if due <= self._loop.time():
            self._timer = self._loop.call_soon(what)  # type: ignore[arg-type]
        else:
            self._timer = self._loop.call_at(due, what)  # type: ignore[arg-type]

    def _whole(self) -> None:
        self._write(_JSON)

    def _open(self) -> None:
        self._write(_OPENING)
        self._later(self._due, self._next)

    def _next(self) -> None:
        """One output, and a timer for the next; the stream's end comes with the last."""
        if self._paused:
            return
        script, sent = self._script, self._sent
        self._sent = sent + 1
        if sent == 0:
            self._write(_output(STAMP + b"%.6f" % time.time()))
        else:
            self._write(_OUTPUTS[sent % 1024])
        if self._sent >= script.events:
            self._close()
        elif script.gap:
            self._due += script.gap / 1000
            self._timer = self._loop.call_at(self._due, self._next)
        else:
            self._timer = self._loop.call_soon(self._next)

    def _close(self) -> None:
        number = self._sent
        self._sent = 0
        usage = _event(b"[]," + _TOKENS % (number, number + 10)) if self._usage else b""
        self._write(_FINISH + usage + _DONE)

    def _write(self, data: bytes) -> None:
        if not self._transport.get_write_buffer_size() and not self._transport.is_closing():
            try:
                taken = os.write(self._fd, data)
            except BlockingIOError:
                taken = 0
            except OSError:
                return self._transport.abort()
            data = data[taken:]
        if data:
            self._transport.write(data)
        return None


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(loop), HOST, port, backlog=8192)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
