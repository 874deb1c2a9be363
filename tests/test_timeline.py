"""Every measurement by hand, on streams small enough to check with a pencil."""

from __future__ import annotations

import pytest

from proxy.meter import Arrival, Arrivals, timeline

NONE = Arrivals()


def rows(*steps: tuple[float, int], reasoning: int = 0, tokens: int | None = None) -> Arrivals:
    """(time, characters of answer)"""
    return Arrivals.of(*(Arrival(at, 1, size, reasoning, 0, False, tokens, None) for at, size in steps))


def row(at: float, *, answer: int = 0, reasoning: int = 0, tool: int = 0, tokens: int | None = None) -> Arrival:
    return Arrival(at, 1, answer, reasoning, tool, False, tokens, None)


ONE = rows((0.5, 40))
BLOCKS = rows((0.9, 80), (1.2, 80), (1.4, 80), (1.9, 80))  # four blocks of 20 tokens


def test_times_to_the_first_output() -> None:
    thinking = Arrivals.of(row(0.1, reasoning=5), row(0.3, reasoning=5), row(0.5, answer=2), row(0.6, answer=2))
    assert timeline.ttft(thinking) == 0.1
    assert timeline.ttfa(thinking) == 0.5
    assert timeline.ttfa(Arrivals.of(row(0.1, reasoning=5), row(0.2, tool=3))) == 0.2
    assert timeline.ttfa(Arrivals.of(row(0.1, reasoning=5))) is None
    assert timeline.ttft(NONE) is timeline.ttfa(NONE) is None


def test_a_difference_needs_both_ends() -> None:
    assert timeline.since(0.25, 0.75) == 0.5
    assert timeline.since(None, 1.0) is timeline.since(1.0, None) is None


def test_gaps_and_generation() -> None:
    assert timeline.gaps(BLOCKS) == pytest.approx([0.3, 0.2, 0.5])
    assert timeline.generation(BLOCKS) == pytest.approx(1.0)
    assert timeline.gaps(ONE) == timeline.gaps(NONE) == []
    assert timeline.generation(ONE) == 0.0
    assert timeline.generation(NONE) is None


def test_a_stall_is_a_gap_of_at_least_the_threshold() -> None:
    paused = rows((0.0, 1), (0.5, 1), (0.9, 1), (2.0, 1))
    assert timeline.stalls(paused) == pytest.approx([0.5, 1.1])
    assert timeline.stalls(paused, threshold=0.3) == pytest.approx([0.5, 0.4, 1.1])


def test_bursts_share_the_tokens_by_characters() -> None:
    assert timeline.bursts(rows((0, 10), (1, 30)), 8) == [2.0, 6.0]
    assert timeline.bursts(BLOCKS, 80) == [20.0] * 4
    assert timeline.bursts(rows((0, 0), (1, 0)), 8) == [4.0, 4.0]
    assert timeline.bursts(BLOCKS, 0) == [0.0] * 4
    assert timeline.bursts(BLOCKS, None) is timeline.bursts(NONE, 8) is None


def test_told_tokens_are_exact() -> None:
    told = Arrivals.of(row(0, answer=1, tokens=1), row(1, answer=9, tokens=2), row(2, answer=1, tokens=1))
    assert timeline.bursts(told, 4) == [1, 2, 1]
    assert timeline.bursts(told, 5) == [1, 2, 2], "an end mark that showed no text belongs to the last"


@pytest.mark.parametrize(
    "tokens, completion",
    [((1, None), 2), ((0, 0), 12), ((1, 1), 40), ((5, 5), 8)],
    ids=["one not told", "placeholders", "most not told", "more than all"],
)
def test_tokens_told_in_part_or_wrongly_are_not_taken(tokens: tuple[int, int | None], completion: int) -> None:
    told = Arrivals.of(row(0, answer=10, tokens=tokens[0]), row(1, answer=30, tokens=tokens[1]))
    assert timeline.bursts(told, completion) == [completion / 4, completion * 3 / 4]


