"""`manometer load`: one level of load, closed or open, and what it was like."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .bench import Bench, say, start
from .options import Options, Refused, command
from .plan import Ask, limits, paced
from .schedule import Closed, Knot, Open

_PANEL = "How much"


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL)


@command
def load(
    options: Options,
    concurrency: Annotated[int, _option("--concurrency", "-c", help="Clients that each wait for their answer.")] = 8,
    requests: Annotated[int, _option("--requests", "-n", help="Measured requests; 0: by --duration.")] = 0,
    duration: Annotated[float, _option("--duration", "-d", help="Seconds; 0: by --requests.")] = 0.0,
    rate: Annotated[float, _option("--rate", "-r", help="Open loop: requests per second; 0: closed loop.")] = 0.0,
    arrivals: Annotated[str, _option("--arrivals", help="Of an open loop: constant, poisson or gamma.")] = "poisson",
    burstiness: Annotated[float, _option("--burstiness", help="Of gamma: below 1 requests come in clusters.")] = 1.0,
    ramp: Annotated[str, _option("--ramp", help="Seconds to full load, or a rate over time: 0:1,30:20,60:20.")] = "",
) -> int:
    """Load one server at one level and say how it did."""
    own = {
        "concurrency": concurrency, "requests": requests, "duration": duration,
        "rate": rate, "arrivals": arrivals, "burstiness": burstiness, "ramp": ramp,
    }  # fmt: skip
    if not requests and not duration:
        requests = max(20, 8 * concurrency)
    schedule = scheduled(options, concurrency, rate, arrivals, burstiness, ramp)

    async def body(bench: Bench) -> str:
        target = bench.target()
        model = await bench.identify(target, options.model)
        bench.warnings += limits(options, model, options.url)
        if options.otpm and isinstance(schedule, Open) and not rate:
            told = f"paced to {schedule.knots[-1].rate:.2f} requests/s by --otpm: this shows latency, not capacity"
            bench.warnings.append(told)
        ask = Ask(bench.work(), bench.question(model))
        found = await bench.measure(target, ask, schedule, requests=requests or None, duration=duration or None)
        return verdict(found.json, model)

    bench = start("load", options, own, body)
    say(bench, single=True)
    return bench.status()


def scheduled(
    options: Options, concurrency: int, rate: float, arrivals: str, burstiness: float, ramp: str
) -> Closed | Open:
    """The schedule that the options describe."""
    try:
        if ":" in ramp:
            pairs = (part.split(":") for part in ramp.split(","))
            return Open(tuple(Knot(float(at), float(speed)) for at, speed in pairs), arrivals, burstiness)
        seconds = float(ramp or 0)
        if rate:
            return Open.at(rate, arrivals, burstiness, seconds)
        return paced(options, concurrency) if options.otpm else Closed(concurrency, seconds)
    except ValueError as error:
        raise Refused(f"the schedule: {error}") from None


def verdict(level: dict[str, Any], name: str) -> str:
    """The one line to read."""
    if not level["ok"]:
        reasons = ", ".join(f"{count} {outcome}" for outcome, count in level["outcomes"].items())
        return f"{name}: no request succeeded ({reasons or 'none was sent'})"
    place = (
        f"{level['rate']:g} requests/s"
        if level["rate"]
        else f"{level['concurrency']} at once"
        if level["concurrency"]
        else "as recorded"
    )
    first, whole = level["ttft"]["p50"], level["e2e"]["p95"]
    parts = [f"{level['throughput']:,.0f} tokens/s at {place}"]
    parts += [f"first token {first * 1000:,.0f} ms (P50)"] if first is not None else []
    parts += [f"whole answer {whole * 1000:,.0f} ms (P95)"] if whole is not None else []
    parts += [f"{level['goodput_share']:.0%} within the objectives"] if level["goodput_share"] is not None else []
    parts += [f"{level['failed']} failed"] if level["failed"] else []
    return f"{name}: {', '.join(parts)}"
