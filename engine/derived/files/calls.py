"""Paths that a call reads, writes, deletes or names: from its arguments, by the kind of the tool, and its
commands.

Of a tool that nobody declared, an argument that holds a path counts as read and written. Commands are
looked into where the tool runs any: not in the body of a mail. Knows nothing of policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.file_commands import uses_of
from engine.derived.files.files import Files
from engine.derived.files.operands import looks_like_path
from engine.derived.files.patches import PATCHING, patched
from engine.derived.files.path_text import FILE_URL, LONGEST, file_address
from engine.derived.payload import Leaf
from engine.derived.tools import UNDECLARED
from engine.fields.words import word_set, words_of
from engine.model import ToolDeclaration
from engine.shell.expansion import CLOSE, COMMA, OPEN, TooMuch, braces
from engine.shell.files.file_calls import Use, paths_in_code

RUNNING: Final = frozenset({None, "shell", "code", "cloud", "devops", "other"})
"""Kinds of tools whose texts may be commands."""

_WITH_PATHS: Final = frozenset({None, "files", "code", "repository", "memory", "devops", "other"})
"""Kinds of tools whose arguments are paths, where their keys say so."""

_OPENING: Final = frozenset(["http", "browser"])
"""Kinds of tools that open what is at an address, which may be a file."""
_PATH_WORDS: Final = word_set(
    "path paths file files filename filenames filepath filepaths folder folders directory directories dir"
)
_FROM: Final = word_set("source src from old origin")
_TO: Final = word_set("destination dest dst target to new output out")
"""`target` is none of a tool that only reads or deletes."""
_ADDRESS_WORDS: Final = word_set("uri url location resource")
_BASES: Final = frozenset(
    ["cwd", "workdir", "working dir", "working directory", "base dir", "base directory", "root"]
)
"""Keys of the folder that relative paths of the call begin in."""
_SHELL_BASES: Final = _BASES | {"directory", "dir", "dir path", "directory path", "folder", "folder path"}
"""The same of a call that runs commands."""
LONGEST_LIST: Final = 65_536
"""Characters of paths one below the other in a text."""
_ATTACHED: Final = frozenset(["attachment", "attachments", "attach"])
_NAMING: Final = frozenset(["id", "ids", "type"])
_PLACING: Final = _PATH_WORDS | {"uri", "url"}

_GLOBS: Final = frozenset(["glob", "globs", "include", "includes", "include pattern", "file pattern"])
"""Keys of a glob for the files that a tool searches in."""
_BRACES: Final = str.maketrans("{,}", OPEN + COMMA + CLOSE)
_LOOKING: Final = word_set("info stat exists metadata list glob find tree")
"""Words of tools that read no file, but look what is there."""
_SENT_FILES: Final = word_set("file files filename filenames")
_FILE_NAME: Final = re.compile(r"(?![a-z]+://)[^\s@]{1,250}\.[A-Za-z0-9]{1,5}", re.IGNORECASE)


_VERBS: Final = frozenset(["command", "action", "operation", "op", "verb", "mode"])
"""Keys of what a tool for several things is told to do."""
LONGEST_VERB: Final = 64
_ASKED: Final[Mapping[str, Use]] = {
    **dict.fromkeys(("view", "read", "cat", "open", "show", "get"), "reads"),
    **dict.fromkeys(("delete", "remove", "rm", "unlink"), "deletes"),
}
"""What such a tool then does to a path, beside what it is declared to do."""

_BY_EFFECT: Final[Mapping[str, Use]] = {
    "read": "reads",
    "send": "reads",
    "execute": "reads",
    "delete": "deletes",
}
"""What a tool does to a path in its arguments; any other writes it."""


def files_of(
    leaves: Sequence[Leaf], commands: Iterable[Command], tool: ToolDeclaration, tool_name: str
) -> Files:
    """What a call does to which files; `commands` are those of `commands_there` too."""
    bases = _SHELL_BASES if tool.kind == "shell" else _BASES
    folders = (str(leaf.value)[:LONGEST] for leaf in leaves if leaf.key in bases)
    files = Files(list(filter(None, dict.fromkeys(folders))))
    named = words_of(tool_name).split()
    if tool.effect == "read" and not _LOOKING.isdisjoint(named):
        for leaf in leaves:
            if isinstance(leaf.value, str) and not _PATH_WORDS.isdisjoint(leaf.key.split()):
                files.add("names", leaf.value)
        return files
    arguments = _Arguments(files, leaves, tool, named)
    for leaf in leaves:
        if isinstance(leaf.value, str):
            arguments.add(leaf, leaf.value.strip("\r\n"))
    for command in commands:
        if tool.kind != "shell" and command.program and not command.program.strip("*"):
            continue  # an item of a list, or a schedule of cron
        for use, word in _uses_of_command(command):
            if command.folders:
                files.add_from(command.folders, use, word)
            else:
                files.add(use, word)
            if files.room < 0:
                return files
    return files


class _Arguments:
    """Adds the files that the arguments of one call name."""

    def __init__(
        self, files: Files, leaves: Sequence[Leaf], tool: ToolDeclaration, named: Sequence[str]
    ) -> None:
        """`named`: the words of the tool's name."""
        self._files = files
        self._tool = replace(tool, effect="send") if "upload" in named else tool
        self._moves = not {"move", "rename", "mv"}.isdisjoint(named)
        only = self._tool.effect in ("read", "delete") and "download" not in named
        self._targets = _TO - {"target"} if only else _TO
        self._asked = _asked(leaves)

    def add(self, leaf: Leaf, value: str) -> None:
        if (address := file_address(value)) is not None:
            self._add(leaf, address)
        if "\n" in value:
            self._add_lines(leaf, value)
        elif value:
            uses = self._uses(leaf, value)
            for use in (*uses, *self._asked) if "writes" in uses else uses:
                for path in _choices(self._files, value) if leaf.key in _GLOBS else (value,):
                    self._files.add(use, path)
            if self._tool.kind == "code":
                self._add_code(value)

    def _add(self, leaf: Leaf, path: str) -> None:
        for use in self._uses(leaf, path):
            self._files.add(use, path)

    def _add_lines(self, leaf: Leaf, value: str) -> None:
        if not _PATH_WORDS.isdisjoint(leaf.key.split()):
            self._files.partial |= len(value) > LONGEST_LIST and "paths" in leaf.key
            for line in filter(_is_path, map(str.strip, value[:LONGEST_LIST].splitlines())):
                self._add(leaf, line)
        if self._tool.kind == "code":
            self._add_code(value)
        elif self._tool.kind in _WITH_PATHS and self._tool.effect != "read":
            for use, path in patched(value):
                self._files.add(use, path)

    def _add_code(self, text: str) -> None:
        for use, path in paths_in_code(text):
            self._files.add(use, path)

    def _uses(self, leaf: Leaf, value: str) -> tuple[Use, ...]:
        tool, words = self._tool, set(leaf.key.split())
        named = not words.isdisjoint(_PATH_WORDS)
        if _is_attached(leaf, words, tool):
            return ("reads",) if named or looks_like_path(value) or _FILE_NAME.fullmatch(value) else ()
        if tool.kind in _OPENING and FILE_URL.match(value):
            return ("reads",)
        if tool.kind not in _WITH_PATHS:
            return ("names",) if named and looks_like_path(value) else ()
        source, target = not words.isdisjoint(_FROM), not words.isdisjoint(self._targets)
        if tool.kind == "files" and tool.effect == "read" and leaf.key in _GLOBS:
            return ("reads",)
        moved = self._moves and tool.kind == "files" and (source or target)
        if not (named or moved or looks_like_path(value) or FILE_URL.match(value)):
            return ()
        if not (named or source or target or _is_resource(words, value, tool)):
            return ()
        if source and not target:
            return ("reads", "deletes") if self._moves or tool.effect == "delete" else ("reads",)
        if target and not source:
            return ("writes",)
        if tool is UNDECLARED:
            return ("reads", "writes")
        return (_BY_EFFECT.get(tool.effect, "writes"),)


