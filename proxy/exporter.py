"""Prometheus metrics: a fold over openings and readings.

1. `opened` and `finished` only add up (`tally`); prometheus_client sees nothing until somebody scrapes.
   Its own instruments would cost several times as much for each request.
2. `collect` takes one frozen copy under the lock, so that the numbers of a scrape belong together
   (started = sum of outcomes + in flight), and builds the families outside of it. It may run in any
   thread, and two scrapers at once are two copies.
3. Children of every configured pair exist from the start: a counter that is born with its first
   increment has lost it to `rate()`.
4. There are no `_created` series, because a custom collector makes none unless told to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from operator import attrgetter
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from . import metrics as m
from .meter import OUTCOMES, Reading
from .recorder import Opening
from .series import OTHER, Labels, Series
from .tally import Count, FrozenCount, FrozenTally, Mark

Pair = tuple[str, str, str]  # backend, model, decoding: configured names
Priced = tuple[str, str, str]  # backend, model, currency

NONE = "none"  # refused before a backend was chosen
_LONGEST_ID = 64  # an exemplar's labels may hold 128 characters together
_BOOL = ("false", "true")

# Which measurement feeds which histogram. None is never observed.
_OF_ANSWERS: tuple[tuple[m.Metric, Callable[[Reading], float | None]], ...] = (
    (m.TTFB, attrgetter("ttfb")),
    (m.TTFT, attrgetter("ttft")),
    (m.BACKEND_TTFT, attrgetter("backend_ttft")),
    (m.TTFA, attrgetter("ttfa")),
    (m.DURATION_SECONDS, attrgetter("e2e")),
    (m.TOKEN_RATE, attrgetter("e2e_rate")),
)
_OF_STREAMS: tuple[tuple[m.Metric, Callable[[Reading], float | None]], ...] = (
    (m.SILENCE, attrgetter("silence")),
    (m.T90, attrgetter("stability.t90")),
    (m.TIME_PER_TOKEN, lambda reading: 1 / rate if (rate := reading.decode_rate) else None),
    (m.BURSTS, lambda reading: len(reading.arrivals) or None),
)
_TOKEN_TYPES = ("prompt", "cached", "completion", "reasoning")

# The statuses that go with an outcome often enough to exist before the first of them.
_USUAL_CODES: dict[str, tuple[str, ...]] = {
    "ok": ("200",),
    "refused": ("400", "401", "404", "413"),
    "backend_error": ("200", "400", "401", "404", "429", "500", "502", "503"),
    "unreachable": ("502",),
    "timeout_connect": ("504",),
    "timeout_first_output": ("504", "200"),
    "timeout_total": ("504", "200"),
    "empty": ("200",),
    "internal": ("500",),
}


class Exporter(Collector):
    """A `Sink` whose sums a registry can collect.

    `prices` say which of the pairs have one: a cost of 0 is exported for those only, because a model
    without a price does not cost nothing. `instances` are prices per hour of self-hosted backends as
    (amount, currency). `memory` tells the resident bytes of the proxy's processes by name, and is asked once
    for each scrape, in the scraper's thread. `sinks` are the ways on which a reading can be lost.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        pairs: Iterable[Pair] = (),
        *,
        prices: Iterable[Priced] = (),
        series_limit: int = 20_000,
        build: tuple[str, str] = ("", ""),
        instances: Mapping[str, tuple[Decimal, str]] | None = None,
        memory: Callable[[], Mapping[str, int]] | None = None,
        sinks: Iterable[str] = ("link",),
    ) -> None:
        self._lock = threading.Lock()
        self._series = Series(m.METRICS, series_limit)
        self._open: dict[str, Count] = {}  # by request id: the gauge that counts it
        self._memory = memory or dict
        self.configure(pairs, prices)
        for outcome in ("refused", "internal"):
            self._prepare_outcome((NONE, OTHER, NONE, "chat", "false"), outcome)
        self._series.count(m.BUILD, build, 1)
        self._series.count(m.SERIES_REFUSED, (), 0)
        self._series.child(m.LOOP_LAG, ())
        for sink in sinks:
            self._series.child(m.DROPPED, (sink,))
        for backend, (amount, currency) in (instances or {}).items():
            self._series.count(m.INSTANCE_PRICE, (backend, currency), amount)
        registry.register(self)

    # What happens

    def opened(self, opening: Opening) -> None:
        with self._lock:
            if opening.id not in self._open:
                self._open[opening.id] = self._start(_labels(opening))

    def finished(self, reading: Reading) -> None:
        with self._lock:
            labels = _labels(reading)
            # A reading that nobody announced starts and ends here: the gauge can't go below zero.
            gauge = self._open.pop(reading.id, None) or self._start(labels)
            gauge.value -= 1
            self._end(reading, labels)
            self._observe(reading, labels)
            self._arrivals(reading, labels)
            self._tokens(reading, labels)

    def dropped(self, sink: str, readings: int = 1) -> None:
        """Readings that `sink` never got."""
        with self._lock:
            self._series.count(m.DROPPED, (sink,), readings)

    def configure(self, pairs: Iterable[Pair], prices: Iterable[Priced] = ()) -> None:
        """After a reload: children for what is new. What is gone keeps its sums: counters never go back."""
        currencies = {(backend, model): currency for backend, model, currency in prices}
        with self._lock:
            for pair in pairs:
                self._prepare(pair)
                if currency := currencies.get(pair[:2]):
                    self._series.child(m.COST, (*pair, "chat", "false", currency))

    def reloaded(self, at: float) -> None:
        """A configuration is in force since `at`, seconds since the epoch."""
        with self._lock:
            self._series.child(m.RELOADED, ()).value = at

    # The fold, by subject

    def _start(self, labels: Labels) -> Count:
        self._series.count(m.STARTED, labels)
        gauge: Count = self._series.child(m.IN_FLIGHT, labels)
        gauge.value += 1
        return gauge

    def _end(self, reading: Reading, labels: Labels) -> None:
        code = NONE if reading.status is None else str(reading.status)
        ended = self._series.count(m.REQUESTS, (*labels, reading.outcome, code))
        if len(reading.id) <= _LONGEST_ID:
            ended.mark = Mark(reading.id, 1.0, reading.started_at + reading.done)
        for attempt in reading.attempts:
            self._series.count(m.ATTEMPTS, (attempt.backend, attempt.outcome))
        if reading.route is not None:
            self._series.count(m.MIRRORED if reading.mirror else m.SPLIT, (reading.route, labels[0]))

    def _observe(self, reading: Reading, labels: Labels) -> None:
        id = reading.id if len(reading.id) <= _LONGEST_ID else None
        at = reading.started_at + reading.done
        answer = (*labels, _BOOL[reading.streamed])
        for metric, of in _OF_ANSWERS:
            if (value := of(reading)) is not None:
                self._series.child(metric, answer).add(value, id if metric.exemplars else None, at)
        if reading.streamed:
            for metric, of in _OF_STREAMS:
                if (value := of(reading)) is not None:
                    self._series.child(metric, labels).add(value, id if metric.exemplars else None, at)
        if (overhead := reading.overhead) is not None:
            self._series.child(m.OVERHEAD_SECONDS, labels).add(overhead, id, at)
        if reading.loop_lag is not None:
            self._series.child(m.LOOP_LAG, ()).add(reading.loop_lag)

    def _arrivals(self, reading: Reading, labels: Labels) -> None:
        if not reading.arrivals:
            self._series.count(m.NO_OUTPUT, (*labels, reading.outcome))
            return
        if holds := reading.holds:
            self._series.child(m.HOLD, labels).add_all(holds)
        if not reading.streamed:
            return
        if bursts := reading.bursts:
            self._series.child(m.BURST_TOKENS, labels).add_all(bursts)
        if gaps := reading.gaps:
            self._series.child(m.GAPS, labels).add_all(gaps)
            if max(gaps) >= reading.stall_threshold:
                stalls = reading.stalls
                self._series.count(m.STALLS, labels, len(stalls))
                self._series.count(m.STALL_SECONDS, labels, sum(stalls))

    def _tokens(self, reading: Reading, labels: Labels) -> None:
        tokens = reading.tokens
        for type in _TOKEN_TYPES:
            if number := getattr(tokens, type):
                self._series.count(m.TOKENS, (*labels, type, "reported"), number)
        if estimated := reading.estimated_completion:
            self._series.count(m.TOKENS, (*labels, "completion", "estimated"), estimated)
        if not tokens and reading.arrivals and reading.outcome == "ok":
            self._series.count(m.USAGE_MISSING, labels)
        if reading.cost is not None:
            self._series.count(m.COST, (*labels, reading.currency), reading.cost)
        elif tokens:
            self._series.count(m.UNPRICED, labels)

    # What is there from the start

    def _prepare(self, pair: Pair) -> None:
        labels: Labels = (*pair, "chat", "false")
        for metric in m.METRICS:
            if metric.labels == m.EXCHANGE:
                self._series.child(metric, labels)
            elif metric.labels == m.ANSWER:
                for streamed in _BOOL:
                    self._series.child(metric, (*labels, streamed))
        for outcome in OUTCOMES:
            self._prepare_outcome(labels, outcome)
            self._series.child(m.NO_OUTPUT, (*labels, outcome))
            self._series.child(m.ATTEMPTS, (pair[0], outcome))
        for type in _TOKEN_TYPES:
            self._series.child(m.TOKENS, (*labels, type, "reported"))
        self._series.child(m.TOKENS, (*labels, "completion", "estimated"))

    def _prepare_outcome(self, labels: Labels, outcome: str) -> None:
        self._series.child(m.STARTED, labels)
        self._series.child(m.IN_FLIGHT, labels)
        for code in _USUAL_CODES.get(outcome, ("200", NONE)):
            self._series.child(m.REQUESTS, (*labels, outcome, code))

    # What a scrape sees

    def describe(self) -> Iterator[Family]:
        return (_family(metric) for metric in m.METRICS)

    def collect(self) -> Iterator[Family]:
        memory = self._memory()
        with self._lock:
            frozen = self._series.frozen()
        for metric, children in frozen:
            family = _family(metric)
            if metric is m.MEMORY:
                children = [((process,), FrozenCount(float(size), None)) for process, size in memory.items()]
            for labels, child in children:
                _expose(family, metric, labels, child)
            yield family


