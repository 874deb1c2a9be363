"""Arrivals keep what they are given, in bounded room; a reading says the same after every journey."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.meter import OUTCOMES, Arrival, Arrivals, Attempt, Fault, Reading, Settled, Usage, timeline

COUNT = st.integers(0, 1000)
ROW = st.builds(
    Arrival,
    st.floats(0, 1e6),
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    st.booleans(),
    st.none() | COUNT,
    st.none() | st.floats(0, 100),
)
ROWS = st.lists(ROW, max_size=30).map(lambda rows: sorted(rows, key=lambda row: row.at))


@given(ROWS)
def test_rows_come_back_as_they_went_in(rows: list[Arrival]) -> None:
    arrivals = Arrivals.of(*rows)
    assert list(arrivals) == arrivals[:] == [arrivals[i] for i in range(len(arrivals))] == rows
    assert [arrivals[-i] for i in range(1, len(rows) + 1)] == rows[::-1]
    assert len(arrivals) == len(rows)
    assert list(arrivals.column("at")) == [row.at for row in rows]
    with pytest.raises(IndexError):
        arrivals[len(rows)]


@given(ROWS)
def test_bytes_are_a_whole_copy(rows: list[Arrival]) -> None:
    arrivals = Arrivals.of(*rows)
    copy = Arrivals.frombytes(arrivals.tobytes())
    assert copy == arrivals and hash(copy) == hash(arrivals)
    assert copy.tobytes() == arrivals.tobytes()
    assert len(arrivals.tobytes()) == 64 * len(rows)


def test_the_common_row_is_a_row_like_others() -> None:
    arrivals = Arrivals()
    arrivals.append(0.5, 7)
    assert list(arrivals) == [Arrival(0.5, 1, 7, 0, 0, False, None, None)]


def test_a_hold_is_counted_from_the_read() -> None:
    arrivals = Arrivals()
    arrivals.append(0.5, 7)
    arrivals.held(0, 0.75)
    assert arrivals[0].hold == 0.25


@given(st.lists(ROW, min_size=8, max_size=200), st.sampled_from([8, 9, 16, 50]))
def test_merging_keeps_sums_ends_and_the_first_answer(rows: list[Arrival], cap: int) -> None:
    rows.sort(key=lambda row: row.at)
    merged, whole = Arrivals(cap), Arrivals.of(*rows)
    for row in rows:
        merged.add(row)
        assert len(merged) <= cap
    assert merged.merged is (len(rows) > cap)
    for name in ("events", "answer", "reasoning", "tool"):
        assert sum(merged.column(name)) == sum(whole.column(name))
    assert merged[0] == whole[0]
    assert merged[-1] == whole[-1]
    assert timeline.ttft(merged) == timeline.ttft(whole)
    assert timeline.ttfa(merged) == timeline.ttfa(whole)
    assert timeline.generation(merged) == timeline.generation(whole)
    assert list(merged.column("at")) == sorted(merged.column("at"))
    assert max(timeline.holds(merged), default=None) == max(timeline.holds(whole), default=None)


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([8, 16]))
def test_merging_does_not_move_the_first_answer_after_much_reasoning(thoughts: int, answers: int, cap: int) -> None:
    merged = Arrivals(cap)
    for number in range(thoughts + answers):
        merged.append(float(number), int(number >= thoughts), int(number < thoughts))
    assert timeline.ttfa(merged) == thoughts


@given(st.lists(st.integers(1, 20), min_size=2, max_size=200))
def test_merging_does_not_change_the_decode_rate(sizes: list[int]) -> None:
    merged, whole = Arrivals(16), Arrivals()
    for number, size in enumerate(sizes):
        for arrivals in (merged, whole):
            arrivals.append(number * 0.02, size)
    assert timeline.decode_rate(merged, sum(sizes)) == pytest.approx(timeline.decode_rate(whole, sum(sizes)))


def test_a_pair_is_there_when_its_later_half_is() -> None:
    arrivals = Arrivals(8)
    for number in range(9):
        assert not arrivals.merged
        arrivals.append(float(number), 1)
    assert [(row.at, row.answer, row.events) for row in arrivals] == [
        (0.0, 1, 1),
        (2.0, 2, 2),
        (4.0, 2, 2),
        (6.0, 2, 2),
        (7.0, 1, 1),
        (8.0, 1, 1),
    ]


def test_tokens_of_a_pair_are_unknown_when_one_half_is() -> None:
    arrivals = Arrivals(8)
    for number, tokens in enumerate([1, 1, 1, 1, None, 1, 1, 1, 1]):
        arrivals.add(Arrival(float(number), 1, 1, 0, 0, False, tokens, None))
    assert [row.tokens for row in arrivals] == [1, 2, None, 2, 1, 1]


READING = Reading(
    id="r1",
    started_at=1_796_000_000.5,
    outcome="ok",
    api="chat",
    streamed=True,
    path="/v1/chat/completions",
    backend="mercury",
    decoding="diffusion",
    model="mercury-2.5",
    status=200,
    sent=0.01,
    head=0.11,
    ended=1.0,
    done=1.01,
    body_wait=0.005,
    arrivals=Arrivals.of(
        Arrival(0.41, 1, 40, 0, 0, False, None, 0.001),
        Arrival(0.51, 2, 40, 0, 0, False, None, 0.003),
        Arrival(1.31, 1, 80, 0, 0, False, None, None),
    ),
    tokens=Usage(prompt=10, completion=40, total=50),
    usage_source="reported",
    cost=Decimal("0.0000320"),
    loop_lag=0.006,
    attempts=(Attempt("mercury", "ok", 200, 1.0),),
    fault=None,
)


def test_a_reading_by_hand() -> None:
    assert READING.ttfb == 0.11
    assert READING.ttft == READING.ttfa == 0.41
    assert READING.backend_ttft == pytest.approx(0.40)
    assert READING.silence == pytest.approx(0.30)
    assert READING.e2e == 1.01
    assert READING.generation == pytest.approx(0.9)
    assert READING.gaps == pytest.approx([0.1, 0.8])
    assert READING.stalls == pytest.approx([0.8])
    assert READING.bursts == [10.0, 10.0, 20.0]
    assert READING.stability == Settled(0.51, 1.31, 1.31, 0.41)
    assert READING.e2e_rate == pytest.approx(40 / 1.01)
    assert READING.decode_rate == pytest.approx(30 / 0.9)
    assert READING.tpot == pytest.approx(0.9 / 39)
    assert (READING.hold_max, READING.hold_sum) == (0.003, pytest.approx(0.004))
    assert READING.overhead == pytest.approx(0.005 + 0.01)
    assert READING.perturbed
    assert READING.estimated_completion is None, "tokens were reported"


def test_the_summary_says_what_the_properties_say() -> None:
    summary = READING.summary()
    for name in ("ttfb", "ttft", "backend_ttft", "ttfa", "silence", "e2e", "generation", "e2e_rate", "decode_rate"):
        assert summary[name] == getattr(READING, name)
    assert (summary["stall_count"], summary["stall_time"]) == (1, pytest.approx(0.8))
    assert (summary["arrival_count"], summary["token_events"], summary["largest_burst"]) == (3, 4, 20.0)
    assert summary["tokens"]["completion"] == 40
    assert summary["cost"] == "0.0000320"
    assert summary["attempts"] == [{"backend": "mercury", "outcome": "ok", "status": 200, "seconds": 1.0}]
    assert READING.detail()["arrivals"][1]["burst"] == 10.0
    json.dumps(READING.detail(), allow_nan=False)


def test_a_reading_that_saw_nothing_says_none_not_zero() -> None:
    nothing = Reading(
        id="r", started_at=0.0, outcome="unreachable", api="chat", streamed=False, fault=Fault("dns", "x")
    )
    summary = nothing.summary()
    unknown = "ttfb ttft backend_ttft ttfa silence generation t50 t90 t100 first_stable e2e_rate decode_rate tpot cost "
    unknown += "overhead hold_max hold_sum loop_lag largest_burst estimated_completion status canvas"
    assert {name: summary[name] for name in unknown.split()} == dict.fromkeys(unknown.split())
    assert set(summary["tokens"].values()) == {None}
    assert summary["decode_rate_reason"] == "no_output"
    assert summary["fault"] == {"type": "dns", "message": "x", "code": None}


def test_a_reading_crosses_processes_and_cannot_be_changed() -> None:
    assert pickle.loads(pickle.dumps(READING)) == READING
    with pytest.raises(FrozenInstanceError):
        READING.outcome = "empty"  # type: ignore[misc]


def test_outcomes_are_those_of_the_definition() -> None:
    assert (
        *("ok", "client_gone", "refused", "backend_error", "unreachable", "timeout_connect", "timeout_first_output"),
        *("timeout_idle", "timeout_total", "truncated", "bad_stream", "empty", "internal"),
    ) == OUTCOMES
