"""Shows the sections: in the terminal, and as RESULTS.md, with the machine and the day."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from figures import Section
from rich.console import Console
from rich.table import Table

_PACKAGES = ("aiohttp", "httptools", "orjson", "uvloop")


def show(sections: Sequence[Section], console: Console) -> None:
    for section in sections:
        names = _names(section)
        table = Table(title=section.title, title_justify="left", title_style="bold", caption=section.note or None)
        table.caption_justify = "left"
        table.add_column("median of the rounds (least-most)")
        for name in names:
            table.add_column(name, justify="right")
        for row in section.rows:
            table.add_row(row.what, *(row.cells.get(name, "") for name in names))
        console.print(table)


def markdown(sections: Sequence[Section], machine: Sequence[str], how: str) -> str:
    lines = ["# Measured by `make bench`", "", *(f"- {line}" for line in machine), "", how, ""]
    for section in sections:
        names = _names(section)
        lines += [f"## {section.title}", "", f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
        for row in section.rows:
            what = row.what.strip() if row.what == row.what.strip() else f"&emsp;{row.what.strip()}"
            lines.append(f"| {what} | {' | '.join(row.cells.get(name, '') for name in names)} |")
        lines += ["", *([section.note, ""] if section.note else [])]
    return "\n".join(lines).rstrip() + "\n"


def machine() -> list[str]:
    """Where and when, without the machine's name."""
    model = next(
        (line.partition(":")[2].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    cores = sum(line.startswith("processor") for line in _read("/proc/cpuinfo"))
    load = _read("/proc/loadavg")[0].split()[0]
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return [
        f"{date.today().isoformat()}, load average at the start {load}",
        f"{cores} cores, {model}, Linux {platform.release()}",
        f"Python {platform.python_version()}, {packages}, {_nginx()}",
    ]


def _nginx() -> str:
    try:
        said = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return "no nginx"
    return said.strip().rpartition(": ")[2].replace("/", " ")


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return [""]


def _names(section: Section) -> list[str]:
    """Every contestant that has a figure here, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in section.rows for name in row.cells))
