"""All text of a call as it reads: what `derived.text` shows.

Each text stands there as composed, then with look-alikes resolved where that is another, then what is
encoded in it: percent signs undone, and each word of base64 that holds readable text. One layer only.
Linear in the payload: beyond a bound of what composing adds, the
rest is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from engine.fields.visible import Composing, visible
from engine.shell.emulation import decode64

_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{12,}+={0,2}(?![A-Za-z0-9+/_=-])")
_SEGMENT: Final = re.compile(r"[^/]{12,}+")
"""Of what may be base64 or a part of an address."""
_WRAPPED: Final = re.compile(r"(?<=[A-Za-z0-9+/]{60})\r?\n(?=[A-Za-z0-9+/=])")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")

READABLE: Final = 0.9
"""Share of printable characters from which decoded bytes are a text."""


def readable_texts(texts: Iterable[str]) -> tuple[list[str], bool]:
    """The texts and what is within them, each once, and whether there may be more."""
    found: dict[str, None] = {}
    composing = Composing()
    for text in texts:
        shown = composing.of(text)
        for form in (shown, *map(composing.of, _decoded(shown))):
            found[form] = found[visible(form)] = None
        if composing.room < 0:
            break
    found.pop("", None)
    return list(found), composing.room < 0


def _decoded(text: str) -> Iterator[str]:
    """What is encoded in a composed text."""
    if _PERCENT.search(text):
        yield unquote(text, errors="replace")
    for word in _BASE64.finditer(_WRAPPED.sub("", text)):
        if plain := _plain(word[0]):
            yield plain
        elif "/" in word[0]:
            yield from filter(None, map(_plain, _SEGMENT.findall(word[0])))


def _plain(word: str) -> str | None:
    try:
        data = decode64(word.encode())
        text = data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-8")
    except ValueError:
        return None
    printable = sum(char.isprintable() or char in "\t\r\n" for char in text)
    return text if text and printable >= READABLE * len(text) else None
