"""What all tests share: property tests judge values, never how fast this machine is.

`--hypothesis-profile=thorough` looks for rarer counterexamples.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.stage import Proxy, Script, Stage

settings.register_profile("manometer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("manometer"), max_examples=3000)
settings.load_profile("manometer")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that everything runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stage() -> AsyncIterator[Callable[..., Awaitable[Stage]]]:
    """Starts backends: `await stage(script)`."""
    started: list[Stage] = []

    async def start(script: Script, **options: object) -> Stage:
        started.append(Stage(script, **options))  # type: ignore[arg-type]
        return await started[-1].start()

    yield start
    for each in started:
        await each.stop()


@pytest.fixture
async def proxy() -> AsyncIterator[Callable[..., Awaitable[Proxy]]]:
    """Starts proxies: `await proxy(settings)`. Ask for it after `stage`, so that it stops first."""
    started: list[Proxy] = []

    async def start(*args: object, **options: object) -> Proxy:
        started.append(Proxy(*args, **options))  # type: ignore[arg-type]
        return await started[-1].start()

    yield start
    for each in started:
        await each.stop()
