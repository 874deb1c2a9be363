"""One load by several processes: when one core is not enough to send it and to read it truly.

Each worker is `python -m loadgen.workers`: it gets its part of the job on stdin, says when it is ready, is
told the common start time, and writes its readings as they come. A worker whose stdin closes stops, so none
outlives its parent; Ctrl-C reaches the parent alone, which then closes them.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import struct
import sys
import time
from typing import Any

from .runner import Ask, Load, Part, Run, Target, Told

_SIZE = struct.Struct("!I")
_LEAD = 0.1  # seconds between the last worker's being ready and the start
_GRACE = 5.0  # seconds in which a worker that was told to stop must have ended


class WorkerDied(RuntimeError):
    """A worker ended without giving its part."""


def _frame(payload: Any) -> bytes:
    raw = pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)
    return _SIZE.pack(len(raw)) + raw


async def _read(reader: asyncio.StreamReader) -> Any:
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return pickle.loads(await reader.readexactly(size))


async def spread(
    load: Load, target: Target, ask: Ask, *, told: Told | None, stop: asyncio.Event | None, processes: int
) -> Run:
    """Run `load` with so many workers. Raises WorkerDied if one fails; the others are stopped first."""
    job = _frame((load, target, ask, processes))
    workers: list[asyncio.subprocess.Process] = []
    try:
        for part in range(processes):
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "loadgen.workers", str(part)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C is the parent's business
            )
            workers.append(worker)
            assert worker.stdin is not None
            worker.stdin.write(job)
        for worker in workers:
            await _ready(worker)
        start = time.monotonic() + _LEAD  # the clock is the machine's: all processes read the same
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(_frame(start))
        return await _gather(workers, told, stop)
    finally:
        await asyncio.gather(*map(_end, workers))


async def _ready(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdout is not None
    try:
        await _read(worker.stdout)
    except asyncio.IncompleteReadError:
        raise WorkerDied(f"a load process ended before it was ready (exit status {await worker.wait()})") from None


async def _gather(workers: list[asyncio.subprocess.Process], told: Told | None, stop: asyncio.Event | None) -> Run:
    whole = Run()
    watch = asyncio.ensure_future(_stop(workers, stop)) if stop is not None else None
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(_collect(worker, whole, told))
    except* WorkerDied as problem:
        raise problem.exceptions[0] from None
    finally:
        if watch is not None:
            watch.cancel()
    return whole


async def _collect(worker: asyncio.subprocess.Process, whole: Run, told: Told | None) -> None:
    assert worker.stdout is not None
    while True:
        try:
            said = await _read(worker.stdout)
        except asyncio.IncompleteReadError:
            raise WorkerDied(f"a load process died (exit status {await worker.wait()})") from None
        if isinstance(said, Run):
            return whole.merge(said)
        whole.add(*said)
        if told is not None:
            told(*said)


async def _stop(workers: list[asyncio.subprocess.Process], stop: asyncio.Event) -> None:
    await stop.wait()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()


async def _end(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        async with asyncio.timeout(_GRACE):
            await worker.wait()
    except TimeoutError:
        worker.kill()
        await worker.wait()


async def work(part: int) -> None:
    """The worker's side."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 30)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    pipe, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    writer = asyncio.StreamWriter(pipe, flow, reader, loop)
    load, target, ask, parts = await _read(reader)
    writer.write(_frame("ready"))
    start = await _read(reader)
    stop = asyncio.Event()
    watch = asyncio.ensure_future(_closed(reader, stop))

    def told(n: int, reading: Any, measured: bool) -> None:
        writer.write(_frame((n, reading, measured)))

    run = await Part(load, target, ask, told, stop, part=part, parts=parts, start=start).run()
    run.readings, run.warmup = [], []  # the parent has them
    writer.write(_frame(run))
    await writer.drain()
    watch.cancel()
    writer.close()


async def _closed(reader: asyncio.StreamReader, stop: asyncio.Event) -> None:
    """Sets `stop` when the parent closes our stdin, or is gone."""
    while await reader.read(4096):
        pass
    stop.set()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import uvloop

    uvloop.run(work(int(sys.argv[1])))


if __name__ == "__main__":
    main()
