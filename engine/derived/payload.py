"""The payload as the derived facts see it: its scalars, each with the keys that it stands under.

JSON in a text counts as what it holds. Keys are given as words (see `words.words_of`), so that `toAddresses`,
`to_addresses` and `To-Addresses` are one. Knows nothing of what a key means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from engine.fields.computed import UNREADABLE
from engine.fields.json_text import Unread, is_ambiguous, opened
from engine.fields.words import word_set, words_of
from engine.model import Json

_HEADERS: Final = word_set("header headers")


_WRAPPERS: Final = word_set(
    "params parameters arguments args kwargs options input inputs request body data payload item items"
)
"""Words for an argument that holds all others."""


def unwrapped(payload: Json, unread: Unread) -> Json:
    """The payload; of one that is nothing but a wrapper, what stands in that. A wrapper that is not opened,
    or in which a key stands twice, is one of `unread`."""
    if not isinstance(payload, dict) or len(payload) != 1:
        return payload
    ((name, inside),) = payload.items()
    if _WRAPPERS.isdisjoint(words_of(name).split()):
        return payload
    if isinstance(inside, str):
        text, inside = inside, opened(inside, unread)
        if is_ambiguous(inside):
            unread.append(text)
            return payload
    inside = inside[0] if isinstance(inside, list) and len(inside) == 1 else inside
    return inside if isinstance(inside, dict) else payload


class Leaf(NamedTuple):
    """A scalar that is not null. `key` is the nearest key above it, `owner` the one above that."""

    owner: str
    key: str
    value: str | int | float | bool


def leaves(document: Mapping[str, Json], unread: Unread) -> list[Leaf]:
    """All scalars of the payload, those in a wrapper as if there were none, in order. Lists are passed
    through, at any depth; never raises. A text that is JSON and is not opened is a scalar, and one of
    `unread`.

    An address that is a key counts under the key above it, and `{"name": "To", "value": x}` or `["To", x]`
    among headers as `{"To": x}`, too; not within such an x, where each level would be followed twice."""
    found: list[Leaf] = []
    whole = unwrapped(document.get("inputPayload"), Unread())
    stack: list[tuple[str, str, Json, bool]] = [("", "", whole, False)]
    while stack:
        owner, key, value, within = stack.pop()
        if isinstance(value, str):
            inside = opened(value, unread)
            if inside is None:
                found.append(Leaf(owner, key, value))
                continue
            value = inside
        header, member = (None, None) if within or _HEADERS.isdisjoint(key.split()) else _header_of(value)
        is_header = header is not None
        if isinstance(value, dict):
            for name, each in reversed(value.items()):
                stack.append((key, words_of(name), each, within or (is_header and name == "value")))
                if "@" in name:
                    stack.append((owner, key, name, within))
        elif isinstance(value, list):
            stack.extend((owner, key, each, within or is_header) for each in reversed(value))
        elif value is not None:
            found.append(Leaf(owner, key, value))
        if header is not None:
            stack.append((key, words_of(header), member, True))
    return found


def _header_of(value: Json) -> tuple[str | None, Json]:
    """The name and the value of one header, if that is what stands there."""
    if isinstance(value, dict):
        name, member = value.get("name"), value.get("value")
    elif isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        name, member = value
        if isinstance(name, str) and opened(name) is not None:
            return None, None  # two headers, each as JSON in a text
    else:
        return None, None
    return (name, member) if isinstance(name, str) else (None, None)


MOST_FOUND: Final = 2_000
"""Entries of one fact; a call that has more is read only in part."""


class DistinctTexts:
    """Texts that are found one after another, each once; `partial` when they were too many, or one of them
    could not be read to its end."""

    __slots__ = ("_texts", "partial")

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self.partial = False

    def add(self, text: str) -> None:
        if text.rpartition("@")[2] == UNREADABLE:
            self.partial = True
        elif len(self._texts) < MOST_FOUND:
            self._texts[text] = None
        elif text not in self._texts:
            self.partial = True

    def texts(self) -> list[str]:
        return list(self._texts)
