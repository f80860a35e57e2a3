"""All text of a call as it reads: what `derived.text` shows.

Each text stands there as composed, then with look-alikes resolved where that is another, then what is
encoded in it: percent signs undone, and each word of base64 that holds readable text. One layer only.
Linear in the payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from engine.fields.visible import composed, visible
from engine.shell.emulation import decode64

_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{12,}+={0,2}(?![A-Za-z0-9+/_=-])")
_WRAPPED: Final = re.compile(r"(?<=[A-Za-z0-9+/]{60})\r?\n(?=[A-Za-z0-9+/=])")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")

READABLE: Final = 0.9
"""Share of printable characters from which decoded bytes are a text."""


def readable_texts(texts: Iterable[str]) -> list[str]:
    """The texts and what is within them, each once."""
    found: dict[str, None] = {}
    for text in texts:
        for form in (text, *_decoded(text)):
            found[composed(form)] = None
            found[visible(form)] = None
    found.pop("", None)
    return list(found)


def _decoded(text: str) -> Iterator[str]:
    text = composed(text)
    if _PERCENT.search(text):
        yield unquote(text, errors="replace")
    for word in _BASE64.finditer(_WRAPPED.sub("", text)):
        plain = _plain(word[0])
        if plain:
            yield plain


def _plain(word: str) -> str | None:
    try:
        data = decode64(word.encode())
        text = data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-8")
    except ValueError:
        return None
    printable = sum(char.isprintable() or char in "\t\r\n" for char in text)
    return text if text and printable >= READABLE * len(text) else None
