"""How often a test that draws or repeats does so: `LONG=1` (`make test-long`) asks for many times as much.

`CI_REQUIRE_ALL=1` is another matter: with it, a test that misses a program fails instead of being skipped.
"""

from __future__ import annotations

import os
import time
from typing import Any

from hypothesis import settings

LONG = bool(os.environ.get("LONG"))
USUAL_SECONDS = 0.0045
"""Of the work in `slowness`, on the machine for which bounds of time were written."""


def slowness() -> float:
    """How many times as long as usual the processor takes for the same work just now; at least 1. Machines
    that share their processor with others are two or three times as slow for minutes."""

    def once() -> float:
        begun = time.process_time()
        sum([number % 7 for number in range(100_000)])
        return time.process_time() - begun

    return max(1.0, min(once() for _ in range(3)) / USUAL_SECONDS)


def examples(usual: int, long: int, **options: Any) -> settings:
    """So many examples of a property, each in as much time as it needs."""
    return settings(max_examples=long if LONG else usual, **options)
