"""Diffusion against autoregressive decoding, on the same axes, with fixed colours. Streams only."""

from __future__ import annotations

from proxy import metrics as m

from . import panels as p
from . import queries as q

_BY = "decoding"


def rows() -> list[tuple[int, list[p.Json]]]:
    return [
        (5, [_side_by_side()]),
        (1, [p.row("How long until something can be read")]),
        (
            8,
            [
                _spread("Time to first token", m.TTFT, _TTFT, q.STREAMS),
                _spread("Time to first answer", m.TTFA, _TTFA, q.STREAMS),
            ],
        ),
        (8, [_silence(), _spread("90 % of the answer", m.T90, _T90)]),
        (1, [p.row("How fast, once it flows")]),
        (8, [_decode_rate(), _token_rate(), _per_burst()]),
        (8, [_spread("Gaps", m.GAPS, _GAPS, log=True), _stalls(), _bursts()]),
        (1, [p.row("Bursts: how many tokens come at once")]),
        (9, [_burst_heatmap("diffusion", "Oranges"), _burst_heatmap("autoregressive", "Blues")]),
        (1, [p.row("Time to first token, by backend")]),
        (9, [_ttft_heatmap()]),
    ]


_TTFT = "First output - request received: the first thing of any kind, reasoning included."
_TTFA = "First output that is not reasoning - request received."
_T90 = "Until 90 % of the final answer was there for good - request received. What replaces itself is not there yet."
_GAPS = "Time between consecutive arrivals of output."


def _mean(metric: m.Metric, *matchers: str, over: str = q.WINDOW) -> str:
    return q.mean(metric, q.TRAFFIC, *matchers, by=_BY, over=over)


def _quantile(share: float, metric: m.Metric, *matchers: str, over: str = q.WINDOW) -> str:
    return q.quantile(share, metric, q.TRAFFIC, *matchers, by=_BY, over=over)


def _silent(over: str = q.WINDOW) -> str:
    return q.ratio(
        q.rate(m.SILENCE, q.TRAFFIC, by=_BY, over=over, suffix="_sum"),
        q.rate(m.DURATION_SECONDS, q.TRAFFIC, q.STREAMS, by=_BY, over=over, suffix="_sum"),
    )


def _per_stream(metric: m.Metric, over: str = q.WINDOW) -> str:
    streams = q.rate(m.BURSTS, q.TRAFFIC, by=_BY, over=over, suffix="_count")
    return q.ratio(q.rate(metric, q.TRAFFIC, by=_BY, over=over), streams)


def _side_by_side() -> p.Json:
    over = q.RANGE
    columns = [
        ("TTFT p50", "s", _quantile(0.5, m.TTFT, q.STREAMS, over=over)),
        ("TTFT p95", "s", _quantile(0.95, m.TTFT, q.STREAMS, over=over)),
        ("First answer p50", "s", _quantile(0.5, m.TTFA, q.STREAMS, over=over)),
        ("Silent", "percentunit", _silent(over)),
        ("90 % of the answer p50", "s", _quantile(0.5, m.T90, over=over)),
        ("Per request", "count:tok/s", _mean(m.TOKEN_RATE, q.STREAMS, over=over)),
        ("Decode rate p50", "count:tok/s", f"1 / {_quantile(0.5, m.TIME_PER_TOKEN, over=over)}"),
        ("Tokens per burst", "none", _mean(m.BURST_TOKENS, over=over)),
        ("Gap p95", "s", _quantile(0.95, m.GAPS, over=over)),
        ("Stalls per request", "none", _per_stream(m.STALLS, over)),
        ("Cost per million", "currencyUSD", q.per_million(q.TRAFFIC, by=_BY, over=over)),
    ]
    return p.table("Side by side", "Both kinds of decoding over the whole time range.", [_BY], columns)


def _spread(title: str, metric: m.Metric, about: str, *matchers: str, log: bool = False) -> p.Json:
    targets = [
        p.target(_quantile(share, metric, *matchers), f"{{{{decoding}}}} p{share * 100:g}", exemplar=metric.exemplars)
        for share in (0.5, 0.95)
    ]
    return p.lines(title, about, "s", targets, log=log)


def _one(title: str, about: str, unit: str, expr: str) -> p.Json:
    return p.lines(title, about, unit, [p.target(expr, "{{decoding}}")])


def _silence() -> p.Json:
    about = (
        "Share of the whole duration in which the answer was open and nothing had come: a diffusion model thinks first."
    )
    return _one("Silent share", about, "percentunit", _silent())


def _decode_rate() -> p.Json:
    targets = [
        # A slow request takes long for a token: the 95th percentile of the time is the 5th of the rate.
        p.target(f"1 / {_quantile(0.5, m.TIME_PER_TOKEN)}", "{{decoding}} p50"),
        p.target(f"1 / {_quantile(0.95, m.TIME_PER_TOKEN)}", "{{decoding}} p5"),
    ]
    about = "Tokens after the first arrival / time from the first to the last one. The first burst is not counted."
    return p.lines("Decode rate", about, "count:tok/s", targets)


def _token_rate() -> p.Json:
    about = "Completion tokens / whole duration, mean of requests: what one reader gets, silence included."
    return _one("Tokens per second and request", about, "count:tok/s", _mean(m.TOKEN_RATE, q.STREAMS))


def _per_burst() -> p.Json:
    return _one("Tokens per burst", "Mean size of what comes in one read.", "none", _mean(m.BURST_TOKENS))


def _stalls() -> p.Json:
    targets = [
        p.target(_per_stream(m.STALLS), "{{decoding}} stalls"),
        p.target(_per_stream(m.STALL_SECONDS), "{{decoding}} seconds"),
    ]
    return p.lines("Stalls per request", "Gaps of at least half a second, and their sum.", "none", targets)


def _bursts() -> p.Json:
    return _one("Bursts per request", "Reads that held output, mean of streams.", "none", _mean(m.BURSTS))


def _burst_heatmap(decoding: str, scheme: str) -> p.Json:
    buckets = q.select(m.BURST_TOKENS, q.TRAFFIC, f'decoding="{decoding}"', suffix="_bucket")
    expr = f"increase({buckets}[{q.WINDOW}])"
    about = f"Sizes of bursts, {decoding}: how many came in each bucket."
    return p.heatmap(f"Tokens per burst, {decoding}", about, "none", q.total(expr, "le"), scheme=scheme)


def _ttft_heatmap() -> p.Json:
    expr = f"increase({q.select(m.TTFT, q.TRAFFIC, q.STREAMS, suffix='_bucket')}[{q.WINDOW}])"
    return p.heatmap(
        "Time to first token, $backend",
        f"{_TTFT} Same buckets for each.",
        "s",
        q.total(expr, "le"),
        scheme="Spectral",
        repeat="backend",
    )
