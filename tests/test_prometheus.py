"""A real Prometheus scrapes the real proxy under real load, and answers every query that is checked in.

1. Everything runs as it does for a user: `manometer simulate`, `manometer serve`, the shipped rules; only the
   scrape interval is shorter. All of it is on loopback, on free ports, and ends with the module.
2. Each panel is asked twice: before the first request ("No traffic") and under traffic of both kinds (data).
3. What is asked is the checked-in JSON, after Grafana's own interpolation. A renamed metric or a misspelt label
   must fail here: two tests make one and look.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import math
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from grafana import dashboards
from loadgen.client import Client, Query
from proxy import metrics as m
from proxy.meter import Reading
from tests.elsewhere import missing
from tests.promql import SCRAPE, family, groupings, labels, nodes, selectors

ROOT = Path(__file__).parent.parent
PROMETHEUS = ROOT / "grafana" / "prometheus"
BOARDS = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(dashboards.FOLDER.glob("*.json"))]
RULES = [rule for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"] for rule in group["rules"]]
RANGE, STEP, RATE = 30, 1, 4  # seconds: Grafana makes $__rate_interval max(step + scrape, 4 * scrape)
IDLE, BUSY = 5.0, 10.0
Json = dict[str, Any]

pytestmark = pytest.mark.prometheus

# Exported, and on no panel. None at present; a metric that nobody looks at must say here why it exists.
WITHOUT_PANEL: dict[str, str] = {}

# What is there without any request: the proxy itself, and what is configured.
ALWAYS = {
    m.RELOADED.full_name,
    m.MEMORY.full_name,
    m.BUILD.full_name,
    m.INSTANCE_PRICE.full_name,
    *SCRAPE,
}

CONFIG = """
[listen]
address = "127.0.0.1:0"
admin = "127.0.0.1:0"

[backends.mercury]
url = "{diffusion}"
decoding = "diffusion"
models = ["mercury-demo"]
prices = [{{ model = "mercury-demo", input = "0.20", output = "0.75" }}]

[backends.ar]
url = "{autoregressive}"
decoding = "autoregressive"
models = ["ar-demo", "ar-unpriced"]
prices = [{{ model = "ar-demo", input = "0.50", output = "2.00" }}]
instance_per_hour = "2.50"

[routes.assistant]
split = {{ mercury = 0.5, ar = 0.5 }}
mirror = {{ to = "ar", share = 1.0 }}
"""


class Prometheus:
    """The HTTP API of a running one."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: Any) -> Any:
        query = urllib.parse.urlencode(parameters, doseq=True)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def instant(self, expr: str) -> list[Json]:
        found: list[Json] = self.get("query", query=expr)["result"]
        return found

    def over_range(self, expr: str) -> list[Json]:
        now = time.time()
        found: list[Json] = self.get("query_range", query=expr, start=now - RANGE, end=now, step=STEP)["result"]
        return found

    def value(self, expr: str) -> float:
        (only,) = self.instant(expr)
        return float(only["value"][1])

    def values(self, label: str, selector: str) -> list[str]:
        found: list[str] = self.get(f"label/{label}/values", **{"match[]": selector})
        return found

    def labels(self, name: str) -> set[str]:
        return set(self.get("labels", **{"match[]": name}))


@dataclass(slots=True)
class World:
    """What is running, and what the clients saw."""

    prometheus: Prometheus
    proxy: str
    admin: str
    idle: dict[tuple[str, str, str], list[Json]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)


@contextmanager
def process(*command: str, errors: bool = False, **options: Any) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE if errors else subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes, **options) as running:
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()


def line(stream: Any) -> Json:
    said = stream.readline()
    assert said, "the process ended before it said where it listens"
    answer: Json = json.loads(said)
    return answer


@contextmanager
def simulated(profile: str, *models: str) -> Iterator[str]:
    chosen = [part for model in models for part in ("--model", model)]
    command = (sys.executable, "-m", "loadgen.cli", "simulate", "--profile", profile, "--port", "0", "--json", *chosen)
    with process(*command, cwd=ROOT) as running:
        yield line(running.stdout)["url"]


@contextmanager
def served(config: Path) -> Iterator[tuple[str, str]]:
    with process(sys.executable, "-m", "proxy.cli", "serve", "--config", str(config), errors=True, cwd=ROOT) as running:
        said = line(running.stderr)
        assert said["event"] == "listening", said
        with drained(running.stderr):
            yield f"http://{said['address']}/v1", f"http://{said['admin']}"


