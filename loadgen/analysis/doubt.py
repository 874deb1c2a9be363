"""What to doubt about a level: what makes it invalid, and what one must know to read its numbers.

A level that the client could not have measured is not valid, whatever its numbers. Everything else is a
warning: one line, with its counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from proxy.meter.quantile import P99_NEEDS, percentile
from proxy.meter.reading import Reading

from .metric import lag


@dataclass(frozen=True, slots=True)
class Health:
    """How the load generator itself fared: above a limit the client was the bottleneck."""

    loop_lag: float | None = None  # P99 of its event loop's delay, seconds
    cpu: float | None = None  # its busiest process's share of one core
    LAG_LIMIT: ClassVar[float] = 0.025
    LAG_SHARE: ClassVar[float] = 0.05  # of the typical first token: a late reading of a slow server is still a reading
    CPU_LIMIT: ClassVar[float] = 0.9

    def faults(self, typical: float | None = None) -> list[str]:
        """Why the client can't be trusted. `typical`: the median time to first token, seconds."""
        found = []
        limit = max(self.LAG_LIMIT, self.LAG_SHARE * (typical or 0.0))
        if self.loop_lag is not None and self.loop_lag > limit:
            found.append(f"the client was the bottleneck: its event loop was {self.loop_lag * 1000:.0f} ms late at P99")
        if self.cpu is not None and self.cpu > self.CPU_LIMIT:
            found.append(f"the client was the bottleneck: it used {self.cpu:.0%} of a core; try --processes")
        return found


def usage_source(ok: Sequence[Reading]) -> str:
    """reported, estimated (no answer carried a count), mixed, or none (there is nothing to count)."""
    sources = {"reported" if r.tokens.completion is not None else "estimated" for r in ok if r.arrivals or r.tokens}
    return "none" if not sources else sources.pop() if len(sources) == 1 else "mixed"


def late(readings: Sequence[Reading]) -> list[str]:
    """An open loop that could not keep its own schedule did not send the load it names."""
    lags = sorted(value for value in map(lag, readings) if value is not None)
    behind = percentile(lags, 95) if lags else 0.0
    if behind <= Health.LAG_LIMIT:
        return []
    return [f"the client fell behind its schedule: {behind * 1000:.0f} ms at P95"]


def warnings(ok: Sequence[Reading], failed: Sequence[Reading], max_tokens: int | None) -> list[str]:
    found = []
    total = len(ok) + len(failed)
    if failed:
        found.append(
            f"{len(failed)} of {total} requests failed; latencies are of the others, see the failure-adjusted row"
        )
        found.extend(_reasons(failed))
    if 0 < len(ok) < P99_NEEDS:
        found.append(f"P99 of {len(ok)} values is hardly more than their maximum: it needs {P99_NEEDS}")
    source = usage_source(ok)
    if source == "estimated":
        found.append("no usage was reported: tokens are estimated by characters")
    elif source == "mixed":
        found.append("only some answers carried usage: the others' tokens are estimated by characters")
    single = sum(r.decode_rate_reason == "single_burst" for r in ok)
    if single:
        found.append(f"{single} of {len(ok)} answers came in one burst: their decode rate is not defined")
    perturbed = sum(r.perturbed for r in ok)
    if perturbed > len(ok) / 20:
        found.append(f"{perturbed} of {len(ok)} readings are perturbed: the client's event loop was over 5 ms late")
    told = sorted({r.warning for r in ok if r.warning})
    found.extend(f"the backend warns: {' '.join(text.split())[:120]}" for text in told[:3])
    return found + _lengths(ok, max_tokens)


def _reasons(failed: Sequence[Reading]) -> list[str]:
    """The three commonest reasons, in the words of whoever gave them."""
    reasons = Counter(_reason(r) for r in failed)
    found = [f"{count} failed: {reason}" for reason, count in reasons.most_common(3)]
    if any(r.status == 429 for r in failed):
        found.append("the backend limits the rate (429): --otpm paces the load, or ask less at once")
    return found


def _reason(reading: Reading) -> str:
    told = [reading.outcome, str(reading.status) if reading.status and reading.status != 200 else ""]
    if reading.fault is not None:
        told.append(reading.fault.message or reading.fault.type)
    return " ".join(" ".join(told).split())[:160]


def _lengths(ok: Sequence[Reading], max_tokens: int | None) -> list[str]:
    """Throughputs compare only between answers of one length."""
    lengths = sorted(r.tokens.completion for r in ok if r.tokens.completion is not None)
    if not lengths or max_tokens is None:
        return []
    found = []
    over = sum(length > max_tokens for length in lengths)
    early = sum(length < 0.9 * max_tokens for length in lengths)
    if over:
        found.append(
            f"{over} of {len(lengths)} answers are longer than max_tokens = {max_tokens}: the server ignores it"
        )
    if early:
        span = f"{percentile(lengths, 10):.0f} to {percentile(lengths, 90):.0f}"
        found.append(
            f"{early} of {len(lengths)} answers end before max_tokens = {max_tokens} ({span} tokens): lengths drift"
        )
    return found
