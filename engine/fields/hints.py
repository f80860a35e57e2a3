"""Hints: what must be so for a condition to be anything but FALSE; what an operator promises to the index.

A hint that is `typed` also holds for any one value at `path` that is of another type than it speaks of, as an
expression is an ERROR there: of anything but a text, or with `Threshold` anything but a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from engine.fields.paths import Path


@dataclass(frozen=True, slots=True)
class OneOf:
    """Some value at `path` has one of its `value_keys` among `keys`."""

    path: Path
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Literals:
    """At least one of `any_of` (casefolded) occurs in the casefolded text of one of `Facts.texts`; if a place
    is named, there."""

    path: Path
    any_of: frozenset[str]
    typed: bool = False
    place: Literal["start", "end", ""] = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Some number at `path` is >= (`above`) or <= `bound`, or a value there is not a number."""

    path: Path
    above: bool
    bound: float
    typed: bool = False

    @classmethod
    def of(cls, path: Path, above: bool, number: int | float, typed: bool = False) -> Threshold:
        """The threshold for a finite number, which may be a whole one that no float is equal to."""
        bound = float(number)
        if bound != number:  # rounded on the way: step outwards, so that the hint stays necessary
            bound = math.nextafter(bound, -math.inf if above else math.inf)
        return cls(path, above, bound, typed)


@dataclass(frozen=True, slots=True)
class Present:
    """`path` leads to a value."""

    path: Path


@dataclass(frozen=True, slots=True)
class Regex:
    """One of `Facts.texts` holds a match of `pattern` (RE2 syntax)."""

    path: Path
    pattern: str
    typed: bool = False


Hint = OneOf | Literals | Threshold | Present | Regex
"""INVARIANT: a hint is necessary for TRUE and for a fault alike; when it does not hold, the verdict is
FALSE. The index may therefore skip what does not fulfil its hint, and nothing else."""
