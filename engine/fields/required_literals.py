"""The literals that any text matched by a pattern must contain, found from the pattern's own form.

`required(pattern)` answers with clauses: of each clause at least one member occurs in `text.casefold()` of
every text the pattern matches. `(?i)rm\\s+(-rf|-fr) /(etc|usr)` gives

    {"rm"}   {"-rf /etc", "-rf /usr", "-fr /etc", "-fr /usr"}

INVARIANT: a clause may be missing, but never wrong. RE2 syntax is read by a parser of its own, since Python's
reads another dialect; at anything it does not fully understand it gives up and answers with no clauses.

Everything is casefolded, whatever the flags, so flags need no care: folding works character by character,
and every character that RE2 takes for another under `(?i)` folds to the same text
(`tests/engine/fields/test_required_literals.py` asks RE2 about every one of them).

Knows nothing of policies or of the index.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Clause = frozenset[str]

MOST_COMBINED: Final = 64
"""Most strings made by combining neighbours: `(a|b)(c|d)` makes four."""
MOST_ALTERNATIVES: Final = 2048
MOST_IN_CLASS: Final = 10
LONGEST: Final = 200
DEEPEST: Final = 40

_NOTHING: Final[Clause] = frozenset({""})
_REPEAT: Final = re.compile(r"\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*|))?\}")
_PLAIN: Final = re.compile(r"[^\\\[\](){}|*+?.^$]+")
_FLAGS: Final = re.compile(r"\(\?([imsU]*(?:-[imsU]+)?)([:)])")
_NAME: Final = re.compile(r"\(\?P?<[A-Za-z0-9_]+>")
_HEX: Final = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_PROPERTY: Final = re.compile(r"\\[pP](?:[A-Za-z]|\{\^?[A-Za-z_]+\})")
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_POSIX: Final = re.compile(r"\[:\^?[a-z]+:\]")


class _GiveUp(Exception):
    """Something this parser does not fully understand."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one part: the exact (folded) texts it can match, if few; else clauses it requires.

    `sample` is one text that it probably matches, or None; nothing relies on it.
    """

    exact: Clause | None
    clauses: tuple[Clause, ...] = ()
    sample: str | None = None

    @property
    def required(self) -> tuple[Clause, ...]:
        if self.exact is None:
            return self.clauses
        return () if "" in self.exact or not self.exact else (self.exact,)


_ANYTHING: Final = _Known(None)
_EMPTY: Final = _Known(_NOTHING, sample="")
_SAMPLES: Final = {"d": "0", "w": "a", "s": " ", "D": "x", "W": "-", "S": "x"}


@lru_cache(maxsize=4096)
def required(pattern: str) -> tuple[Clause, ...]:
    """Clauses that hold for `text.casefold()` of every text in which RE2 finds the pattern."""
    known = _read(pattern)
    return () if known is None else known.required


def sample(pattern: str) -> str | None:
    """A short text that the pattern probably matches, to be tried; None if none comes to mind."""
    known = _read(pattern)
    return None if known is None else known.sample


def _read(pattern: str) -> _Known | None:
    parser = _Parser(pattern)
    try:
        known = parser.alternatives(0)
    except _GiveUp:
        return None
    return known if parser.at == len(pattern) else None


def _best(clauses: tuple[Clause, ...]) -> Clause | None:
    """The clause least likely to hold by chance: its shortest member is long, then its members are few."""
    return max(clauses, key=lambda clause: (min(map(len, clause)), -len(clause)), default=None)


def _either(branches: list[_Known]) -> _Known:
    if len(branches) == 1:
        return branches[0]
    shown = next((branch.sample for branch in branches if branch.sample is not None), None)
    exact = [branch.exact for branch in branches]
    if None not in exact:
        union = frozenset().union(*(members for members in exact if members is not None))
        if len(union) <= MOST_ALTERNATIVES:
            return _Known(union, sample=shown)
    members: set[str] = set()
    for branch in branches:
        best = _best(branch.required)
        if best is None:
            return _Known(None, sample=shown)
        members |= best
    few = len(members) <= MOST_ALTERNATIVES
    return _Known(None, (frozenset(members),) if few else (), shown)


class _Sequence:
    """Neighbouring parts, joined into runs as long as they stay few and short."""

    def __init__(self) -> None:
        self.run: Clause = _NOTHING
        self.whole = True
        self.clauses: list[Clause] = []
        self.samples: list[str] | None = []

    def add(self, part: _Known) -> None:
        if part.sample is None:
            self.samples = None
        elif self.samples is not None:
            self.samples.append(part.sample)
        if part.exact is None:
            self._flush()
            self.clauses += part.clauses
            self.run = _NOTHING
            return
        size = len(self.run) * len(part.exact)
        if size <= max(MOST_COMBINED, len(self.run), len(part.exact)):
            joined = frozenset(left + right for left in self.run for right in part.exact)
            if max(map(len, joined), default=0) <= LONGEST:
                self.run = joined
                return
        self._flush()
        self.run = part.exact

    def _flush(self) -> None:
        self.whole = False
        if self.run and "" not in self.run:
            self.clauses.append(self.run)

    def known(self) -> _Known:
        shown = None
        if self.samples is not None and sum(map(len, self.samples)) <= LONGEST:
            shown = "".join(self.samples)
        if self.whole:
            return _Known(self.run, sample=shown)
        self._flush()
        return _Known(None, tuple(self.clauses), shown)


class _Parser:
    """Recursive descent over RE2 syntax; every method leaves `at` behind what it read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        if self.at >= len(self.text):
            raise _GiveUp
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self, depth: int) -> _Known:
        if depth > DEEPEST:
            raise _GiveUp
        branches = [self._sequence(depth)]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence(depth))
        return _either(branches)

    def _sequence(self, depth: int) -> _Known:
        sequence = _Sequence()
        while (char := self._peek()) and char not in "|)":
            if char in "*+?" or _REPEAT.match(self.text, self.at):
                raise _GiveUp  # refused, or (behind a group of flags) it repeats the part before
            if plain := _PLAIN.match(self.text, self.at):
                # A run without meaning of its own; its last character may belong to a quantifier.
                end = plain.end()
                end -= self.text[end : end + 1] in ("*", "+", "?", "{")
                if end > self.at:
                    sequence.add(_char(self.text[self.at : end]))
                    self.at = end
                    continue
            for part in self._atoms(depth):
                sequence.add(part)
        return sequence.known()

    def _atoms(self, depth: int) -> list[_Known]:
        """One atom with its quantifier; a quoted run gives several."""
        char = self._peek()
        if char == "(" and (flags := _FLAGS.match(self.text, self.at)):
            if flags[1] in ("", "-") and flags[2] == ")":
                raise _GiveUp
            self.at = flags.end()
            if flags[2] == ")":
                return []
            return [self._repeated(self._group(depth))]
        if char == "(":
            if self.text.startswith("(?", self.at):
                name = _NAME.match(self.text, self.at)
                if name is None:
                    raise _GiveUp
                self.at = name.end()
            else:
                self.at += 1
            return [self._repeated(self._group(depth))]
        if self.text.startswith("\\Q", self.at):
            return self._quoted()
        return [self._repeated(self._single())]

    def _group(self, depth: int) -> _Known:
        inner = self.alternatives(depth + 1)
        if self._take() != ")":
            raise _GiveUp
        return inner

    def _quoted(self) -> list[_Known]:
        end = self.text.find("\\E", self.at + 2)
        if end < 0 or end == self.at + 2:
            raise _GiveUp
        quoted = self.text[self.at + 2 : end]
        if "\\" in quoted:
            raise _GiveUp
        self.at = end + 2
        parts = [_char(char) for char in quoted]
        return [*parts[:-1], self._repeated(parts[-1])]

    def _single(self) -> _Known:
        char = self._take()
        if char == ".":
            return _Known(None, sample="x")
        if char in "^$":
            return _EMPTY
        if char == "[":
            return self._class()
        if char == "\\":
            self.at -= 1
            return self._escape()
        return _char(char)

    def _repeated(self, part: _Known) -> _Known:
        char = self._peek()
        if char == "{":
            repeat = _REPEAT.match(self.text, self.at)
            if repeat is None:
                return part  # RE2 reads this brace as itself
            if len(repeat[0]) > len("{1000,1000}"):
                raise _GiveUp
            low = int(repeat[1])
            high = low if repeat[2] is None else int(repeat[3]) if repeat[3] else None
            self.at = repeat.end()
        elif char and char in "*+?":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            self.at += 1
        else:
            return part
        if self._peek() == "?":
            self.at += 1
        if (after := self._peek()) and (after in "*+?" or _REPEAT.match(self.text, self.at)):
            raise _GiveUp
        if (low, high) == (1, 1):
            return part
        if (low, high) == (0, 1):
            return _Known(None if part.exact is None else part.exact | _NOTHING, sample="")
        if low == 0:
            return _Known(None, sample="")
        shown = None
        if part.sample is not None and len(part.sample) * low <= LONGEST:
            shown = part.sample * low
        if low == high and part.exact is not None and len(part.exact) == 1:
            (only,) = part.exact
            if len(only) * low <= LONGEST:
                return _Known(frozenset({only * low}), sample=shown)
        return _Known(None, part.required, shown)

    def _escape(self) -> _Known:
        after = self.text[self.at + 1 : self.at + 2]
        if after and after in "bBAz":
            self.at += 2
            return _EMPTY
        if after and after in "dDwWsSC":
            self.at += 2
            return _Known(None, sample=_SAMPLES.get(after))
        if char := self._escaped_char():
            return _char(char)
        if found := _PROPERTY.match(self.text, self.at):
            self.at = found.end()
            return _ANYTHING
        raise _GiveUp

    def _escaped_char(self) -> str:
        """The character that an escape stands for, or nothing if the escape is of another kind."""
        if found := _HEX.match(self.text, self.at):
            code = int(found[1] or found[2], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise _GiveUp
            self.at = found.end()
            return chr(code)
        after = self.text[self.at + 1 : self.at + 2]
        if after in _CONTROL:
            self.at += 2
            return _CONTROL[after]
        if after and after.isascii() and after.isprintable() and not after.isalnum():
            self.at += 2
            return after
        return ""

    def _class(self) -> _Known:
        """A bracketed class; the opening bracket is read already."""
        negated = self._peek() == "^"
        self.at += negated
        chars: set[str] | None = set()
        shown: str | None = None
        first = True
        while first or self._peek() != "]":
            first = False
            if found := _POSIX.match(self.text, self.at):
                self.at = found.end()
                chars = None
                continue
            low = self._class_char()
            high = low
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._class_char()
            if not low or not high:
                if low != high:
                    raise _GiveUp
                chars = None
            else:
                shown = shown or low
            if low and high and chars is not None:
                wide = ord(high) - ord(low) >= MOST_IN_CLASS * 2
                chars = None if wide else chars | {chr(c) for c in range(ord(low), ord(high) + 1)}
        self.at += 1
        if negated:
            return _Known(None, sample=next((char for char in "x0 -" if char not in (chars or ())), None))
        if chars is None or not 0 < len({char.casefold() for char in chars}) <= MOST_IN_CLASS:
            return _Known(None, sample=shown)
        return _Known(frozenset(char.casefold() for char in chars), sample=shown)

    def _class_char(self) -> str:
        """One member of a class, or "" for one that stands for many."""
        if self._peek() == "[" and self.text.startswith("[:", self.at):
            raise _GiveUp
        if self._peek() != "\\":
            return self._take()
        after = self.text[self.at + 1 : self.at + 2]
        if after and after in "dDwWsS":
            self.at += 2
            return ""
        if char := self._escaped_char():
            return char
        if found := _PROPERTY.match(self.text, self.at):
            self.at = found.end()
            return ""
        raise _GiveUp


def _char(text: str) -> _Known:
    return _Known(frozenset({text.casefold()}), sample=text)
