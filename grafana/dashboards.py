"""Writes the dashboards: `python -m grafana.dashboards`; with `--check` it only says whether they are up to date.

The JSON files are checked in, because Grafana reads files and a reviewer reads a diff.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from proxy import metrics as m

from . import cost, decoding, health, overview
from . import panels as p
from . import queries as q

FOLDER = Path(__file__).parent / "dashboards"


def dashboards() -> list[p.Json]:
    process = [
        p.choice("job", "Job", f"label_values({m.BUILD.full_name}, job)"),
        p.choice("instance", "Instance", f'label_values({m.BUILD.full_name}{{job=~"$job"}}, instance)'),
    ]
    here = f'{m.STARTED.full_name}{{job=~"$job", instance=~"$instance"'
    backend = p.choice("backend", "Backend", f"label_values({here}}}, backend)")
    # Where heatmaps repeat for each backend, what was refused before one was chosen has nothing to show.
    decoder = p.choice("backend", "Backend", f'label_values({here}, decoding!="none"}}, backend)')
    model = p.choice("model", "Model", f'label_values({here}, backend=~"$backend"}}, model)')
    currency = p.choice("currency", "Currency", f"label_values({m.COST.full_name}, currency)", multi=False)
    mirror = p.fixed("mirror", "Traffic", [("all", ".*"), ("of clients", "false"), ("shadow copies", "true")])
    every = [*process, backend, model]
    return [
        p.dashboard(
            "manometer-overview",
            "Manometer / Overview",
            "Speed, failures and cost of every backend, as its clients saw it.",
            [*every, currency, overview.objective()],
            _annotations(),
            overview.rows(),
        ),
        p.dashboard(
            "manometer-decoding",
            "Manometer / Diffusion vs autoregressive",
            "Both kinds of decoding by the same definitions, on the same axes.",
            [*process, decoder, model, currency, mirror],
            _annotations(),
            decoding.rows(),
        ),
        p.dashboard(
            "manometer-cost",
            "Manometer / Cost",
            "What the traffic costs, by backend and model.",
            [*every, currency, mirror],
            _annotations(),
            cost.rows(),
        ),
        p.dashboard(
            "manometer-health",
            "Manometer / Proxy health",
            "What the proxy adds, how sure its stamps are, and whether anything is lost.",
            every,
            _annotations(),
            health.rows(),
        ),
    ]


def _annotations() -> list[p.Json]:
    reloads = f"changes({q.select(m.RELOADED)}[{q.WINDOW}]) > 0"
    alerts = 'ALERTS{alertstate="firing", service="manometer"}'
    return [
        p.annotation("Configuration loaded", reloads, "blue", "Configuration loaded"),
        p.annotation("Alerts", alerts, "red", "{{alertname}} {{backend}}"),
    ]


def rendered() -> dict[Path, str]:
    return {
        FOLDER / f"{each['uid'].removeprefix('manometer-')}.json": json.dumps(each, indent=2, ensure_ascii=False) + "\n"
        for each in dashboards()
    }


def main(arguments: Sequence[str] = ()) -> int:
    if set(arguments) - {"--check"}:
        print("usage: python -m grafana.dashboards [--check]", file=sys.stderr)
        return 2
    wanted = rendered()
    if "--check" in arguments:
        found = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
        stale = sorted(path.name for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
        if stale:
            print(f"out of date: {', '.join(stale)}; run: python -m grafana.dashboards", file=sys.stderr)
        return 1 if stale else 0
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
