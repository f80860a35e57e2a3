"""Which texts of a call hold commands: what `derived.shellCommands` and `derived.commands` are made of.

Every text of the payload counts, whatever its key, except under keys that hold prose or folders: a tool may
call its argument `command`, `cmd`, `script`, `input` or anything else. A list of texts is read as one command
given in words, where its key or its form says so; else as scripts, one per text; in doubt as both. A program
that stands beside its arguments (`command` and `args`) is put together with them, each such program with each
such arguments: which of two keys a tool reads, also of two that differ in case alone, is not known here.
JSON in a text is looked into as if it stood there itself.

Knows what payloads look like; how a shell reads is the business of `shell`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Final

from engine.fields.computed import UNREADABLE
from engine.fields.json_text import opened
from engine.fields.scalars import text_of
from engine.fields.words import word_set
from engine.model import Json
from engine.shell.expansion import render
from engine.shell.reader import ShellReading, reading

_PROSE_NAMES: Final = (
    "description explanation reason reasoning thought thoughts comment note summary title label goal "
    "task instructions justification workdir cwd directory dir working_directory workingdirectory "
    "path"
)
PROSE: Final = frozenset(_PROSE_NAMES.split())
"""Keys (in any case) whose texts are read by people, or name a place; they start nothing."""

_WORDS: Final = word_set("command cmd argv args arguments cmdline exec program")
"""Keys of a list that is one command, word by word."""

_PROGRAM_NAMES: Final = (
    "command cmd program executable file binary exec exe bin shell interpreter script path"
)
_PROGRAMS: Final = frozenset(_PROGRAM_NAMES.split())
_ARGUMENTS: Final = word_set("args arguments argv params parameters")
_SCRIPT_LISTS: Final = frozenset(["commands", "cmds", "scripts", "lines"])
"""Keys of a list of scripts; a list within it is one command, word by word."""
_SHELL_TEXTS: Final = word_set("command cmd cmdline commands shell bash")
"""Keys whose texts are shell; any other may hold code of another language as well."""

MOST_COMBINED: Final = 262_144
"""Characters of programs and arguments put together, where one call has several for one another."""

_PLAIN: Final = re.compile(r"[\w./-]+")


def shell_reading(document: Mapping[str, Json]) -> ShellReading:
    """What the payload of a call would run, in normal form (see `shell.reader`); read only in part, its
    entries end with `UNREADABLE`."""
    texts: list[str] = []
    lists: list[list[str]] = []
    code: list[str] = []
    room = MOST_COMBINED
    stack: list[tuple[str, Json]] = [("", document.get("inputPayload"))]
    while stack:
        key, value = stack.pop()
        if isinstance(value, str):
            if value:
                texts.append(value)
                if key not in _SHELL_TEXTS:
                    code.append(value)
                inside = opened(value)
                if inside is not None:
                    stack.append((key, inside))
        elif isinstance(value, dict):
            members = [(str(name).casefold(), member) for name, member in value.items()]
            programs, arguments = _named(members, _PROGRAMS), _named(members, _ARGUMENTS)
            pairs = len(programs) * len(arguments)
            if pairs > 1:
                room -= pairs + len(arguments) * _size(programs) + len(programs) * _size(arguments)
            combined = product(programs, arguments) if room >= 0 else zip(programs, arguments, strict=False)
            for program, given in combined:
                _combine(program, given, texts, lists)
            stack.extend((name, member) for name, member in reversed(members) if name not in PROSE)
        elif isinstance(value, list):
            words = [text_of(word) for word in value if not isinstance(word, (dict, list))]
            if len(words) == len(value) and words and key not in _SCRIPT_LISTS:
                lists.append(words)
                if key in _WORDS and not any(blank in words[0] for blank in " \t\n"):
                    continue
            within = "" if key in _SCRIPT_LISTS else key
            stack.extend((within if isinstance(item, list) else key, item) for item in reversed(value))
    found = reading(texts, lists, code)
    if room < 0:
        found.entries[UNREADABLE] = None
    return found


def shell_commands(document: Mapping[str, Json]) -> tuple[str, ...]:
    """The entries; () when the payload holds no text."""
    return tuple(shell_reading(document).entries)


def _named(members: Sequence[tuple[str, Json]], names: Collection[str]) -> list[str | list[str]]:
    """The members under one of the names: texts, and words."""
    values: list[str | list[str]] = [
        [text_of(word) for word in member if not isinstance(word, (dict, list))]
        if isinstance(member, list)
        else text_of(member)
        for name, member in members
        if name in names and member is not None and not isinstance(member, dict)
    ]
    return [value for value in values if value]


def _size(members: Sequence[str | list[str]]) -> int:
    return sum(len(each) if isinstance(each, str) else sum(map(len, each)) + len(each) for each in members)


def _combine(
    program: str | list[str], arguments: str | list[str], texts: list[str], lists: list[list[str]]
) -> None:
    """`{command: rm, args: [-rf, /]}` is one command. What is more than a name is read by a shell as well."""
    if isinstance(arguments, list):
        lists.append([*([program] if isinstance(program, str) else program), *arguments])
    if isinstance(arguments, str) or (isinstance(program, str) and not _PLAIN.fullmatch(program)):
        first = program if isinstance(program, str) else render(program)
        texts.append(f"{first} {arguments if isinstance(arguments, str) else render(arguments)}")
