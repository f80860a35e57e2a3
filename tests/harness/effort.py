"""How often a test that draws or repeats does so: `LONG=1` (`make test-long`) asks for many times as much.

`CI_REQUIRE_ALL=1` is another matter: with it, a test that misses a program fails instead of being skipped.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

LONG = bool(os.environ.get("LONG"))


def examples(usual: int, long: int, **options: Any) -> settings:
    """So many examples of a property, each in as much time as it needs."""
    return settings(max_examples=long if LONG else usual, deadline=None, **options)