def _labels(exchange: Opening | Reading) -> Labels:
    return (
        exchange.backend or NONE,
        exchange.model or NONE,
        exchange.decoding or NONE,
        exchange.api,
        _BOOL[exchange.mirror],
    )


def _family(metric: m.Metric) -> Any:
    # build_info is exposed as a gauge: the text format and OpenMetrics then agree on its name.
    kinds = {"counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
    return kinds.get(metric.kind, GaugeMetricFamily)(metric.full_name, metric.help, labels=metric.labels)


def _expose(family: Any, metric: m.Metric, labels: Labels, child: FrozenCount | FrozenTally) -> None:
    if isinstance(child, FrozenTally):
        family.add_metric(labels, list(_buckets(metric.bounds, child)), child.total)
    elif metric.kind == "counter":
        family.add_metric(labels, child.value, exemplar=_exemplar(child.mark))
    else:
        family.add_metric(labels, child.value)


def _buckets(bounds: tuple[float, ...], tally: FrozenTally) -> Iterator[tuple[str, float, Exemplar | None]]:
    upto = 0
    for le, count, mark in zip((*map(repr, bounds), "+Inf"), tally.counts, tally.marks, strict=True):
        upto += count
        yield le, upto, _exemplar(mark)


def _exemplar(mark: Mark | None) -> Exemplar | None:
    return None if mark is None else Exemplar({"request_id": mark.id}, mark.value, mark.at)


def render(registry: CollectorRegistry, accept: str = "") -> tuple[str, bytes]:
    """Everything in the registry as (content type, body), in the format that the Accept header asks for.

    Takes tens of milliseconds when there are thousands of series: call it in a thread.
    """
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry)
