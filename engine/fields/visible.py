"""Text as a reader sees it: NFKC, no invisible characters, look-alikes as the ASCII that they look like.

The table of look-alikes is made of Unicode's data by `make_lookalikes`. Linear: a text is composed piece by
piece, since composing a long run of accents is not. Knows nothing of calls.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

PIECE: Final = 512
"""Characters that are composed at once."""

MOST_GROWTH: Final = 262_144
"""Characters by which the texts of one call may grow when they are composed."""

_TABLE: Final = Path(__file__).with_name("lookalikes.txt")
_OTHER_THAN_BLANKS: Final = re.compile(r"[^\x20-\x7e\t\n\r]")


def composed(text: str, room: int = sys.maxsize) -> str:
    """The text in NFKC, without invisible characters. Stops where it has more than `room` characters: one
    may become eighteen."""
    if text.isascii():
        return text.translate(_controls()) if _OTHER_THAN_BLANKS.search(text) else text
    pieces: list[str] = []
    for at in range(0, len(text), PIECE):
        pieces.append(unicodedata.normalize("NFKC", text[at : at + PIECE]).translate(invisible()))
        room -= len(pieces[-1])
        if room < 0:
            break
    return "".join(pieces)


class Composing:
    """Composes texts until together they have grown beyond the bound: `room` is below zero then, and what is
    read is not all of them."""

    def __init__(self) -> None:
        self.room = MOST_GROWTH

    def of(self, text: str) -> str:
        shown = composed(text, len(text) + self.room)
        self.room -= max(0, len(shown) - len(text))
        return shown


def visible(text: str) -> str:
    """A composed text, with look-alikes as ASCII."""
    return text if text.isascii() else text.translate(_lookalikes())


def one_line(text: str) -> str:
    """A text on one line, without what cannot be seen, to be read by a person or a model."""
    if not text.isascii() or not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text).translate(invisible())
    return " ".join(text.split())


@cache
def _controls() -> Mapping[int, None]:
    return dict.fromkeys(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")


@cache
def invisible() -> Mapping[int, None]:
    """Format characters, fillers, selectors of variants and controls, which show nothing, and what is kept
    for such (Default_Ignorable_Code_Point), which shows nothing either."""
    fillers = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800, 0xFFFC)
    selectors = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10))
    kept = (0x2065, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000))
    formats = (
        code for code in range(0x80, sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cf", "Cc")
    )
    return {**_controls(), **dict.fromkeys((*fillers, *selectors, *kept, *formats))}


@cache
def _lookalikes() -> Mapping[int, str]:
    found: dict[int, str] = {}
    for line in _TABLE.read_text(encoding="utf-8").split("\n"):
        text, tab, characters = line.partition("\t")
        if tab and not line.startswith("# "):
            found.update(dict.fromkeys(map(ord, characters), text))
    return found
