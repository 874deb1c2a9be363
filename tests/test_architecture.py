"""The rules that keep the rooms apart, read from the source itself. Each is also shown a sample that breaks it.

The list of pure modules is the one in pyproject.toml that the linter uses: there is one truth.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Sources = dict[str, str]  # dotted name -> source


def sources(*packages: str) -> Sources:
    files = (path for package in packages for path in sorted((ROOT / package).rglob("*.py")))
    return {dotted(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


def dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


OURS = sources("proxy", "loadgen", "grafana")
PACKAGES = {
    dotted(path.parent.relative_to(ROOT))
    for name in ("proxy", "loadgen", "grafana")
    for path in (ROOT / name).rglob("__init__.py")
}


def imports(name: str, source: str, packages: Iterable[str] = PACKAGES) -> Iterator[str]:
    """Absolute names of what a module imports; of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = node.level - (name in packages)
            base = name.split(".")[: -up or None] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def under(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def banned(within: Iterable[str], what: Iterable[str], but: Iterable[str] = ()) -> Callable[[Sources], list[str]]:
    """No module under `within` imports anything under `what`, but for those named."""

    def rule(modules: Sources) -> list[str]:
        return [
            f"{name} imports {other}"
            for name, source in modules.items()
            if under(name, within) and name not in but
            for other in imports(name, source)
            if under(other, what)
        ]

    return rule


def only(within: str, of: str, what: Iterable[str]) -> Callable[[Sources], list[str]]:
    """Of the package `of`, modules under `within` import nothing but what is under `what`."""

    def rule(modules: Sources) -> list[str]:
        return [
            f"{name} imports {other}"
            for name, source in modules.items()
            if under(name, [within])
            for other in imports(name, source)
            if under(other, [of]) and other != of and not under(other, allowed(name))
        ]

    def allowed(name: str) -> list[str]:
        return [*what, *({"loadgen.cli": ["proxy.cli"]}.get(name, []))]

    return rule


def pure_globs() -> list[str]:
    ignores = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    (glob,) = (key for key, codes in ignores.items() if codes == ["TID251"])
    return glob.removeprefix("!{").removesuffix("}").split(",")


PURE = [glob.removesuffix(".py").removesuffix("/**").removesuffix("/*").replace("/", ".") for glob in pure_globs()]
CLOCKS_AND_SOCKETS = (
    "time",
    "asyncio",
    "random",
    "os",
    "socket",
    "aiohttp",
    "uvloop",
    "httptools",
    "threading",
    "subprocess",
)


def no_waiting(modules: Sources) -> list[str]:
    """Pure modules have no coroutine in them, and ask no object for the time."""
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = []
    for name, source in modules.items():
        if under(name, PURE):
            for node in ast.walk(ast.parse(source)):
                asks = isinstance(node, ast.Attribute) and node.attr in (
                    "monotonic",
                    "perf_counter",
                    "now",
                    "utcnow",
                    "today",
                )
                if isinstance(node, waits) or asks:
                    found.append(f"{name}:{getattr(node, 'lineno', 0)}")
    return found


def no_environment(modules: Sources) -> list[str]:
    """`demo` hands its own environment to the processes that it starts."""
    reader = re.compile(r"\bos\.(environ|getenv)|from os import .*\b(environ|getenv)")
    return [name for name, source in modules.items() if reader.search(source) and name not in READERS]


READERS = ("proxy.settings", "loadgen.demo")
SHAPELESS = {
    "utils",
    "util",
    "helpers",
    "helper",
    "manager",
    "managers",
    "base",
    "common",
    "service",
    "services",
    "misc",
}


def no_shapeless_names(modules: Sources) -> list[str]:
    return [name for name in modules if SHAPELESS & set(name.replace("_", ".").split("."))]


def nothing_imported(modules: Sources) -> list[str]:
    return [f"proxy imports {other}" for other in imports("proxy", modules["proxy"])]


RULES: dict[str, tuple[Callable[[Sources], list[str]], Sources]] = {
    "the proxy never imports the load generator": (
        banned(["proxy"], ["loadgen", "tests", "grafana"]),
        {"proxy.x": "def late():\n    from loadgen.script import play"},
    ),
    "the load generator knows the meter and the backend leg": (
        only("loadgen", "proxy", ["proxy.meter", "proxy.upstream"]),
        {"loadgen.x": "from proxy import forward"},
    ),
    "only the front door mounts the proxy's commands": (
        only("loadgen", "proxy", ["proxy.meter", "proxy.upstream"]),
        {"loadgen.ladder": "from proxy.cli import app"},
    ),
    "the meter knows nothing of the rest": (
        only("proxy.meter", "proxy", ["proxy.meter"]),
        {"proxy.meter.x": "from ..settings import load"},
    ),
    "Prometheus is known where metrics are made and served": (
        banned(["proxy", "loadgen"], ["prometheus_client"], but=("proxy.exporter", "proxy.admin", "proxy.serve")),
        {"proxy.forward": "import prometheus_client"},
    ),
    "only settings validates": (
        banned(["proxy", "loadgen"], ["pydantic", "pydantic_settings"], but=("proxy.settings",)),
        {"proxy.routes": "from pydantic import BaseModel"},
    ),
    "only settings reads the environment": (no_environment, {"proxy.x": "import os\nkey = os.environ['KEY']"}),
    "importing the proxy imports nothing": (nothing_imported, {"proxy": "from . import meter"}),
    "the pure core knows no clock, socket or chance": (
        banned(PURE, CLOCKS_AND_SOCKETS),
        {"proxy.meter.x": "from time import monotonic"},
    ),
    "the pure core never waits": (no_waiting, {"proxy.routes": "async def plan(): ..."}),
    "the pure core asks nobody for the time": (no_waiting, {"proxy.meter.x": "def age(clock): return clock.now()"}),
    "no module is a drawer": (no_shapeless_names, {"proxy.http_utils": ""}),
}


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES.values()], ids=RULES.keys())
def test_the_rule_is_kept(rule: Callable[[Sources], list[str]]) -> None:
    assert rule(OURS) == []


