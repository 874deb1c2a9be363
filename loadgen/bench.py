"""One command's run: the server, the questions, the levels measured so far, and where they are written.

1. Before anything is loaded the server is asked who it is (`identity`).
2. What is measured is written level by level, and however a command ends (done, Ctrl-C, deadline, an error)
   its report is drawn from what there is, marked as interrupted.
3. Writing and scoring happen between levels: while a level runs, the client does nothing but read.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson
import typer

from proxy.meter.reading import Reading
from proxy.upstream import Timeouts

from . import document, folder, quality, runner, sandbox
from .analysis.doubt import Health
from .analysis.level import Level, Terms, level
from .console import Screen
from .folder import Folder
from .identity import identify
from .options import Options, Refused
from .plan import Ask, prompts
from .runner import Load, Run, Target
from .schedule import Closed, Open, Recorded
from .workers import WorkerDied
from .workload import Prompt, Question, Workload


@dataclass(slots=True)
class Measured:
    """One level: its fold, its JSON, and the readings with their prompts and scores."""

    level: Level
    json: dict[str, Any]
    readings: list[tuple[int, Reading]]
    scores: dict[int, quality.Score] = field(default_factory=dict)


class Bench:
    """Measures levels and keeps what they said."""

    def __init__(
        self,
        command: str,
        options: Options,
        own: Mapping[str, Any],
        *,
        screen: Screen,
        place: Folder | None,
        now: float,
    ) -> None:
        self.command = command
        self.options = options
        self.screen = screen
        self.place = place
        self.stop = asyncio.Event()
        self.interrupted = False
        self.warnings: list[str] = []
        self.levels: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}
        self.told: dict[str, Any] | None = None  # the document, once it is finished
        self._own = dict(own)
        self._now = now
        self.focus: int | None = None  # the concurrency whose answers are shown; None: all of them
        self._readings: dict[str, list[tuple[int | None, list[Reading]]]] = defaultdict(list)

    def work(self, *, shuffled: bool = True) -> Workload:
        """The prompts that the options name."""
        options = self.options
        return Workload(prompts(options.prompts, options.language, options.seed), options.seed, shuffled=shuffled)

    def question(self, model: str, **extra: Any) -> Question:
        options = self.options
        limit = extra.pop("max_tokens", options.max_tokens)
        return Question(
            model=model,
            max_tokens=limit or None,
            temperature=options.temperature,
            stream=options.stream,
            usage=options.usage,
            extra=options.fields | extra,
        )

    def target(
        self, *, url: str = "", key: str = "", name: str = "", decoding: str = "", keep_text: bool = False
    ) -> Target:
        options = self.options
        timeouts = Timeouts(connect=10.0, first_output=options.timeout, idle=options.timeout, total=options.timeout)
        return Target(
            url=url or options.url,
            key=key or options.key or None,
            headers=options.headers,
            timeouts=timeouts,
            backend=name or None,
            decoding=decoding or options.decoding or None,
            prices=options.prices,
            keep_text=keep_text,
        )

    async def identify(self, target: Target, model: str) -> str:
        """The model to load; refuses a server that is not what was named."""
        if not self.options.check:
            if not model:
                raise Refused("--no-check needs --model: the server is not asked which it has")
            return model
        short = replace(target, timeouts=Timeouts(connect=10.0, first_output=60.0, idle=60.0, total=60.0))
        own = ((b"authorization", b"Bearer " + target.key.encode()),) if target.key else ()
        try:
            client = short.client(_calm)
        except ValueError as error:
            raise Refused(f"--url: {error}") from None
        asking = asyncio.ensure_future(identify(client, target.url, model, (*own, *target.headers)))
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait((asking, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise Refused("interrupted before anything was loaded")
            found = asking.result()
        finally:
            asking.cancel()
            stopped.cancel()
            await client.close()
        self.warnings += found.warnings
        return found.model

    async def measure(
        self,
        target: Target,
        ask: Ask,
        schedule: Closed | Open | Recorded,
        *,
        requests: int | None = None,
        duration: float | None = None,
        warmup: int | None = None,
        score: bool = False,
        title: str = "",
        **facts: Any,
    ) -> Measured:
        """Run one level to its end and keep it. `facts` go into its JSON."""
        options = self.options
        clients = schedule.concurrency if isinstance(schedule, Closed) else None
        if warmup is None:
            warmup = options.warmup if options.warmup >= 0 else (clients or 0)
        load = Load(
            schedule=schedule,
            requests=requests,
            duration=duration,
            warmup=warmup,
            deadline=options.deadline or None,
            seed=options.seed,
            name=options.name or self.command,
        )
        name = target.backend or ask.question.model
        self.screen.begin(title or f"{name} {_place(schedule)}", None if requests is None else requests + warmup)
        self.save()
        run = Run()
        seen: list[tuple[int, Reading, bool]] = []

        def told(n: int, reading: Reading, measured: bool) -> None:
            seen.append((n, reading, measured))
            self.screen.saw(reading)

        try:
            run = await runner.run(load, target, ask, told=told, stop=self.stop, processes=options.processes)
        finally:
            self.screen.end()
            self.interrupted = self.interrupted or run.interrupted or self.stop.is_set()
            rate = schedule.knots[-1].rate if isinstance(schedule, Open) else None
            found = self.keep(seen, run, name, ask, score=score, concurrency=clients, rate=rate, **facts)
        return found

    def keep(
        self,
        seen: Sequence[tuple[int, Reading, bool]],
        run: Run,
        name: str,
        ask: Ask,
        *,
        score: bool = False,
        concurrency: int | None = None,
        rate: float | None = None,
        **facts: Any,
    ) -> Measured:
        """Fold, score and write what was seen (number, reading, whether it is measured) at one level."""
        options = self.options
        # What an interruption cut off says nothing about the server
        cut = run.interrupted
        readings = [(n, r) for n, r, measured in seen if measured and not (cut and r.outcome == "client_gone")]
        only = [reading for _, reading in readings]
        terms = Terms(max_tokens=ask.question.max_tokens, slos=options.slos, instances=options.instances)
        folded = level(
            only,
            backend=name,
            concurrency=concurrency,
            rate=rate,
            terms=terms,
            health=Health(run.lag, run.cpu),
            before=[reading for _, reading, measured in seen if not measured],
        )
        told = document.measured(folded, only, seed=options.seed, connections=run.connections, **facts)
        found = Measured(folded, told, readings)
        if score:
            found.scores = {n: self._score(ask.work[n], reading) for n, reading in readings}
            told["quality"] = quality.pass_rate(list(found.scores.values()))
        self._write(seen, ask.work, found, len(self.levels))
        self.levels.append(told)
        self._readings[name].append((concurrency, only))
        return found

    def _score(self, prompt: Prompt, reading: Reading) -> quality.Score:
        if reading.outcome != "ok":
            return quality.Score(False, reading.outcome)
        finish = reading.finish_reasons[0] if reading.finish_reasons else None
        return quality.score(prompt, reading.text, finish, sandbox.run if self.options.run_code else None)

    def _write(self, seen: Sequence[tuple[int, Reading, bool]], work: Workload, found: Measured, number: int) -> None:
        if self.place is None:
            return
        rows = []
        for n, reading, measured in seen:
            facts: dict[str, Any] = {"level": number, "n": n, "prompt": work[n].id, "warmup": not measured}
            if n in found.scores:
                facts |= {"passed": found.scores[n].passed, "reason": found.scores[n].reason}
            rows.append(folder.row(reading, **facts))
        self.place.append(rows)

    def document(self, verdict: str) -> dict[str, Any]:
        return document.document(
            self.command,
            self.place.path.name if self.place else self.options.name or self.command,
            self._now,
            arguments=self._own | self.options.told(),
            levels=self.levels,
            shown={name: document.shown(self._focused(name)) for name in self._readings},
            verdict=verdict,
            interrupted=self.interrupted,
            warnings=self.warnings,
            **self.more,
        )

    def _focused(self, name: str) -> list[Reading]:
        if self.focus is None:
            return [r for _, own in self._readings[name] for r in own]
        return next((own for at, own in reversed(self._readings[name]) if at == self.focus), [])

    def save(self) -> None:
        """What there is before another level: should we be killed, it is there and says that it is not all."""
        if self.place is not None and self.levels:
            unfinished = {"interrupted": True, "valid": False, "verdict": "BROKEN OFF: killed while it ran"}
            self.place.write(document.plain(self.document("") | unfinished))

    def finish(self, verdict: str) -> None:
        """Write and show the report."""
        self.told = told = document.plain(self.document(verdict))
        if self.place is not None:
            self.place.write(told)
            self.place.draw(told)
        self.screen.show(told, str(self.place.path / "report.html") if self.place else "")

    def status(self) -> int:
        """0: everything asked was done and not too much failed."""
        total = sum(level["ok"] + level["failed"] for level in self.levels)
        failed = sum(level["failed"] for level in self.levels)
        if self.interrupted:
            return 130
        return 1 if failed > self.options.failures_allowed(total) or not total else 0


def start(
    command: str,
    options: Options,
    own: Mapping[str, Any],
    body: Callable[[Bench], Coroutine[Any, Any, str]],
    *,
    place: Folder | None = None,
) -> Bench:
    """Run a command's body to its end, and write its report however that comes. The body gives the verdict."""
    options.verify()
    now = time.time()
    fresh = place is None
    if place is None and options.save:
        place = Folder.create(options.out, options.name or command, datetime.fromtimestamp(now))
    bench = Bench(command, options, own, screen=Screen(json=options.json), place=place, now=now)
    import uvloop

    try:
        uvloop.run(_run(bench, body))
    except Refused:
        if bench.told is None and place is not None and fresh:
            place.path.rmdir()  # nothing was measured: leave nothing behind
        raise
    return bench


