"""Texts that a pattern matches, made from the pattern's own form and tried before they are handed out.

Reads RE2 syntax just as far as making an example needs: which characters a class has is asked of RE2 itself.
Where it does not understand a pattern it makes no sample; what it makes is always true.

Knows nothing of conditions or of calls.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.errors import ConditionError
from engine.fields.pattern import compile_pattern

TRIES: Final = 24
MOST_REPEATED: Final = 200

_TOKEN: Final = re.compile(
    r"""(?P<quoted>\\Q(?P<inner>.*?)(?:\\E|\Z))
      | (?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])
      | (?P<nothing>\\[bBAz]|[\^$])
      | (?P<several>\\[pP](?:\{[^}]*\}|.)|\\[dDwWsSC]|\.)
      | (?P<hex>\\x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\}))
      | (?P<escape>\\.)
      | (?P<flags>\(\?[imsU-]+\))
      | (?P<open>\((?:\?(?:[imsU-]*:|P?<\w+>))?)
      | (?P<close>\))
      | (?P<either>\|)
      | (?P<repeat>(?:[*+?]|\{(?P<least>\d+)(?P<comma>,(?P<most>\d*))?\})\??)
      | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ALPHABET: Final = (
    "ax0 Az9_bcdefghijklmnopqrstuvwyBCDEFGHIJKLMNOPQRSTUVWXYZ12345678-./:@#=,;'\"\\|&$%+*~<>()[]{}!?^`"
    "\n\téяλ漢あ한ا\u200b\u202e\u2066\xa0\x01"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """`texts` to choose from, or `branches` of which one is made, each a row of parts; then repeated."""

    texts: str | tuple[str, ...] = ()
    branches: tuple[tuple[_Part, ...], ...] = ()
    least: int = 1
    most: int | None = 1


class _GiveUp(Exception):
    """Something this reader does not understand."""


def samples(pattern: str, seed: int = 0) -> Iterator[str]:
    """Different texts in which the pattern is found, the plainest first; at most some two dozen."""
    branches = _read(pattern)
    if branches is None:
        return
    search = compile_pattern(pattern).search
    draw = random.Random(seed)
    seen: set[str] = set()
    for attempt in range(TRIES):
        text = _make(branches, draw if attempt else None)
        if text not in seen:
            seen.add(text)
            if len(text) < 10_000 and search(text) is True:
                yield text


def _make(branches: tuple[tuple[_Part, ...], ...], draw: random.Random | None) -> str:
    row = draw.choice(branches) if draw else branches[0]
    pieces: list[str] = []
    for part in row:
        count = part.least
        if draw and (part.most is None or part.most > count):
            count += draw.randint(0, 2 if part.most is None else min(2, part.most - count))
        for _ in range(min(count, MOST_REPEATED)):
            if part.branches:
                pieces.append(_make(part.branches, draw))
            elif part.texts:
                pieces.append(_choose(part.texts, draw))
    return "".join(pieces)


def _choose(texts: str | tuple[str, ...], draw: random.Random | None) -> str:
    if draw is None:
        return texts[0]
    # What stands between words is what such classes are mostly for.
    return " " if " " in texts and draw.random() < 0.4 else draw.choice(texts)


@lru_cache(maxsize=4096)
def _read(pattern: str) -> tuple[tuple[_Part, ...], ...] | None:
    try:
        return _Reader(pattern).read()
    except _GiveUp:
        return None


class _Reader:
    """Reads a pattern token by token; open groups are on a stack, so depth costs nothing."""

    def __init__(self, pattern: str) -> None:
        self.tokens = list(_TOKEN.finditer(pattern))

    def read(self) -> tuple[tuple[_Part, ...], ...]:
        stack: list[list[list[_Part]]] = [[[]]]
        for token in self.tokens:
            rows = stack[-1]
            if token["open"]:
                stack.append([[]])
            elif token["close"]:
                if len(stack) == 1:
                    raise _GiveUp
                stack.pop()
                stack[-1][-1].append(_Part(branches=tuple(map(tuple, rows))))
            elif token["either"]:
                rows.append([])
            elif token["repeat"]:
                if not rows[-1]:
                    raise _GiveUp
                rows[-1].append(self.repeated(rows[-1].pop(), token))
            elif token["flags"]:
                continue
            else:
                rows[-1] += self.single(token)
        if len(stack) != 1:
            raise _GiveUp
        return tuple(map(tuple, stack[0]))

    def single(self, token: re.Match[str]) -> list[_Part]:
        if token["quoted"]:
            return [_Part((char,)) for char in token["inner"]]
        if token["nothing"]:
            return [_Part(("",))]
        if token["class"] or token["several"]:
            return [_Part(_members(token[0]))]
        if token["hex"]:
            return [_Part((_unhex(token[0]),))]
        if token["escape"]:
            char = token[0][1]
            if char.isalnum() and char not in _CONTROL:
                raise _GiveUp
            return [_Part((_CONTROL.get(char, char),))]
        return [_Part((token[0],))]

    def repeated(self, part: _Part, token: re.Match[str]) -> _Part:
        if token["least"] is not None:
            least = int(token["least"])
            most = least if token["comma"] is None else int(token["most"]) if token["most"] else None
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[token[0][0]]
        if (part.least, part.most) != (1, 1):
            return _Part(branches=((part,),), least=least, most=most)
        return _Part(part.texts, part.branches, least, most)


def _unhex(text: str) -> str:
    try:
        return chr(int(text.strip("\\x{}"), 16))
    except (ValueError, OverflowError):
        raise _GiveUp from None


@lru_cache(maxsize=4096)
def _members(piece: str) -> str:
    """Some characters of a class, plain ones first."""
    try:
        search = compile_pattern(f"^(?s:{piece})$").search
    except ConditionError:
        raise _GiveUp from None
    own = [char for char in piece if char not in "[]^\\-"]
    own += [_unhex(found) for found in re.findall(r"\\x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\})", piece)]
    found = dict.fromkeys(char for char in (*_ALPHABET, *own) if search(char) is True)
    if not found:
        raise _GiveUp
    return "".join(list(found)[:24])
