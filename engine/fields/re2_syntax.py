r"""The syntax of RE2: the pieces of a pattern, and the tree that they make.

`PIECE` finds every piece, of patterns that RE2 refuses too, so that a brace within a class or a quotation is
not taken for a count. `parse` understands what RE2 accepts, and answers None at anything it is not sure of:
INVARIANT: what it does understand, it understands as RE2 does.

Flags are read over: whoever uses the tree must not care for case, nor for what `.` and anchors mean. Knows
nothing of searching.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

DEEPEST: Final = 40
"""Groups within groups that are read."""

WIDEST: Final = 20
"""Characters of a range beyond which the members of a class are not told."""

# No branch can fail after it consumed something, so the reading is linear.
PIECE: Final = re.compile(
    r"""(?P<quoted>\\Q.*?(?:\\E|\Z))
      | (?P<class>\[\^?\]?(?>(?:\[:\^?\w+:\]|\\.|[^\]\\])*)(?:\]|\\?\Z))
      | (?P<escape>\\(?:[pPx]\{[^}]*\}?|p[A-Za-z]|P[A-Za-z]|x[0-9A-Fa-f]{2}
          |[kg](?:<[^>]*>?|\{[^}]*\}?|'[^']*'?)?|[1-9]\d*|u\w{0,4}|c.|.|\Z))
      | (?P<group>\(\?(?:P?<\w+>|P=\w*\)?|<?[=!]|>|\||\#[^)]*\)?
          |\(\w*\)?|R\)?|&\w*\)?|\d+\)?|[a-zA-Z-]*[:)]?))
      | (?P<count>\{(?P<least>0|[1-9]\d{0,7})(?P<comma>,(?P<most>0|[1-9]\d{0,7})?)?\})
      | (?P<plain>[^\\\[\](){}|*+?.^$]+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


class Characters(msgspec.Struct, frozen=True):
    """These characters, one after the other. Anchors are an empty text."""

    text: str


class CharacterClass(msgspec.Struct, frozen=True):
    """One character of a class as written; `members` are all of them, None where they are many."""

    text: str
    members: frozenset[str] | None = None


class Repetition(msgspec.Struct, frozen=True):
    """The part, so many times; `most` None: without end."""

    part: PatternPart
    least: int
    most: int | None


class Concatenation(msgspec.Struct, frozen=True):
    """The parts, one after the other."""

    parts: tuple[PatternPart, ...]


class Alternation(msgspec.Struct, frozen=True):
    """One of two or more branches."""

    branches: tuple[Concatenation, ...]


PatternPart = Characters | CharacterClass | Repetition | Concatenation | Alternation


@lru_cache(maxsize=4096)
def parse(pattern: str) -> PatternPart | None:
    """The tree of a pattern; None where it is not surely understood."""
    parser = _Parser(pattern)
    try:
        found = parser.alternatives(0)
    except _Unsure:
        return None
    return found if parser.piece is None else None


class _Unsure(Exception):
    """Something that this parser does not surely understand."""


_COUNT_LONGEST: Final = len("{1000,1000}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*(?:-[imsU]+)?)([:)])")
_NAME: Final = re.compile(r"\(\?P?<[A-Za-z0-9_]+>")
_HEX: Final = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_PROPERTY: Final = re.compile(r"\\[pP](?:[A-Za-z]|\{\^?[A-Za-z_]+\})")
_POSIX: Final = re.compile(r"\[:\^?[a-z]+:\]")
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class _Parser:
    """Recursive descent over the pieces; `piece` is the next one, None at the end."""

    def __init__(self, pattern: str) -> None:
        self._pieces: Iterator[re.Match[str]] = PIECE.finditer(pattern)
        self.piece: re.Match[str] | None = None
        self._next()

    def _next(self) -> None:
        self.piece = next(self._pieces, None)

    def _is(self, words: str) -> bool:
        """Whether the next piece is one of these characters."""
        piece = self.piece
        return piece is not None and piece.lastgroup == "other" and piece[0] in words

    def _is_quantifier(self) -> bool:
        return self._is("*+?") or (self.piece is not None and self.piece.lastgroup == "count")

    def alternatives(self, depth: int) -> PatternPart:
        if depth > DEEPEST:
            raise _Unsure
        branches = [self._sequence(depth)]
        while self._is("|"):
            self._next()
            branches.append(self._sequence(depth))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _sequence(self, depth: int) -> Concatenation:
        parts: list[PatternPart] = []
        while self.piece is not None and not self._is("|)"):
            if self._is_quantifier():
                raise _Unsure  # refused, or (behind a group of flags) it repeats the part before
            parts += self._atom(self.piece, depth)
        return Concatenation(tuple(parts))

    def _atom(self, piece: re.Match[str], depth: int) -> list[PatternPart]:
        """One atom with its quantifier; of a run of characters the quantifier concerns the last."""
        word = piece[0]
        self._next()
        match piece.lastgroup:
            case "plain":
                return self._run(word)
            case "quoted":
                return self._run(word[2:].removesuffix("\\E"))
            case "class":
                return [self._repeated(_class(word))]
            case "escape":
                return [self._repeated(_escape(word))]
            case "group":
                flags = _FLAGS.fullmatch(word)
                if flags is not None and flags[2] == ")" and flags[1] not in ("", "-"):
                    return []
                if _NAME.fullmatch(word) is None and (flags is None or flags[2] == ")"):
                    raise _Unsure
                return [self._group(depth)]
        if word == "(":
            return [self._group(depth)]
        if word == ".":
            return [self._repeated(CharacterClass(word))]
        return [self._repeated(Characters("" if word in "^$" else word))]

    def _group(self, depth: int) -> PatternPart:
        inner = self.alternatives(depth + 1)
        if not self._is(")"):
            raise _Unsure
        self._next()
        return self._repeated(inner)

    def _run(self, text: str) -> list[PatternPart]:
        if not text:
            raise _Unsure
        if not self._is_quantifier():
            return [Characters(text)]
        last = self._repeated(Characters(text[-1]))
        return [Characters(text[:-1]), last] if text[1:] else [last]

    def _repeated(self, part: PatternPart) -> PatternPart:
        piece = self.piece
        if piece is None or not self._is_quantifier():
            return part
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(piece[0], (0, None))
        if piece.lastgroup == "count":
            if len(piece[0]) > _COUNT_LONGEST:
                raise _Unsure
            least = int(piece["least"])
            most = least if piece["comma"] is None else int(piece["most"]) if piece["most"] else None
        self._next()
        if self._is("?"):
            self._next()
        if self._is_quantifier():
            raise _Unsure
        return part if (least, most) == (1, 1) else Repetition(part, least, most)


@lru_cache(maxsize=256)
def _escape(word: str) -> PatternPart:
    if word[1:] and word[1:] in "bBAz":
        return Characters("")
    if (word[1:] and word[1:] in "dDwWsSC") or _PROPERTY.fullmatch(word):
        return CharacterClass(word)
    return Characters(_character(word))


def _character(word: str) -> str:
    """The character that an escape stands for."""
    if found := _HEX.fullmatch(word):
        code = int(found[1] or found[2], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise _Unsure
        return chr(code)
    char = word[1:]
    if char in _CONTROL:
        return _CONTROL[char]
    if len(char) == 1 and char.isascii() and char.isprintable() and not char.isalnum():
        return char
    raise _Unsure


@lru_cache(maxsize=256)
def _class(text: str) -> CharacterClass:
    """A bracketed class."""
    if not text.endswith("]") or len(text) < 3:
        raise _Unsure
    negated = text[1] == "^"
    members: set[str] | None = set()
    at = 1 + negated
    while at < len(text) - 1:
        if found := _POSIX.match(text, at):
            at, members = found.end(), None
            continue
        low, at = _class_member(text, at)
        high = low
        if text.startswith("-", at) and at + 1 < len(text) - 1:
            high, at = _class_member(text, at + 1)
        if not low or not high:
            if low != high:
                raise _Unsure
            members = None
        elif members is not None:
            wide = ord(high) - ord(low) >= WIDEST
            members = None if wide else members | {chr(code) for code in range(ord(low), ord(high) + 1)}
    return CharacterClass(text, None if negated or members is None else frozenset(members))


def _class_member(text: str, at: int) -> tuple[str, int]:
    """One member of a class and where it ends; an empty text for one that stands for many."""
    if text.startswith("[:", at):
        raise _Unsure
    if text[at] != "\\":
        return text[at], at + 1
    for many in (_PROPERTY, _HEX):
        if found := many.match(text, at):
            return ("" if many is _PROPERTY else _character(found[0])), found.end()
    if text[at + 1] in "dDwWsS":
        return "", at + 2
    return _character(text[at : at + 2]), at + 2
