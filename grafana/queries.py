"""PromQL, built from the catalogue of metrics, so that no name and no label can be misspelt here.

1. Rates are taken over `$__rate_interval`, figures of a whole table over `$__range`.
2. A ratio is one sum divided by another, never a mean of ratios; where the sum below is 0 there is no value.
3. Everything is filtered by job and instance; exchanges also by backend, model and whether a client waited.
"""

from __future__ import annotations

import re

from proxy import metrics as m
from proxy.metrics import Metric

WINDOW = "$__rate_interval"
RANGE = "$__range"

CLIENTS = 'mirror="false"'  # somebody waited for it
TRAFFIC = 'mirror=~"$mirror"'  # as chosen on the dashboard: shadow copies measure their backend as well
STREAMS = 'streamed="true"'
OUTPUT = ('type="completion"', 'source="reported"')
CHOSEN = 'decoding!="none"'  # not refused before a backend was chosen


def select(metric: Metric, *matchers: str, suffix: str = "") -> str:
    """`metric{...}` with every filter of the dashboard that the metric has a label for."""
    _known(metric, [re.split("[=!]", matcher)[0] for matcher in matchers])
    filters = ['job=~"$job"', 'instance=~"$instance"']
    filters += [f'{name}=~"${name}"' for name in ("backend", "model") if name in metric.labels]
    filters += ['currency="$currency"'] if "currency" in metric.labels else []
    return f"{metric.full_name}{suffix}{{{', '.join((*filters, *matchers))}}}"


def total(inner: str, by: str = "") -> str:
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def rate(metric: Metric, *matchers: str, by: str = "", over: str = WINDOW, suffix: str = "") -> str:
    """Increase per second, summed."""
    _known(metric, by.replace(" ", "").split(",") if by else [])
    return total(f"rate({select(metric, *matchers, suffix=suffix)}[{over}])", by)


def moved(metric: Metric, *matchers: str, by: str) -> str:
    """`rate`, without the series that stayed 0 all the time: thirteen flat lines hide the one that moves."""
    return f"{rate(metric, *matchers, by=by)} and {rate(metric, *matchers, by=by, over=RANGE)} > 0"


def per_million(*matchers: str, by: str = "", over: str = WINDOW) -> str:
    """Cost / completion tokens * 10^6, of what has a price: other tokens would make it look cheaper."""
    tokens = f"rate({select(m.TOKENS, *OUTPUT, *matchers)}[{over}])"
    priced = f"rate({select(m.COST, *matchers)}[{over}])"
    spread = total(f"{tokens} and ignoring (type, source, currency) {priced}", by)
    return f"{ratio(rate(m.COST, *matchers, by=by, over=over), spread)} * 1e6"


def gauge(metric: Metric, *matchers: str, by: str = "") -> str:
    _known(metric, by.replace(" ", "").split(",") if by else [])
    return total(select(metric, *matchers), by)


def quantile(share: float, metric: Metric, *matchers: str, by: str = "", over: str = WINDOW) -> str:
    buckets = rate(metric, *matchers, by=f"le, {by}" if by else "le", over=over, suffix="_bucket")
    return f"histogram_quantile({share:g}, {buckets})"


def mean(metric: Metric, *matchers: str, by: str = "", over: str = WINDOW) -> str:
    """Of the observations in the window: the sum of values / their number."""
    return ratio(
        rate(metric, *matchers, by=by, over=over, suffix="_sum"),
        rate(metric, *matchers, by=by, over=over, suffix="_count"),
    )


def ratio(above: str, below: str) -> str:
    return f"{above} / ({below} > 0)"


def failures(*matchers: str, by: str = "", over: str = WINDOW) -> str:
    """Exchanges per second that failed, and not by the client's fault.

    The client left, was refused, or sent what its backend calls a bad request (400, 413, 422): no failure.
    A 401 or 404 from a backend is one: the proxy's key or URL is wrong.
    """
    ours = select(m.REQUESTS, 'outcome!~"ok|client_gone|refused|backend_error"', *matchers)
    theirs = select(m.REQUESTS, 'outcome="backend_error"', 'code!~"400|413|422"', *matchers)
    return total(f"rate({ours}[{over}]) or rate({theirs}[{over}])", by)


def failed_share(*matchers: str, by: str = "", over: str = WINDOW) -> str:
    """Failures per exchange: 0 where none failed, nothing where nothing happened."""
    every = rate(m.REQUESTS, *matchers, by=by, over=over)
    return ratio(f"({failures(*matchers, by=by, over=over)} or {every} * 0)", every)


def share_above(metric: Metric, bound: float, *matchers: str, by: str = "") -> str:
    """The share of observations above a bucket's bound."""
    if bound not in metric.bounds:
        raise ValueError(f"{metric.name} has no bucket that ends at {bound}")
    within = rate(metric, f'le="{bound}"', *matchers, by=by, suffix="_bucket")
    return f"1 - {ratio(within, rate(metric, *matchers, by=by, suffix='_count'))}"


def _known(metric: Metric, labels: list[str]) -> None:
    for label in labels:
        if label not in (*metric.labels, "le", "job", "instance"):
            raise ValueError(f"{metric.name} has no label {label}")
