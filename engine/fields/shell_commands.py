"""Which texts of a call hold commands: what `derived.shellCommands` is made of.

Every text of the payload counts, whatever its key, except under keys that hold prose or folders: a tool may
call its argument `command`, `cmd`, `script`, `input` or anything else. A list of texts is read as one command
given in words, where its key or its form says so; else as scripts, one per text; in doubt as both. A program
that stands beside its list of arguments (`command` and `args`) is put together with it.

Knows what payloads look like; how a shell reads is the business of `shell`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.fields.scalars import text_of
from engine.model import Json
from engine.shell.reader import read

_PROSE_NAMES: Final = (
    "description explanation reason reasoning thought thoughts comment note summary title label goal "
    "task instructions justification workdir cwd directory dir working_directory workingdirectory "
    "path"
)
PROSE: Final = frozenset(_PROSE_NAMES.split())
"""Keys (in any case) whose texts are read by people, or name a place; they start nothing."""

_WORDS: Final = frozenset(["command", "cmd", "argv", "args", "arguments", "cmdline", "exec", "program"])
"""Keys of a list that is one command, word by word."""

_PROGRAMS: Final = ("command", "cmd", "program", "executable", "file", "binary")
_ARGUMENTS: Final = ("args", "arguments", "argv")
_SHELL_TEXTS: Final = frozenset(["command", "cmd", "cmdline", "commands", "shell", "bash"])
"""Keys whose texts are shell; any other may hold code of another language as well."""

MOST_MEMBERS: Final = 10_000


def shell_commands(document: Mapping[str, Json]) -> tuple[str, ...]:
    """What the payload of a call would run, in normal form (see `shell.read`); () when it holds no text."""
    texts: list[str] = []
    lists: list[list[str]] = []
    code: list[str] = []
    stack: list[tuple[str, Json]] = [("", document.get("inputPayload"))]
    while stack:
        key, value = stack.pop()
        if isinstance(value, str):
            if value:
                texts.append(value)
                if key not in _SHELL_TEXTS:
                    code.append(value)
        elif isinstance(value, dict):
            members = {str(name).casefold(): member for name, member in value.items()}
            _with_arguments(members, lists)
            stack.extend((name, member) for name, member in reversed(members.items()) if name not in PROSE)
        elif isinstance(value, list):
            words = [text_of(word) for word in value if not isinstance(word, (dict, list))]
            if len(words) == len(value) and words and key not in ("commands", "cmds", "scripts", "lines"):
                lists.append(words)
                if key in _WORDS and not any(blank in words[0] for blank in " \t\n"):
                    continue
            stack.extend((key, item) for item in reversed(value))
    return read(texts, lists, code) if texts or lists else ()


def _with_arguments(members: dict[str, Json], lists: list[list[str]]) -> None:
    """`{command: rm, args: [-rf, /]}` is one command."""
    program = next((members[key] for key in _PROGRAMS if isinstance(members.get(key), str)), None)
    words = next((members[key] for key in _ARGUMENTS if isinstance(members.get(key), list)), None)
    if program and words is not None:
        lists.append([program, *(text_of(word) for word in words if not isinstance(word, (dict, list)))])