def test_reasoning_tokens_are_shared_out_by_reasoning_text() -> None:
    both = Arrivals.of(row(0, reasoning=5), row(1, reasoning=5), row(2, answer=2), row(3, answer=2))
    assert timeline.bursts(both, 10, reasoning=8) == [4.0, 4.0, 1.0, 1.0]
    assert timeline.bursts(both, 14) == [5.0, 5.0, 2.0, 2.0], "unknown: all by characters"


def test_hidden_reasoning_came_before_the_first_arrival() -> None:
    """900 of 1,000 tokens were never shown: 50 shown ones in the second after the first arrival, not 500."""
    silent = rows((2.0, 10), (3.0, 10))
    assert timeline.bursts(silent, 1000, reasoning=900) == [950.0, 50.0]
    assert timeline.decode_rate(silent, 1000, reasoning=900) == 50.0
    told = rows((2.0, 10), (3.0, 10), tokens=49)
    assert timeline.bursts(told, 1000, reasoning=900) == [949, 51]


def test_rates_of_a_block_stream() -> None:
    """80 tokens in 4 blocks over 1.0 s: 60 came after the first; the usual formula would say 79 / 1.0."""
    assert timeline.decode_rate(BLOCKS, 80) == pytest.approx(60.0)
    assert timeline.tpot(BLOCKS, 80) == pytest.approx(1.0 / 79)
    assert timeline.e2e_rate(80, 2.0) == 40.0


def test_a_single_burst_has_no_decode_rate_and_says_why() -> None:
    assert timeline.decode_rate(ONE, 80) is timeline.tpot(ONE, 80) is None
    assert timeline.decode_rate_reason(ONE, 80) == "single_burst"
    assert timeline.decode_rate_reason(rows((1.0, 5), (1.0, 5)), 80) == "single_burst", "two reads, one moment"
    assert timeline.decode_rate_reason(NONE, 80) == "no_output"
    assert timeline.decode_rate_reason(BLOCKS, None) == "tokens_unknown"
    assert timeline.decode_rate_reason(BLOCKS, 80) is None
    assert timeline.e2e_rate(80, 2.0) == 40.0


def test_unknown_tokens_have_no_rate() -> None:
    assert timeline.decode_rate(BLOCKS, None) is timeline.tpot(BLOCKS, None) is timeline.e2e_rate(None, 2.0) is None
    assert timeline.tpot(BLOCKS, 1) is timeline.tpot(BLOCKS, 0) is None
    assert timeline.e2e_rate(0, 2.0) == 0.0


def test_an_appended_answer_is_final_as_it_comes() -> None:
    # 10 characters: 5 are there at 2.0, 9 at 3.0, 10 at 4.0
    append = rows((1.0, 2), (2.0, 3), (3.0, 4), (4.0, 1))
    assert timeline.settled(append) == (2.0, 3.0, 4.0, 1.0, 0.0)
    assert timeline.settled(Arrivals.of(row(1.0, reasoning=5))) == (None, None, None, None, 0.0)
    called = Arrivals.of(row(1.0, reasoning=9), row(2.0, tool=4))
    assert timeline.settled(called) == (2.0, 2.0, 2.0, 2.0, 0.0), "a tool call is an answer"


def test_holds_are_those_that_are_known() -> None:
    arrivals = rows((1.0, 2), (2.0, 3))
    assert timeline.holds(arrivals) == []
    arrivals.held(1, 2.25)
    assert timeline.holds(arrivals) == [0.25]


@pytest.mark.parametrize(
    "sent, body_wait, ended, done, overhead",
    [
        (0.3, 0.25, 1.0, 1.5, 0.05 + 0.5),
        (0.3, 0.25, None, 1.5, 0.05),
        (0.3, 0.4, 1.0, 0.9, 0.0),  # never below nothing
        (None, 0.25, 1.0, 1.5, None),
    ],
)
def test_overhead(
    sent: float | None, body_wait: float, ended: float | None, done: float, overhead: float | None
) -> None:
    measured = timeline.overhead(sent, body_wait, ended, done)
    assert measured == (None if overhead is None else pytest.approx(overhead))


def test_an_estimate_is_a_quarter_of_the_characters_rounded_up() -> None:
    assert timeline.estimate(rows((0, 8))) == 2
    assert timeline.estimate(rows((0, 8), (1, 1))) == 3
    assert timeline.estimate(NONE) is None
