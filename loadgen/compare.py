"""`manometer compare A B`: two models, asked in pairs within one run, scenario by scenario; and which to take for what.

1. Each scenario has one metric that decides, because it is what someone waits for there; the others are told.
2. "Undecided" is an answer. It stands wherever the interval holds 1, or the faster one is wrong more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer

from . import document
from .analysis.metric import METRICS
from .analysis.pairing import Decision, decide
from .bench import Bench, say, start
from .options import Options, Refused, command
from .pairs import Side, interleave, judged, paired
from .plan import Ask, limits, prompts
from .runner import Run, Target
from .workload import Workload

_PANEL = "What is compared"
_METRICS = ("ttft", "ttfa", "e2e", "e2e_rate", "decode_rate", "price")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A use, its questions, and the metric that decides there."""

    name: str
    prompts: str
    decides: str
    max_tokens: int
    concurrency: int = 1
    extra: dict[str, Any] = field(default_factory=dict)


SCENARIOS = {
    scenario.name.split()[0]: scenario
    for scenario in (
        Scenario("interactive completion", "short", "ttfa", 128),
        Scenario("batch generation", "long", "e2e_rate", 512, concurrency=8),
        Scenario("code", "code", "e2e", 384),
        Scenario("structured output", "structured", "e2e", 256),
        Scenario("long reasoning", "reasoning", "e2e", 1024, extra={"reasoning_effort": "high"}),
    )
}


def _option(*names: str, help: str, envvar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, envvar=envvar)


@command
def compare(
    options: Options,
    a: Annotated[str, typer.Argument(help="A model, or MODEL@URL where it is not behind --url.")],
    b: Annotated[str, typer.Argument(help="The other.")],
    pairs: Annotated[int, _option("--pairs", "-n", help="For each scenario; 6 is the least that can decide.")] = 20,
    scenarios: Annotated[str, _option("--scenarios", help=f"Of {', '.join(SCENARIOS)}.")] = ",".join(SCENARIOS),
    key_b: Annotated[
        str, _option("--key-b", envvar="MANOMETER_KEY_B", help="API key of B, where it has its own.")
    ] = "",
    price_b: Annotated[str, _option("--price-b", help="Prices of B; --price are those of A.")] = "",
    decoding_b: Annotated[str, _option("--decoding-b", help="diffusion or autoregressive.")] = "",
) -> int:
    """Ask two models the same questions in pairs, and decide for each scenario which to use."""
    chosen = [_scenario(name.strip()) for name in scenarios.split(",") if name.strip()]
    if pairs < 1 or not chosen:
        raise Refused("--pairs must be at least 1, --scenarios must name one")
    other = replace(options, price=price_b, key=key_b or options.key, decoding=decoding_b or options.decoding)
    other.verify()
    own = {"a": a, "b": b, "pairs": pairs, "scenarios": [scenario.name for scenario in chosen]}

    async def body(bench: Bench) -> str:
        ends = [_target(bench, options, a), _target(bench, other, b)]
        models = [await bench.identify(target, model) for target, model in ends]
        labels = _labels(models)
        for model, (target, _) in zip(models, ends, strict=True):
            bench.warnings += limits(options, model, target.url)
        decisions: list[Decision] = []
        bench.more |= {"ratios": [], "decisions": []}
        for scenario in chosen:
            if bench.stop.is_set():
                break
            sides = [
                Side(label, replace(target, backend=label), _ask(bench, model, scenario))
                for label, model, (target, _) in zip(labels, models, ends, strict=True)
            ]
            decisions.append(await _scene(bench, scenario, sides, pairs))
            bench.more["decisions"] = [document.decision_of(decision) for decision in decisions]
        return verdict(decisions, labels)

    bench = start("compare", options, own, body)
    say(bench)
    return bench.status()


async def _scene(bench: Bench, scenario: Scenario, sides: Sequence[Side], pairs: int) -> Decision:
    """One scenario: both sides asked, folded, compared."""
    bench.save()
    bench.screen.begin(scenario.name, 2 * pairs)
    run = Run()
    try:
        await interleave(sides, pairs, scenario.concurrency, bench.options.seed, bench.stop, bench.screen.saw, run)
    finally:
        bench.screen.end()
        bench.interrupted = bench.interrupted or bench.stop.is_set()
        found = [
            bench.keep(s.seen, run, s.name, s.ask, score=True, concurrency=scenario.concurrency, scenario=scenario.name)
            for s in sides
        ]
    names = (sides[0].name, sides[1].name)
    ratios = {metric: paired(metric, found[0], found[1]) for metric in _METRICS}
    if not ratios["price"].pairs:
        del ratios["price"]  # nobody said what it costs
    bench.more["ratios"] += [document.ratio_of(r, scenario.name, names) for r in ratios.values()]
    deciding = replace(ratios[scenario.decides], metric=METRICS[scenario.decides].title)
    return decide(scenario.name, names, deciding, list(judged(found[0], found[1])))


def verdict(decisions: Sequence[Decision], labels: Sequence[str]) -> str:
    """The one line to read."""
    taken = {label: [d.scenario for d in decisions if d.choice == label] for label in (*labels, "undecided")}
    parts = [f"{label} for {', '.join(won)}" for label, won in taken.items() if won and label != "undecided"]
    parts += [f"undecided: {', '.join(taken['undecided'])}"] if taken["undecided"] else []
    return "; ".join(parts) or "nothing was compared"


def _scenario(name: str) -> Scenario:
    if name not in SCENARIOS:
        raise Refused(f"--scenarios: no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def _target(bench: Bench, options: Options, spec: str) -> tuple[Target, str]:
    """MODEL or MODEL@URL. A model's own diffusion parameters (`mercury-2.5@steps=8`) stay with its name."""
    model, at, url = spec.partition("@http")
    target = bench.target(url=f"http{url}" if at else "", key=options.key, decoding=options.decoding, keep_text=True)
    return replace(target, prices=options.prices), model


def _labels(models: Sequence[str]) -> list[str]:
    """The two names, told apart where they are the same."""
    return list(models) if models[0] != models[1] else [f"{models[0]} (A)", f"{models[1]} (B)"]


def _ask(bench: Bench, model: str, scenario: Scenario) -> Ask:
    options = bench.options
    work = Workload(prompts(scenario.prompts, options.language, options.seed), options.seed)
    return Ask(work, bench.question(model, max_tokens=scenario.max_tokens, **scenario.extra))
