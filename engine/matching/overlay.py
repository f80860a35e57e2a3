"""A mapping that changes by a thin layer on top, so that a change need not copy what is below.

Knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class OverlayMapping(Mapping[str, Value]):
    """`base` as changed by `top`, in which None removes. Neither is ever written to."""

    __slots__ = ("_length", "base", "top")

    def __init__(self, base: Mapping[str, Value], top: Mapping[str, Value | None] | None = None) -> None:
        self.base = base
        self.top: Mapping[str, Value | None] = top or {}
        self._length = len(base) + sum((value is not None) - (key in base) for key, value in self.top.items())

    def changed(self, changes: Mapping[str, Value | None]) -> OverlayMapping[Value]:
        """The mapping after more changes; shares `base` with this one."""
        return OverlayMapping(self.base, {**self.top, **changes})

    def flat(self) -> dict[str, Value]:
        """The same content as one plain mapping."""
        merged = dict(self.base)
        for key, value in self.top.items():
            if value is not None:
                merged[key] = value
            else:
                merged.pop(key, None)
        return merged

    def __getitem__(self, key: str) -> Value:
        if key in self.top:
            value = self.top[key]
            if value is None:
                raise KeyError(key)
            return value
        return self.base[key]

    def __iter__(self) -> Iterator[str]:
        if self.top:
            yield from (key for key in self.base if key not in self.top)
            yield from (key for key, value in self.top.items() if value is not None)
        else:
            yield from self.base

    def __len__(self) -> int:
        return self._length
