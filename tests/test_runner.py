"""Runs against simulated backends: they send what they say, keep warm-up apart, and always end with what they have."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from loadgen.client import Query
from loadgen.decoding import Autoregressive, Diffusion
from loadgen.runner import Load, Part, Target, interruptible, run
from loadgen.schedule import Closed, Open, Recorded
from loadgen.script import Sharing
from loadgen.simulator import Simulator
from loadgen.strain import Strain
from proxy.upstream import Timeouts

FAST = Diffusion(prefill=0.0, pass_time=0.001, position_time=0.0, steps=10, width=16, sharing=Sharing())


@dataclass(frozen=True)
class Ask:
    """The n-th question names n, so that a test sees who was asked what. At module level: workers must unpickle it."""

    tokens: int = 16
    simulate: str = ""
    every: int = 0

    def __call__(self, n: int) -> Query:
        body: dict[str, Any] = {"model": "mercury-2.5", "stream": True, "stream_options": {"include_usage": True}}
        body |= {"messages": [{"role": "user", "content": f"question {n}"}], "reasoning_effort": "instant"}
        body |= {"max_tokens": self.tokens, "ignore_eos": True}
        faulty = self.simulate and (not self.every or n % self.every == 0)
        headers = ((b"x-simulate", self.simulate.encode()),) if faulty else ()
        return Query(body=orjson.dumps(body), model="mercury-2.5", headers=headers)


def target(backend: Simulator, **options: Any) -> Target:
    return Target(url=backend.url, backend="mercury", decoding="diffusion", **options)


def asked(backend: Simulator) -> list[int]:
    bodies = (orjson.loads(request.body) for request in backend.asked.values() if request.method == "POST")
    texts = (body["messages"][0]["content"] for body in bodies)
    return sorted(int(text.split()[1]) for text in texts)


async def test_a_closed_loop_never_has_more_under_way_than_it_says() -> None:
    async with Simulator(profile=FAST, capacity=99) as backend:
        result = await run(Load(schedule=Closed(5), requests=40), target(backend), Ask())
    assert backend.most_running == 5
    assert sorted(n for n, _ in result.readings) == list(range(40)) == asked(backend)
    assert {reading.outcome for reading in result.measured} == {"ok"}
    assert {(r.backend, r.decoding, r.model) for r in result.measured} == {("mercury", "diffusion", "mercury-2.5")}
    assert all(reading.intended is None for reading in result.measured)
    assert not result.interrupted


async def test_warm_up_is_handed_over_without_waiting_and_kept_apart() -> None:
    async with Simulator(profile=FAST, capacity=99) as backend:
        result = await run(Load(schedule=Closed(4), requests=12, warmup=6), target(backend), Ask())
        starts = [backend.asked[f"load-0-{n}"].at for n in range(18)]
        ends = [backend.log[f"load-0-{n}"][-1][0] for n in range(18)]
    assert sorted(n for n, _ in result.warmup) == list(range(6))
    assert sorted(n for n, _ in result.readings) == list(range(6, 18))
    assert min(starts[6:]) < max(ends[:6])  # a measured request starts while warm-up is under way
    assert result.connections == 4


async def test_warm_up_by_time_leaves_out_what_started_in_it() -> None:
    async with Simulator(profile=FAST) as backend:
        load = Load(schedule=Closed(2), duration=0.2, warmup_time=0.1)
        result = await run(load, target(backend), Ask())
    assert result.warmup and result.readings
    border = min(reading.started_at for reading in result.measured)
    assert max(reading.started_at for _, reading in result.warmup) <= border


async def test_an_open_loop_sends_at_its_times_however_slow_the_server_is() -> None:
    slow = Autoregressive(prefill=2.0, prompt_token_time=0.0, token_time=0.0, head=0.0)
    async with Simulator(profile=slow, capacity=99) as backend:
        load = Load(schedule=Open.at(50, "constant"), requests=10)
        result = await run(load, target(backend), Ask())
        starts = sorted(request.at for request in backend.asked.values())
        answered = min(log[1][0] for log in backend.log.values())
    assert starts[-1] - starts[0] > 8 / 50  # a request is never early
    assert starts[-1] < answered  # and none waited for an answer
    assert backend.most_running == 10
    assert all(reading.intended is not None and reading.intended <= 0 for reading in result.measured)


async def test_recorded_times_need_no_other_bound() -> None:
    async with Simulator(profile=FAST) as backend:
        result = await run(Load(schedule=Recorded((7.0, 7.05, 7.1))), target(backend), Ask())
    assert [n for n, _ in sorted(result.readings)] == [0, 1, 2]


async def test_clients_of_a_ramp_come_in_one_after_another() -> None:
    slow = Autoregressive(prefill=0.6, prompt_token_time=0.0, token_time=0.0)
    async with Simulator(profile=slow, capacity=99) as backend:
        await run(Load(schedule=Closed(4, ramp=0.4), requests=4), target(backend), Ask())
        starts = sorted(request.at for request in backend.asked.values())
    assert starts[-1] - starts[0] > 0.2


async def test_failures_are_readings_like_others() -> None:
    async with Simulator(profile=FAST, capacity=99) as backend:
        load = Load(schedule=Closed(3), requests=9)
        result = await run(load, target(backend), Ask(simulate="error=500", every=3))
    outcomes = [reading.outcome for reading in result.measured]
    assert (outcomes.count("ok"), outcomes.count("backend_error")) == (6, 3)


async def test_a_server_that_is_not_there_fails_every_request_and_is_not_hammered() -> None:
    nowhere = Target(url="http://127.0.0.1:1/v1")
    result = await run(Load(schedule=Closed(2), duration=0.3), nowhere, Ask())
    assert {reading.outcome for reading in result.measured} == {"unreachable"}
    assert 2 <= len(result.readings) < 40


async def test_a_stream_that_never_ends_does_not_hold_the_run() -> None:
    """With a request limit of its own it is a timeout; without one the deadline of the run ends it."""
    async with Simulator(profile=FAST, capacity=9) as backend:
        held = target(backend, timeouts=Timeouts(idle=0.2, first_output=0.2))
        result = await run(Load(schedule=Closed(1), requests=1), held, Ask(simulate="stall=1"))
        assert [reading.outcome for reading in result.measured] == ["timeout_idle"]
        assert not result.interrupted
        before = time.monotonic()
        load = Load(schedule=Closed(1), requests=1, deadline=0.3)
        result = await run(load, target(backend), Ask(simulate="stall=1"))
        assert time.monotonic() - before < 3
    assert [reading.outcome for reading in result.measured] == ["client_gone"]
    assert len(result.measured[0].arrivals) == 1
    assert result.interrupted


@pytest.mark.parametrize("schedule", [Closed(3), Open.at(30, "constant")])
async def test_an_interrupted_run_gives_what_there_is(schedule: Any) -> None:
    async with Simulator(profile=FAST, capacity=99) as backend:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, stop.set)
        load = Load(schedule=schedule, requests=100_000)
        result = await asyncio.wait_for(run(load, target(backend), Ask(), stop=stop), 5)
    assert result.interrupted
    assert 3 < len(result.readings) < 1000
    assert [reading.outcome for reading in result.measured].count("client_gone") <= 20


async def test_ctrl_c_sets_the_event_and_the_handlers_go_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(stop.wait(), 2)
    assert signal.getsignal(signal.SIGINT) == before


async def test_readings_are_told_as_they_come() -> None:
    seen: list[tuple[int, bool]] = []
    async with Simulator(profile=FAST) as backend:
        load = Load(schedule=Closed(1), requests=3, warmup=1)
        await run(load, target(backend), Ask(), told=lambda n, reading, measured: seen.append((n, measured)))
    assert seen == [(0, False), (1, True), (2, True), (3, True)]


@pytest.mark.parametrize("schedule", [Closed(2), Open.at(100, "constant")])
async def test_a_question_that_cannot_be_made_ends_the_run_with_its_error(schedule: Any) -> None:
    def ask(n: int) -> Query:
        if n == 2:
            raise LookupError("no third question")
        return Ask()(n)

    async with Simulator(profile=FAST) as backend:
        with pytest.raises((LookupError, ExceptionGroup)) as caught:
            await run(Load(schedule=schedule, requests=9), target(backend), ask)
    assert "no third question" in str(caught.getrepr())


async def test_processes_share_one_schedule_and_send_each_request_once() -> None:
    async with Simulator(profile=FAST, capacity=99) as backend:
        load = Load(schedule=Closed(4), requests=20, warmup=4)
        result = await run(load, target(backend), Ask(), processes=2)
    assert asked(backend) == list(range(24))
    assert sorted(n for n, _ in result.readings) == list(range(4, 24))
    assert {reading.outcome for reading in result.measured} == {"ok"}
    assert backend.most_running <= 4
    assert result.connections == 4
    assert result.cpu is not None and result.lag is not None


async def test_processes_stop_when_they_are_told() -> None:
    async with Simulator(profile=FAST, capacity=99) as backend:
        stop = asyncio.Event()

        def told(n: int, reading: Any, measured: bool) -> None:
            if n > 10:
                stop.set()

        load = Load(schedule=Closed(4), requests=1_000_000)
        result = await asyncio.wait_for(run(load, target(backend), Ask(), told=told, stop=stop, processes=2), 20)
    assert result.interrupted and len(result.readings) > 10


async def test_a_reading_that_was_read_late_says_so() -> None:
    """The loop is blocked while an answer is under way: that reading is perturbed, and the strain shows."""
    async with Simulator(profile=FAST) as backend:
        part = Part(Load(schedule=Closed(1), requests=1), target(backend), Ask(tokens=64))
        going = asyncio.create_task(part.run())
        await asyncio.sleep(0.02)
        time.sleep(0.05)  # noqa: ASYNC251 - this is what is tested
        result = await going
    assert result.measured[0].perturbed
    assert (result.measured[0].loop_lag or 0) > 0.02


def test_strain_reads_the_worst_delay_since_a_moment() -> None:
    strain = Strain(clock=lambda: 0.0, cpu=lambda: 0.0)
    for now, lag in [(1.0, 0.5), (2.0, 0.1), (3.0, 0.2), (4.0, 0.05)]:
        strain._note(now, lag)
    assert [strain.worst(since) for since in (0.0, 1.0, 1.5, 2.5, 3.5, 4.5)] == [0.5, 0.5, 0.2, 0.2, 0.05, 0.0]
    assert strain.p99 == 0.5


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Load(schedule=Closed(1)), "give the number of requests or the duration"),
        (lambda: Load(schedule=Closed(1), requests=0), "requests must be above 0"),
        (lambda: Load(schedule=Closed(1), duration=-1.0), "duration must be above 0"),
    ],
)
def test_a_load_without_an_end_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_key_is_in_no_repr() -> None:
    assert "sk-secret" not in repr(Target(url="http://x", key="sk-secret", headers=((b"authorization", b"sk-secret"),)))
