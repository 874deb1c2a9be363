"""The measurements of one exchange that reports speak of: name, words, unit, which way is better.

Most are the meter's own. Those from the schedule are here: in an open loop a server that is late makes the next
request late, and from its actual start that would not show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proxy.meter.reading import Reading


@dataclass(frozen=True, slots=True)
class Metric:
    """A measurement of one exchange, as reports speak of it."""

    name: str
    title: str
    unit: str
    lower_is_better: bool
    of: Callable[[Reading], float | None]


def lag(reading: Reading) -> float | None:
    """Schedule lag: actual - intended start, seconds. None in a closed loop."""
    return None if reading.intended is None else -reading.intended


def burst(reading: Reading) -> float | None:
    """Mean tokens per arrival: completion tokens / arrivals. None when the tokens are unknown or nothing came."""
    completion = reading.tokens.completion
    return completion / len(reading.arrivals) if completion is not None and reading.arrivals else None


def largest_gap(reading: Reading) -> float | None:
    """The longest time between two arrivals, seconds. None below two arrivals."""
    return max(reading.gaps, default=None)


def from_intended(seconds: Callable[[Reading], float | None]) -> Callable[[Reading], float | None]:
    """The same latency, from the moment the request should have been sent. None in a closed loop."""

    def late(reading: Reading) -> float | None:
        value, behind = seconds(reading), lag(reading)
        return None if value is None or behind is None else value + behind

    return late


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft", "first token", "s", True, lambda r: r.ttft),
        Metric("ttfa", "first answer", "s", True, lambda r: r.ttfa),
        Metric("e2e", "whole answer", "s", True, lambda r: r.e2e),
        Metric("t90", "90 % of the answer", "s", True, lambda r: r.stability.t90),
        Metric("decode_rate", "decode rate", "tokens/s", False, lambda r: r.decode_rate),
        Metric("e2e_rate", "whole-answer rate", "tokens/s", False, lambda r: r.e2e_rate),
        Metric("tpot", "time per output token", "s", True, lambda r: r.tpot),
        Metric("silence", "silence", "s", True, lambda r: r.silence),
        Metric("burst", "tokens per arrival", "tokens", False, burst),
        Metric("largest_gap", "longest gap", "s", True, largest_gap),
        Metric("connect", "connect", "s", True, lambda r: r.connect or None),
        Metric("ttft_intended", "first token, from schedule", "s", True, from_intended(lambda r: r.ttft)),
        Metric("e2e_intended", "whole answer, from schedule", "s", True, from_intended(lambda r: r.e2e)),
        Metric("lag", "schedule lag", "s", True, lag),
        Metric("price", "price of an answer", "money", True, lambda r: None if r.cost is None else float(r.cost)),
    )
}
LATENCIES = ("ttft", "e2e")  # those that a failure makes infinite
