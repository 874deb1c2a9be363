"""What one forwarder holds: the configuration in force, the pools, who may call, where records go.

A reload replaces all of it at once for requests that come later. Streams under way keep the pool they have; a
backend whose configuration did not change keeps its connections.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from .backlog import Backlog
from .dialects import Dialect
from .pulse import Pulse
from .recorder import Sink
from .routes import Ask, BackendRow, Plan, RouteRow, Table, plan
from .settings import Backend, Limits, Settings
from .upstream import Pool, Timeouts


@dataclass(slots=True)
class Gateway:
    """The state of a forwarder."""

    settings: Settings
    sink: Sink
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    draw: Callable[[], float] = random.random
    table: Table = field(init=False)
    plans: dict[str, Plan] = field(default_factory=dict)  # of models that backends list: nothing is to be decided
    dialects: dict[str, Dialect] = field(default_factory=dict)  # by backend
    pools: dict[str, Pool] = field(default_factory=dict)
    resting: dict[str, float] = field(default_factory=dict)  # backend -> until when it asked to be left alone
    draining: bool = False
    deadline: float = math.inf  # whatever still runs then is cut
    pulse: Pulse = field(init=False)
    backlog: Backlog = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    _keys: dict[bytes, str] = field(default_factory=dict, repr=False)

    def start(self) -> None:
        """In the event loop, once."""
        self.loop = asyncio.get_running_loop()
        self.pulse = Pulse(self.loop, self.clock)
        self.backlog = Backlog(self.loop)
        self._apply(self.settings, None)

    async def stop(self) -> None:
        self.backlog.flush()
        self.pulse.stop()
        for pool in self.pools.values():
            await pool.close()

    def reload(self, settings: Settings) -> None:
        """For requests that come from now on. Raises ValueError, and changes nothing, if it can't be used here."""
        self._apply(settings, self.settings)

    def client(self, key: str) -> str | None:
        """The name of the client whose key this is; None if it is nobody's."""
        return self._keys.get(_digest(key))

    @property
    def open_to_all(self) -> bool:
        return not self.settings.clients

    def _apply(self, settings: Settings, before: Settings | None) -> None:
        old, new = self.pools, dict[str, Pool]()  # exchanges under way keep the old ones
        for name, backend in settings.backends.items():
            same = before is not None and before.backends.get(name) == backend
            new[name] = old[name] if same else pool(backend, self.clock)
        dialects = {name: settings.dialect(backend) for name, backend in settings.backends.items()}
        self.settings, self.pools, self.dialects = settings, new, dialects
        self.table = table(settings)
        self.plans = plans(self.table)
        self._keys = {_digest(key.get_secret_value()): name for name, key in settings.clients.items()}
        for name, left in old.items():
            if self.pools.get(name) is not left:
                left.retire()


def table(settings: Settings) -> Table:
    """The configuration as routing reads it."""
    return Table(
        {
            name: BackendRow(
                name=name,
                models=backend.named_models,
                takes_all="*" in backend.models,
                aliases=backend.aliases,
                decoding=backend.kind,
                dialect=backend.dialect,
            )
            for name, backend in settings.backends.items()
        },
        {
            name: RouteRow(
                name=name,
                split=route.split,
                sticky=route.sticky,
                mirror=route.mirror.to if route.mirror else None,
                mirror_share=route.mirror.share if route.mirror else 0.0,
                fallback=route.fallback,
                diffusion=route.diffusion,
            )
            for name, route in settings.routes.items()
        },
    )


def plans(table: Table) -> dict[str, Plan]:
    """Made ahead, for names that mean one backend whoever asks."""
    names = [name for name in table.names() if name not in table.routes]
    made = {name: plan(table, Ask(path="/v1", model=name), lambda: 0.0) for name in names}
    return {name: each for name, each in made.items() if isinstance(each, Plan)}


def pool(backend: Backend, clock: Callable[[], float] = time.monotonic) -> Pool:
    return Pool(backend.origin, timeouts(backend.timeouts), keep=backend.keep_alive, clock=clock)


def timeouts(limits: Limits) -> Timeouts:
    """0 in the configuration means none."""
    return Timeouts(limits.connect or None, limits.first_output or None, limits.idle or None, limits.total or None)


def new_id() -> str:
    """32 hexadecimal digits: fit for an exemplar and for a trace."""
    if not _digits:  # many at a time: a system call for each is dearer than all else here
        drawn = os.urandom(16 * 256).hex()
        _digits.extend(drawn[start : start + 32] for start in range(0, len(drawn), 32))
    return _digits.pop()


_digits: list[str] = []


_SALT = os.urandom(16)


def _digest(key: str) -> bytes:
    """Keys are looked up by a salted digest, so that the time of a look-up tells nothing about them."""
    return hmac.new(_SALT, key.encode("utf-8", "surrogateescape"), sha256).digest()
