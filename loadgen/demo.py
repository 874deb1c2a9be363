"""See it work in fifteen seconds: two simulated backends, the proxy as a process of its own, mixed traffic through it.

1. The numbers shown are the proxy's: raw readings from its admin API, folded here by the definitions that
   every report uses. The demo's own clients only make the traffic.
2. Nothing is left running and nothing is written but a temporary folder. Ports are picked free.
3. It says so when something is wrong: the exit status is 0 only if both backends were measured without a
   failure. What our own leaving cut off is no failure.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from . import workload
from .board import Board
from .mix import SITES, Mix, Site
from .runner import Load, Run, Target, run
from .schedule import Open
from .simulator import Simulator

_READY = 20.0  # seconds that the proxy may take to start
_LEAVE = 8.0  # seconds that it may take to stop
_LAST = 6.0  # seconds that the last answers may take
_POLL = 0.5


class DemoFailed(Exception):
    """The demo could not run; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """The proxy under demonstration: a process and its two addresses."""

    process: asyncio.subprocess.Process
    base: str  # for OpenAI clients
    admin: str
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.returncode is None


def config(listen: int, admin: int, backends: dict[str, Simulator]) -> str:
    """The proxy's configuration file for this demo."""
    lines = ["[listen]", f'address = "127.0.0.1:{listen}"', f'admin = "127.0.0.1:{admin}"']
    for site in SITES:
        backend = backends[site.name]
        dialect = "tutorial" if site.decoding == "diffusion" else "openai"
        lines += ["", f"[backends.{site.name}]", f'url = "{backend.url}"', f'key = "{backend.key}"']
        lines += [f'decoding = "{site.decoding}"', f'dialect = "{dialect}"', f'models = ["{site.model}"]']
        for model, (cost, cached, out) in backend.model.prices.items():
            row = f'model = "{model}", input = "{cost}", cached_input = "{cached}", output = "{out}"'
            lines.append(f"prices = [{{ {row} }}]")
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def proxied(backends: dict[str, Simulator], folder: Path) -> AsyncIterator[Proxy]:
    """A running proxy before `backends`; stopped at the end. Raises DemoFailed if it does not start."""
    listen, admin = _free_ports(2)
    path, log = folder / "manometer.toml", folder / "proxy.log"
    path.write_text(config(listen, admin, backends), encoding="utf-8")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy.cli", "serve", "--config", str(path)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is ours: the last readings are fetched before the proxy stops
        )
    proxy = Proxy(process, f"http://127.0.0.1:{listen}/v1", f"http://127.0.0.1:{admin}", log)
    try:
        await _ready(proxy)
        yield proxy
    finally:
        await _stop(process)


def _environment() -> dict[str, str]:
    """Ours, without what would configure the proxy; with the way to this source tree."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MANOMETER_", "MERCURY_", "AR_"))}
    root = str(Path(__file__).resolve().parent.parent)
    return own | {"PYTHONPATH": os.pathsep.join(filter(None, (root, own.get("PYTHONPATH"))))}


def _free_ports(count: int) -> list[int]:
    """Ports that are free now. They are given back before they are used; nothing else is likely to take them."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


async def _ready(proxy: Proxy) -> None:
    deadline = time.monotonic() + _READY
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline:
            if not proxy.alive:
                break
            try:
                async with session.get(f"{proxy.admin}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass  # not listening yet
            await asyncio.sleep(0.05)
    said = proxy.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise DemoFailed(f"the proxy did not start: {said[-1] if said else 'it said nothing'}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_LEAVE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class View:
    """What the demo shows while it runs. This one shows nothing."""

    def opened(self, proxy: Proxy) -> None: ...
    def shown(self, board: Board, passed: float) -> None: ...
    def closed(self, board: Board, seconds: float) -> None: ...


async def demo(seconds: float | None, view: View, stop: asyncio.Event) -> Board:
    """Run for `seconds`, or until `stop` is set. Raises DemoFailed if it could not be run to its end."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="manometer-demo-")))
        backends = {
            site.name: await stack.enter_async_context(
                Simulator(profile=site.profile, capacity=64, keep=64, key="sk-demo-" + site.name)
            )
            for site in SITES
        }
        proxy = await stack.enter_async_context(proxied(backends, folder))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        board = Board(proxy.admin)
        view.opened(proxy)
        begin = time.monotonic()
        traffic = [asyncio.ensure_future(_traffic(site, proxy, seconds, stop)) for site in SITES]
        try:
            await _watch(board, session, proxy, traffic, view, begin)
        finally:
            for each in traffic:
                each.cancel()
            await asyncio.gather(*traffic, return_exceptions=True)
        view.closed(board, time.monotonic() - begin)
        return board


async def _watch(
    board: Board,
    session: aiohttp.ClientSession,
    proxy: Proxy,
    traffic: Sequence[asyncio.Future[Run]],
    view: View,
    begin: float,
) -> None:
    """Keeps the board up to date until the traffic has ended."""
    while True:
        ended = all(each.done() for each in traffic)
        if not proxy.alive:
            raise DemoFailed(f"the proxy died with exit status {proxy.process.returncode}")
        if ended:
            await asyncio.sleep(0.2)  # the last readings are on their way from the forwarder
        await board.update(session)
        view.shown(board, time.monotonic() - begin)
        if ended:
            for each in traffic:
                each.result()
            return
        await asyncio.wait(traffic, timeout=_POLL, return_when=asyncio.ALL_COMPLETED)


async def _traffic(site: Site, proxy: Proxy, seconds: float | None, stop: asyncio.Event) -> Run:
    prompts = tuple(workload.builtin(("short", "code")))
    load = Load(
        schedule=Open.at(site.rate, "gamma", burstiness=0.7, ramp=min(3.0, (seconds or 30.0) / 5)),
        duration=seconds or 10.0**9,
        patience=_LAST,
        seed=1,
        name=f"demo-{site.name}",
    )
    target = Target(url=proxy.base, backend=site.name, decoding=site.decoding)
    return await run(load, target, Mix(site.model, site.decoding == "diffusion", prompts), stop=stop)
