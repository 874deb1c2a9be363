import asyncio

import pytest

from proxy.live import Shared


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def made():
    return []


@pytest.fixture
def shared(made):
    async def make(span):
        made.append(span)
        await asyncio.sleep(0)
        return b"%d" % len(made)

    clock = Clock()
    found = Shared(make, clock, 0.75)
    found.clock = clock
    return found


async def test_all_who_ask_at_once_get_one_answer(shared, made):
    assert await asyncio.gather(*(shared.get(60) for _ in range(5))) == [b"1"] * 5
    assert made == [60]


async def test_an_answer_is_made_again_when_it_is_old(shared):
    assert await shared.get(60) == b"1"
    shared.clock.now += 0.74
    assert await shared.get(60) == b"1"
    shared.clock.now += 0.02
    assert await shared.get(60) == b"2"


async def test_each_window_has_an_answer_of_its_own(shared, made):
    await asyncio.gather(shared.get(60), shared.get(300))
    assert sorted(made) == [60, 300]


async def test_who_leaves_does_not_take_the_answer_from_the_others(shared):
    first = asyncio.ensure_future(shared.get(60))
    second = asyncio.ensure_future(shared.get(60))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"1"
