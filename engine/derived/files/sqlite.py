"""Which files sqlite3 reads and writes: the database, and those that its commands and functions name."""

from __future__ import annotations

import re
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.operands import each_of, marked
from engine.shell.files.file_calls import Uses
from engine.shell.options import given, operands_of

_FOR_ITSELF: Final = re.compile(
    r"\.(output|once|backup|save|dump|log|trace|clone|read|import|open|restore|archive|ar)\b(.*)"
)
_IN_SQL: Final = re.compile(
    r"\b(?:(readfile|edit)\s*+\(|(writefile)\s*+\(|(attach)\s++(?:database\b)?"
    r"|vacuum\s++(?:(?!into\b)\w++\s++)?(into)\b)"
    r"""\s*+["']([^"']{1,400})["']""",
    re.IGNORECASE,
)


def sqlite(command: Command) -> Uses:
    """The database, and what its commands and functions read and write."""
    items = list(given("sqlite3", command.words))
    yield from marked(items)
    database = operands_of(items)[:1]
    if database and not database[0].startswith(":"):
        yield from each_of("reads", database)
        yield from each_of("writes", database)
    for text in (*command.words, *command.inputs):
        for found in _IN_SQL.finditer(text):
            if not found[2]:
                yield "reads", found[5]
            if not found[1]:
                yield "writes", found[5]
        for found in _FOR_ITSELF.finditer(text):
            for word in found[2].split()[:8]:
                if word[:1] != "-":
                    yield (
                        ("reads" if found[1] in ("read", "import", "restore") else "writes"),
                        word.strip("\"'"),
                    )
