"""Python's collector of cycles, told to keep out of the way: a collection in a stream is a false stamp."""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 50_000, 20, 100  # allocations until a generation is looked at, then generations


def quiet() -> None:
    """What is loaded stays; young objects are looked at rarely, old ones hardly ever.

    To be called when a process has started. What runs here leaves cycles behind only where something failed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