def _is_path(line: str) -> bool:
    return looks_like_path(line) or file_address(line) is not None


def _asked(leaves: Iterable[Leaf]) -> frozenset[Use]:
    """What a tool for several things is told to do to its paths."""
    told = [leaf.value for leaf in leaves if leaf.key in _VERBS and isinstance(leaf.value, str)]
    words = {each.strip().lower() for each in told if len(each) < LONGEST_VERB}
    return frozenset(use for word, use in _ASKED.items() if word in words)


def _uses_of_command(command: Command) -> Iterable[tuple[Use, str]]:
    yield from uses_of(command)
    if command.program in PATCHING:
        for text in (*command.inputs, *command.arguments):
            yield from patched(text)


def _choices(files: Files, glob: str) -> list[str]:
    """`*.{env,ts}` and `*.env,*.ts` as `*.env` and `*.ts`."""
    try:
        found = (each for braced in braces(glob.translate(_BRACES)) for each in braced.split(COMMA))
        return [each.replace(CLOSE, "}") for each in found if not each.startswith("!")]
    except TooMuch:
        files.partial = True
        return [glob]


def _is_resource(words: set[str], value: str, tool: ToolDeclaration) -> bool:
    """Whether an address is one of a file."""
    begins = ("file:", "/", "~") if tool.kind == "files" else ("file:",)
    return not words.isdisjoint(_ADDRESS_WORDS) and value.lower().startswith(begins)


def _is_attached(leaf: Leaf, words: set[str], tool: ToolDeclaration) -> bool:
    if not words.isdisjoint(_ATTACHED):
        return True
    named = words.isdisjoint(_NAMING) and not words.isdisjoint(_PLACING)
    if leaf.owner in _ATTACHED:
        return named
    sent = tool.kind == "browser" or not words.isdisjoint(_SENT_FILES)
    return named and sent and tool.effect == "send" and tool.kind != "files"
