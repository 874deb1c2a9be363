"""The client against scripted servers: what it measures, how it fails, and that it uses its connections again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any

import orjson
import pytest

from loadgen.client import Client, Query
from loadgen.decoding import Diffusion
from loadgen.simulator import Simulator
from proxy.meter.cost import Book, Price
from proxy.upstream import Timeouts

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
FAST = Diffusion(prefill=0.0, pass_time=0.001, position_time=0.0, steps=4, width=16)

Act = Callable[[asyncio.StreamWriter, int], Awaitable[None]]


def said(text: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": None} | fields
    return event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def event(payload: Any) -> bytes:
    return chunk(b"data: " + orjson.dumps(payload) + b"\n\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def usage(tokens: int) -> bytes:
    return event(
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}}
    )


DONE = chunk(b"data: [DONE]\n\n")
END = said(finish_reason="stop")


class Scripted:
    """A server that reads whole requests and lets a script answer them; it counts its connections."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.connections = 0
        self.requests: list[bytes] = []

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.requests.append(head + await reader.readexactly(length))
                await self._act(writer, len(self.requests))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def start(act: Act, **options: Any) -> tuple[Scripted, Client]:
            scripted = await stack.enter_async_context(Scripted(act))
            client = Client(scripted.url, **options)
            stack.push_async_callback(client.close)
            return scripted, client

        yield start


def query(**fields: Any) -> Query:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    return Query(body=orjson.dumps(body | fields), model="m")


