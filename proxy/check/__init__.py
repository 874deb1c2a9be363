"""`manometer check`: what a backend can do, asked of the backend itself.

    effect    pairs of measurements -> ratio, interval, "seen" or not
    findings  answers -> facts; trials; what it may cost
    probe     one request, measured by the same meter as all traffic
    conduct   the order of the questions to one backend
    command   all backends, their costs told first; tables or JSON

A backend that accepts everything and ignores most of it looks fine, and a sweep over its parameters measures
nothing. So every parameter is tried: the same request with little and with much of it, in turn.
"""

from .command import UnknownBackend, run
from .conduct import bill, check
from .findings import Findings

__all__ = ["Findings", "UnknownBackend", "bill", "check", "run"]
