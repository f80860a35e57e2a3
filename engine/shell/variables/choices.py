"""Words of which a part may be one of several values, and each way in which those can come together.

Two variables that may each be one of two values make four words; one variable that stands in a command twice
has the same value in both places. Pure; knows nothing of syntax or of commands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from engine.shell.expansion import BREAK, TooMuch, fields, without_unknown

_NO_PROGRAM: Final = re.compile(r"-|\w*\[\]|$")
CHANGED: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[^\]]*\])?(?:[/#%^,@]|:(?![-=?+]))", re.ASCII)
"""A variable in the place of a program, changed in a way that is not followed."""
MOST_TURNS: Final = 64
"""Ways that are all tried."""
MOST_FIRST: Final = 16
_BEGIN: Final = re.compile(r"(\s?+\s*+\S*+).*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Several:
    """A part that is one of `values`. Parts with the same `of` (the name of a variable, and which time it was
    assigned) go together."""

    of: str
    values: tuple[str, ...]


Part = str | Several
Raw = list[Part]
"""A word on its way: texts with marks, and parts that may be one of several."""

Turn = Mapping[str, int]
"""For each `of`, which of its values; one that is missing is not told."""


def turns(words: Sequence[Raw], most: int = MOST_TURNS) -> list[Turn]:
    """Each way to choose; where there are too many, each value in some way, and each first word with the rest
    not told. INVARIANT: what runs is among the ways, or is one whose unknown parts are shown as unknown."""
    sizes = _sizes(words)
    if not sizes:
        return [{}]
    if len(sizes) == 1 or prod(sizes.values()) <= most:
        return _every(sizes)
    some: list[Turn] = [
        {of: min(turn, size - 1) for of, size in sizes.items()} for turn in range(max(sizes.values()))
    ]
    first = _sizes(words[:1])
    if prod(first.values()) > MOST_TURNS:
        raise TooMuch
    return some + _every(first)


def chosen(raw: Raw, turn: Turn) -> str:
    """The word in one way."""
    if len(raw) == 1 and raw[0].__class__ is str:
        return raw[0]
    return "".join(part if isinstance(part, str) else _one(part, turn) for part in raw)


def without_unknown_program(words: Sequence[Raw], turn: Turn) -> list[str] | None:
    """The command when what is unknown of its program is empty, and the next word may be the program; None
    where nothing is unknown of it."""
    for at, raw in enumerate(words):
        text = chosen(raw, turn)
        if "$" not in text and text and not at:
            return None
        known = without_unknown(text)
        if known == text and not at:
            return None
        if found := fields(known):
            rest = [word for after in words[at + 1 :] for word in fields(chosen(after, turn))]
            return None if _NO_PROGRAM.match(found[0]) else [*found, *rest]
    return None


def anything(name: str) -> str:
    """What stands for the values of a variable that the text sets in a way that is not followed."""
    return f"${{{name}...}}"


def is_anything(text: str) -> bool:
    return "...}" in text


def every(raw: Raw, name: str = "") -> list[str]:
    """The word in each way. Where there are too many, it is told by its first word alone, with `${name...}`
    for the rest, or that alone."""
    sizes = _sizes([raw])
    if prod(sizes.values()) <= MOST_TURNS:
        return [chosen(raw, turn) for turn in _every(sizes)]
    begin: Raw = []
    for part in raw:
        begin.append(part)
        if all(" " in text or BREAK in text for text in values_of(part)):
            break
    sizes = _sizes([begin])
    if prod(sizes.values()) > MOST_TURNS:
        return [anything(name)]
    return told_by_first([chosen(begin, turn) for turn in _every(sizes)], name)


def told_by_first(texts: Sequence[str], name: str) -> list[str]:
    """Texts by the first word of each."""
    begun = dict.fromkeys(_BEGIN.sub(r"\1", text.replace(BREAK, " "), 1) for text in texts)
    if len(begun) > MOST_FIRST or any(map(is_anything, begun)):
        return [anything(name)]
    return [f"{begin} {anything(name)}" if begin else anything(name) for begin in begun]


def together(outputs: Sequence[str | None]) -> str | None:
    """What may be in a file, all in one: which of it is there is not known, a program reads it all."""
    if None in outputs:
        return None
    return "\n".join(dict.fromkeys(text for text in outputs if text is not None))


def source(raw: Raw) -> str:
    """What the ways of a word go by, when that is one thing alone."""
    sizes = _sizes([raw])
    return next(iter(sizes)) if len(sizes) == 1 else ""


def first(raw: Raw) -> str:
    """The word with the first of all values."""
    return "".join(part if isinstance(part, str) else part.values[0] for part in raw)


def values_of(part: Part) -> tuple[str, ...]:
    """What a part may be."""
    return (part,) if isinstance(part, str) else part.values


def _one(part: Several, turn: Turn) -> str:
    at = turn.get(part.of)
    if at is None:
        return anything(part.of.partition("#")[0])
    return part.values[min(at, len(part.values) - 1)]


def _sizes(words: Sequence[Raw]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for raw in words:
        for part in raw:
            if part.__class__ is Several:
                sizes[part.of] = max(len(part.values), sizes.get(part.of, 0))
    return sizes


def _every(sizes: Mapping[str, int]) -> list[Turn]:
    return [dict(zip(sizes, each, strict=True)) for each in product(*map(range, sizes.values()))]
