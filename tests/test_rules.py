"""Recording and alert rules: promtool's own checks and scenarios, and that nothing in them is misspelt."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.elsewhere import missing
from tests.promql import problems, unguarded

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "grafana" / "prometheus"
GROUPS = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
SCENARIOS = sorted(FOLDER.glob("*_test.yml"))


def run(*arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        missing("promtool is not installed (Debian: apt-get install --no-install-recommends prometheus)")
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_promtool_accepts_the_rules_and_the_scrape_configuration() -> None:
    for arguments in (("check", "rules", "rules.yml"), ("check", "config", "prometheus.yml")):
        done = run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", [pytest.param(file.name, id=file.stem) for file in SCENARIOS])
def test_every_scenario_comes_out_as_written(file: str) -> None:
    done = run("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_scenario_notices_a_wrong_threshold(tmp_path: Path) -> None:
    rules = (FOLDER / "rules.yml").read_text()
    mutant = rules.replace("(14.4 * 0.05)", "(19.4 * 0.05)")
    assert mutant != rules
    (tmp_path / "rules.yml").write_text(mutant)
    shutil.copy(FOLDER / "rules_test.yml", tmp_path)
    done = run("test", "rules", "rules_test.yml", folder=tmp_path)
    assert done.returncode != 0
    assert "FirstTokenBurnFast" in done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_metrics_labels_and_bounds_that_exist(rule: dict[str, Any]) -> None:
    assert problems(rule["expr"]) == []
    assert unguarded(rule["expr"]) == []


def test_what_is_recorded_is_read_and_what_is_read_is_recorded() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    read = {name for alert in ALERTS for name in re.findall(r"backend:[\w:]+", alert["expr"])}
    assert recorded == read


def test_no_burn_rate_asks_for_more_than_everything() -> None:
    """14.4 times a budget of 10 % would be 144 %: such an alert can never fire."""
    for alert in ALERTS:
        for factor, budget in re.findall(r"\(([\d.]+) \* ([\d.]+)\)", alert["expr"]):
            assert float(factor) * float(budget) < 1, alert["alert"]


def test_every_alert_can_be_acted_upon() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    headings = {re.sub(r"[^\w-]", "", line[3:].lower()) for line in page.splitlines() if line.startswith("## ")}
    dashboards = {file.stem for file in (ROOT / "grafana" / "dashboards").glob("*.json")}
    for alert in ALERTS:
        notes = alert["annotations"]
        file, _, anchor = notes["runbook"].partition("#")
        assert file == "docs/alerts.md" and anchor in headings, alert["alert"]
        assert re.match(r"/d/manometer-(\w+)", notes["dashboard"]).group(1) in dashboards  # type: ignore[union-attr]
        assert notes["summary"] and notes["description"]
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["labels"]["service"] == "manometer"
        assert f"`{alert['alert']}`" in page, f"docs/alerts.md does not name {alert['alert']}"


def test_every_alert_fires_in_some_scenario() -> None:
    said = "".join(file.read_text() for file in SCENARIOS)
    for alert in ALERTS:
        name = alert["alert"]
        expected = re.findall(rf"alertname: {name}[,\n]\s*exp_alerts: ?(\[\])?", said)
        assert "" in expected or f'alertname="{name}"' in said, f"{name} never fires"
