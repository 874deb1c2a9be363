"""Is the proxy itself well: what it adds, how sure its stamps are, whether anything is lost."""

from __future__ import annotations

from proxy import metrics as m

from . import panels as p
from . import queries as q

_UP = '{job=~"$job", instance=~"$instance"}'


def rows() -> list[tuple[int, list[p.Json]]]:
    return [
        (4, _tiles()),
        (1, [p.row("What the proxy adds")]),
        (8, [_spread("Overhead", m.OVERHEAD_SECONDS, _OVERHEAD), _spread("Hold", m.HOLD, _HOLD), _lag()]),
        (8, [_first_byte(), _backend_share(), _above()]),
        (1, [p.row("Exchanges")]),
        (8, [_in_flight(), _outcomes(), _no_output()]),
        (8, [_attempts(), _split(), _mirrored()]),
        (1, [p.row("Processes")]),
        (8, [_memory(), _lost(), _scrape()]),
        (6, [_builds(), _series()]),
    ]


_OVERHEAD = "What the proxy took for an exchange: until the request was sent, and after the backend's last read."
_HOLD = "What the proxy adds to each arrival: read from the backend until taken by the client's socket."


def _tiles() -> list[p.Json]:
    age = f"time() - min({q.select(m.RELOADED)})"
    lost = q.total(f"increase({q.select(m.DROPPED)}[{q.RANGE}])")
    refused = q.total(f"increase({q.select(m.SERIES_REFUSED)}[{q.RANGE}])")
    return [
        p.stat("Proxies up", "Proxies that Prometheus can scrape.", "none", f"sum(up{_UP})"),
        p.stat("Overhead p99", _OVERHEAD, "s", q.quantile(0.99, m.OVERHEAD_SECONDS), warn=(0.01, 0.025)),
        p.stat("Hold p99", _HOLD, "s", q.quantile(0.99, m.HOLD), warn=(0.005, 0.025)),
        p.stat("Loop lag p99", _LAG, "s", q.quantile(0.99, m.LOOP_LAG), warn=(0.005, 0.05)),
        p.stat("Readings lost", "Over the whole time range. Must be 0.", "none", lost, warn=(0.5, 0.5), decimals=0),
        p.stat(
            "Series refused",
            "Observations counted under other, because of the cap.",
            "none",
            refused,
            warn=(0.5, 0.5),
            decimals=0,
        ),
        p.stat("Configuration age", "Since the oldest running configuration was loaded.", "s", age),
        p.stat("Memory", "Resident, of all processes.", "bytes", q.gauge(m.MEMORY)),
    ]


_LAG = "Largest delay of the event loop during an exchange: the uncertainty of its time stamps."


def _spread(title: str, metric: m.Metric, about: str) -> p.Json:
    targets = [
        p.target(q.quantile(share, metric), f"p{share * 100:g}", exemplar=metric.exemplars)
        for share in (0.5, 0.95, 0.99)
    ]
    return p.lines(title, about, "s", targets, log=True)


def _lag() -> p.Json:
    return _spread("Event loop lag", m.LOOP_LAG, _LAG)


def _first_byte() -> p.Json:
    about = "Head of the backend's response - request received, of streams: 95th percentile."
    targets = [p.target(q.quantile(0.95, m.TTFB, q.STREAMS, by="backend"), "{{backend}}")]
    return p.lines("Time to first byte", about, "s", targets)


def _backend_share() -> p.Json:
    about = "First output since the last attempt began, and since the request came: 95th percentiles."
    targets = [
        p.target(q.quantile(0.95, m.BACKEND_TTFT, q.STREAMS), "backend"),
        p.target(q.quantile(0.95, m.TTFT, q.STREAMS), "client"),
    ]
    return p.lines("First token, backend and client", about, "s", targets)


def _above() -> p.Json:
    about = "Share of exchanges with more than 25 ms of overhead, and with stamps that are uncertain by more than 5 ms."
    targets = [
        p.target(q.share_above(m.OVERHEAD_SECONDS, 0.025), "overhead > 25 ms"),
        p.target(q.share_above(m.LOOP_LAG, 0.005), "lag > 5 ms"),
    ]
    return p.lines("Disturbed", about, "percentunit", targets)


def _lines(title: str, about: str, unit: str, expr: str, legend: str, stack: bool = False) -> p.Json:
    return p.lines(title, about, unit, [p.target(expr, legend)], stack=stack)


def _in_flight() -> p.Json:
    targets = [
        p.target(q.gauge(m.IN_FLIGHT, q.CHOSEN, by="backend"), "{{backend}}"),
        # Exchanges shorter than a scrape interval are never seen in flight, but they start.
        p.target(q.rate(m.STARTED), "started / s"),
    ]
    return p.lines(
        "In flight", "Exchanges that have started and not ended, and how many start per second.", "none", targets
    )


def _outcomes() -> p.Json:
    about = "How exchanges end, with the client's own faults and the ones that left."
    return _lines("Outcomes", about, "reqps", q.moved(m.REQUESTS, by="outcome"), "{{outcome}}", stack=True)


def _no_output() -> p.Json:
    about = "Exchanges that ended without any output, by outcome."
    targets = [p.target(q.moved(m.NO_OUTPUT, by="reason"), "{{reason}}")]
    return p.lines("Without output", about, "reqps", targets, stack=True, empty="Every exchange had output")


def _attempts() -> p.Json:
    about = "Tries at backends, by how each ended. More tries than exchanges: fallbacks."
    return _lines(
        "Attempts",
        about,
        "reqps",
        q.moved(m.ATTEMPTS, by="backend, reason"),
        "{{backend}} {{reason}}",
        stack=True,
    )


def _split() -> p.Json:
    about = "Exchanges of a route, by the backend that answered."
    return _routes("Split", about, m.SPLIT)


def _mirrored() -> p.Json:
    return _routes("Shadow copies", "By where they went.", m.MIRRORED)


def _routes(title: str, about: str, metric: m.Metric) -> p.Json:
    targets = [p.target(q.rate(metric, by="route, backend"), "{{route}} to {{backend}}")]
    return p.lines(title, about, "reqps", targets, empty="No route does this")


def _memory() -> p.Json:
    return _lines(
        "Memory by process",
        "Resident, by process.",
        "bytes",
        q.gauge(m.MEMORY, by="instance, process"),
        "{{instance}} {{process}}",
    )


def _lost() -> p.Json:
    about = "Readings per second that did not reach a sink. Unless it is 0, the other dashboards show too little."
    return _lines("Lost readings", about, "none", q.rate(m.DROPPED, by="sink"), "{{sink}}")


def _scrape() -> p.Json:
    targets = [p.target(f"scrape_duration_seconds{_UP}", "{{instance}}")]
    return p.lines("Scrape duration", "How long it takes Prometheus to read the proxy's metrics.", "s", targets)


def _builds() -> p.Json:
    by = ("instance", "version", "python")
    running = f"max by ({', '.join(by)}) ({q.select(m.BUILD)})"
    return p.table("Builds", "What runs where.", by, [("Running", "none", running)])


def _series() -> p.Json:
    targets = [p.target(f"scrape_samples_scraped{_UP}", "{{instance}}")]
    return p.lines("Series", "How many series each proxy exports.", "none", targets)
