"""The counters that caches compare with, read outside of a transaction."""

from __future__ import annotations

from api.store.models import Counter


def value(name: str) -> int:
    """The counter's value; 0 before it was first moved."""
    row = Counter.get_or_none(Counter.name == name)
    return int(row.value) if row else 0
