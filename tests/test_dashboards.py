"""The checked-in dashboards, held to rules: Grafana's own linter's, ported, and this project's."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from grafana import dashboards, panels, queries
from proxy import metrics as m
from tests.elsewhere import install
from tests.promql import PROCESS, SCRAPE, family, labels, problems, selectors, unguarded

Json = dict[str, Any]
FILES = sorted(dashboards.FOLDER.glob("*.json"))
BOARDS = [pytest.param(json.loads(file.read_text(encoding="utf-8")), id=file.stem) for file in FILES]


def charts(board: Json) -> list[Json]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def raw(board: Json) -> list[str]:
    found = [target["expr"] for panel in charts(board) for target in panel["targets"]]
    return found + [annotation["expr"] for annotation in board["annotations"]["list"]]


def expressions(board: Json) -> list[str]:
    """With every variable filled in, enough for the parser: windows are a minute, an objective is its default."""
    return [re.sub(r"\$\w+", "1m", expr.replace("$objective", "1.0")) for expr in raw(board)]


def test_the_checked_in_files_are_what_the_generator_writes() -> None:
    assert dashboards.main(["--check"]) == 0, "run: python -m grafana.dashboards"


def test_the_check_says_which_files_are_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboards, "FOLDER", tmp_path)
    assert dashboards.main([]) == 0
    assert dashboards.main(["--check"]) == 0
    (tmp_path / "cost.json").write_text("{}")
    (tmp_path / "forgotten.json").write_text("{}")
    assert dashboards.main(["--check"]) == 1
    assert "out of date: cost.json, forgotten.json" in capsys.readouterr().err
    assert dashboards.main(["--chekc"]) == 2


def test_there_are_four_and_each_leads_to_the_others() -> None:
    loaded = [json.loads(file.read_text()) for file in FILES]
    assert [board["uid"] for board in loaded] == [
        "manometer-cost",
        "manometer-decoding",
        "manometer-health",
        "manometer-overview",
    ]
    for board in loaded:
        (link,) = board["links"]
        assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
            "dashboards",
            board["tags"],
            True,
            True,
        )


def test_the_page_names_every_dashboard_and_every_variable() -> None:
    page = (dashboards.FOLDER.parent.parent / "docs" / "dashboards.md").read_text(encoding="utf-8")
    for file in FILES:
        board = json.loads(file.read_text())
        assert f"| {board['title']} |" in page and f"`{file.name}`" in page
        assert {each["name"] for each in board["templating"]["list"]} <= set(re.findall(r"`(\w+)`", page))


@pytest.mark.parametrize("board", BOARDS)
def test_a_dashboard_is_portable_and_nobody_edits_it_in_the_browser(board: Json) -> None:
    assert board["editable"] is False
    assert 8 <= len(board["uid"]) <= 40
    assert "__inputs" not in board, "file provisioning does not fill them in"
    assert board["graphTooltip"] == 1
    assert (board["refresh"], board["time"]["from"]) == ("10s", "now-15m")
    assert board["schemaVersion"] == 39, "what Grafana 10.4 writes; later ones migrate it"


@pytest.mark.parametrize("board", BOARDS)
def test_variables(board: Json) -> None:
    variables = {each["name"]: each for each in board["templating"]["list"]}
    source = variables["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    assert {"job", "instance", "backend", "model"} <= variables.keys()
    for each in variables.values():
        if each["type"] == "query":
            assert each["refresh"] == 2, f"{each['name']} must follow the time range"
            assert each["datasource"]["uid"] == "${datasource}"
            name, label = re.fullmatch(r"label_values\((\w+)[^,]*.*, (\w+)\)", each["definition"]).groups()  # type: ignore[union-attr]
            metric = family(name)
            assert metric is not None, name
            assert label in (*metric.labels, *PROCESS)
    used = set(re.findall(r"\$(\w+)", json.dumps(board["panels"])))
    assert used - {"__rate_interval", "__range", "__all"} <= variables.keys(), "a variable that nobody defines"


@pytest.mark.parametrize("board", BOARDS)
def test_every_panel_says_what_it_shows(board: Json) -> None:
    titles = [panel["title"] for panel in charts(board)]
    assert len(titles) == len(set(titles)), "two panels with one title"
    for panel in charts(board):
        where = f"{board['title']}: {panel['title']}"
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"] and panel["description"], where
        assert re.search(r"\n\nFrom (`\w+`(, )?)+\.$", panel["description"]), where
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, where
        assert panel["targets"], where
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"]), where
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), where
        assert defaults["unit"], where
        assert defaults["noValue"] not in ("", "0"), f"{where}: no data is not 0"
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"] is True, where
            assert panel["options"]["tooltip"]["mode"] == "multi", where
        if panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"], where


@pytest.mark.parametrize("board", BOARDS)
def test_panels_fill_the_grid_without_holes_and_without_covering_each_other(board: Json) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} covers {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    bottom = max(y for _, y in taken) + 1
    assert len(taken) == 24 * bottom, "a hole in the grid"


@pytest.mark.parametrize("board", BOARDS)
def test_every_query_names_metrics_labels_and_bounds_that_exist(board: Json) -> None:
    for expr in expressions(board):
        assert problems(expr) == [], expr


@pytest.mark.parametrize("board", BOARDS)
def test_every_variable_has_an_effect_on_every_selector_that_could_obey_it(board: Json) -> None:
    for expr in expressions(board):
        for selector in selectors(expr):
            if selector.name == "ALERTS":
                continue
            metric = family(selector.name)
            own = {"backend", "model", "currency"} & set(metric.labels if metric else ())
            assert labels(selector).keys() >= PROCESS | own, expr
            assert metric is not None or selector.name in SCRAPE, expr


@pytest.mark.parametrize("board", BOARDS)
def test_counters_are_only_read_as_rates_over_a_window_that_fits(board: Json) -> None:
    for expr in raw(board):
        for name, window in re.findall(r"(\w+)\{[^}]*\}(\[[^\]]*\])?", expr):
            counter = name.endswith(("_total", "_bucket", "_sum", "_count"))
            assert bool(window) == counter or name == m.RELOADED.full_name, expr
        assert set(re.findall(r"\[([^\]]*)\]", expr)) <= {"$__rate_interval", "$__range"}, expr
        assert set(re.findall(r"(\w+)\(\w+\{[^}]*\}\[", expr)) <= {"rate", "increase", "changes"}, expr


@pytest.mark.parametrize("board", BOARDS)
def test_quantiles_keep_le_and_divisions_are_guarded(board: Json) -> None:
    for expr in expressions(board):
        assert expr.count("histogram_quantile(") == len(
            re.findall(r"histogram_quantile\([\d.]+, sum by \(le[,)]", expr)
        )
        assert unguarded(expr) == [], expr


def test_every_choice_of_the_objective_is_the_bound_of_a_bucket() -> None:
    board = json.loads((dashboards.FOLDER / "overview.json").read_text())
    objective = next(each for each in board["templating"]["list"] if each["name"] == "objective")
    assert {option["value"] for option in objective["options"]} <= set(map(repr, m.TTFT.bounds))


def test_colours_of_the_two_kinds_are_fixed_by_name() -> None:
    board = json.loads((dashboards.FOLDER / "decoding.json").read_text())
    for panel in charts(board):
        if panel["type"] != "timeseries":
            continue
        colours = {
            override["matcher"]["options"]: override["properties"][0]["value"].get("fixedColor")
            for override in panel["fieldConfig"]["overrides"]
            if override["properties"][0]["id"] == "color"
        }
        assert colours == {"/^diffusion/": panels.DIFFUSION, "/^autoregressive/": panels.AUTOREGRESSIVE}
        assert all(target["legendFormat"].startswith("{{decoding}}") for target in panel["targets"])


def test_latency_quantiles_show_exemplars() -> None:
    board = json.loads((dashboards.FOLDER / "overview.json").read_text())
    for panel in charts(board):
        if panel["type"] == "timeseries" and panel["title"] in ("Time to first token", "Request duration"):
            assert all(target["exemplar"] for target in panel["targets"])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: queries.rate(m.TTFT, 'bakcend="x"'), "time_to_first_token_seconds has no label bakcend"),
        (lambda: queries.rate(m.COST, by="outcome"), "cost_total has no label outcome"),
        (lambda: queries.share_above(m.OVERHEAD_SECONDS, 0.02), "overhead_seconds has no bucket that ends at 0.02"),
        (lambda: panels.grid([(4, [panels.row("a")] * 5)]), "5 panels do not fill a line of 24"),
    ],
)
def test_the_generator_refuses_what_would_be_silently_empty(build: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build()


# Grafana's own types, made from its schemas: what they do not know is lost when a dashboard passes through them.
ROUND_TRIP = """
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()
boards = [Dashboard.from_json(board) for board in json.load(sys.stdin)]
print(JSONEncoder().encode(boards))
"""


def lost(before: Any, after: Any, where: str = "") -> list[str]:
    """Fields and values of `before` that are not in `after`; empty ones may be left out."""
    if isinstance(before, dict) and isinstance(after, dict):
        gone = [
            f"{where}.{name}" for name, value in before.items() if name not in after and value not in (None, [], {})
        ]
        kept = before.keys() & after.keys()
        return gone + [found for name in kept for found in lost(before[name], after[name], f"{where}.{name}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            found for i, pair in enumerate(zip(before, after, strict=True)) for found in lost(*pair, f"{where}[{i}]")
        ]
    return [] if before == after else [f"{where}: {before!r} became {after!r}"]


@pytest.mark.real
def test_grafanas_own_types_know_every_field(tmp_path: Path) -> None:
    python = install(tmp_path, "grafana-foundation-sdk==0.0.21") / "bin" / "python"
    boards = [json.loads(file.read_text()) for file in FILES]
    mutant = json.loads(FILES[0].read_text())
    mutant["panels"][0]["options"]["colourMode"] = "value"
    done = subprocess.run(
        [python, "-c", ROUND_TRIP], input=json.dumps([*boards, mutant]), capture_output=True, text=True, check=True
    )
    *same, changed = json.loads(done.stdout)
    for before, after in zip(boards, same, strict=True):
        assert lost(before, after) == []
    assert lost(mutant, changed) == [".panels[0].options.colourMode"]
