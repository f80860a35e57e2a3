"""Which files editors read and write, by the commands that they are given. Knows nothing of paths."""

from __future__ import annotations

import re
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.operands import each_of, marked
from engine.shell.files.file_calls import Uses
from engine.shell.options import given, operands_of

EDITORS: Final = frozenset(["vi", "vim", "nvim", "ex", "ed"])
_WRITES: Final = re.compile(
    r"[ \t:]*+[\d,$%.;]*+(?:w(?:q|rite|a(?:ll)?|qa(?:ll)?)?|x(?:it|a(?:ll)?)?|sav(?:eas)?|up(?:date)?)!?"
    r"(?:[ \t]++(?:>>[ \t]*+)?([^\s!]\S*+))?[ \t]*+"
)
MOST_LINES: Final = 200


def edited(command: Command) -> Uses:
    """`vim -c 'w f' g`, `ed g <<< 'w f'`."""
    items = list(given(command.program, command.words))
    yield from marked(items)
    operands = operands_of(items)
    files = [word for word in operands if word[0] != "+"]
    yield from each_of("reads", files)
    said = [each.value for each in items if each.name in ("command", "cmd")]
    said += [word[1:] for word in operands if word[0] == "+"]
    texts = (*said, *command.inputs)
    lines = (line for text in texts for line in re.split(r"[|\n]", text, maxsplit=MOST_LINES))
    written = dict.fromkeys(found[1] for line in lines if (found := _WRITES.fullmatch(line)))
    yield from each_of("writes", filter(None, written))
    yield from each_of("writes", files if None in written else ())


def recorded(command: Command) -> Uses:
    """`script f`."""
    items = list(given("script", command.words))
    yield from marked(items)
    yield from each_of("writes", operands_of(items)[:1] or ["typescript"])