async def _run(bench: Bench, body: Callable[[Bench], Coroutine[Any, Any, str]]) -> None:
    with runner.interruptible() as bench.stop:
        try:
            verdict = await body(bench)
        except BaseException as problem:
            bench.interrupted = True
            if bench.levels:
                bench.finish(f"{type(problem).__name__}; this is what was measured until then")
            if isinstance(problem, WorkerDied):
                raise Refused(f"{problem}; its readings are lost, the others' are written") from None
            raise
        bench.finish(verdict)


def say(bench: Bench, *, single: bool = False) -> None:
    """The last line of stdout, where it was asked for: the document without its pictures.

    `single`: one level is the whole run, and its numbers stand at the top, where scripts look for them.
    """
    if bench.options.json and bench.told is not None:
        told = {key: value for key, value in bench.told.items() if key not in ("shown", "arguments")}
        told["folder"] = str(bench.place.path) if bench.place else None
        if single and bench.levels:
            told = bench.levels[-1] | told
        typer.echo(orjson.dumps(document.plain(told)).decode())


def _place(schedule: Closed | Open | Recorded) -> str:
    if isinstance(schedule, Closed):
        return f"× {schedule.concurrency}"
    return f"{schedule.knots[-1].rate:g}/s" if isinstance(schedule, Open) else "as recorded"


def _calm(since: float) -> None:
    return None
