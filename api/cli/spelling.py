"""Text of strangers on a terminal: what is not seen, or would steer the terminal, is spelled out.

An agent writes payloads, reasons and names, and the terminal of whoever judges them obeys escape sequences.
So every character that is no visible letter or sign is spelled as in JSON (`\\u202e`). Nothing is cut.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any, Final

_FILLERS: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810)))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""They count as letters or marks, and show nothing."""
_STACKED: Final = 4
"""Marks above one letter, as many as any language has; those beyond it would cover the lines around."""
_WORD: Final = re.compile(r"\w+")


def spelled(text: str, breaks: str = "\n") -> str:
    """The text with everything spelled that hides, but the `breaks`."""
    if text.isascii() and text.isprintable():
        return text
    made: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        shown = character in breaks or (_shows(character) and marks <= _STACKED)
        made.append(character if shown else escape(character))
    return "".join(made)


def _shows(character: str) -> bool:
    return character.isprintable() and character not in _FILLERS


def escape(character: str) -> str:
    """As in JSON: `\\u202e`, two of them for a character beyond 16 bits."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def json_text(value: Any, indent: int | None = 2) -> str:
    """JSON that means the same, and of which nothing hides."""
    return spelled(json.dumps(value, indent=indent, ensure_ascii=False), "\n" if indent else "")


def json_or_text(text: str) -> Any:
    """What somebody has written as JSON, else the text, which is refused by whoever wants another type."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def remarks(values: Iterable[Any]) -> list[str]:
    """What a reader of these values must know: characters that cannot be seen, words that pretend to be
    others."""
    from engine.fields.visible import composed, visible

    texts = [text for value in values for text in _texts(value)]
    unseen = sorted({each for text in texts for each in text if each not in "\n\t" and not _shows(each)})
    told = [
        f"it holds {escape(each)}, {_name(each)}, which is not seen or steers the terminal" for each in unseen
    ]
    words = {
        word: visible(composed(word)) for text in texts if not text.isascii() for word in _WORD.findall(text)
    }
    for word, looks in sorted(words.items()):
        if not word.isascii() and looks.isascii() and any(map(str.isascii, word)):
            told.append(f"`{spelled(word, '')}` looks like `{looks}`, and has letters of another alphabet")
    return told


def _name(character: str) -> str:
    return unicodedata.name(character, f"a control character U+{ord(character):04X}").lower()


def _texts(value: Any) -> Iterable[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item
