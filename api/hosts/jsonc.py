"""Edits of a JSON file that somebody else keeps: one place changes, and every other byte stays as it was.

Comments and commas at the end, which several hosts allow in their settings, are understood and stay. A file
that is not understood is refused, and so is one with the same key twice, where it is not clear which counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_COMMENTS = re.compile(r'"(?>(?:[^"\\\n]|\\.)*)"?|//[^\n]*|/\*.*?\*/', re.S)
_SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_DECODER = json.JSONDecoder()
_BLANKS = " \t\r\n"


class NotUnderstood(Exception):
    """The text is no JSON; says in which line, and what is wrong there."""


class JsonNode(NamedTuple):
    """A value and where it stands: `start` to `end`. Of an object, `names` are the keys of `inner`, and
    `begins` where its members begin; of a list there are no names."""

    value: Any
    start: int
    end: int
    inner: tuple[JsonNode, ...] = ()
    names: tuple[str, ...] = ()
    begins: tuple[int, ...] = ()

    def member(self, name: str) -> JsonNode | None:
        return self.inner[self.names.index(name)] if name in self.names else None


class Document:
    """A text and what it says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bare = _COMMENTS.sub(_without_comment, text)
        self.root, end = self._value(self._blanks(0))
        if self._blanks(end) != len(text):
            raise self._wrong(self._blanks(end), "something follows the value")
        unit = re.search(r"\n([ \t]+)\S", self._bare)
        self._unit = unit[1] if unit else "  "

    # Editing -----------------------------------------------------------------------------------------

    def added(self, place: JsonNode, value: Any, name: str | None = None) -> str:
        """The text with one more item, or member of that name, at the end of a list or an object."""
        depth = self._depth(place) + 1
        shown = json.dumps(value, indent=self._unit, ensure_ascii=False)
        item = (f"{json.dumps(name, ensure_ascii=False)}: " if name is not None else "") + shown
        item = item.replace("\n", "\n" + self._unit * depth)
        last = place.inner[-1].end if place.inner else place.start + 1
        close = place.end - 1
        rest = self.text[last:close].rstrip(_BLANKS)
        needs = bool(place.inner) and "," not in self._bare[last:close]
        return (
            f"{self.text[:last]}{',' if needs else ''}{rest}\n{self._unit * depth}{item}\n"
            f"{self._unit * (depth - 1)}{self.text[close:]}"
        )

    def removed(self, place: JsonNode, index: int) -> str:
        """The text without one item or member."""
        start = place.begins[index] if place.names else place.inner[index].start
        end = place.inner[index].end
        close = place.end - 1
        following = self._bare[end : place.inner[index + 1].start if index + 1 < len(place.inner) else close]
        if "," in following:
            end += following.index(",") + 1
        elif index:
            before = place.inner[index - 1].end
            comma = self._bare.index(",", before)
            kept = self.text[comma + 1 : start].rstrip(_BLANKS)
            return self.text[:comma] + kept + self.text[end:]
        before = len(self.text[:start].rstrip(_BLANKS))
        return self.text[:before] + self.text[end:]

    def _depth(self, wanted: JsonNode) -> int:
        def depth(node: JsonNode, level: int) -> Iterator[int]:
            if node is wanted:
                yield level
            for each in node.inner:
                if each.start <= wanted.start and wanted.end <= each.end:
                    yield from depth(each, level + 1)

        return next(depth(self.root, 0))

    # Reading -----------------------------------------------------------------------------------------

    def _blanks(self, at: int) -> int:
        while at < len(self._bare) and self._bare[at] in _BLANKS:
            at += 1
        return at

    def _value(self, at: int) -> tuple[JsonNode, int]:
        character = self._bare[at : at + 1]
        if character == "{":
            return self._object(at)
        if character == "[":
            return self._list(at)
        if character == '"':
            text, end = self._string(at)
            return JsonNode(text, at, end), end
        found = _SCALAR.match(self._bare, at)
        if found is None:
            raise self._wrong(at, "a value is missing")
        try:
            return JsonNode(json.loads(found[0]), at, found.end()), found.end()
        except ValueError:
            raise self._wrong(at, f"`{found[0][:40]}` is no value") from None

    def _string(self, at: int) -> tuple[str, int]:
        if self._bare[at : at + 1] != '"':
            raise self._wrong(at, "a key in quotation marks is missing")
        try:
            text, end = _DECODER.raw_decode(self._bare, at)
        except ValueError as error:
            raise self._wrong(at, str(error).partition(":")[0]) from None
        return text, end

    def _list(self, at: int) -> tuple[JsonNode, int]:
        inner: list[JsonNode] = []
        place = self._blanks(at + 1)
        while self._bare[place : place + 1] != "]":
            node, place = self._value(place)
            inner.append(node)
            place = self._next(place, "]")
        return JsonNode([each.value for each in inner], at, place + 1, tuple(inner)), place + 1

    def _object(self, at: int) -> tuple[JsonNode, int]:
        inner: list[JsonNode] = []
        names: list[str] = []
        begins: list[int] = []
        place = self._blanks(at + 1)
        while self._bare[place : place + 1] != "}":
            begins.append(place)
            name, end = self._string(place)
            if name in names:
                raise self._wrong(place, f"the key `{name}` stands twice in one object")
            names.append(name)
            end = self._blanks(end)
            if self._bare[end : end + 1] != ":":
                raise self._wrong(end, "a colon is missing")
            node, place = self._value(self._blanks(end + 1))
            inner.append(node)
            place = self._next(place, "}")
        value = dict(zip(names, (each.value for each in inner), strict=True))
        return JsonNode(value, at, place + 1, tuple(inner), tuple(names), tuple(begins)), place + 1

    def _next(self, at: int, close: str) -> int:
        """Where the next item begins, or the end stands."""
        at = self._blanks(at)
        if self._bare[at : at + 1] == ",":
            return self._blanks(at + 1)
        if self._bare[at : at + 1] != close:
            raise self._wrong(at, f"a comma or `{close}` is missing")
        return at

    def _wrong(self, at: int, what: str) -> NotUnderstood:
        return NotUnderstood(f"line {self.text.count(chr(10), 0, at) + 1}: {what}")


def _without_comment(found: re.Match[str]) -> str:
    """A text as it is; a comment as blanks, so that every place stays where it is."""
    text = found[0]
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)
