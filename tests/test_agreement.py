"""One definition, held to the same stream at three places: where the backend wrote it, in the proxy, and at the client.

The simulated backend logs when it really wrote each piece; the same meter reads that log, the proxy's bytes and the
load generator's. So for every stamp plan <= proxy <= load generator; tokens are the same, and arrivals are equal up
to reads that were merged.
"""

import json
import time
from collections.abc import AsyncIterator
from itertools import accumulate

import pytest

from loadgen.client import Client, Query
from loadgen.simulator import Simulator
from proxy.meter import Meter, Reading
from proxy.settings import Settings
from tests.stage import Proxy

SLACK = 0.001  # a write is noted after it was made: its reader may be there first


@pytest.fixture(params=["diffusion", "autoregressive"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Simulator]:
    async with Simulator(profile=request.param) as simulator:
        yield simulator


def query(tokens: int, **more: object) -> Query:
    messages = [{"role": "user", "content": "Name three uses of a gauge."}]
    body = {"model": "m", "messages": messages, "max_tokens": tokens, "stream": True} | more
    return Query(body=json.dumps(body).encode(), model="m", replace=bool(more.get("diffusing")))


async def thrice(backend: Simulator, *queries: Query) -> list[tuple[Reading, Reading, Reading]]:
    """(plan, proxy, client) of each query; `started_at` is on the one monotonic clock of this process."""
    sim = {"url": backend.url, "decoding": "diffusion", "dialect": "tutorial"}
    proxy = await Proxy(Settings(listen={"drain": 0.3}, backends={"sim": sim}), wall=time.monotonic).start()
    client = Client(f"http://127.0.0.1:{proxy.port}/v1", keep_text=True)
    client.wall = 0.0
    try:
        out = []
        for number, each in enumerate(queries):
            theirs = await client.ask(each, f"{number:032x}")
            ours = await proxy.records.reading(number)
            out.append((planned(backend.log[f"{number:032x}"], each), ours, theirs))
        return out
    finally:
        await client.close()
        await proxy.stop()


def planned(writes: list[tuple[float, bytes]], query: Query) -> Reading:
    meter = Meter(received=0.0, replace=query.replace, keep_text=True)
    meter.head(writes[0][0], 200, "text/event-stream")
    for at, data in writes:
        meter.feed(data, at)
    return meter.finish(writes[-1][0], id="plan", started_at=0.0, ended=writes[-1][0])


def reached(reading: Reading, characters: int) -> float:
    """When so many characters had come, on the common clock."""
    steps = zip(reading.arrivals.column("at"), accumulate(reading.arrivals.column("answer")), strict=True)
    return reading.started_at + next(at for at, seen in steps if seen >= characters)


def moment(reading: Reading, name: str) -> float:
    value = getattr(reading, name, None)
    value = getattr(reading.stability, name) if value is None else value
    assert value is not None, name
    return reading.started_at + value


def agree(plan: Reading, proxy: Reading, client: Reading) -> None:
    assert plan.outcome == proxy.outcome == client.outcome == "ok"
    assert plan.tokens.completion == proxy.tokens.completion
    for name in ("ttft", "ttfa", "t50", "t90", "t100", "first_stable"):
        assert moment(plan, name) <= moment(proxy, name) + SLACK, name
        assert moment(proxy, name) <= moment(client, name) + SLACK, name
    assert proxy.started_at + proxy.done <= client.started_at + client.done + SLACK
    assert client.started_at <= proxy.started_at + SLACK  # the request goes the other way
    for column in ("answer", "reasoning", "tool"):
        sums = {sum(reading.arrivals.column(column)) for reading in (plan, proxy, client)}
        assert len(sums) == 1, column


async def test_appended_streams(backend: Simulator) -> None:
    for plan, proxy, client in await thrice(backend, *(query(tokens) for tokens in (1, 24, 64))):
        agree(plan, proxy, client)
        for characters in accumulate(int(size) for size in plan.arrivals.column("answer")):
            assert reached(plan, characters) <= reached(proxy, characters) + SLACK
            assert reached(proxy, characters) <= reached(client, characters) + SLACK


async def test_snapshots() -> None:
    async with Simulator(profile="diffusion") as backend:
        for plan, proxy, client in await thrice(backend, query(48, diffusing=True, num_denoising_steps=6)):
            agree(plan, proxy, client)
            assert plan.text == client.text and plan.stability.churn == pytest.approx(proxy.stability.churn)
            assert proxy.stability.churn > 0


async def test_usage_that_only_the_proxy_asked_for_is_in_its_reading_and_not_in_the_client_s(
    backend: Simulator,
) -> None:
    (_, proxy, client), *_ = await thrice(backend, query(16))
    assert proxy.tokens.completion and client.tokens.completion is None
    (_, proxy, client), *_ = await thrice(backend, query(16, stream_options={"include_usage": True}))
    assert proxy.tokens == client.tokens and proxy.tokens.completion
