"""One look for all documents: keys in their usual order, two blanks of indentation, no stray whitespace.

Decides how a document is formatted. Scalars stay as they are written, quotes included; comments stay with
what they stand above or beside; what is inside payloads and values keeps its order.

INVARIANT: the result says exactly what the source says, holds every comment, and is formatted already: doing
it again changes nothing. Where that is impossible the document is refused, never changed in part.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from engine.documents.approval_terms import TERMS
from engine.documents.edit import ORDER, same
from engine.documents.yaml import YamlNode, YamlReading, read
from engine.errors import DocumentError

_STEP: Final = 2
_OTHER_BREAK: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
"""What YAML takes for the end of a line, too."""
_PRESET: Final = (
    *("apiVersion", "kind", "presetId", "category", "name", "description", "message"),
    *("action", "scope", "mode", "on"),
    *("matchConditions", "after", "rateLimit", "approval", "failurePolicy", "labels", "parameters"),
    "examples",
)
_DOCUMENTS: Final[Mapping[str, Sequence[str]]] = {
    "Policy": ORDER,
    "Preset": _PRESET,
    "Pack": ("apiVersion", "kind", "packId", "name", "category", "description", "presets"),
    "ToolSet": ("apiVersion", "kind", "toolSetId", "version", "name", "description", "tools", "examples"),
    "Detector": (
        *("apiVersion", "kind", "detectorId", "version", "name", "description", "message", "severity"),
        *("enabled", "on", "of", "unseenSeconds", "matchConditions", "distinct", "per", "windowSeconds"),
        *("threshold", "usual", "first", "established", "examples"),
    ),
    "OrganisationSettings": ("apiVersion", "kind", "organisationId", "version", "settings"),
    "PolicyTest": ("apiVersion", "kind", "about", "policies", "tests"),
}
_MEMBERS: Final[Mapping[tuple[str, ...], Sequence[str]]] = {
    ("matchConditions", "*"): ("field", "operator", "value"),
    ("rateLimit",): ("limit", "windowSeconds", "per"),
    ("approval",): TERMS,
    ("examples", "*"): (
        "match",
        *("about", "alerts", "happens"),
        "toolName",
        "inputPayload",
        "outputPayload",
        "kind",
        "effect",
        "run",
        "before",
    ),
    ("tools", "*"): ("names", "kind", "effect", "output", "targets", "sensitive"),
    ("parameters", "*"): ("type", "format", "description", "default", "minimum", "maximum"),
    ("tests", "*"): ("about", "call", "expect"),
    ("tests", "*", "call"): ("toolName", "inputPayload"),
    ("tests", "*", "expect"): ("status", "matched", "shadow"),
}


class CannotFormat(Exception):
    """This document is left as it is; `line` and the message say why."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class _Comment:
    text: str
    line: int
    column: int
    alone: bool


def format_document(source: bytes, file: str = "") -> bytes:
    """The document, formatted. Raises DocumentError (it cannot be read) or CannotFormat (it stays)."""
    text = _once(source, file)
    if _once(text, file) != text:
        raise CannotFormat("its comments stand where they would move each time")
    return text


def _once(source: bytes, file: str) -> bytes:
    reading = read(source, file)
    if reading.problems:
        raise DocumentError(reading.problems)
    other = _OTHER_BREAK.search(reading.text)
    if other is not None:
        line = reading.text.count("\n", 0, other.start()) + 1
        raise CannotFormat("a line ends with another character than a line feed; write a line feed", line)
    if reading.root.style == "flow":
        raise CannotFormat("the whole document is in braces or brackets")
    if reading.root.entries is None:
        what = "a single value" if reading.root.items is None else "a list"
        raise CannotFormat(f"the whole document is {what}; write `key: value` lines")
    printed = _Printer(reading).document()
    if "\r\n" in reading.text:
        printed = printed.replace("\n", "\r\n")
    made = printed.encode()
    try:
        after = read(made, file)
    except DocumentError as error:
        raise CannotFormat(
            "it is written in a way that cannot be formatted", error.problems[0].line
        ) from None
    if after.problems or not same(after.root.value, reading.root.value):
        raise CannotFormat("a text in it would change")
    if _comments(after) != _comments(reading):
        raise CannotFormat("a comment in it would be lost")
    return made


def _comments(reading: YamlReading) -> Counter[str]:
    return Counter(reading.text[start:end].rstrip() for start, end in reading.comments())


