"""Is it well, how fast is it, what does it cost: the first page to open. Only what somebody waited for."""

from __future__ import annotations

from proxy import metrics as m

from . import panels as p
from . import queries as q

BACKEND = ("backend", "model", "decoding")
_BY = ", ".join(BACKEND)
_OBJECTIVES = [f"{bound}" for bound in (1.0, 0.25, 0.5, 2.0, 5.0, 10.0)]


def rows() -> list[tuple[int, list[p.Json]]]:
    return [
        (4, _tiles()),
        (8, [_backends()]),
        (1, [p.row("Speed")]),
        (9, _speed()),
        (9, [_objective(), _tokens()]),
        (1, [p.row("Traffic, failures, cost")]),
        (8, _traffic()),
    ]


def objective() -> p.Json:
    """Only bounds of a bucket can be counted exactly."""
    if missing := [bound for bound in _OBJECTIVES if float(bound) not in m.LATENCY]:
        raise ValueError(f"no bucket ends at {missing}")
    return p.fixed("objective", "TTFT objective", [(f"{float(bound):g} s", bound) for bound in _OBJECTIVES])


def _tiles() -> list[p.Json]:
    clients = q.CLIENTS
    cost = f"{q.rate(m.COST)} * 3600"
    return [
        p.stat("Requests", "Exchanges that ended, per second.", "reqps", q.rate(m.REQUESTS, clients)),
        p.stat(
            "Failed",
            "Share of exchanges that failed, and not by the client's fault.",
            "percentunit",
            q.failed_share(clients),
            warn=(0.01, 0.05),
        ),
        p.stat("In flight", "Exchanges that have started and not ended.", "none", q.gauge(m.IN_FLIGHT, clients)),
        p.stat(
            "TTFT p95",
            "First output - request received, of streams.",
            "s",
            q.quantile(0.95, m.TTFT, clients, q.STREAMS),
        ),
        p.stat("Duration p95", "Last byte - request received.", "s", q.quantile(0.95, m.DURATION_SECONDS, clients)),
        p.stat(
            "Output",
            "Completion tokens per second, as reported by the backends.",
            "count:tok/s",
            q.rate(m.TOKENS, clients, *q.OUTPUT),
        ),
        p.stat("Cost per hour", "What an hour at the present rate costs, shadow copies included.", "currencyUSD", cost),
        p.stat(
            "Proxies down",
            "Proxies that Prometheus cannot scrape.",
            "none",
            'count(up{job=~"$job", instance=~"$instance"} == 0) or vector(0)',
            warn=(1, 1),
        ),
    ]


def _backends() -> p.Json:
    clients, span = (q.CLIENTS, q.CHOSEN), q.RANGE

    def over(metric: m.Metric, *matchers: str) -> str:
        return q.rate(metric, *clients, *matchers, by=_BY, over=span)

    def mean(metric: m.Metric, *matchers: str) -> str:
        return q.mean(metric, *clients, *matchers, by=_BY, over=span)

    silent = q.ratio(
        q.rate(m.SILENCE, *clients, by=_BY, over=span, suffix="_sum"),
        q.rate(m.DURATION_SECONDS, *clients, q.STREAMS, by=_BY, over=span, suffix="_sum"),
    )
    columns = [
        ("Requests", "reqps", over(m.REQUESTS)),
        ("Failed", "percentunit", q.failed_share(*clients, by=_BY, over=span)),
        ("TTFT p50", "s", q.quantile(0.5, m.TTFT, *clients, q.STREAMS, by=_BY, over=span)),
        ("TTFT p95", "s", q.quantile(0.95, m.TTFT, *clients, q.STREAMS, by=_BY, over=span)),
        ("Duration p95", "s", q.quantile(0.95, m.DURATION_SECONDS, *clients, by=_BY, over=span)),
        ("Silent", "percentunit", silent),
        ("Output", "count:tok/s", over(m.TOKENS, *q.OUTPUT)),
        ("Output per request", "count:tok/s", mean(m.TOKEN_RATE)),
        ("Tokens per burst", "none", mean(m.BURST_TOKENS)),
        ("Cost per hour", "currencyUSD", f"{over(m.COST)} * 3600"),
        ("Cost per million", "currencyUSD", q.per_million(*clients, by=_BY, over=span)),
    ]
    return p.table("Backends", "Each backend and model over the whole time range.", BACKEND, columns)


def _speed() -> list[p.Json]:
    def spread(metric: m.Metric, *matchers: str) -> list[p.Json]:
        return [
            p.target(
                q.quantile(share, metric, q.CLIENTS, *matchers, by="backend"),
                f"{{{{backend}}}} p{share * 100:g}",
                exemplar=True,
            )
            for share in (0.5, 0.95, 0.99)
        ]

    return [
        p.lines(
            "Time to first token",
            "First output - request received, of streams. A dot is a request: follow it to its own page.",
            "s",
            spread(m.TTFT, q.STREAMS),
        ),
        p.lines(
            "Request duration",
            "Last byte - request received, whatever the outcome.",
            "s",
            spread(m.DURATION_SECONDS),
        ),
    ]


def _objective() -> p.Json:
    within = q.rate(m.TTFT, q.CLIENTS, q.STREAMS, 'le="$objective"', by="backend", suffix="_bucket")
    every = q.rate(m.TTFT, q.CLIENTS, q.STREAMS, by="backend", suffix="_count")
    return p.lines(
        "First token within the objective",
        "Share of streams with output whose first token came within the chosen objective (a bucket's bound).",
        "percentunit",
        [p.target(q.ratio(within, every), "{{backend}}")],
        top=1,
    )


def _tokens() -> p.Json:
    targets = [
        p.target(q.rate(m.TOKENS, q.CLIENTS, *q.OUTPUT, by="backend"), "{{backend}}"),
        p.target(q.moved(m.TOKENS, q.CLIENTS, 'source="estimated"', by="backend"), "{{backend}} estimated"),
    ]
    about = "Completion tokens; what was estimated because nothing was reported is drawn apart."
    return p.lines("Output tokens per second", about, "count:tok/s", targets)


def _traffic() -> list[p.Json]:
    clients = q.CLIENTS
    every = q.rate(m.REQUESTS, clients)
    some = f"{q.failures(clients, by='outcome', over=q.RANGE)} > 0"
    failed = f"{q.failures(clients, by='outcome')} / ignoring (outcome) group_left () ({every} > 0) and {some}"
    cost = q.rate(m.COST, by="backend")
    return [
        p.lines(
            "Requests per second",
            "Exchanges that ended, by backend.",
            "reqps",
            [p.target(q.rate(m.REQUESTS, clients, by="backend"), "{{backend}}")],
        ),
        p.lines(
            "Failed, by outcome",
            "Share of all exchanges, by how they failed.",
            "percentunit",
            [p.target(failed, "{{outcome}}", exemplar=True)],
            stack=True,
            empty="No failures",
        ),
        p.lines(
            "Cost per hour by backend",
            "At the present rate, by backend, shadow copies included.",
            "currencyUSD",
            [p.target(f"{cost} * 3600", "{{backend}}")],
            stack=True,
        ),
    ]