@pytest.mark.parametrize("rule, sample", RULES.values(), ids=RULES.keys())
def test_the_rule_can_fail(rule: Callable[[Sources], list[str]], sample: Sources) -> None:
    assert rule(sample) != []


def test_there_is_something_to_judge() -> None:
    assert {"proxy", "proxy.meter.meter", "proxy.meter", "loadgen.cli"} <= OURS.keys()
    assert "proxy.meter" in PURE and all(any(under(name, [pure]) for name in OURS) for pure in PURE)
    assert "proxy.meter.usage.Usage" in imports("proxy.meter.meter", "from .usage import Usage")
    assert "proxy.meter.usage" in imports("proxy.meter", "from .usage import Usage")


def test_the_meter_loads_nothing_but_the_standard_library_and_orjson() -> None:
    code = "import sys; before = set(sys.modules); import proxy.meter; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = {name.partition(".")[0] for name in loaded.split()}
    assert packages - set(sys.stdlib_module_names) == {"proxy", "orjson"}
    assert not packages & {"asyncio", "socket", "random"}


def test_no_package_of_tests_shadows_the_real_ones() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


# Modules whose behaviour is seen through another one: tested there.
ELSEWHERE = {
    "proxy.delivery": "forward",
    "proxy.exchange": "forward",
    "proxy.ticket": "forward",
    "loadgen.analysis.metric": "level",
    "loadgen.bench": "pairs",
    "proxy.live": "admin",
    "proxy.query": "admin",
    "proxy.window": "ring",
    "loadgen.analysis.doubt": "level",
    "loadgen.board": "demo",
    "loadgen.connection": "client",
    "loadgen.commands": "cli",
    "loadgen.decoding": "script",
    "loadgen.demand": "script",
    "loadgen.envelope": "simulator",
    "loadgen.mix": "demo",
    "loadgen.prose": "script",
    "loadgen.scene": "demo",
    "loadgen.strain": "runner",
    "loadgen.strict": "script",
    "loadgen.work": "runner",
    "loadgen.workers": "runner",
    "grafana.cost": "dashboards",
    "grafana.decoding": "dashboards",
    "grafana.health": "dashboards",
    "grafana.overview": "dashboards",
    "grafana.panels": "dashboards",
    "grafana.queries": "dashboards",
}


def test_every_module_has_its_tests() -> None:
    """tests/test_<module>.py, or the package's, or the one named above."""
    files = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    untested = [
        name for name in OURS if name not in PACKAGES and not {*name.split(".")[1:], ELSEWHERE.get(name, "")} & files
    ]
    assert untested == []


def test_the_tests_named_for_other_modules_exist() -> None:
    assert [test for test in ELSEWHERE.values() if not (ROOT / "tests" / f"test_{test}.py").is_file()] == []
    assert ELSEWHERE.keys() <= OURS.keys()