class _Printer:
    """Prints one reading. Lines count from 1; `gap` is what stands between two entries."""

    def __init__(self, reading: YamlReading) -> None:
        self.text = reading.text
        self.root = reading.root
        self.breaks = [at for at, char in enumerate(self.text) if char == "\n"]
        self.lines = self.text.split("\n")
        self.comments: dict[int, _Comment] = {}
        for start, end in reading.comments():
            line = self.line_of(start)
            before = self.lines[line - 1][: start - self.start_of(line)]
            alone = not before.strip(" \ufeff")
            self.comments[line] = _Comment(self.text[start:end].rstrip(), line, len(before) + 1, alone)

    def document(self) -> str:
        first = self.root.line
        head = self.gap(1, first)
        body = self.block(self.root, 0, len(self.lines) + 1, ())
        while head and not head[0]:
            head.pop(0)
        lines = [*head, *body]
        while lines and not lines[-1]:
            lines.pop()
        return "\n".join(line.rstrip() for line in lines) + "\n"

    # ---- collections in block style --------------------------------------------------------------------

    def block(self, node: YamlNode, indent: int, until: int, where: tuple[str, ...]) -> list[str]:
        """The lines of a block collection; comments up to line `until` (not included) belong to it."""
        if node.entries is not None:
            pieces = self.entries(node, indent, until, where)
        else:
            pieces = self.items(node, indent, until, where)
        return [line for piece in pieces for line in piece]

    def entries(self, node: YamlNode, indent: int, until: int, where: tuple[str, ...]) -> list[list[str]]:
        assert node.entries is not None
        entries = sorted(node.entries.values(), key=lambda entry: entry[0].start)
        made: list[tuple[str, list[str]]] = []
        leading: list[str] = []
        for number, (key, value) in enumerate(entries):
            following = entries[number + 1][0].line if number + 1 < len(entries) else until
            end = self.last_line(value)
            inner, rest = self.shared(value, end + 1, following, key.column)
            lines = self.entry(key, value, indent, inner, (*where, key.value))
            made.append((key.value, [*_indented(leading, indent), *lines]))
            leading = rest
        ordered = [piece for _, piece in sorted(made, key=lambda each: self.rank(each[0], where, made))]
        return [*ordered, _indented(leading, indent)]

    def rank(
        self, key: str, where: tuple[str, ...], made: Sequence[tuple[str, list[str]]]
    ) -> tuple[int, int]:
        order = self.order(where)
        place = [name for name, _ in made].index(key)
        if not order:
            return (0, place)
        return (order.index(key) if key in order else len(order), place)

    def order(self, where: tuple[str, ...]) -> Sequence[str]:
        if not where:
            kind = self.root.value.get("kind")
            return _DOCUMENTS.get(kind, ()) if isinstance(kind, str) else ()
        for shape, order in _MEMBERS.items():
            if len(shape) == len(where) and all(a in ("*", b) for a, b in zip(shape, where, strict=True)):
                return order
        return ()

    def entry(
        self, key: YamlNode, value: YamlNode, indent: int, until: int, where: tuple[str, ...]
    ) -> list[str]:
        name = " " * indent + self.text[key.start : key.end] + ":"
        if value.style == "block":
            inner = indent + _STEP
            beside = self.comments.get(key.line)
            if beside is not None and not beside.alone and self.first_line(value) > key.line:
                name += f"  {beside.text}"
            above = self.gap(key.line + 1, self.first_line(value))
            return [name, *_indented(above, inner), *self.block(value, inner, until, where)]
        first, *rest = self.scalar(value, indent + _STEP, where)
        return [f"{name} {first}", *rest]

    def items(self, node: YamlNode, indent: int, until: int, where: tuple[str, ...]) -> list[list[str]]:
        assert node.items is not None
        made: list[list[str]] = []
        leading: list[str] = []
        dashes = self.dashes(node)
        for number, item in enumerate(node.items):
            dash = dashes[number]
            following = dashes[number + 1] if number + 1 < len(node.items) else until
            end = self.last_line(item)
            inner, rest = self.shared(item, end + 1, following, node.column)
            own = (*where, "*")
            if item.style == "block":
                above = self.gap(dash, self.first_line(item))
                beside = self.comments.get(dash)
                if beside is not None and not beside.alone and self.first_line(item) > dash:
                    above.insert(0, beside.text)
                lines = self.block(item, indent + _STEP, inner, own)
                leading += [line for line in above if line]
            else:
                first, *more = self.scalar(item, indent + _STEP, own)
                lines = [" " * (indent + _STEP) + first, *more]
            at = next(n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
            # A comment about what is first now stands above the dash.
            leading += [line.strip() for line in lines[:at]]
            del lines[:at]
            lines[0] = " " * indent + "- " + lines[0][indent + _STEP :]
            made.append([*_indented(leading, indent), *lines])
            leading = rest
        return [*made, _indented(leading, indent)]

    def shared(self, value: YamlNode, start: int, until: int, column: int) -> tuple[int, list[str]]:
        """Up to which line comments below a value belong into it (they are indented deeper than its key), and
        the comments that stand before what follows."""
        if value.style != "block":
            return start, self.gap(start, until)
        end = start
        for line in range(start, until):
            comment = self.comments.get(line)
            if comment is not None and comment.alone and comment.column <= column:
                break
            if comment is not None and comment.alone:
                end = line + 1
        return end, self.gap(end, until)

    def gap(self, start: int, until: int) -> list[str]:
        """Comments and blank lines (one at most in a row) between two lines."""
        found: list[str] = []
        for line in range(start, until):
            comment = self.comments.get(line)
            if comment is not None and comment.alone:
                found.append(comment.text)
            elif line <= len(self.lines) and not self.lines[line - 1].strip() and (not found or found[-1]):
                found.append("")
        return found

    # ---- scalars and flow style --------------------------------------------------------------------------

    def scalar(self, node: YamlNode, indent: int, where: tuple[str, ...]) -> list[str]:
        """The lines of a value that is no block collection; the first has no indentation."""
        if node.style in ("|", ">"):
            return self.literal(node, indent)
        raw = self.text[node.start : node.end]
        last = self.last_line(node)
        beside = self.comments.get(last)
        comment = f"  {beside.text}" if beside is not None and not beside.alone else ""
        if "\n" not in raw:
            return [(self.flow(node, where) if node.style == "flow" else raw) + comment]
        first, *rest = raw.split("\n")
        closing = node.style == "flow"
        lines = [first.rstrip()]
        for number, line in enumerate(rest):
            ends = closing and number == len(rest) - 1 and line.strip() in ("]", "}")
            shift = indent - _STEP if ends else indent
            lines.append(" " * shift + line.strip() if line.strip() else "")
        lines[-1] += comment
        return lines

    def flow(self, node: YamlNode, where: tuple[str, ...]) -> str:
        """A flow collection of one line."""
        if node.entries is not None:
            entries = sorted(node.entries.values(), key=lambda entry: entry[0].start)
            made = [
                (key.value, [f"{self.text[key.start : key.end]}: {self.flow(value, (*where, key.value))}"])
                for key, value in entries
            ]
            ordered = sorted(made, key=lambda each: self.rank(each[0], where, made))
            return "{" + ", ".join(piece[0] for _, piece in ordered) + "}"
        if node.items is not None:
            return "[" + ", ".join(self.flow(item, (*where, "*")) for item in node.items) + "]"
        return self.text[node.start : node.end]

    def literal(self, node: YamlNode, indent: int) -> list[str]:
        header, *body = self.text[node.start : node.end].split("\n")
        mark = header.split("#")[0].strip()
        if any(char.isdigit() or char == "+" for char in mark):
            raise CannotFormat(f"a text with `{mark}` depends on its indentation", node.line)
        while body and not body[-1].strip():
            body.pop()
        old = next((len(line) - len(line.lstrip(" ")) for line in body if line.strip()), 0)
        return [
            header.rstrip(),
            *(" " * indent + line[old:].rstrip("\r") if line.strip() else "" for line in body),
        ]

    # ---- where things are --------------------------------------------------------------------------------

    def line_of(self, offset: int) -> int:
        return bisect.bisect_left(self.breaks, offset) + 1

    def start_of(self, line: int) -> int:
        return self.breaks[line - 2] + 1 if line > 1 else 0

    def first_line(self, node: YamlNode) -> int:
        return self.line_of(node.start)

    def last_line(self, node: YamlNode) -> int:
        node = node.last_leaf()
        end = node.start + len(self.text[node.start : node.end].rstrip())
        return self.line_of(max(node.start, end - 1))

    def dashes(self, node: YamlNode) -> list[int]:
        """The line of each entry's dash."""
        assert node.items is not None
        found = [self.first_line(node)]
        for before, item in pairwise(node.items):
            lines = range(self.last_line(before) + 1, self.first_line(item) + 1)
            found.append(next(line for line in lines if self.lines[line - 1][: node.column].strip() == "-"))
        return found


def _indented(lines: Sequence[str], indent: int) -> list[str]:
    return [" " * indent + line if line else "" for line in lines]
