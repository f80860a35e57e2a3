"""Hints: what must be so for a condition to be anything but FALSE; what an operator promises to the index."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields.paths import Path


@dataclass(frozen=True, slots=True)
class OneOf:
    """Some value at `path` has one of its `value_keys` among `keys`."""

    path: Path
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Literals:
    """At least one of `any_of` (casefolded) occurs in the casefolded text of one of `Facts.texts`."""

    path: Path
    any_of: frozenset[str]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Some number at `path` is >= (`above`) or <= `bound`, or a value there is not a number."""

    path: Path
    above: bool
    bound: float


@dataclass(frozen=True, slots=True)
class Present:
    """`path` leads to a value."""

    path: Path


@dataclass(frozen=True, slots=True)
class Regex:
    """One of `Facts.texts` holds a match of `pattern` (RE2 syntax)."""

    path: Path
    pattern: str


Hint = OneOf | Literals | Threshold | Present | Regex
"""INVARIANT: a hint is necessary for TRUE and for a fault alike; when it does not hold, the verdict is
FALSE. The index may therefore skip what does not fulfil its hint, and nothing else."""
