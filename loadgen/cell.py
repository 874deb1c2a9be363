"""One cell of a sweep: settings, what was measured with them, and whether they did anything.

A server may swallow a field and do nothing with it. So each cell is held against those that differ from it in one
setting only, question by question; where neither time nor length nor text moved, it says `no effect seen`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from proxy.meter.reading import Reading

from .analysis.pairing import FEWEST, ratio
from .bench import Measured
from .plan import Ask
from .quality import pass_rate

KNOBS = ("steps", "width", "effort", "max_tokens", "concurrency")
FIELDS = {"steps": "num_denoising_steps", "width": "parallel_tokens", "effort": "reasoning_effort"}
_SERVERS = KNOBS[:-1]  # those that the server is asked to heed
_SMALL = 0.02  # a change of less is no effect, however sure it is

Settings = dict[str, Any]
Cell = dict[str, Any]


def grid(**values: Sequence[Any]) -> list[Settings]:
    """Every combination; a setting without values is None, and not sent."""
    return [dict(zip(KNOBS, chosen, strict=True)) for chosen in product(*(values[knob] or [None] for knob in KNOBS))]


def labels(cells: Sequence[Settings]) -> list[str]:
    """What tells the cells apart: the settings that are not the same in all of them."""
    varied = [knob for knob in KNOBS if len({cell[knob] for cell in cells}) > 1]
    named = [knob for knob in varied or KNOBS if any(cell[knob] is not None for cell in cells)]
    return [", ".join(f"{knob.replace('_', ' ')} {cell[knob]}" for knob in named) for cell in cells]


def cell_of(settings: Settings, label: str, measured: Measured, ask: Ask) -> Cell:
    """A row of sweep.json: the tutorial's fields (steps, width, sec, chars, text), and all else that was measured."""
    ok = [(n, r) for n, r in sorted(measured.readings, key=lambda pair: pair[0]) if r.outcome == "ok"]
    by_time = sorted((r for _, r in ok), key=lambda r: r.e2e)
    typical = by_time[(len(by_time) - 1) // 2] if by_time else None
    speeds = sorted(speed for r in by_time if (speed := _speed(r)) is not None)
    found = {
        "label": label,
        "settings": settings,
        "sec": measured.json["e2e"]["p50"],
        "chars": len(typical.text or "") if typical else None,
        "text": typical.text if typical else None,
        "speed": speeds[(len(speeds) - 1) // 2] if speeds else None,
        "quality": pass_rate(list(measured.scores.values())) if ok else None,
        "effect": "" if ok else _refusal([r for _, r in measured.readings]),
        "answers": [_answer(n, reading, measured, ask) for n, reading in ok],
    }
    return measured.json | settings | found


def _answer(n: int, reading: Reading, measured: Measured, ask: Ask) -> dict[str, Any]:
    prompt, score = ask.work[n], measured.scores[n]
    asked = {"n": n, "prompt": prompt.id, "question": prompt.text}
    said = {"sec": reading.e2e, "tokens": reading.tokens.completion, "text": reading.text}
    return asked | said | {"passed": score.passed, "reason": score.reason}


def _refusal(readings: Sequence[Reading]) -> str:
    for reading in readings:
        if reading.fault is not None:
            return f"refused: {' '.join((reading.fault.message or reading.fault.type).split())[:160]}"
    return "failed" if readings else "not run"


def _speed(reading: Reading) -> float | None:
    """Tokens per second of a whole answer; of estimated tokens where none were reported."""
    tokens = reading.tokens.completion or reading.estimated_completion
    return tokens / reading.e2e if tokens and reading.e2e else None


def mark(cells: Sequence[Cell]) -> None:
    """Say of each cell that worked which of its settings had no effect that one could see."""
    for cell in cells:
        if not cell["answers"]:
            continue
        beside = {knob: list(_beside(cell, cells, knob)) for knob in _SERVERS}
        idle = [knob for knob, others in beside.items() if others and not any(differs(cell, o) for o in others)]
        seen = "seen" if any(beside.values()) else ""
        verdict = "no effect seen" if len(cell["answers"]) >= FEWEST else f"under {FEWEST} questions, can't tell"
        cell["effect"] = f"{verdict}: {', '.join(idle)}" if idle else seen


def _beside(cell: Cell, cells: Sequence[Cell], knob: str) -> Iterator[Cell]:
    """The cells with answers that differ from this one in `knob` alone."""
    for other in cells:
        changed = [k for k in KNOBS if other["settings"][k] != cell["settings"][k]]
        if changed == [knob] and other["answers"]:
            yield other


def differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether time or length of the answers to the same questions moved more than chance would let them."""
    first = {answer["n"]: answer for answer in one["answers"]}
    pairs = [(first[answer["n"]], answer) for answer in other["answers"] if answer["n"] in first]
    for key in ("sec", "tokens"):
        found = ratio(key, ((a[key], b[key]) for a, b in pairs), lower_is_better=True)
        if found.verdict != "undecided" and found.value is not None and abs(found.value - 1) > _SMALL:
            return True
    # Texts speak only where some are equal: a server that rolls dice never says the same twice.
    same = sum(bool(a["text"] == b["text"]) for a, b in pairs)
    return 0 < same < len(pairs)
