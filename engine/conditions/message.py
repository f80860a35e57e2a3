"""A policy's `message`: words for a reviewer, with placeholders that a call's facts fill in.

`{derived.recipients}` is a fact, named as in the field of a condition; a brace is written twice. Decides how
values are shown, so that none of them can pass for words of the policy: a plain token stands as it is,
anything else in quotes, on one line, cut. Knows nothing of policies or of the index.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.computed import MEMBERS, UNREADABLE
from engine.fields.paths import Path, parse
from engine.fields.scalars import shorten, text_of, whole
from engine.fields.visible import visible
from engine.model import COMPUTED, Json
from schemas.suggestion import closest

MOST_VALUES: Final = 3
"""Values of one fact that are shown; the others are counted."""
MOST_READ: Final = 1000
"""Values of one fact that are looked at."""
LONGEST_VALUE: Final = 80
LONGEST: Final = 1000
"""Characters of a filled message."""
UNKNOWN: Final = "unknown"
"""What stands for a fact that a call does not have."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9@/\\~$*%+#&=?:._-]{1,80}")
_QUOTES: Final = ('"', '""', "''")
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")


class Message:
    """A compiled message: texts, and the paths of facts between them."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str) -> None:
        """Raises ConditionError(part="message") with an offset."""
        self._pieces = tuple(_pieces(text))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The facts that it tells of."""
        return tuple(each for each in self._pieces if not isinstance(each, str))

    def filled(self, facts: Facts) -> str:
        """The message about a call, on one line, at most `LONGEST` characters; never raises."""
        text = "".join(each if isinstance(each, str) else _told(facts, each) for each in self._pieces)
        return shorten(text, LONGEST)


def _pieces(text: str) -> Iterator[str | Path]:
    for found in _PIECE.finditer(text):
        piece = found[0]
        if found[1] is not None:
            yield _fact(found[1], found.start() + 1)
        elif piece in ("{", "}"):
            raise _refuse(f"`{piece}` stands alone; a brace is written twice, `{piece * 2}`", found.start())
        else:
            yield piece[0] if piece in ("{{", "}}") else piece


def _fact(name: str, offset: int) -> Path:
    try:
        return parse(name)
    except ConditionError as error:
        root, dot, rest = name.partition(".")
        computed = {member: owner for owner, members in MEMBERS.items() for member in members}
        near = closest(root, computed)
        if near and root not in COMPUTED:
            hint = f"did you mean `{{{computed[near]}.{near}{dot}{rest}}}`?"
            raise _refuse(f"unknown fact `{name}`; {hint}", offset) from None
        raise _refuse(f"the placeholder `{{{name}}}` names no fact: {error.message}", offset) from None


def _told(facts: Facts, path: Path) -> str:
    """What the call has there, as "a, b, c and 2 more"; found once, for all policies that say so."""
    view = facts.at(path)
    if view.told is None:
        view.told = _listed(facts, path, view.values())
    return view.told


def _listed(facts: Facts, path: Path, values: Sequence[Json]) -> str:
    partial = path.root in MEMBERS and facts.is_partial(path.root, path.segments[0])
    scalars = (each for each in values[:MOST_READ] if not (partial and each == UNREADABLE))
    found = dict.fromkeys(_cut(each) for each in scalars if not isinstance(each, list))
    if not found:
        return UNKNOWN
    beyond = len(found) - MOST_VALUES + max(0, len(values) - MOST_READ)
    shown = [_word(each) for each in islice(found, MOST_VALUES)]
    return listed(shown, "more that cannot be read" if partial else f"{beyond:,} more" if beyond > 0 else "")


def listed(words: Sequence[str], more: str = "") -> str:
    """The first words, and `more` if there is any."""
    words = [*words[:MOST_VALUES], more] if more else words
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _cut(value: Json) -> str | None:
    """As much of a value as is shown; None: of an object nothing is."""
    if isinstance(value, dict):
        return None
    text = text_of(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _word(text: str | None) -> str:
    if text is None:
        return "an object"
    return text if _TOKEN.fullmatch(text) else '"' + "".join(map(_within_quotes, whole(text))) + '"'


def _within_quotes(character: str) -> str:
    """A character as it stands in quotes; what looks like a quote, or like nothing, is written out."""
    if character in ('"', "\\"):
        return f"\\{character}"
    looks = visible(unicodedata.normalize("NFKC", character))
    quote = unicodedata.category(character) in ("Pi", "Pf") or looks in _QUOTES
    return f"\\u{ord(character):04x}" if quote or not character.isprintable() else character


def _refuse(message: str, offset: int) -> ConditionError:
    return ConditionError(shorten(message, 300), part="message", offset=offset)
