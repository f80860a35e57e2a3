"""A document and what is wrong with it: its file is read, its header is checked, and defects get positions.

What every kind of document has in common: the shape that its schema says, an id that is the name of its file,
a version, and problems that are told all at once. It must not know what any kind of document means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from engine.documents.folded import folded_comments
from engine.documents.ids import refuse_id
from engine.documents.yaml import YamlNode, YamlReading, read
from engine.errors import DocumentError, Problem
from engine.model import Json
from schemas.validation import violations

API_VERSION: Final = "governance/v1"


@dataclass(frozen=True, slots=True)
class Defect:
    """A problem before it has a position; `offset` counts characters into the text at the pointer."""

    pointer: str
    message: str
    code: str
    at_key: bool = False
    offset: int | None = None

    def problem(self) -> Problem:
        """What is told of it where there is no file."""
        return Problem(self.message, self.pointer, self.code)


@dataclass(frozen=True, slots=True)
class WrittenDocument:
    """A text that was read, and what its schema and its file's name say against it."""

    reading: YamlReading
    defects: tuple[Defect, ...]

    @property
    def value(self) -> Json:
        return self.reading.root.value

    @property
    def version(self) -> int | None:
        """The one that the file declares, if it does."""
        version = self.value.get("version")
        return None if version is None else int(version)

    def refuse(self, defects: Iterable[Defect]) -> None:
        """Raise DocumentError when there is any problem, with positions, in order of the file."""
        of_the_text = self.reading.problems
        known = {(problem.line, problem.column) for problem in of_the_text}
        folded = (Defect(*each) for each in folded_comments(self.reading))
        problems = [located(self.reading, each) for each in (*defects, *folded)]
        problems = [each for each in problems if (each.line, each.column) not in known] + of_the_text
        if problems:
            raise DocumentError(sorted_problems(problems))


def read_document(source: bytes, file: str, schema: str, id_key: str | None = None) -> WrittenDocument:
    """The document of a file. Raises DocumentError only where the text cannot be read at all."""
    reading = read(source, file)
    value = reading.root.value
    found = shape_defects(schema, value)
    declared = value.get(id_key) if id_key and isinstance(value, dict) else None
    stem = PurePosixPath(file).name.removesuffix(".yaml")
    if file and isinstance(declared, str) and declared != stem:
        message = f"`{id_key}` is `{declared}`, but the file is named `{stem}.yaml`; make them the same"
        if not any(each.pointer == f"/{id_key}" for each in found):
            found.append(Defect(f"/{id_key}", message, "wrong_file_name"))
    return WrittenDocument(reading, tuple(found))


def read_shaped(source: bytes, file: str, schema: str, id_key: str) -> tuple[WrittenDocument, list[Defect]]:
    """A document whose shape is right, and what is wrong with its id; to refuse what its text has besides is
    for whoever reads on. Raises DocumentError."""
    document = read_document(source, file, schema, id_key)
    if document.defects:
        document.refuse(document.defects)
    message = refuse_id(document.value[id_key], id_key)
    return document, [Defect(f"/{id_key}", message, "wrong_form")] if message else []


def shape_defects(schema: str, value: Json, part: str = "") -> list[Defect]:
    """What a schema, or a part of it, says against a value."""
    return [
        Defect(each.pointer, each.message, each.code, each.at_key) for each in violations(schema, value, part)
    ]


def digest_of(source: bytes) -> str:
    """The name of exact bytes: sha256, hex."""
    return hashlib.sha256(source).hexdigest()


def sorted_problems(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column))


def located(reading: YamlReading, finding: Defect) -> Problem:
    """A problem with the position of its node; inside a text too, where the text stands as it is written."""
    node, key = reading.find(finding.pointer)
    if finding.at_key and key is not None:
        node = key
    line, column = node.line, node.column
    if finding.offset is not None and isinstance(node.value, str):
        line, column = _inside(reading.text, node, finding.offset)
    return Problem(finding.message, finding.pointer, finding.code, reading.file, line, column)


def _inside(text: str, node: YamlNode, offset: int) -> tuple[int, int]:
    """Line and column of a character of a scalar; the scalar's own where they cannot be known."""
    raw = text[node.start : node.end]
    if node.style == "|":
        lines = raw.splitlines()[1:]
        before = node.value[:offset].split("\n")
        content = node.value.split("\n")[len(before) - 1]
        if len(before) <= len(lines) and lines[len(before) - 1].endswith(content):
            indent = len(lines[len(before) - 1]) - len(content)
            return node.line + len(before), indent + len(before[-1]) + 1
        return node.line, node.column
    if node.style == ">" or "\n" in raw or "\r" in raw:
        return node.line, node.column
    step: Callable[[int], int] = {
        "": lambda at: 1,
        "'": lambda at: 2 if raw[at] == "'" else 1,
        '"': lambda at: _ESCAPED.get(raw[at + 1], 2) if raw[at] == "\\" else 1,
    }[node.style]
    at = 1 if node.style else 0
    for _ in range(offset):
        if at >= len(raw) - 1:
            break
        at += step(at)
    return node.line, node.column + at


_ESCAPED: Final[Mapping[str, int]] = {"x": 4, "u": 6, "U": 10}
