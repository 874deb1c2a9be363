"""The catalogue of what is exported: every metric's name, help, labels and buckets, as data.

1. One table, so that the exporter, docs/metrics.md and the dashboards can be held to each other by tests.
2. Labels are configured names and closed lists only. A client's model string, an id, an error text never
   becomes a label value: each would be a new series, and a stranger could make as many as he likes.
3. Every objective that an alert or a panel compares with is a bucket bound: a `le` that no bucket has
   matches nothing, silently.
4. `mirror` is a label and not left out: a shadow copy is a real measurement of its backend and costs real
   money, but nobody waited for it. Alerts and the overview look at `mirror="false"`, comparisons at both.
5. What only a stream has (silence, bursts, gaps, stalls, a decode rate) is never observed for a JSON
   answer. What both have is kept apart by `streamed`: the ttft of a JSON answer is its whole duration.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "manometer_"

EXCHANGE = ("backend", "model", "decoding", "api", "mirror")
ANSWER = (*EXCHANGE, "streamed")

# Labels whose values come from a closed list. The others may grow, and yield to the cap on series.
CLOSED = frozenset({"api", "decoding", "mirror", "streamed", "outcome", "reason", "type", "source"})

LATENCY = (
    *(0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4),
    *(0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0),
)
DURATION = (
    *(0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5),
    *(10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
PER_TOKEN = (
    *(0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01),
    *(0.015, 0.02, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0),
)
RATE = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0),
    *(200.0, 300.0, 400.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0),
)
POWERS = tuple(float(2**n) for n in range(11))
GAP = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
LAG = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True, eq=False)  # a row is a key of hot dictionaries: compared by identity
class Metric:
    """One family. `name` is without the prefix; `lines` is what one child adds to a scrape."""

    name: str
    kind: str  # counter, gauge, histogram, info
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    exemplars: bool = False  # the id of a request, to find its own page

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def lines(self) -> int:
        return len(self.bounds) + 3 if self.kind == "histogram" else 1


def _counter(name: str, help: str, labels: tuple[str, ...] = EXCHANGE, exemplars: bool = False) -> Metric:
    return Metric(name, "counter", help, labels, exemplars=exemplars)


def _gauge(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "gauge", help, labels)


def _histogram(
    name: str, help: str, bounds: tuple[float, ...], labels: tuple[str, ...] = EXCHANGE, exemplars: bool = False
) -> Metric:
    return Metric(name, "histogram", help, labels, bounds, exemplars)


STARTED = _counter(
    "requests_started_total",
    "Exchanges that have started. Summed over all labels: started = sum of requests_total + in flight."
    " Labels are those of the plan; after a fallback the exchange ends under other ones.",
)
REQUESTS = _counter(
    "requests_total",
    "Exchanges that have ended, each with exactly one outcome. code: the HTTP status that the client got.",
    (*EXCHANGE, "outcome", "code"),
    exemplars=True,
)
IN_FLIGHT = _gauge("requests_in_flight", "Exchanges that have started and not ended.", EXCHANGE)

TTFT = _histogram(
    "time_to_first_token_seconds",
    "First output (text, reasoning, tool call; never a role or an empty delta) - request received."
    " Not observed without output: see no_output_total.",
    LATENCY,
    ANSWER,
    exemplars=True,
)
TTFA = _histogram(
    "time_to_first_answer_seconds",
    "First output that is not reasoning - request received. Not observed when all was reasoning.",
    LATENCY,
    ANSWER,
)
TTFB = _histogram("time_to_first_byte_seconds", "Head of the backend's response - request received.", LATENCY, ANSWER)
BACKEND_TTFT = _histogram(
    "backend_time_to_first_token_seconds",
    "First output - start of the last attempt's request to the backend.",
    LATENCY,
    ANSWER,
)
SILENCE = _histogram(
    "silence_seconds", "First output - head of the response, of streams: open, and nothing to read.", LATENCY
)
T90 = _histogram(
    "time_to_90_percent_seconds",
    "Until 90 % of the final answer's characters were there for good - request received, of streams.",
    LATENCY,
)
DURATION_SECONDS = _histogram(
    "request_duration_seconds",
    "Last byte written to the client - request received, whatever the outcome.",
    DURATION,
    ANSWER,
    exemplars=True,
)
TIME_PER_TOKEN = _histogram(
    "time_per_output_token_seconds",
    "1 / decode rate: last arrival - first arrival, over the tokens after the first arrival. Needs two arrivals.",
    PER_TOKEN,
    exemplars=True,
)
TOKEN_RATE = _histogram(
    "output_tokens_per_second", "Completion tokens / request duration, where tokens were reported.", RATE, ANSWER
)
BURST_TOKENS = _histogram(
    "burst_tokens", "Tokens that came in one read, of streams whose tokens were reported.", POWERS
)
BURSTS = _histogram("bursts_per_request", "Reads that held output, of streams with output.", POWERS)
GAPS = _histogram("gap_seconds", "Time between consecutive arrivals of output.", GAP)
STALLS = _counter("stalls_total", "Gaps of at least the stall threshold (0.5 s).")
STALL_SECONDS = _counter("stall_seconds_total", "Sum of the gaps that were stalls.")
NO_OUTPUT = _counter(
    "no_output_total",
    "Exchanges without any output, by outcome: never observed as a time to first token."
    " With the count of time_to_first_token_seconds this makes requests_total.",
    (*EXCHANGE, "reason"),
)
HOLD = _histogram(
    "hold_seconds", "Last byte taken by the client's socket - read from the backend, of each arrival.", OVERHEAD
)
TOKENS = _counter(
    "tokens_total",
    "Tokens of all exchanges. cached is part of prompt and reasoning is part of completion: do not add them up."
    " source: reported by the backend, or estimated by characters where nothing was reported.",
    (*EXCHANGE, "type", "source"),
)
USAGE_MISSING = _counter("usage_missing_total", "Exchanges that ended ok with output, and no token count was reported.")
COST = _counter(
    "cost_total",
    "Money, by reported tokens and the price in force when the request was received.",
    (*EXCHANGE, "currency"),
)
UNPRICED = _counter(
    "unpriced_requests_total",
    "Exchanges with reported tokens and no cost, for want of a price or of a count: missing from cost_total.",
)
ATTEMPTS = _counter(
    "attempts_total", "Tries at a backend, by how each ended (the outcomes of requests_total).", ("backend", "reason")
)
MIRRORED = _counter("mirrored_total", "Shadow copies that have ended, by where they went.", ("route", "backend"))
SPLIT = _counter("split_total", "Exchanges of a route, by the backend that answered.", ("route", "backend"))
OVERHEAD_SECONDS = _histogram(
    "overhead_seconds",
    "What the proxy itself took: request sent - received - waiting for the client's body,"
    " + last byte to the client - last read from the backend.",
    OVERHEAD,
    exemplars=True,
)
LOOP_LAG = _histogram(
    "event_loop_lag_seconds",
    "Largest delay of the forwarder's event loop during an exchange: how uncertain its time stamps are.",
    LAG,
    (),
)
DROPPED = _counter("readings_dropped_total", "Readings that did not reach a sink. Must stay 0.", ("sink",))
SERIES_REFUSED = _counter(
    "series_refused_total",
    "Observations whose own series would have passed the cap: counted under the label value other instead.",
    (),
)
INSTANCE_PRICE = _gauge(
    "instance_hourly_price",
    "Configured price of a backend's instance for one hour, of self-hosted backends.",
    ("backend", "currency"),
)
MEMORY = _gauge("memory_bytes", "Resident memory of the proxy's processes.", ("process",))
RELOADED = _gauge(
    "config_reload_success_timestamp_seconds", "When the running configuration was loaded, seconds since the epoch."
)
BUILD = Metric("build_info", "info", "Version of the proxy and of Python. Always 1.", ("version", "python"))

METRICS = (
    *(STARTED, REQUESTS, IN_FLIGHT, TTFT, TTFA, TTFB, BACKEND_TTFT, SILENCE, T90, DURATION_SECONDS),
    *(TIME_PER_TOKEN, TOKEN_RATE, BURST_TOKENS, BURSTS, GAPS, STALLS, STALL_SECONDS, NO_OUTPUT, HOLD),
    *(TOKENS, USAGE_MISSING, COST, UNPRICED, ATTEMPTS, MIRRORED, SPLIT, OVERHEAD_SECONDS, LOOP_LAG),
    *(DROPPED, SERIES_REFUSED, INSTANCE_PRICE, MEMORY, RELOADED, BUILD),
)
