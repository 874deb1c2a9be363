"""Read answers side by side without knowing whose they are: `sweep --read`.

The page holds pairs of answers and nothing that says which setting wrote which; that stands in `read-key.json`,
which the page does not load. The reader presses 1, 2, = or the space bar to skip; the result is saved as a file,
and `sweep --read DIR --votes FILE` opens the key and counts. Answers whose checks disagree come first: the
hard cases are where reading pays.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import typer

from .analysis.interval import sign_test
from .options import Refused

MOST = 40  # pairs that someone reads through


def write(folder: Path, most: int = MOST) -> int:
    """Make read.html and its key in a sweep's folder; the exit status."""
    pairs = choose(_cells(folder), most, random.Random(0))
    if not pairs:
        raise Refused(f"{folder}: there are no two settings that answered the same question with different texts")
    shown = [{"question": pair["question"], "texts": pair["texts"]} for pair in pairs]
    key = [{name: pair[name] for name in ("settings", "prompt", "reference")} for pair in pairs]
    data = json.dumps({"folder": folder.name, "pairs": shown}, ensure_ascii=False).replace("<", "\\u003c")
    page = resources.files("loadgen").joinpath("blind.html").read_text("utf-8")
    page = page.replace("{{title}}", escape(folder.name), 1).replace("{{data}}", data, 1)
    (folder / "read.html").write_text(page, "utf-8")
    (folder / "read-key.json").write_text(json.dumps(key, ensure_ascii=False, indent=1), "utf-8")
    typer.echo(f"{len(pairs)} pairs to read: open {folder / 'read.html'}")
    typer.echo(f"then: manometer sweep --read {folder} --votes votes.json")
    return 0


def tally(folder: Path, votes: Path) -> int:
    """Count a reader's votes against the reference setting; the exit status."""
    try:
        key = json.loads((folder / "read-key.json").read_text("utf-8"))
        given = json.loads(votes.read_text("utf-8"))["votes"]
        rows = count(key, given)
    except (OSError, json.JSONDecodeError, KeyError, TypeError, IndexError, ValueError) as error:
        raise Refused(f"--votes: {votes} does not fit {folder} ({error})") from None
    for row in rows:
        verdict = "undecided" if row["chance"] >= 0.05 else "better" if row["wins"] > row["losses"] else "worse"
        told = f"{row['wins']} better, {row['ties']} equal, {row['losses']} worse"
        typer.echo(f"{row['setting']}  against  {row['reference']}: {told}: {verdict} (p = {row['chance']:.3f})")
    (folder / "votes.json").write_text(
        json.dumps({"votes": given, "rows": rows}, ensure_ascii=False, indent=1), "utf-8"
    )
    return 0


def choose(cells: Sequence[Mapping[str, Any]], most: int, source: random.Random) -> list[dict[str, Any]]:
    """Pairs of the reference (the setting whose answers take longest) with every other, sides by chance."""
    answered = [cell for cell in cells if cell["answers"]]
    if len(answered) < 2:
        return []
    reference = max(answered, key=lambda cell: cell["sec"] or 0)
    known = {answer["n"]: answer for answer in reference["answers"]}
    pairs = []
    for cell in answered:
        for answer in cell["answers"]:
            ours = known.get(answer["n"])
            if cell is reference or ours is None or ours["text"] == answer["text"]:
                continue
            hard = ours["passed"] != answer["passed"]
            pairs.append((not hard, source.random(), cell["label"], ours, answer))
    pairs.sort(key=lambda pair: pair[:2])
    return [_sides(reference["label"], *pair[2:], swapped=source.random() < 0.5) for pair in pairs[:most]]


def _sides(
    reference: str, label: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], *, swapped: bool
) -> dict[str, Any]:
    texts, settings = [ours["text"] or "", theirs["text"] or ""], [reference, label]
    if swapped:
        texts, settings = texts[::-1], settings[::-1]
    return {
        "question": ours["question"],
        "prompt": ours["prompt"],
        "texts": texts,
        "settings": settings,
        "reference": reference,
    }


def count(key: Sequence[Mapping[str, Any]], votes: Mapping[str, str]) -> list[dict[str, Any]]:
    """For each setting its wins, ties and losses against the reference, and the sign test's p."""
    reference = key[0]["reference"]
    scores: dict[str, Counter[str]] = {}
    for place, vote in votes.items():
        settings = key[int(place)]["settings"]
        other = next(s for s in settings if s != reference)
        won = {"1": settings[0], "2": settings[1]}.get(vote)
        if vote not in ("1", "2", "="):
            continue
        outcome = "ties" if won is None else "wins" if won == other else "losses"
        scores.setdefault(other, Counter())[outcome] += 1
    return [
        {
            "setting": setting,
            "reference": reference,
            **{name: score[name] for name in ("wins", "ties", "losses")},
            "chance": sign_test(score["wins"], score["losses"]),
        }
        for setting, score in scores.items()
    ]


def _cells(folder: Path) -> list[dict[str, Any]]:
    try:
        cells: list[dict[str, Any]] = json.loads((folder / "sweep.json").read_text("utf-8"))["cells"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise Refused(f"--read: {folder} holds no readable sweep.json ({error})") from None
    return cells