def says(*parts: bytes) -> Act:
    async def act(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(b"".join(parts))

    return act


async def test_eight_bursts_of_eight_read_as_the_servers_own_decode_rate(server: Any) -> None:
    """(64 - 8) tokens in 7 gaps of 20 ms are 400 tokens/s. The field's usual formula would say 450."""

    async def act(writer: asyncio.StreamWriter, number: int) -> None:
        loop = asyncio.get_running_loop()
        writer.write(HEAD + said("", finish_reason=None))
        begin = loop.time() + 0.02
        for i in range(8):
            await asyncio.sleep(begin + i * 0.02 - loop.time())
            sent.append(loop.time())
            writer.write(said("12345678" * 4))
        writer.write(END + usage(64) + DONE + LAST)

    sent: list[float] = []
    _, client = await server(act)
    reading = await client.ask(query(), "x")
    truth = 56 / (sent[-1] - sent[0])
    assert reading.decode_rate == pytest.approx(truth, rel=0.05)
    assert reading.tpot is not None and 1 / reading.tpot > 1.1 * truth
    assert reading.bursts == pytest.approx([8.0] * 8)
    assert reading.outcome == "ok"


async def test_an_answer_in_one_burst_has_no_decode_rate_and_says_why(server: Any) -> None:
    _, client = await server(says(HEAD, said("all of it"), END, usage(64), DONE, LAST))
    reading = await client.ask(query(), "x")
    assert reading.decode_rate is None
    assert reading.decode_rate_reason == "single_burst"
    assert reading.e2e_rate is not None and reading.e2e_rate > 0


async def test_a_role_event_is_no_first_token(server: Any) -> None:
    async def act(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(HEAD + said("", finish_reason=None))
        await asyncio.sleep(0.05)
        writer.write(said("text") + END + usage(1) + DONE + LAST)

    _, client = await server(act)
    reading = await client.ask(query(), "x")
    assert reading.ttft is not None and reading.ttfb is not None
    assert reading.ttft - reading.ttfb > 0.04


async def test_an_error_inside_the_stream_is_a_failure_with_its_tokens_apart(server: Any) -> None:
    broken = event({"error": {"message": "out of memory", "type": "server_error"}})
    _, client = await server(says(HEAD, said("par"), broken, DONE, LAST))
    reading = await client.ask(query(), "x")
    assert reading.outcome == "backend_error"
    assert reading.fault is not None and reading.fault.message == "out of memory"
    assert len(reading.arrivals) == 1


async def test_a_line_separator_inside_the_text_is_text(server: Any) -> None:
    raw = "data: " + '{"choices":[{"index":0,"delta":{"content":"a\u2028b\u2029c"},"finish_reason":"stop"}]}' + "\n\n"
    _, client = await server(says(HEAD, chunk(raw.encode()), DONE, LAST), keep_text=True)
    reading = await client.ask(query(), "x")
    assert (reading.outcome, reading.text) == ("ok", "a\u2028b\u2029c")


async def test_a_stream_cut_half_way_is_truncated(server: Any) -> None:
    async def act(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(HEAD + said("half"))
        await writer.drain()
        writer.close()

    _, client = await server(act)
    assert (await client.ask(query(), "x")).outcome == "truncated"


async def test_without_usage_the_tokens_are_estimates_and_kept_apart(server: Any) -> None:
    _, client = await server(says(HEAD, said("12345678"), END, DONE, LAST))
    reading = await client.ask(query(), "x")
    assert (reading.tokens.completion, reading.usage_source, reading.estimated_completion) == (None, "none", 2)


async def test_forty_requests_at_concurrency_four_use_four_connections(server: Any) -> None:
    scripted, client = await server(says(HEAD, said("x"), END, usage(1), DONE, LAST))

    async def one(i: int) -> None:
        for n in range(10):
            assert (await client.ask(query(), f"{i}-{n}")).outcome == "ok"

    await asyncio.gather(*map(one, range(4)))
    assert (scripted.connections, client.connects, len(scripted.requests)) == (4, 4, 40)


async def test_the_first_connection_is_paid_apart_from_the_first_token(server: Any) -> None:
    _, client = await server(says(HEAD, said("x"), END, usage(1), DONE, LAST))
    first, second = await client.ask(query(), "1"), await client.ask(query(), "2")
    assert first.connect is not None and first.connect > 0
    assert second.connect == 0.0
    assert first.sent == 0.0


async def test_a_server_that_does_not_end_its_stream_is_not_waited_for(server: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("loadgen.client._DRAIN", 0.05)
    _, client = await server(says(HEAD, said("x"), END, usage(1), DONE))  # no last chunk
    reading = await asyncio.wait_for(client.ask(query(), "x"), 2)
    assert reading.outcome == "ok"
    assert reading.e2e < 0.05  # it ended with [DONE]


@pytest.mark.parametrize(
    ("parts", "timeouts", "outcome"),
    [
        ((), Timeouts(first_output=0.1), "timeout_first_output"),
        ((HEAD,), Timeouts(first_output=0.1), "timeout_first_output"),
        ((HEAD, said("x")), Timeouts(idle=0.1), "timeout_idle"),
        ((HEAD, said("x")), Timeouts(total=0.1), "timeout_total"),
    ],
)
async def test_a_stall_ends_at_its_limit(server: Any, parts: tuple[bytes, ...], timeouts: Any, outcome: str) -> None:
    _, client = await server(says(*parts), timeouts=timeouts)
    reading = await asyncio.wait_for(client.ask(query(), "x"), 2)
    assert reading.outcome == outcome
    assert reading.e2e >= 0.1


async def test_a_server_that_is_not_there_is_a_reading_not_an_exception() -> None:
    client = Client("http://127.0.0.1:1/v1")
    reading = await client.ask(query(), "x")
    assert (reading.outcome, reading.status, reading.sent) == ("unreachable", None, None)
    assert reading.fault is not None and "127.0.0.1:1" in reading.fault.message
    await client.close()


async def test_leaving_ends_every_reading_where_it_stands(server: Any) -> None:
    _, client = await server(says(HEAD, said("x")))
    asked = [asyncio.create_task(client.ask(query(), f"{i}")) for i in range(3)]
    await asyncio.sleep(0.1)
    assert client.live == 3
    client.leave()
    readings = await asyncio.gather(*asked)
    assert [reading.outcome for reading in readings] == ["client_gone"] * 3
    assert [len(reading.arrivals) for reading in readings] == [1] * 3
    assert client.live == 0


async def test_a_cancelled_question_closes_its_connection(server: Any) -> None:
    _, client = await server(says(HEAD, said("x")))
    asked = asyncio.create_task(client.ask(query(), "x"))
    await asyncio.sleep(0.05)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (client.live, client.pool.open) == (0, 0)


async def test_what_goes_out_is_the_body_with_the_key_and_an_id(server: Any) -> None:
    scripted, client = await server(
        says(HEAD, said("x"), END, DONE, LAST), key="sk-secret", headers=[(b"x-simulate", b"none")]
    )
    asked = query(max_tokens=7)
    await client.ask(asked, "load-0-1")
    head, _, body = scripted.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/chat/completions HTTP/1.1"
    assert {b"authorization: Bearer sk-secret", b"x-request-id: load-0-1", b"x-simulate: none"} <= set(lines)
    assert body == asked.body


@pytest.mark.parametrize(
    ("headers", "id"),
    [
        (b"", "mine"),
        (b"\r\nX-Request-Id: req-of-backend", "req-of-backend"),
        (b"\r\nx-request-id: req-of-backend\r\nx-manometer-id: of-proxy", "of-proxy"),
    ],
)
async def test_a_reading_has_the_id_by_which_the_other_side_knows_it(server: Any, headers: bytes, id: str) -> None:
    head = HEAD.replace(b"\r\n\r\n", headers + b"\r\n\r\n")
    _, client = await server(says(head, said("x"), END, DONE, LAST))
    assert (await client.ask(query(), "mine")).id == id


async def test_behind_schedule_shows_as_intended() -> None:
    async with Simulator(profile=FAST) as backend:
        client = Client(backend.url)
        now = asyncio.get_running_loop().time()
        late = await client.ask(query(), "late", intended=now - 2.0)
        free = await client.ask(query(), "free")
        await client.close()
    assert late.intended is not None and -2.5 < late.intended <= -2.0
    assert free.intended is None


async def test_an_answer_is_paid_at_the_price_of_its_model() -> None:
    price = Price(model="m", input=Decimal(1), output=Decimal(4), cached_input=Decimal("0.1"))
    async with Simulator(profile=FAST) as backend:
        client = Client(backend.url, prices=Book([price]))
        reading = await client.ask(query(stream_options={"include_usage": True}, max_tokens=20), "x")
        await client.close()
    assert reading.tokens.prompt == 1 and reading.tokens.completion == 20
    assert reading.cost == Decimal("0.000081")


async def test_a_json_answer_is_one_arrival_at_its_end() -> None:
    async with Simulator(profile=FAST) as backend:
        client = Client(backend.url, keep_text=True)
        asked = query(stream=False, max_tokens=20)
        reading = await client.ask(Query(body=asked.body, model="m", stream=False), "x")
        await client.close()
    assert (reading.outcome, reading.streamed, len(reading.arrivals)) == ("ok", False, 1)
    assert reading.ttft == reading.e2e
    assert reading.text


async def test_snapshots_are_read_as_replacing_each_other() -> None:
    async with Simulator(profile=FAST) as backend:
        client = Client(backend.url, keep_text=True)
        asked = query(diffusing=True, max_tokens=40, reasoning_effort="instant")
        reading = await client.ask(Query(body=asked.body, model="m", replace=True), "x")
        await client.close()
        plan = backend.asked["x"].script.plan
    assert plan is not None and reading.text == plan.text
    assert reading.stability.churn > 0
