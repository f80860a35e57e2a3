"""Span edits: make a YAML document say something else while a person still recognises their file.

Decides which characters change: only the spans of changed values. Comments, order, quoting, blank lines and
line endings elsewhere stay as they are; a comment whose lines go away is kept as a line of its own. It must
not know what the documents mean beyond the usual order of their keys.

INVARIANT: the result, read again, is exactly the wanted value, and holds every comment that was there. Where
span edits cannot do that, the whole document is written anew under its collected comments.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from engine.documents.yaml import YamlNode, YamlReading, read
from engine.errors import DocumentError, Problem
from engine.model import Json

ORDER: Final = (
    *("apiVersion", "kind", "policyId", "version", "name", "description", "presetId", "presetParameters"),
    "message",
    *("action", "scope", "enabled", "mode", "on", "matchConditions", "after", "rateLimit", "approval"),
    *("failurePolicy", "labels", "examples"),
)
"""The usual order of a policy's keys; a new key goes after the nearest one before it that is there."""

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*(?: [A-Za-z0-9_./@-]+)*\Z")
_WORDLIKE: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Texts that this or another YAML reader would not take for text."""
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def edit(source: bytes, changes: Mapping[str, Json], removed: Iterable[str] = ()) -> bytes:
    """The file with these top-level members set or removed. Raises DocumentError when it cannot be read."""
    return _edited(source, json.dumps([changes, sorted(removed)], default=dict))


@lru_cache(maxsize=4)
def _edited(source: bytes, wanted: str) -> bytes:
    """Remembered, since a write is rehearsed (`repository/sync.py`)."""
    changes, removed = json.loads(wanted)
    reading = read(source)
    target = {key: value for key, value in reading.root.value.items() if key not in removed} | changes
    if same(reading.root.value, target):
        return source
    for whole_members in (False, True):
        edited = _Editor(reading, whole_members).edited(target)
        if edited is not None and _holds(edited, target, reading):
            return edited.encode()
    return dump(target, [reading.text[start:end] for start, end in reading.comments()]).encode()


def dump(document: Mapping[str, Json], comments: Sequence[str] = ()) -> str:
    """A whole document: block style at the top, one line per list entry, in the usual order of keys."""
    rank = {key: index for index, key in enumerate(ORDER)}
    lines = list(comments)
    for key in sorted(document, key=lambda key: rank.get(key, len(rank))):
        value = document[key]
        if isinstance(value, list) and value and key in ("matchConditions", "examples", "tools"):
            lines += [f"{key}:", *(f"  - {flow(entry)}" for entry in value)]
        elif isinstance(value, Mapping) and value and key == "settings":
            lines += [f"{key}:", *(f"  {_key(name)}: {flow(each)}" for name, each in value.items())]
        else:
            lines.append(f"{_key(key)}: {flow(value)}")
    return "\n".join(lines) + "\n"


def flow(value: Json) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {flow(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def scalar(text: str) -> str:
    """A text as plain where every YAML reader takes it for text, else in single or double quotes."""
    if _PLAIN.match(text) and text.lower() not in _WORDLIKE:
        return text
    if text.isprintable() and not _ESCAPED.search(text):
        return "'" + text.replace("'", "''") + "'"
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))


def _key(key: str) -> str:
    return scalar(key) if key else "''"


def same(a: Json, b: Json) -> bool:
    """Equal as written: true is not 1, and 1 is not 1.0."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def _holds(edited: str, target: Json, before: YamlReading) -> bool:
    try:
        after = read(edited.encode())
    except (DocumentError, UnicodeEncodeError):
        return False
    had = Counter(before.text[start:end].rstrip() for start, end in before.comments())
    has = Counter(edited[start:end].rstrip() for start, end in after.comments())
    return not after.problems and same(after.root.value, target) and had == has


class _Unfit(Exception):
    """This node cannot be changed by small spans; its parent is rendered anew."""


