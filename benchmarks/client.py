"""The raw client: as many connections as asked, each sending its request again until the time is up.

It knows of HTTP only where an answer ends, because it must cost less than what it measures. Run as a process
of its own: `client.py '{"port": …}'` prints what it saw as JSON. With `hold`, it opens all streams, says so,
and keeps them until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, cast

import uvloop
from upstream import HOST, STAMP, Script

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)  # not a gateway's llm_provider-content-length
_ID = re.compile(rb"x-manometer-id: *(\w+)", re.IGNORECASE)
_SENT = re.compile(STAMP + rb"(\d+\.\d+)")
_PATIENCE = 30.0  # seconds beyond the time that was asked


@dataclass(frozen=True, slots=True)
class Load:
    """What to do."""

    port: int
    script: Script
    connections: int = 64
    seconds: float = 2.0
    stream: bool = True
    usage: bool = True  # whether the client asks for usage itself
    spread: float = 0.0  # seconds over which the connections start
    hold: bool = False
    sources: tuple[str, ...] = (HOST,)  # where connections come from: one address has some 28,000 ports
    headers: Mapping[str, str] = field(default_factory=dict)  # that this proxy wants beside the usual ones

    def request(self) -> bytes:
        body: dict[str, Any] = {"model": "m", "stream": self.stream, "max_tokens": max(1, self.script.events)}
        if self.stream and self.usage:
            body["stream_options"] = {"include_usage": True}
        body["messages"] = [{"role": "user", "content": str(self.script)}]
        raw = json.dumps(body).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-bench\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"{head}content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw


class Answer(NamedTuple):
    """One answer that was whole. Times in seconds; `sent` is the backend's own clock, since the epoch."""

    ttft: float | None
    total: float
    id: str | None
    sent: float | None


@dataclass(slots=True)
class Outcome:
    """What was seen."""

    answers: list[Answer] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    wall: float = 0.0  # from the first request to the last answer
    cpu: float = 0.0  # of the client itself
    reads: int = 0

    def fail(self, why: str, number: int = 1) -> None:
        if number:
            self.failed[why] = self.failed.get(why, 0) + number


class Stream(asyncio.Protocol):
    """One connection: one answer at a time."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.done: asyncio.Future[Answer | str] | None = None
        self.first: asyncio.Event = asyncio.Event()
        self.reads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self) -> asyncio.Future[Answer | str]:
        self._head = self._tail = b""
        self._rest: int | None = None
        self._ttft: float | None = None
        self._id: str | None = None
        self._sent: float | None = None
        self.done = asyncio.get_running_loop().create_future()
        self._start = time.monotonic()
        if self.transport.is_closing():
            self._settle("connection lost")
        else:
            self.transport.write(self._request)
        return self.done

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self.done is None or self.done.done():
            return
        if self._ttft is None and STAMP in data and (sent := _SENT.search(data)):
            self._ttft = time.monotonic() - self._start
            self._sent = float(sent[1])
            self.first.set()
        if self._tail:
            self._tail = (self._tail + data)[-24:]
            if self._tail.endswith(b"\r\n0\r\n\r\n"):
                self._end(b"[DONE]" in self._tail)
        elif self._rest is not None:
            self._rest -= len(data)
            if self._rest <= 0:
                self._end(True)
        else:
            self._read_head(data)

    def _read_head(self, data: bytes) -> None:
        self._head += data
        head, found, body = self._head.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.transport.abort()
            self._settle(f"status {head[9:12].decode()}")
            return
        if identity := _ID.search(head):
            self._id = identity[1].decode()
        if length := _LENGTH.search(head):
            self._rest = int(length[1]) - len(body)
            if self._rest <= 0:
                self._end(True)
        else:
            self._tail = (b"\r\n" + body)[-24:]
            if self._tail.endswith(b"\r\n0\r\n\r\n"):
                self._end(True)

    def _end(self, whole: bool) -> None:
        total = time.monotonic() - self._start
        self._settle(Answer(self._ttft, total, self._id, self._sent) if whole else "no [DONE]")

    def _settle(self, result: Answer | str) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(result)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle("connection lost")


async def _connect(load: Load, number: int, request: bytes) -> Stream:
    loop = asyncio.get_running_loop()
    source = load.sources[number % len(load.sources)]
    _, stream = await loop.create_connection(
        lambda: Stream(request), HOST, load.port, local_addr=(source, 0) if source != HOST else None
    )
    return stream


async def _work(load: Load, number: int, stream: Stream, outcome: Outcome, until: float) -> None:
    if load.spread:
        await asyncio.sleep(load.spread * number / load.connections)
    while True:
        result = await stream.send()
        if isinstance(result, str):
            outcome.fail(result)
            return
        outcome.answers.append(result)
        if time.monotonic() >= until:
            return


async def run(load: Load) -> Outcome:
    """All connections at work until the time is up and their last answers are in."""
    outcome, request = Outcome(), load.request()
    try:
        streams = [await _connect(load, number, request) for number in range(load.connections)]
    except OSError:
        streams = []
        outcome.fail("no connection", load.connections)
    start, cpu = time.monotonic(), time.process_time()
    work = [_work(load, n, stream, outcome, start + load.seconds) for n, stream in enumerate(streams)]
    try:
        async with asyncio.timeout(load.seconds + _PATIENCE):
            await asyncio.gather(*work)
    except TimeoutError:
        outcome.fail("not within time", sum(stream.done is None or stream.done.cancelled() for stream in streams))
    outcome.wall, outcome.cpu = time.monotonic() - start, time.process_time() - cpu
    outcome.reads = sum(stream.reads for stream in streams)
    for stream in streams:
        stream.transport.abort()
    return outcome


async def hold(load: Load) -> Outcome:
    """Open all streams, say so when each has its first output, and keep them until standard input ends."""
    outcome, request = Outcome(), load.request()
    streams = []
    for number in range(load.connections):
        streams.append(await _connect(load, number, request))
        streams[-1].send()
        if number % 50 == 49:
            await asyncio.sleep(0.02)
    try:
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*(stream.first.wait() for stream in streams))
    except TimeoutError:
        outcome.fail("no output", sum(not stream.first.is_set() for stream in streams))
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    outcome.fail("broke", sum(stream.done is not None and stream.done.done() for stream in streams))
    outcome.reads = sum(stream.reads for stream in streams)
    for stream in streams:
        stream.transport.abort()
    return outcome


def main(text: str) -> None:
    facts = json.loads(text)
    load = Load(**facts | {"script": Script(*facts["script"]), "sources": tuple(facts["sources"])})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(hold(load) if load.hold else run(load))
    _say(json.dumps(asdict(outcome)))


def _say(text: str) -> None:
    """All of it: a single write to a pipe may take a part only."""
    left = text.encode()
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


if __name__ == "__main__":
    main(sys.argv[1])
