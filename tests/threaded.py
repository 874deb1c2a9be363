"""Servers in a thread of their own, for commands that run their own event loop: scripted ones and simulated ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from loadgen.simulator import Simulator

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(payload: Any) -> bytes:
    return chunk(b"data: " + orjson.dumps(payload) + b"\n\n")


def said(text: str | None = None, model: str = "m", **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": None} | fields
    return event({"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [choice]})


def usage(completion: int, prompt: int = 10) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return event({"choices": [], "usage": counts})


ROLE = said(delta={"role": "assistant", "content": ""})
END = said(finish_reason="stop")
DONE = chunk(b"data: [DONE]\n\n")

Act = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request at a scripted server: its body, and the true times of what was written."""

    def __init__(self, writer: asyncio.StreamWriter, body: dict[str, Any], headers: bytes) -> None:
        self.writer = writer
        self.body = body
        self.headers = headers
        self.sent: list[float] = []

    def write(self, *parts: bytes) -> None:
        self.sent.append(time.monotonic())
        self.writer.write(b"".join(parts))

    async def at(self, start: float, offset: float) -> None:
        await asyncio.sleep(max(0.0, start + offset - time.monotonic()))


class Scripted:
    """Lists its models and answers each question by `act`."""

    def __init__(self, act: Act, models: tuple[str, ...] | None = ("m",)) -> None:
        self._act = act
        self._models = models
        self.connections = 0
        self.exchanges: list[Exchange] = []
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def stop(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        asked = False
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    self._list(writer)
                    continue
                self.connections += not asked  # those that only asked for the models do not count
                asked = True
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                exchange = Exchange(writer, orjson.loads(await reader.readexactly(length)), head)
                self.exchanges.append(exchange)
                await self._act(exchange)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def _list(self, writer: asyncio.StreamWriter) -> None:
        body = orjson.dumps({"data": [{"id": name} for name in self._models or ()]})
        status = b"200 OK" if self._models else b"404 Not Found"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))


@contextmanager
def _running(
    start: Callable[[], Coroutine[Any, Any, Any]], stop: Callable[[], Coroutine[Any, Any, None]]
) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        asyncio.run_coroutine_threadsafe(_settle(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _settle() -> None:
    """Lets what was cancelled or closed end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def scripted(act: Act, models: tuple[str, ...] | None = ("m",)) -> Iterator[Scripted]:
    server = Scripted(act, models)
    with _running(server.start, server.stop):
        yield server


@contextmanager
def simulated(**options: Any) -> Iterator[Simulator]:
    backend = Simulator(**options)
    with _running(backend.start, backend.stop):
        yield backend


def stream(*, blocks: int = 8, size: int = 8, first: float = 0.02, gap: float = 0.01, reported: bool = True) -> Act:
    """Blocks of tokens of four characters each, at true times that the exchange keeps."""

    async def act(exchange: Exchange) -> None:
        start = time.monotonic()
        exchange.writer.write(HEAD + ROLE)
        for i in range(blocks):
            await exchange.at(start, first + i * gap)
            exchange.write(said("abc " * size))
        exchange.writer.write(END + (usage(blocks * size) if reported else b"") + DONE + LAST)

    return act


def at_once(*parts: bytes) -> Act:
    async def act(exchange: Exchange) -> None:
        exchange.write(HEAD, *parts)

    return act
