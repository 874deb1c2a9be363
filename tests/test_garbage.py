"""The collector of cycles keeps out of streams, and still takes what is left."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from proxy import garbage


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Node:
    """May stand in a cycle."""

    me: Node


def test_what_is_loaded_is_not_looked_at_again() -> None:
    garbage.quiet()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 1_000


def test_thousands_of_exchanges_pass_without_a_collection() -> None:
    garbage.quiet()
    before = [generation["collections"] for generation in gc.get_stats()]
    kept = [[n] for n in range(40_000)]
    assert [generation["collections"] for generation in gc.get_stats()] == before
    assert len(kept) == 40_000


def test_a_cycle_is_still_taken() -> None:
    garbage.quiet()
    node = Node()
    node.me = node
    gone = weakref.ref(node)
    del node
    kept = [[n] for n in range(200_000)]
    assert gone() is None
    assert len(kept) == 200_000
