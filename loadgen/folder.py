"""A run's folder: `runs/DATE-NAME/` with everything that was measured and everything drawn from it.

| file | what |
|---|---|
| readings.jsonl | every exchange, warm-up too: its summary, its arrivals, which level and prompt it belongs to |
| summary.json | the document that all else is drawn from |
| summary.csv | its levels, or its cells, as a table |
| report.html | the report; `NAME.svg` its curves, `NAME.png` too where something here can draw them |

Readings are appended as levels end and the document is written again before the next, so a run that is killed
leaves what it had.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from proxy.meter.reading import Reading

from . import chart, figures, report
from .document import plain
from .options import Refused


class Folder:
    """Where one run is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path, name: str, now: datetime) -> Folder:
        """A new folder under `root`; a second run within one second gets a number."""
        safe = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "run"
        stem = f"{now:%Y%m%d-%H%M%S}-{safe}"
        for number in range(1, 1000):
            path = root / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise Refused(f"--out: {root} cannot be written ({error.strerror})") from None
            return cls(path)
        raise Refused(f"--out: {root} holds a thousand runs of this second")

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        with (self.path / "readings.jsonl").open("ab") as file:
            for row in rows:
                file.write(orjson.dumps(row) + b"\n")  # which writes null for what JSON lacks

    def write(self, document: Mapping[str, Any]) -> None:
        """summary.json and summary.csv."""
        told = plain(document)
        self._replace("summary.json", json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False))
        self._replace("summary.csv", report.table(told))

    def draw(self, document: Mapping[str, Any]) -> None:
        """report.html, and its curves as files."""
        told = plain(document)
        self._replace("report.html", report.html([told]))
        pictures = {c.id: chart.svg(c, standalone=True) for c in figures.charts([told])}
        if rows := figures.bursts([told]):
            pictures["bursts"] = chart.strips("How a typical answer comes", rows, standalone=True)
        for name, picture in pictures.items():
            self._replace(f"{name}.svg", picture)
            rasterise(self.path / f"{name}.svg")

    def _replace(self, name: str, text: str) -> None:
        """Whole or not at all: a reader never sees half a file."""
        part = self.path / f".{name}.part"
        part.write_text(text, "utf-8")
        part.replace(self.path / name)


def read(path: Path) -> dict[str, Any]:
    """The document of a run's folder."""
    file = path / "summary.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path} holds no summary.json: it is no run's folder") from None
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise Refused(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise Refused(f"{file} is not the summary of a run of this version")
    return document


def row(reading: Reading, **facts: Any) -> dict[str, Any]:
    """A line of readings.jsonl: the arrivals as two columns, so that a long stream stays one short line."""
    arrivals = {"at": reading.arrivals.column("at").tolist(), "burst": reading.bursts}
    return facts | reading.summary() | arrivals


# What turns an SVG into a PNG, if it is installed. A browser would do too, but takes seconds a picture.
_RENDERERS = {
    "rsvg-convert": ("-w", "1280", "-o", "{png}", "{svg}"),
    "resvg": ("-w", "1280", "{svg}", "{png}"),
    "inkscape": ("--export-width=1280", "--export-filename={png}", "{svg}"),
}


def rasterise(picture: Path) -> bool:
    """The PNG beside an SVG; False where nothing is installed that draws one."""
    for program, arguments in _RENDERERS.items():
        if found := shutil.which(program):
            places = {"svg": str(picture), "png": str(picture.with_suffix(".png"))}
            given = [argument.format(**places) for argument in arguments]
            try:
                return subprocess.run([found, *given], capture_output=True, timeout=30).returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                return False
    return False
