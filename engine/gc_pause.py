"""The garbage collector while a large set of policies is made: it keeps away from what stays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LARGE: Final = 10_000
"""Policies from which on making them concerns the garbage collector."""

YOUNG: Final = 20_000
"""Objects that are searched at once meanwhile: few enough for the cache of a processor, in half the time."""

_NEVER: Final = 1 << 30

_lock = threading.Lock()
_under_way = 0
_usual = gc.get_threshold()


@contextmanager
def gc_paused(size: int | None = None) -> Iterator[None]:
    """For making a large set, which is millions of objects that stay and no garbage: meanwhile only the young
    are searched for cycles, and in the end all that lives is taken out of the search for good.

    Otherwise the collector would go through all of it time and again, stalling every thread for as long.
    What is out of its sight is still freed when nothing refers to it any more. `size` is how many policies
    are made; None: not known yet, and whoever makes them takes them out of the search. Several may be under
    way, one within or beside another: the last one leaves the collector as the first one found it.
    """
    global _under_way, _usual
    if size is not None and size < LARGE:
        yield
        return
    with _lock:
        if not _under_way:
            _usual = gc.get_threshold()
            gc.set_threshold(YOUNG, 250, _NEVER)
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if not _under_way:
                gc.set_threshold(*_usual)
        if size is not None:
            gc.freeze()
