"""One JSON Schema (draft 2020-12) per document and per HTTP body, and how to read them.

The files are the source of what documents and bodies may hold, for the loader, for editors and for the API
document. This package imports nothing of ours.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Schema = dict[str, Any]


class UnknownSchema(LookupError):
    """No schema file has this name."""


def _folder() -> Traversable:
    # The command line imports this package at each start, and this module takes its time.
    from importlib.resources import files

    return files(__name__)


@cache
def _text(name: str) -> str:
    parts = name.split("/")
    if not all(part[:1].isalnum() and re.fullmatch(r"[\w.-]+", part) for part in parts):
        raise UnknownSchema(name)
    path = _folder().joinpath(*parts[:-1], parts[-1] + ".json")
    if not path.is_file():
        raise UnknownSchema(name)
    return path.read_text(encoding="utf-8")


def load(name: str) -> Schema:
    """The schema of that name, such as `documents/policy`; a fresh copy that the caller may change."""
    schema: Schema = json.loads(_text(name))
    return schema


@cache
def names() -> tuple[str, ...]:
    """Every schema's name, sorted."""
    found = [
        f"{folder.name}/{entry.name.removesuffix('.json')}"
        for folder in _folder().iterdir()
        if folder.is_dir()
        for entry in folder.iterdir()
        if entry.name.endswith(".json")
    ]
    return tuple(sorted(found))


def read_all() -> None:
    """Read every file now: whoever serves for long then needs none later, when nothing more can be opened, or
    the files of another version lie there."""
    for name in names():
        _text(name)
