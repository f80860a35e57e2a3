"""The garbage collector while a large set of policies is made: it keeps away from what stays."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LARGE: Final = 10_000
"""Policies from which on making them concerns the garbage collector."""

_NEVER: Final = 1 << 30


@contextmanager
def gently(made: Callable[[], int]) -> Iterator[None]:
    """For making a large set, which is millions of objects that stay and no garbage: meanwhile only the young
    are searched for cycles, and if in the end many were `made`, all that lives is taken out of the search for
    good.

    Otherwise the collector would go through all of it time and again, stalling every thread for as long.
    What is out of its sight is still freed when nothing refers to it any more.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(100_000, 50, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old if old < _NEVER else 10)
        if made() >= LARGE:
            gc.freeze()
