"""`manometer replay`: recorded traffic again, at its own pace or another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .bench import Bench, say, start
from .load import verdict
from .options import Options, Refused, command
from .plan import Ask, limits
from .schedule import Recorded
from .workload import Prompt, Workload, read

_PANEL = "What is replayed"


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL)


@command
def replay(
    options: Options,
    file: Annotated[Path, typer.Argument(help="JSON lines: readings, a Mooncake trace, or prompts with `at`.")],
    pace: Annotated[float, _option("--pace", help="2: twice as fast as it was.")] = 1.0,
    first: Annotated[int, _option("--first", help="Only so many requests; 0: all.")] = 0,
) -> int:
    """Send recorded requests at their times; latencies count from when each should have been sent."""
    prompts = recorded(file)[: first or None]
    try:
        schedule = Recorded(tuple(prompt.at or 0.0 for prompt in prompts), pace)
    except ValueError as error:
        raise Refused(f"--pace: {error}") from None
    own = {"file": str(file), "pace": pace, "first": first, "requests": len(prompts)}

    async def body(bench: Bench) -> str:
        target = bench.target()
        model = await bench.identify(target, options.model)
        bench.warnings += limits(options, model, options.url)
        ask = Ask(Workload(prompts, shuffled=False), bench.question(model))
        found = await bench.measure(target, ask, schedule, requests=len(prompts), warmup=0)
        return verdict(found.json, model)

    bench = start("replay", options, own, body)
    say(bench, single=True)
    return bench.status()


def recorded(file: Path) -> list[Prompt]:
    """The file's requests in order of time."""
    try:
        with file.open(encoding="utf-8") as lines:
            prompts = read(lines, file.name)
    except (ValueError, OSError) as error:
        raise Refused(f"{error}") from None
    if any(prompt.at is None for prompt in prompts):
        raise Refused(f"{file.name} holds no times (`timestamp`, `started_at` or `at`): use load --prompts {file}")
    return prompts
