"""The texts that a call writes into files, by its arguments and by the commands that it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.patches import PATCHING, added, is_patch
from engine.derived.payload import DistinctTexts
from engine.fields.json_text import Unread, opened
from engine.fields.words import words_of
from engine.model import Json, ToolDeclaration

_CONTENT: Final = frozenset(
    [
        *("content", "contents", "text", "file text", "new string", "new str", "new text", "new source"),
        *("code", "code edit", "replacement", "insert text", "insert", "cell source", "new content"),
    ]
)
"""Keys of what is written, as words."""

_WRITING: Final = frozenset({"files", "repository"})
"""Kinds of tools that write what such an argument holds."""
_INTO: Final = frozenset({">", ">>", "&>", "&>>"})


def written_texts(
    payload: Json, commands: Iterable[Command], tool: ToolDeclaration, writes: bool
) -> DistinctTexts:
    """What a call writes. `writes`: one of its arguments is the path of a file that it writes."""
    found = DistinctTexts()
    if tool.effect != "read" and (tool.kind in _WRITING or writes):
        for text in _contents(payload):
            found.add(text)
    for command in commands:
        if command.program == "tee" or any(operator in _INTO for operator, _ in command.redirections):
            said = command.arguments if command.program in ("echo", "printf") else ()
            for text in (*command.inputs, *said):
                found.add(text)
        elif command.program in PATCHING:
            for text in filter(is_patch, (*command.inputs, *command.arguments)):
                found.add(added(text))
    return found


def _contents(payload: Json) -> Iterator[str]:
    """The arguments that are written, as they stand: what is JSON itself is not taken apart."""
    stack, unread = [("", payload)], Unread()
    while stack:
        key, value = stack.pop()
        if isinstance(value, str):
            if is_patch(value):
                yield added(value)
            elif key in _CONTENT:
                yield value
            elif (inside := opened(value, unread)) is not None:
                stack.append((key, inside))
        elif isinstance(value, dict):
            stack.extend((words_of(name), each) for name, each in reversed(value.items()))
        elif isinstance(value, list):
            stack.extend((key, each) for each in reversed(value))
