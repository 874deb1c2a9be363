"""Rewritten text: when was what there for good? Held to a definition that tries every moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.meter.snapshot import Snapshots, finals, settled

FRAMES = st.lists(
    st.tuples(st.integers(1, 5), st.text("abc", min_size=1, max_size=9)), min_size=1, max_size=9
)  # (seconds since the frame before, whole text)


def shown(frames: list[tuple[int, str]]) -> tuple[Snapshots, list[tuple[float, str]]]:
    choice, timed, at = Snapshots(), [], 0.0
    for gap, text in frames:
        at += gap
        timed.append((at, text))
        choice.show(text, at)
    return choice, timed


def good_from(position: int, timed: list[tuple[float, str]]) -> float:
    """The first moment from which on every frame has the final answer's character at this position."""
    final = timed[-1][1]
    return next(
        at
        for number, (at, _) in enumerate(timed)
        if all(text[position : position + 1] == final[position] for _, text in timed[number:])
    )


@given(FRAMES)
def test_settled_is_what_trying_every_moment_finds(frames: list[tuple[int, str]]) -> None:
    choice, timed = shown(frames)
    final = timed[-1][1]
    times = [good_from(position, timed) for position in range(len(final))]
    reading = settled([choice])
    for share, measured in ((50, reading.t50), (90, reading.t90), (100, reading.t100)):
        prefix = next(n for n in range(len(final) + 1) if 100 * n >= share * len(final))
        assert measured == max(times[:prefix])
    assert reading.first_stable == min(times)
    assert reading.churn == (sum(len(text) for _, text in timed) - len(final)) / len(final)
    assert choice.text == final


@given(FRAMES)
def test_each_final_character_belongs_to_one_arrival(frames: list[tuple[int, str]]) -> None:
    choice, timed = shown(frames)
    times = [good_from(position, timed) for position in range(len(timed[-1][1]))]
    assert finals([choice], [at for at, _ in timed]) == [times.count(at) for at, _ in timed]


def test_a_denoising_text_by_hand() -> None:
    choice, _ = shown([(1, "xx qv"), (1, "Th qv"), (1, "The sky"), (1, "The sky")])
    reading = settled([choice])
    # "The sky": T, h from 2; e, space, s, k, y from 3. Half of 7 is 4 characters.
    assert reading == (3.0, 3.0, 3.0, 2.0, (5 + 5 + 7 + 7 - 7) / 7)
    assert finals([choice], [1.0, 2.0, 3.0, 4.0]) == [0, 2, 5, 0]


def test_a_text_that_shrinks_and_grows_again_was_not_there_meanwhile() -> None:
    choice, _ = shown([(1, "abcd"), (1, "ab"), (1, "abcd")])
    assert list(choice.changes) == [1.0, 1.0, 3.0, 3.0]


def test_of_two_choices_the_slowest_counts() -> None:
    fast, _ = shown([(1, "ab")])
    slow, _ = shown([(1, "ab"), (1, "cd")])
    reading = settled([fast, slow])
    assert (reading.t50, reading.t100, reading.first_stable) == (2.0, 2.0, 1.0)
    assert reading.churn == 2 / 4


def test_without_an_answer_nothing_settles() -> None:
    assert settled([Snapshots()]) == (None, None, None, None, 0.0)
