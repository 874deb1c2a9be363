"""The meter: what every number means, with no I/O and no clock.

    bytes + time  --sse-->  events  --grammar-->  deltas  --meter-->  arrivals + usage  =  Reading
                                                                      timeline: Reading -> numbers
                                                                      cost: tokens + price -> money

Whoever holds the socket feeds `Meter` what was read and when; the `Reading` at the end is all that
anything else in this project knows about an exchange.
"""

from .cost import Book, Price, cost
from .grammar import api_of
from .meter import MEASURED, Meter
from .reading import OUTCOMES, Arrival, Arrivals, Attempt, Fault, Reading
from .timeline import Settled
from .usage import Usage

__all__ = (
    "MEASURED",
    "OUTCOMES",
    "Arrival",
    "Arrivals",
    "Attempt",
    "Book",
    "Fault",
    "Meter",
    "Price",
    "Reading",
    "Settled",
    "Usage",
    "api_of",
    "cost",
)
