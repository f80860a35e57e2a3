"""Strict YAML: text to JSON values, every node with its exact place in the text.

It decides what YAML we accept: one document of mappings, lists and JSON scalars. Anchors, aliases, tags,
merge keys, directives and duplicate keys are refused; a plain scalar that is not JSON (`no`, `012`, a date,
`0x1f`, `~`) is text. It must not know what the documents mean.

Read from the parser's events, not from composed nodes, because only events still tell an anchor that nobody
uses and a tag from the absence of one, and because nothing is ever expanded.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from engine.errors import DocumentError, Problem
from engine.model import Json

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
_UNPRINTABLE: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_ODD_BREAK: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029]")

_LFS_POINTER: Final = "version https://git-lfs.github.com/spec/"
_NO_TAGS: Final = "tags are not supported; remove the `!`, or put the text in quotes"
_NO_START: Final = "a tab cannot indent; use spaces"
_PLAINER: Final[Mapping[str, str]] = {
    "found character that cannot start any token": _NO_START,
    "found a tab character": "a tab cannot indent; use spaces",
    "mapping values are not allowed": "a `:` does not fit here; quote a text with `: ` in it",
    "could not find expected ':'": "this line has no `:` after its key; check indentation and quotes",
    "did not find expected key": "the indentation does not fit the lines above",
    "did not find expected '-' indicator": "the indentation does not fit the list above",
    "did not find expected ',' or ']'": "a list in brackets needs a `,` or its closing `]` here",
    "did not find expected ',' or '}'": "an object in braces needs a `,` or its closing `}` here",
    "found unexpected end of stream": "the quotes that open here are never closed",
    "found unknown escape character": "double quotes do not know this backslash escape; use single quotes",
    "did not find expected hexdecimal number": "this escape needs hexadecimal digits",
    "found invalid Unicode character escape code": "this escape names no character",
    "block sequence entries are not allowed": "a `-` does not fit here; put it on a line of its own",
    "did not find expected <document start>": "the document ends above; remove what follows",
    "did not find the expected comment or line break": "a comment or a new line is needed here",
    "did not find expected alphabetic or numeric": "a text cannot start with `*` or `&`; quote it",
    "did not find expected node content": "a value is missing here",
    "found undefined tag handle": _NO_TAGS,
    "while parsing a tag": _NO_TAGS,
    "while scanning a tag": _NO_TAGS,
}


@dataclass(slots=True)
class YamlNode:
    """A value and where it stands. `start` and `end` are offsets in `YamlReading.text`; lines count from 1.

    `style` is empty for plain, else the character that starts the scalar, `block` or `flow` for collections.
    The end of a block collection is the end of its last entry.
    """

    value: Json
    start: int
    end: int
    line: int
    column: int
    style: str = ""
    items: list[YamlNode] | None = None
    entries: dict[str, tuple[YamlNode, YamlNode]] | None = None

    def last_leaf(self) -> YamlNode:
        """The value in it that ends last."""
        node = self
        while node.style == "block":
            children = node.items or [value for _, value in (node.entries or {}).values()]
            if not children:
                break
            node = max(children, key=lambda child: child.end)
        return node


@dataclass(slots=True)
class YamlReading:
    """A text that was read: its root node, and the problems that did not stop the reading."""

    file: str
    text: str
    root: YamlNode
    problems: list[Problem] = field(default_factory=list)

    def find(self, pointer: str) -> tuple[YamlNode, YamlNode | None]:
        """The node at a JSON pointer, or its nearest ancestor that exists, and the node of its key if any."""
        node, key = self.root, None
        for step in (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
            if node.entries is not None and step in node.entries:
                key, node = node.entries[step]
            elif node.items is not None and step.isdigit() and int(step) < len(node.items):
                key, node = None, node.items[int(step)]
            else:
                break
        return node, key

    def comments(self) -> Iterator[tuple[int, int]]:
        """The spans of all comments, `#` to the end of the line."""
        position = 0
        for start, end in [*_scalar_spans(self.root, self.text), (len(self.text), len(self.text))]:
            for match in re.finditer(r"(?:(?<=[\s])|\A)#[^\r\n\x85\u2028\u2029]*", self.text[position:start]):
                yield position + match.start(), position + match.end()
            position = max(end, position)


def _scalar_spans(root: YamlNode, text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for node in _nodes(root):
        if node.items is not None or node.entries is not None:
            continue
        if node.style in ("|", ">"):  # a comment may stand in its first line
            spans.append((_line_end(text, node.start), node.end))
        else:
            spans.append((node.start, node.end))
    return sorted(spans)


def _line_end(text: str, offset: int) -> int:
    found = re.compile("[\r\n\x85\u2028\u2029]").search(text, offset)
    return found.start() if found else len(text)


def decode(source: bytes, file: str) -> str:
    """The text of a file; a leading byte order mark stays in it. Raises DocumentError."""
    if len(source) > MAX_BYTES:
        message = f"the file is too big; a document may have at most {MAX_BYTES} bytes"
        raise DocumentError([Problem(message, "", "too_big", file)])
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8")
        line, column = _place(before, len(before))
        message = "this is not UTF-8 text; save the file as UTF-8"
        raise DocumentError([Problem(message, "", "not_utf8", file, line, column)]) from None
    bad = _UNPRINTABLE.search(text, 1 if text.startswith("\ufeff") else 0)
    if bad:
        if conflict := _conflict(text, file):  # git puts its mark before a byte order mark
            raise DocumentError([conflict])
        line, column = _place(text, bad.start())
        message = f"the character U+{ord(bad.group()):04X} cannot stand in a file; remove it"
        raise DocumentError([Problem(message, "", "bad_character", file, line, column)])
    return text


def _place(text: str, offset: int) -> tuple[int, int]:
    lines = re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text[:offset])
    last = lines[-1].removeprefix("\ufeff") if len(lines) == 1 else lines[-1]
    return len(lines), len(last) + 1


def read(source: bytes, file: str = "") -> YamlReading:
    """The one document of a file. Raises DocumentError when the text cannot be read at all."""
    text = decode(source, file)
    if text.startswith(_LFS_POINTER):
        message = "this is what git LFS keeps in place of the file; fetch the file itself: `git lfs pull`"
        raise DocumentError([Problem(message, "", "lfs_pointer", file, 1, 1)])
    # The parser counts characters after the mark, so offsets are shifted to fit the text as it is.
    shift = 1 if text.startswith("\ufeff") else 0
    builder = _Builder(file, shift)
    try:
        for event in yaml.parse(text[shift:], Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise DocumentError([*builder.problems, _syntax_problem(error, text[shift:], file)]) from None
    except yaml.reader.ReaderError as error:  # `decode` is stricter; here so that nothing else leaks out
        message = f"this is not readable text: {error.reason}"
        raise DocumentError([Problem(message, "", "bad_character", file)]) from None
    if builder.root is None:
        empty = Problem("the file is empty; write a document or delete it", "", "empty", file, 1, 1)
        raise DocumentError([*builder.problems, empty])
    return YamlReading(
        file, text, builder.root, [*builder.problems, *_hidden_lines(text, builder.root, file)]
    )


def _hidden_lines(text: str, root: YamlNode, file: str) -> Iterator[Problem]:
    """What begins a line for YAML alone: editors and reviews show it as a part of the line before, such as
    `mode: shadow` as the end of a description."""
    if not _ODD_BREAK.search(text):
        return
    quoted = sorted((each.start, each.end) for each in _nodes(root) if each.style in ("'", '"'))
    breaks: list[re.Match[str]] = []
    for found in _BREAK.finditer(text):
        at = bisect_right(quoted, (found.start(), len(text))) - 1
        if at < 0 or found.start() >= quoted[at][1]:
            breaks.append(found)
    seen = ("\n", "\r\n") if "\n" in text else ("\r",)
    starts = [each.start() for each in breaks]
    for node in _nodes(root):
        at = bisect_left(starts, node.start) - 1
        if at >= 0 and (odd := breaks[at].group()) not in seen:
            before = text[: starts[at]].removeprefix("\ufeff")
            line, column = before.count(seen[0]) + 1, len(before) - before.rfind(seen[0])
            message = (
                f"the character U+{ord(odd):04X} ends the line here, which nobody sees who reads the file: "
                "what follows is an entry of its own; put a usual line end there, or remove it"
            )
            yield Problem(message, "", "bad_character", file, line, column)
            return


def _nodes(root: YamlNode) -> Iterator[YamlNode]:
    """All of them, keys too, in order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if node.items is not None:
            stack += reversed(node.items)
        elif node.entries is not None:
            stack += (each for pair in reversed(node.entries.values()) for each in reversed(pair))


