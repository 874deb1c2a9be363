"""What a PromQL expression reads, and whether the exporter has it: for the tests of dashboards and rules."""

import re
from collections.abc import Iterator
from typing import Any

import promql_parser

from proxy import metrics as m

PROCESS = {"job", "instance"}  # added by the scrape
SCRAPE = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "ALERTS"}  # said by Prometheus itself
_PARTS = ("expr", "lhs", "rhs", "param", "vector_selector")


def nodes(expr: str) -> Iterator[Any]:
    """The expression and everything in it."""
    waiting = [promql_parser.parse(expr)]
    while waiting:
        node = waiting.pop()
        yield node
        children = [getattr(node, name, None) for name in _PARTS] + list(getattr(node, "args", None) or ())
        waiting += [child for child in children if child is not None and not isinstance(child, str | float)]


def selectors(expr: str) -> list[Any]:
    return [node for node in nodes(expr) if isinstance(node, promql_parser.VectorSelector)]


def labels(selector: Any) -> dict[str, str]:
    return {matcher.name: matcher.value for matcher in selector.matchers.matchers}


def groupings(expr: str) -> set[str]:
    """Labels that something is grouped by, but for le, which only buckets have."""
    modifiers = [node.modifier for node in nodes(expr) if isinstance(node, promql_parser.AggregateExpr)]
    return {label for modifier in modifiers if modifier is not None for label in modifier.labels} - {"le"}


def family(name: str) -> m.Metric | None:
    """The metric that a series' name belongs to."""
    known = {metric.full_name: metric for metric in m.METRICS}
    if name in known:
        return None if known[name].kind == "histogram" else known[name]
    metric = known.get(re.sub("_(bucket|sum|count)$", "", name))
    return metric if metric and metric.kind == "histogram" else None


def problems(expr: str) -> list[str]:
    """Names, labels and bounds in it that no series has: each would match nothing, silently."""
    found = []
    for selector in selectors(expr):
        if selector.name in SCRAPE or str(selector.name).startswith("backend:"):
            continue
        metric = family(selector.name)
        if metric is None:
            found.append(f"no metric is called {selector.name}")
            continue
        matched = labels(selector)
        found += [f"{selector.name} has no label {name}" for name in matched.keys() - {*metric.labels, *PROCESS, "le"}]
        if "le" in matched and matched["le"] not in map(repr, metric.bounds):
            found.append(f"{selector.name} has no bucket that ends at {matched['le']}")
    known = {label for metric in m.METRICS for label in metric.labels} | PROCESS
    return found + [f"nothing can be grouped by {label}" for label in groupings(expr) - known]


def unguarded(expr: str) -> list[str]:
    """Divisors that may be 0: those that are neither `(... > 0)` nor a quantile below a 1."""
    found = []
    for node in nodes(expr):
        if isinstance(node, promql_parser.BinaryExpr) and str(node.op) == "/":
            inner = getattr(node.rhs, "expr", None)
            guarded = isinstance(inner, promql_parser.BinaryExpr) and str(inner.op) == ">"
            if not guarded and not isinstance(node.lhs, promql_parser.NumberLiteral):
                found.append(str(node.rhs))
    return found