class _Editor:
    """Collects span edits (start, end, text) over one reading; spans never overlap.

    With `whole_members`, a changed member is replaced whole, its comments put on lines above it.
    """

    def __init__(self, reading: YamlReading, whole_members: bool = False) -> None:
        self.whole_members = whole_members
        self.text = reading.text
        self.root = reading.root
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self.comments = list(reading.comments())
        self.edits: list[tuple[int, int, str]] = []

    def edited(self, target: Mapping[str, Json]) -> str | None:
        try:
            self.change(self.root, target, in_flow=False)
        except _Unfit:
            return None
        pieces: list[str] = []
        position = 0
        for start, end, replacement in sorted(self.edits, key=lambda each: each[:2]):
            if start < position:
                return None
            pieces += [self.text[position:start], replacement]
            position = end
        return "".join(pieces) + self.text[position:]

    def change(self, node: YamlNode, target: Json, in_flow: bool) -> None:
        if same(node.value, target):
            return None
        mark = len(self.edits)
        in_flow = in_flow or node.style == "flow"
        try:
            if node.entries and isinstance(target, Mapping) and target:
                return self.change_map(node, target, in_flow)
            if node.items and isinstance(target, list) and target:
                return self.change_list(node, target, in_flow)
        except _Unfit:
            if node is self.root:
                raise
            del self.edits[mark:]
        self.replace(node, target, in_flow)
        return None

    def replace(self, node: YamlNode, target: Json, in_flow: bool) -> None:
        start, end = node.start, self.content_end(node)
        kept = self.kept_comments(start, end)
        if node.style in ("|", ">"):
            literal = self.literal(node, target) if node.style == "|" and isinstance(target, str) else None
            header, *body = literal or [flow(target)]
            text = self.newline.join(["  ".join([header, *kept]), *body])
        elif node.style == "block" and isinstance(target, list) and target and not in_flow:
            indent = " " * (node.column - 1)
            text = (self.newline + indent).join([*kept, *(f"- {flow(entry)}" for entry in target)])
        elif kept:
            raise _Unfit
        else:
            text = flow(target)
        self.edits.append((start, end, text))

    def replace_member(self, key: YamlNode, value: YamlNode, target: Json) -> None:
        if same(value.value, target):
            return
        start, end = key.end, self.content_end(value)
        kept = self.kept_comments(start, end)
        above = self.line_start(key.start)
        if self.text[above : key.start].strip(" ") or (kept and self.root.style == "flow"):
            raise _Unfit
        indent = self.text[above : key.start]
        self.edits.append((above, above, "".join(indent + comment + self.newline for comment in kept)))
        self.edits.append((start, end, f": {flow(target)}"))

    def literal(self, node: YamlNode, target: str) -> list[str] | None:
        """The text as the lines of a literal block, indented like the old one; None when it needs quotes."""
        body = re.split(r"\r?\n", self.text[node.start : node.end])[1:]
        indent = next((line[: len(line) - len(line.lstrip(" "))] for line in body if line.strip()), "")
        lines = target.removesuffix("\n").split("\n")
        clean = all(line.isprintable() and not _ESCAPED.search(line) for line in lines)
        if not indent or not clean or not lines[0] or lines[0][0] == " " or not lines[-1].strip():
            return None
        return ["|" if target.endswith("\n") else "|-", *(indent + line if line else "" for line in lines)]

    def change_map(self, node: YamlNode, target: Mapping[str, Json], in_flow: bool) -> None:
        assert node.entries is not None
        keys = list(node.entries)
        gone = [key for key in keys if key not in target]
        if len(gone) == len(keys):
            raise _Unfit
        for key in keys:
            if key in target and self.whole_members:
                self.replace_member(*node.entries[key], target[key])
            elif key in target:
                self.change(node.entries[key][1], target[key], in_flow)
        spans = [(self_key.start, value) for self_key, value in node.entries.values()]
        self.remove(node, spans, [keys.index(key) for key in gone])
        added: dict[str, list[str]] = {}
        for key in target:
            if key not in node.entries:
                added.setdefault(self.predecessor(key, [k for k in keys if k not in gone]), []).append(key)
        for before, new in added.items():
            ranked = sorted(new, key=lambda key: ORDER.index(key) if key in ORDER else len(ORDER))
            texts = [self.entry(key, target[key], in_flow) for key in ranked]
            self.insert_after(node, node.entries[before][1], texts, node.entries[keys[0]][0].column - 1)

    def entry(self, key: str, value: Json, in_flow: bool) -> str:
        return f"{_key(key)}: {flow(value)}"

    def predecessor(self, key: str, keys: list[str]) -> str:
        if key in ORDER:
            for known in reversed(ORDER[: ORDER.index(key)]):
                if known in keys:
                    return known
        return keys[-1]

    def change_list(self, node: YamlNode, target: list[Json], in_flow: bool) -> None:
        assert node.items is not None
        old = node.items
        head = 0
        while head < min(len(old), len(target)) and same(old[head].value, target[head]):
            head += 1
        tail = 0
        while tail < min(len(old), len(target)) - head and same(old[-1 - tail].value, target[-1 - tail]):
            tail += 1
        middle_old, middle_new = old[head : len(old) - tail], target[head : len(target) - tail]
        pairs = min(len(middle_old), len(middle_new))
        for item, value in zip(middle_old, middle_new, strict=False):
            self.change(item, value, in_flow)
        starts = [(self.dash(item) if node.style == "block" else item.start, item) for item in old]
        self.remove(node, starts, list(range(head + pairs, len(old) - tail)))
        extra = middle_new[pairs:]
        if extra:
            if head + pairs == 0:
                raise _Unfit
            texts = [flow(value) if in_flow else f"- {flow(value)}" for value in extra]
            self.insert_after(node, old[head + pairs - 1], texts, node.column - 1)

    def dash(self, item: YamlNode) -> int:
        start = self.text.rfind("-", 0, item.start)
        if start < 0 or self.text[start + 1 : item.start].strip(" "):
            raise _Unfit
        return start

    def insert_after(self, node: YamlNode, entry: YamlNode, texts: list[str], indent: int) -> None:
        if node.style == "flow":
            self.edits.append((entry.end, entry.end, "".join(f", {text}" for text in texts)))
            return
        last = entry.last_leaf()
        lines = [" " * indent + text for text in texts]
        if last.style in ("|", ">"):
            at, before = last.end, "" if self.text[: last.end].endswith(("\n", "\r")) else self.newline
            self.edits.append((at, at, before + "".join(line + self.newline for line in lines)))
            return
        at = self.line_end(entry.end)
        self.edits.append((at, at, "".join(self.newline + line for line in lines)))

    def remove(self, node: YamlNode, spans: list[tuple[int, YamlNode]], gone: list[int]) -> None:
        """Remove entries; each span starts at the entry's key or dash and ends with its value."""
        for index in gone:
            start, value = spans[index]
            if node.style == "flow":
                if index + 1 < len(spans) and index not in (0, *(each + 1 for each in gone)):
                    begin, end = spans[index - 1][1].end, value.end
                elif index + 1 < len(spans):
                    begin, end = start, spans[index + 1][0]
                else:
                    left = next((each for each in range(index - 1, -1, -1) if each not in gone), None)
                    if left is None or left != index - 1:
                        raise _Unfit
                    begin, end = spans[left][1].end, value.end
                if self.kept_comments(begin, end):
                    raise _Unfit
                self.edits.append((begin, end, ""))
                continue
            begin = self.line_start(start)
            indent = self.text[begin:start]
            if indent.strip(" "):
                raise _Unfit
            last = value.last_leaf()
            end = last.end if last.style in ("|", ">") else self.next_line(value.end)
            kept = self.kept_comments(begin, end)
            self.edits.append((begin, end, "".join(indent + comment + self.newline for comment in kept)))

    def kept_comments(self, start: int, end: int) -> list[str]:
        return [self.text[a:b].rstrip() for a, b in self.comments if start <= a and b <= end]

    def content_end(self, node: YamlNode) -> int:
        """The end of a value without the line ends that belong to a block scalar."""
        last = node.last_leaf()
        if last.style in ("|", ">"):
            return last.start + len(self.text[last.start : last.end].rstrip("\r\n "))
        return node.end

    def line_start(self, offset: int) -> int:
        start = max(self.text.rfind("\n", 0, offset), self.text.rfind("\r", 0, offset)) + 1
        return 1 if start == 0 and self.text.startswith("\ufeff") else start

    def line_end(self, offset: int) -> int:
        found = re.compile(r"[\r\n]").search(self.text, offset)
        return found.start() if found else len(self.text)

    def next_line(self, offset: int) -> int:
        found = re.compile(r"\r\n|\r|\n").search(self.text, offset)
        return found.end() if found else len(self.text)


def refuse_surrogates(value: Json) -> None:
    """Raise DocumentError for a text that no file can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        message = "a text holds half a character (a lone surrogate); send whole characters"
        raise DocumentError([Problem(message, "", "bad_character")]) from None