def _conflict(text: str, file: str) -> Problem | None:
    mark = re.search(r"^(?:<{7}|={7}|>{7})(?: |$)", text, re.MULTILINE)
    if mark is None:
        return None
    line, column = _place(text, mark.start())
    message = "git left a conflict here; choose what is right and remove its marks"
    return Problem(message, "", "git_conflict", file, line, column)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    if conflict := _conflict(text, file):
        return conflict
    problem, context = str(error.problem or ""), str(error.context or "")
    mark = error.problem_mark or error.context_mark
    message = f"this is not readable YAML: {problem}"
    for needle, plainer in _PLAINER.items():
        if needle in problem or needle in context:
            message = plainer
            if needle == "found unexpected end of stream" and error.context_mark:
                mark = error.context_mark
            break
    if message == _NO_START and mark and mark.index < len(text) and text[mark.index] != "\t":
        message = f"a text cannot start with `{text[mark.index]}`; put it in quotes"
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(message, "", "invalid_yaml", file, line, column)


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    node: YamlNode
    key: YamlNode | None = None
    duplicate: bool = False


class _Builder:
    """Takes parser events one by one; never recurses, so depth costs nothing before it is refused."""

    def __init__(self, file: str, shift: int) -> None:
        self.file = file
        self.shift = shift
        self.root: YamlNode | None = None
        self.problems: list[Problem] = []
        self.documents = 0
        self.stack: list[_Open] = []

    def problem(self, event: Any, message: str, code: str) -> Problem:
        mark = event.start_mark
        problem = Problem(message, "", code, self.file, mark.line + 1, mark.column + 1)
        self.problems.append(problem)
        return problem

    def stop(self, event: Any, message: str, code: str) -> None:
        self.problem(event, message, code)
        raise DocumentError(self.problems)

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self.check_extras(event)
            self.add(event, self.scalar(event))
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self.check_extras(event)
            self.open(event, kind is yaml.MappingStartEvent)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self.close(event)
        elif kind is yaml.AliasEvent:
            self.stop(
                event, f"aliases are not supported; write the value of `*{event.anchor}` again", "alias"
            )
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self.stop(
                    event, "a file holds one document; move this one to a file of its own", "many_documents"
                )
            if event.version or event.tags:
                self.problem(
                    event, "directives are not supported; remove the line that starts with `%`", "directive"
                )

    def check_extras(self, event: Any) -> None:
        if event.anchor is not None:
            self.problem(event, f"anchors are not supported; remove `&{event.anchor}`", "anchor")
        if event.tag is not None:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.problem(event, f"tags are not supported; remove `{shown}`, or put the text in quotes", "tag")

    @property
    def awaits_key(self) -> bool:
        top = self.stack[-1] if self.stack else None
        return top is not None and top.node.entries is not None and top.key is None

    def node(self, event: Any, value: Json, style: str) -> YamlNode:
        mark, end = event.start_mark, event.end_mark.index + self.shift
        return YamlNode(value, mark.index + self.shift, end, mark.line + 1, mark.column + 1, style)

    def scalar(self, event: Any) -> YamlNode:
        text: str = event.value
        if event.style:
            return self.node(event, text, event.style)
        value: Json = text
        if self.awaits_key:
            pass
        elif text in _WORDS:
            value = _WORDS[text]
        elif text == "":
            self.problem(event, "a value is missing here; for empty text write `''`", "no_value")
        elif _NUMBER.match(text):
            value = self.number(event, text)
        return self.node(event, value, "")

    def number(self, event: Any, text: str) -> Json:
        if len(text) <= 400:
            value = json.loads(text)
            if math.isfinite(value if isinstance(value, float) else 0.0) and abs(value) < 1e308:
                return value
        self.problem(event, "this number is too big; put it in quotes if it is meant as text", "too_big")
        return 0

    def open(self, event: Any, mapping: bool) -> None:
        if self.awaits_key:
            self.stop(event, "a key must be one text, not a list or an object", "bad_key")
        if len(self.stack) >= MAX_DEPTH:
            self.stop(event, f"this is nested more than {MAX_DEPTH} deep", "too_deep")
        node = self.node(event, {} if mapping else [], "flow" if event.flow_style else "block")
        if mapping:
            node.entries = {}
        else:
            node.items = []
        self.stack.append(_Open(node))

    def close(self, event: Any) -> None:
        node = self.stack.pop().node
        if node.style == "flow":
            node.end = event.end_mark.index + self.shift
        elif node.entries:
            node.end = max(value.end for _, value in node.entries.values())
        elif node.items:
            node.end = node.items[-1].end
        self.add(event, node)

    def add(self, event: Any, node: YamlNode) -> None:
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if top.node.items is not None:
            top.node.items.append(node)
            top.node.value.append(node.value)
        elif top.key is None:
            top.key = node
            self.check_key(event, top)
        else:
            assert top.node.entries is not None
            if not top.duplicate:
                top.node.entries[top.key.value] = (top.key, node)
                top.node.value[top.key.value] = node.value
            top.key, top.duplicate = None, False

    def check_key(self, event: Any, top: _Open) -> None:
        assert top.key is not None and top.node.entries is not None
        key = top.key.value
        if key == "<<" and not top.key.style:
            self.problem(event, "merge keys are not supported; write the fields out", "merge_key")
        if key in top.node.entries:
            first = top.node.entries[key][0]
            top.duplicate = True
            self.problem(event, f"`{key}` is there twice; the first is in line {first.line}", "duplicate_key")