@contextmanager
def drained(stream: Any) -> Iterator[None]:
    """A log that nobody reads would block its writer."""
    reader = threading.Thread(target=lambda: [None for _ in stream], daemon=True)
    reader.start()
    yield


@contextmanager
def scraping(folder: Path, admin: str) -> Iterator[Prometheus]:
    """Prometheus with the shipped configuration, once a second, of this proxy."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / "rules.yml")]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [admin.removeprefix("http://")]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=error",
    ]
    with process(*command):
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        until(lambda: prometheus.instant(m.BUILD.full_name), "Prometheus has not scraped the proxy")
        yield prometheus


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def until(there: Any, complaint: str, patience: float = 30.0) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if there():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(complaint)


def ask(model: str, *, stream: bool = True, simulate: str = "") -> Query:
    body = {"model": model, "stream": stream, "max_tokens": 240, "messages": [{"role": "user", "content": "Count."}]}
    headers = ((b"x-simulate", simulate.encode()),) if simulate else ()
    return Query(body=json.dumps(body).encode(), model=model, stream=stream, headers=headers)


TRAFFIC = (
    ask("mercury-demo"),
    ask("ar-demo"),
    ask("assistant"),
    ask("ar-demo", stream=False),
    ask("mercury-demo", simulate="cut=2"),
    ask("ar-demo", simulate="error=503"),
    ask("ar-demo", simulate="no_usage"),
    ask("ar-unpriced"),
    ask("nobody-has-this"),
)


async def load(url: str) -> list[Reading]:
    """Six clients that take turns through all kinds of requests for some seconds."""
    client, readings = Client(url), []
    numbers, end = itertools.count(), time.monotonic() + BUSY

    async def one() -> None:
        while time.monotonic() < end:
            number = next(numbers)
            readings.append(await client.ask(TRAFFIC[number % len(TRAFFIC)], f"{number:032x}"))
            await asyncio.sleep(0.02)

    await asyncio.gather(*(one() for _ in range(6)))
    await client.close()
    return readings


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shutil.which("prometheus") is None:
        missing("prometheus is not installed (Debian: apt-get install --no-install-recommends prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        urls = {
            "diffusion": stack.enter_context(simulated("diffusion", "mercury-demo")),
            "autoregressive": stack.enter_context(simulated("autoregressive", "ar-demo", "ar-unpriced")),
        }
        config = folder / "manometer.toml"
        config.write_text(CONFIG.format(**urls))
        proxy, admin = stack.enter_context(served(config))
        prometheus = stack.enter_context(scraping(folder, admin))
        world = World(prometheus, proxy, admin)
        time.sleep(IDLE)
        world.idle = {key: results(prometheus, *rest) for board in BOARDS for key, *rest in asked(board, prometheus)}
        world.readings = asyncio.run(load(proxy))
        until(lambda: settled(world), "Prometheus has not seen the last reading")
        yield world


def settled(world: World) -> bool:
    started, ended, flying = (
        f"sum({metric.full_name}{{mirror='false'}})" for metric in (m.STARTED, m.REQUESTS, m.IN_FLIGHT)
    )
    return [world.prometheus.value(e) for e in (started, ended, flying)] == [len(world.readings)] * 2 + [0]


# Grafana's part: variables, intervals, targets


def variables(board: Json, prometheus: Prometheus) -> dict[str, str]:
    """As if every value of every multi-valued variable had been chosen."""
    chosen: dict[str, str] = {}
    for each in board["templating"]["list"]:
        if each["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", each["definition"]).groups()  # type: ignore[union-attr]
            found = prometheus.values(label, interpolate(selector, chosen))
            assert found, f"the variable {each['name']} has no values"
            chosen[each["name"]] = "|".join(map(re.escape, found)) if each["multi"] else found[0]
        elif each["type"] == "custom":
            chosen[each["name"]] = each["current"]["value"]
    return chosen


def interpolate(expr: str, chosen: dict[str, str]) -> str:
    own = {"__rate_interval": f"{RATE}s", "__range": f"{RANGE}s"}
    return re.sub(r"\$(\w+)", lambda found: own.get(found[1]) or chosen[found[1]].replace("\\", "\\\\"), expr)


def asked(board: Json, prometheus: Prometheus) -> Iterator[tuple[tuple[str, str, str], str, bool]]:
    """Every target: where it is, its expression, whether it is asked for one moment only."""
    chosen = variables(board, prometheus)
    for panel in board["panels"]:
        repeated = chosen[panel["repeat"]].split("|") if "repeat" in panel else [None]
        for value in repeated:
            own = chosen | ({panel["repeat"]: value} if value else {})
            for target in panel.get("targets", ()):
                key = (board["title"], panel["title"].replace("$backend", value or ""), target["refId"])
                yield key, interpolate(target["expr"], own), target["instant"]


def results(prometheus: Prometheus, expr: str, instant: bool) -> list[Json]:
    return prometheus.instant(expr) if instant else prometheus.over_range(expr)


def points(series: list[Json]) -> list[float]:
    return [float(value) for each in series for _, value in each.get("values") or [each["value"]]]


def finite(series: list[Json]) -> list[float]:
    return [value for value in points(series) if math.isfinite(value)]


def unknown(expr: str, prometheus: Prometheus) -> list[str]:
    """Names and labels in it that Prometheus has never seen: a regex on such a label matches everything, silently."""
    found = []
    seen: set[str] = set()
    for selector in selectors(expr):
        have = prometheus.labels(selector.name)
        seen |= have
        if not have:
            found.append(f"no series is called {selector.name}")
        elif absent := labels(selector).keys() - have:
            found.append(f"no {selector.name} has a label {', '.join(sorted(absent))}")
    return found + [f"nothing can be grouped by {label}" for label in groupings(expr) - seen]


def faults(board: Json, prometheus: Prometheus) -> list[str]:
    """What is wrong with a dashboard under traffic of both kinds."""
    found = []
    for where, expr, instant in asked(board, prometheus):
        series = results(prometheus, expr, instant)
        complaints = unknown(expr, prometheus)
        if not finite(series):
            complaints.append("no data")
        if any(math.isinf(value) for value in points(series)):
            complaints.append("divides by 0")
        kinds = {each["metric"].get("decoding") for each in series if finite([each])} - {"none"}
        if "decoding" in groupings(expr) and not kinds >= {"diffusion", "autoregressive"}:
            complaints.append(f"only {kinds}")
        found += [f"{' / '.join(where)}: {complaint}: {expr}" for complaint in complaints]
    return found


# The tests


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_under_traffic_of_both_kinds_every_panel_has_data(board: Json, world: World) -> None:
    assert faults(board, world.prometheus) == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_without_traffic_nothing_is_made_up(board: Json, world: World) -> None:
    """A count is 0; a time, a rate of tokens, a share or a price of nothing is no value at all."""
    asked_idle = [(key, expr) for key, expr, _ in asked(board, world.prometheus) if key in world.idle]
    assert len({key for key, _ in asked_idle}) > 10
    for where, expr in asked_idle:
        values = finite(world.idle[where])
        if {selector.name for selector in selectors(expr)} & ALWAYS and " / " not in expr:
            assert values or "ALERTS" in expr, where
        elif "histogram_quantile" in expr or " / " in expr:
            assert values == [], f"{where}: {expr}"
        else:
            assert set(values) <= {0.0}, f"{where}: {expr}"


@pytest.mark.parametrize("rule", [r for r in RULES if "record" in r], ids=lambda rule: rule["record"])
def test_every_recording_rule_records(rule: Json, world: World) -> None:
    assert unknown(rule["expr"], world.prometheus) == []
    until(lambda: finite(world.prometheus.instant(rule["record"])), f"{rule['record']} has no value")
    backends = {each["metric"]["backend"] for each in world.prometheus.instant(rule["record"])}
    assert backends >= {"mercury", "ar"}


@pytest.mark.parametrize("rule", [r for r in RULES if "alert" in r], ids=lambda rule: rule["alert"])
def test_every_alert_compares_something_that_has_values(rule: Json, world: World) -> None:
    comparisons = [
        node.lhs.prettify()
        for node in nodes(rule["expr"])
        if isinstance(node, promql_parser.BinaryExpr) and str(node.op) in (">", ">=", "==")
    ]
    assert comparisons
    for expr in comparisons:
        assert unknown(expr, world.prometheus) == []
        assert finite(world.prometheus.instant(expr)), expr


def test_prometheus_finds_no_fault_with_the_rules_that_it_runs(world: World) -> None:
    running = [rule for group in world.prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(running) == len(RULES)
    assert {rule["health"] for rule in running} == {"ok"}


def test_every_exported_metric_is_on_some_panel_or_says_why_not(world: World) -> None:
    shown = {
        metric.full_name
        for board in BOARDS
        for _, expr, _ in asked(board, world.prometheus)
        for selector in selectors(expr)
        if (metric := family(selector.name))
    }
    assert shown | WITHOUT_PANEL.keys() == {metric.full_name for metric in m.METRICS}
    assert not shown & WITHOUT_PANEL.keys()
    names = set(world.prometheus.values("__name__", '{job="manometer"}'))
    assert {metric.full_name for metric in m.METRICS} <= {re.sub("_(bucket|sum|count)$", "", name) for name in names}


def test_what_prometheus_counts_is_what_the_clients_saw_and_what_the_readings_say(world: World) -> None:
    clients = Counter(reading.outcome == "ok" for reading in world.readings)
    value = world.prometheus.value
    assert value('sum(manometer_requests_total{mirror="false", outcome="ok"})') == clients[True]
    assert value('sum(manometer_requests_total{mirror="false", outcome!="ok"})') == clients[False]
    first = sum(1 for reading in world.readings if reading.ttft is not None)
    assert value('sum(manometer_time_to_first_token_seconds_count{mirror="false"})') == first
    assert value('sum(manometer_no_output_total{mirror="false"})') == len(world.readings) - first
    assert value("sum(manometer_mirrored_total)") == value('sum(manometer_requests_total{mirror="true"})') > 0

    # Tokens and money the clients did not see: the proxy asked for the usage itself.
    with urllib.request.urlopen(f"{world.admin}/api/requests?limit=1000", timeout=10) as answer:
        said = json.load(answer)["requests"]
    assert len(said) == value("sum(manometer_requests_total)")
    tokens = sum(each["tokens"]["completion"] or 0 for each in said)
    assert value('sum(manometer_tokens_total{type="completion", source="reported"})') == tokens > 0
    assert value("sum(manometer_cost_total)") == pytest.approx(sum(float(each["cost"] or 0) for each in said))
    assert value("sum(manometer_stalls_total)") == sum(each["stall_count"] for each in said)
    assert value("sum(manometer_gap_seconds_count)") == sum(
        max(0, each["arrival_count"] - 1) for each in said if each["streamed"]
    )


def test_started_is_the_sum_of_outcomes_and_of_those_in_flight_in_every_scrape(world: World) -> None:
    law = "sum(manometer_requests_started_total) - sum(manometer_requests_total) - sum(manometer_requests_in_flight)"
    assert set(points(world.prometheus.over_range(law))) == {0.0}


def test_an_exemplar_leads_to_its_request(world: World) -> None:
    now = time.time()
    query = 'manometer_time_to_first_token_seconds_bucket{backend="mercury", mirror="false"}'
    found = world.prometheus.get("query_exemplars", query=query, start=now - 120, end=now)
    exemplar = found[0]["exemplars"][-1]
    assert exemplar["labels"].keys() == {"request_id"}
    with urllib.request.urlopen(f"{world.admin}/api/requests/{exemplar['labels']['request_id']}", timeout=10) as answer:
        reading = json.load(answer)
    assert reading["backend"] == "mercury"
    assert reading["ttft"] == pytest.approx(float(exemplar["value"]))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("manometer_requests_total{", "manometer_requests_finished_total{", "no series is called"),
        ("backend=~", "bakcend=~", "has a label bakcend"),
        ("by (le, backend)", "by (le, bakcend)", "nothing can be grouped by bakcend"),
        ('type="completion"', 'type="completions"', "no data"),
        ('le="$objective"', 'le="0.7"', "no data"),
    ],
)
def test_a_mutant_is_noticed(old: str, new: str, complaint: str, world: World) -> None:
    board = copy.deepcopy(next(board for board in BOARDS if board["uid"] == "manometer-overview"))
    changed = 0
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            changed += old in target["expr"]
            target["expr"] = target["expr"].replace(old, new)
    assert changed, f"nothing to mutate: {old}"
    found = faults(board, world.prometheus)
    assert len(found) >= changed
    assert any(complaint in fault for fault in found), found
