"""Texts that a pattern matches, made from its tree and tried before they are handed out.

Which characters a class has is asked of RE2. Of a pattern that `re2_syntax` does not surely understand there
are no samples; what there is, is always true.

Knows nothing of conditions or of calls.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from engine.errors import ConditionError
from engine.fields.pattern import compile_pattern
from engine.fields.re2_syntax import (
    Alternation,
    CharacterClass,
    Characters,
    Concatenation,
    PatternPart,
    Repetition,
    parse,
)

TRIES: Final = 24
MOST_REPEATED: Final = 200
LONGEST: Final = 10_000
MOST_MEMBERS: Final = 24
"""Characters of a class to choose from."""

_ALPHABET: Final = (
    "ax0 Az9_bcdefghijklmnopqrstuvwyBCDEFGHIJKLMNOPQRSTUVWXYZ12345678-./:@#=,;'\"\\|&$%+*~<>()[]{}!?^`"
    "\n\téяλ漢あ한ا\u200b\u202e\u2066\xa0\x01"
)


class _NoMember(Exception):
    """A class of which no character is known."""


def samples(pattern: str, seed: int = 0) -> Iterator[str]:
    """Different texts in which the pattern is found, the plainest first; at most some two dozen."""
    tree = parse(pattern)
    if tree is None:
        return
    search = compile_pattern(pattern).search
    draw = random.Random(seed)
    seen: set[str] = set()
    for attempt in range(TRIES):
        try:
            text = _made(tree, draw if attempt else None)
        except _NoMember:
            continue
        if text not in seen:
            seen.add(text)
            if len(text) < LONGEST and search(text) is True:
                yield text


def _made(part: PatternPart, draw: random.Random | None) -> str:
    """One text of the part: the first of everything, or drawn."""
    match part:
        case Characters(text):
            return text
        case CharacterClass(text):
            return _chosen(_members(text), draw)
        case Concatenation(parts):
            return "".join(_made(each, draw) for each in parts)
        case Alternation(branches):
            return _made(draw.choice(branches) if draw else branches[0], draw)
        case Repetition(inner, least, most):
            if draw and (most is None or most > least):
                least += draw.randint(0, 2 if most is None else min(2, most - least))
            return "".join(_made(inner, draw) for _ in range(min(least, MOST_REPEATED)))


def _chosen(members: str, draw: random.Random | None) -> str:
    if draw is None:
        return members[0]
    # What stands between words is what such classes are mostly for.
    return " " if " " in members and draw.random() < 0.4 else draw.choice(members)


@lru_cache(maxsize=4096)
def _members(text: str) -> str:
    """Some characters of a class, plain ones first."""
    try:
        search = compile_pattern(f"^(?s:{text})$").search
    except ConditionError:
        raise _NoMember from None
    own = [char for char in text if char not in "[]^\\-"]
    own += [chr(int(code, 16)) for code in re.findall(r"\\x\{?([0-9A-Fa-f]{2,5})", text)]
    found = dict.fromkeys(char for char in (*_ALPHABET, *own) if search(char) is True)
    if not found:
        raise _NoMember
    return "".join(list(found)[:MOST_MEMBERS])
