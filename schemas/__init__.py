"""One JSON Schema (draft 2020-12) per document and per HTTP body, and how to read them.

The files are the source of what documents and bodies may hold, for the loader, for editors and for the API
document. This package imports nothing of ours.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

Schema = dict[str, Any]


class UnknownSchema(LookupError):
    """No schema file has this name."""


@cache
def _text(name: str) -> str:
    parts = name.split("/")
    if not all(part[:1].isalnum() and re.fullmatch(r"[\w.-]+", part) for part in parts):
        raise UnknownSchema(name)
    path = files(__name__).joinpath(*parts[:-1], parts[-1] + ".json")
    if not path.is_file():
        raise UnknownSchema(name)
    return path.read_text(encoding="utf-8")


def load(name: str) -> Schema:
    """The schema of that name, such as `documents/policy`; a fresh copy that the caller may change."""
    schema: Schema = json.loads(_text(name))
    return schema


def names() -> tuple[str, ...]:
    """Every schema's name, sorted."""
    found = [
        f"{folder.name}/{entry.name.removesuffix('.json')}"
        for folder in files(__name__).iterdir()
        if folder.is_dir()
        for entry in folder.iterdir()
        if entry.name.endswith(".json")
    ]
    return tuple(sorted(found))
