"""The simulated backend on a real socket: what it plays, when, and how it behaves when it is full."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import orjson
import pytest

from loadgen.client import Client, Query
from loadgen.decoding import Autoregressive, Diffusion
from loadgen.script import Sharing
from loadgen.simulator import Simulator
from proxy.upstream import Timeouts

Start = Callable[..., Any]
QUICK = Diffusion(prefill=0.02, pass_time=0.002, position_time=0.0, steps=5, width=16, sharing=Sharing())


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def started(**options: Any) -> tuple[Simulator, Client]:
            backend = await stack.enter_async_context(Simulator(**options))
            client = Client(backend.url, keep_text=True, timeouts=Timeouts(first_output=5, idle=5, total=10))
            stack.push_async_callback(client.close)
            return backend, client

        yield started


def query(api: str = "/v1/chat/completions", simulate: str = "", **fields: Any) -> Query:
    asked = {"model": "mercury-2.5", "stream": True, "stream_options": {"include_usage": True}}
    asked |= {"messages": [{"role": "user", "content": "Tell me"}], "reasoning_effort": "instant"}
    headers = ((b"x-simulate", simulate.encode()),) if simulate else ()
    body = asked | fields
    return Query(body=orjson.dumps(body), model="mercury-2.5", path=api, headers=headers, stream=bool(body["stream"]))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - the simulator has no event for it
            await asyncio.sleep(0.005)


async def test_what_the_client_reads_is_what_the_simulator_wrote_and_never_earlier(start: Start) -> None:
    backend, client = await start(profile=QUICK)
    reading = await client.ask(query(max_tokens=64, ignore_eos=True), "one")
    plan = backend.asked["one"].script.plan
    writes = backend.log["one"]
    received = backend.asked["one"].at
    assert reading.id == "one"
    assert (reading.outcome, reading.text) == ("ok", plan.text)
    assert reading.tokens.completion == plan.counts.completion == 64
    outputs = [at for at, _ in writes[1:]]  # the first write goes with the head
    assert len(outputs) == 4 == len(plan.says)
    ends = list(itertools.accumulate(len(say.text) for say in plan.says))
    for at, say in zip(outputs, plan.says, strict=True):
        assert at >= received + say.at - 0.001  # never early, but for half a tick of the timer
    read = list(itertools.accumulate(arrival.answer for arrival in reading.arrivals))
    assert set(read) <= set(ends) and read[-1] == ends[-1]  # equal up to writes that were read together
    for arrival, end in zip(reading.arrivals, read, strict=True):
        assert arrival.at >= outputs[ends.index(end)] - received


async def test_a_write_holds_the_whole_script(start: Start) -> None:
    backend, client = await start(profile=QUICK)
    await client.ask(query(max_tokens=40, ignore_eos=True), "one")
    script = backend.asked["one"].script
    assert b"".join(data for _, data in backend.log["one"]) == b"".join(step.data for step in script.steps)


@pytest.mark.parametrize(
    ("fault", "outcome", "status", "outputs"),
    [
        ("error=503", "backend_error", 503, 0),
        ("429", "backend_error", 429, 0),
        ("cut=2", "truncated", 200, 2),
        ("reset=1", "truncated", 200, 1),
        ("error_event=1", "backend_error", 200, 1),
        ("html", "bad_stream", 200, 0),
        ("truncate", "truncated", 200, 4),
        ("no_done", "ok", 200, 4),
        ("no_usage", "ok", 200, 4),
        ("empty", "empty", 200, 0),
        ("drop", "backend_error", None, 0),
    ],
)
async def test_a_fault_on_the_wire_reads_as_what_it_is(
    start: Start, fault: str, outcome: str, status: int | None, outputs: int
) -> None:
    _, client = await start(profile=QUICK)
    reading = await client.ask(query(simulate=fault, max_tokens=64, ignore_eos=True), "x")
    assert (reading.outcome, reading.status) == (outcome, status)
    assert sum(arrival.events for arrival in reading.arrivals) == outputs


async def test_a_cut_json_answer_is_truncated(start: Start) -> None:
    _, client = await start(profile=QUICK)
    reading = await client.ask(query(simulate="cut", stream=False), "x")
    assert (reading.outcome, reading.status) == ("truncated", 200)


async def test_a_stall_holds_the_slot_until_the_client_leaves(start: Start) -> None:
    backend, client = await start(profile=QUICK, capacity=1)
    stalled = asyncio.create_task(client.ask(query(simulate="stall=1", max_tokens=64), "stalled"))
    await until(lambda: len(backend.log.get("stalled", ())) == 2)
    waiting = asyncio.create_task(client.ask(query(max_tokens=16), "waiting"))
    await asyncio.sleep(0.05)
    assert (backend.running, waiting.done()) == (1, False)
    before = time.monotonic()
    stalled.cancel()
    assert (await waiting).outcome == "ok"
    gone = backend.asked["stalled"].gone
    assert gone is not None and gone - before < 1.0
    assert backend.running == 0


async def test_beyond_the_slots_requests_wait_and_beyond_the_line_they_are_refused(start: Start) -> None:
    slow = Diffusion(prefill=0.4, pass_time=0.0, position_time=0.0, head=0.0, sharing=Sharing())
    backend, client = await start(profile=slow, capacity=2, queue=3)
    readings = await asyncio.gather(*(client.ask(query(max_tokens=32), f"r{i}") for i in range(8)))
    statuses = [reading.status for reading in readings]
    assert (statuses.count(200), statuses.count(429)) == (5, 3)
    assert backend.most_running == 2
    served = sorted((log[0][0], log[-1][0]) for r in readings if r.status == 200 and (log := backend.log[r.id]))
    assert served[2][0] >= min(end for _, end in served)  # the third waited for one of the first two to end


async def test_the_refusal_of_a_full_backend_says_when_to_come_back(start: Start) -> None:
    backend, _ = await start(profile=QUICK, capacity=1, queue=0)
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
        async with (
            session.post(f"{backend.url}/chat/completions", json=body) as first,
            session.post(f"{backend.url}/chat/completions", json=body) as second,
        ):
            assert (first.status, second.status) == (200, 429)
            assert second.headers["Retry-After"] == "1"
            assert (await second.json())["error"]["code"] == "rate_limit_reached"


async def test_a_shared_machine_slows_each_request_by_the_formula(start: Start) -> None:
    profile = Diffusion(prefill=0.0, steps=10, pass_time=0.005, position_time=0.0, width=64, sharing=Sharing(0.5, 0.0))
    backend, client = await start(profile=profile)

    async def wall(n: int) -> float:
        ask = query(max_tokens=128, ignore_eos=True)
        readings = await asyncio.gather(*(client.ask(ask, f"{n}-{i}") for i in range(n)))
        return max(reading.e2e for reading in readings)

    alone, together = await wall(1), await wall(5)
    assert alone == pytest.approx(0.1, rel=0.3)
    assert together / alone == pytest.approx(profile.sharing.slowdown(5), rel=0.3)
    assert backend.speedup(5) == pytest.approx(5 / 3)


async def test_many_streams_at_once_use_no_task_each_and_all_end(start: Start) -> None:
    backend, client = await start(profile=Autoregressive(token_time=0.005, prefill=0.02), capacity=300)
    readings = await asyncio.gather(*(client.ask(query(max_tokens=20, ignore_eos=True), f"{i}") for i in range(200)))
    assert {reading.outcome for reading in readings} == {"ok"}
    assert sum(len(reading.arrivals) for reading in readings) <= 200 * 20
    assert all(reading.tokens.completion == 20 for reading in readings)
    assert backend.running == 0 and not backend._work._due


async def test_requests_on_one_connection_are_answered_in_turn(start: Start) -> None:
    backend, client = await start(profile=QUICK)
    for i in range(5):
        assert (await client.ask(query(max_tokens=16), f"{i}")).outcome == "ok"
    assert backend.accepted == client.connects == 1


async def test_a_body_in_chunks_and_an_expectation_are_understood(start: Start) -> None:
    backend, _ = await start(profile=QUICK)

    async def body() -> AsyncIterator[bytes]:
        yield b'{"model":"m","messages":[{"role":'
        yield b'"user","content":"x"}]}'

    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{backend.url}/chat/completions", data=body(), expect100=True) as response,
    ):
        answer = await response.json()
    assert answer["choices"][0]["message"]["content"]
    assert response.headers["x-request-id"] in backend.log


async def test_models_are_listed_with_prices_per_token(start: Start) -> None:
    backend, _ = await start(profile="diffusion")
    async with aiohttp.ClientSession() as session, session.get(f"{backend.url}/models") as response:
        row = (await response.json())["data"][0]
    assert row["id"] == "mercury-2.5"
    assert row["pricing"] == {"prompt": "0.0000002", "input_cache_reads": "0.00000002", "completion": "0.00000075"}


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (("/v1/nothing", b"{}"), 404),
        (("/v1/chat/completions", b"{"), 400),
        (("/v1/chat/completions", b"[]"), 400),
        (("/v1/chat/completions", b'{"messages":[]}'), 400),
    ],
)
async def test_what_cannot_be_read_gets_an_error_in_openai_words(start: Start, send: Any, status: int) -> None:
    backend, _ = await start(profile=QUICK)
    url = f"http://127.0.0.1:{backend.port}{send[0]}"
    async with aiohttp.ClientSession() as session, session.post(url, data=send[1]) as response:
        assert response.status == status
        assert (await response.json())["error"]["message"]


async def test_a_key_is_asked_for_where_one_is_set(start: Start) -> None:
    backend, client = await start(profile=QUICK, key="sk-right")
    assert (await client.ask(query(), "x")).status == 401
    holder = Client(backend.url, key="sk-right")
    assert (await holder.ask(query(max_tokens=16), "y")).status == 200
    await holder.close()


async def test_the_strict_profile_answers_in_its_own_words(start: Start) -> None:
    backend, _ = await start(profile="strict", capacity=1, queue=0)
    url = f"{backend.url}/chat/completions"
    asked = {"model": "exact-llada", "messages": [{"role": "user", "content": "x"}], "num_denoising_steps": 4}
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json=asked | {"stream_options": {}}) as response:
            assert response.status == 422
            assert (await response.json())["detail"][0]["type"] == "extra_forbidden"
        async with session.post(url, data=b'{"model":\n') as response:
            assert response.status == 422
            assert (await response.json())["detail"][0]["type"] == "json_invalid"
        slow = asyncio.create_task(session.post(url, json=asked | {"num_denoising_steps": 32, "target_length": 32}))
        await until(lambda: backend.running == 1)
        async with session.post(url, json=asked) as response:
            assert response.status == 429 and "Retry-After" not in response.headers
            assert await response.json() == {"detail": "server busy"}
        async with await slow as response:
            assert (await response.json())["usage"]["completion_tokens"] == 32


async def test_the_log_forgets_the_oldest(start: Start) -> None:
    backend, client = await start(profile=QUICK, keep=2)
    for i in range(3):
        await client.ask(query(max_tokens=16), f"{i}")
    assert list(backend.log) == ["1", "2"]


async def test_a_slow_reader_makes_the_writer_wait(start: Start) -> None:
    big = Diffusion(answers={"Tell me": "word " * 400_000}, most=1 << 20, steps=1, pass_time=1e-6, position_time=0.0)
    backend, _ = await start(profile=big)
    asked = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Tell me"}], "stream": True})
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", backend.port))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(asked)
        reader.sendall(head + asked)
        await until(lambda: len(backend.asked) == 1)
        await asyncio.sleep(0.5)
        written = sum(len(data) for _, data in next(iter(backend.log.values())))
        whole = sum(len(step.data) for step in next(iter(backend.asked.values())).script.steps)
        assert written < whole


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ValueError, match="'quantum' is not one of diffusion, autoregressive, strict"):
        Simulator(profile="quantum")
