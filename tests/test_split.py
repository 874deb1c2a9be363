"""The laws of a split: shares hold, users stay, and nobody moves without a reason."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.split import choose

USERS = [f"user-{n}" for n in range(10_000)]


def sides(**shares: float) -> dict[str, str]:
    return {user: choose(shares, user, "r", lambda: 0.0) for user in USERS}


@pytest.mark.parametrize("shares", [{"mercury": 0.9, "ar": 0.1}, {"mercury": 0.5, "ar": 0.3, "any": 0.2}])
def test_shares_hold_within_two_percent_over_ten_thousand_users(shares: dict[str, float]) -> None:
    counts = Counter(sides(**shares).values())
    for side, share in shares.items():
        assert counts[side] / len(USERS) == pytest.approx(share, abs=0.02)


def test_from_90_10_to_80_20_only_the_needed_users_move() -> None:
    before, after = sides(mercury=0.9, ar=0.1), sides(mercury=0.8, ar=0.2)
    moved = [user for user in USERS if before[user] != after[user]]
    assert {(before[user], after[user]) for user in moved} == {("mercury", "ar")}
    assert len(moved) / len(USERS) == pytest.approx(0.1, abs=0.02)


def test_who_is_not_on_a_side_that_goes_stays() -> None:
    before, after = sides(mercury=0.5, ar=0.3, any=0.2), sides(mercury=0.5, ar=0.3)
    assert all(after[user] == side for user, side in before.items() if side != "any")


def test_two_splits_do_not_part_the_same_people() -> None:
    shares = {"a": 0.5, "b": 0.5}
    same = sum(choose(shares, user, "r", lambda: 0.0) == choose(shares, user, "s", lambda: 0.0) for user in USERS)
    assert same / len(USERS) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("draw", "side"), [(0.0, "a"), (0.69, "a"), (0.71, "b"), (0.999999, "b")])
def test_who_has_no_identity_is_split_by_the_draw(draw: float, side: str) -> None:
    assert choose({"a": 0.7, "b": 0.3}, None, "r", lambda: draw) == side


@given(st.none() | st.text(max_size=20), st.floats(0, 1, exclude_max=True))
def test_a_share_of_zero_gets_nobody(user: str | None, draw: float) -> None:
    assert choose({"ar": 0, "mercury": 0.7, "any": 0.3}, user, "r", lambda: draw) != "ar"
