"""Paths that a call reads, writes, deletes or names, and the texts that it writes: from its arguments, by the
kind of the tool, and its commands.

Of a tool that nobody declared, an argument that holds a path counts as read and written. Commands are
looked into where the tool runs any: not in the body of a mail. Knows nothing of policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.file_commands import uses_of
from engine.derived.path_text import FILE_URL, LONGEST, file_address, paths_of, within
from engine.derived.payload import DistinctTexts, Leaf
from engine.derived.programs.operands import looks_like_path
from engine.derived.tools import UNDECLARED
from engine.fields.json_text import Unread, opened
from engine.fields.words import word_set, words_of
from engine.model import Json, ToolDeclaration
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
_BASES: Final = frozenset(
    ["cwd", "workdir", "working dir", "working directory", "base dir", "base directory", "root"]
)
"""Keys of the folder that relative paths of the call begin in."""
_SHELL_BASES: Final = _BASES | {"directory", "dir", "dir path", "directory path", "folder", "folder path"}
"""The same of a call that runs commands."""
MOST_BASES: Final = 8
"""Folders of a call, each of which a tool may take for that."""
LONGEST_LIST: Final = 65_536
"""Characters of paths one below the other in a text."""
MOST_READ: Final = 2**20
"""Characters of the paths of one call, each as far as `LONGEST`: many may begin in one folder, or be what one
command does to many names in many folders. What comes beyond is not read."""
_ATTACHED: Final = frozenset(["attachment", "attachments", "attach"])

_GLOBS: Final = frozenset(["glob", "globs", "include", "includes", "include pattern", "file pattern"])
"""Keys of a glob for the files that a tool searches in."""
_BRACES: Final = str.maketrans("{,}", OPEN + COMMA + CLOSE)
_LOOKING: Final = word_set("info stat exists metadata list glob find tree")
"""Words of tools that read no file, but look what is there."""
_SENT_FILES: Final = word_set("file files filename filenames")
_FILE_NAME: Final = re.compile(r"(?![a-z]+://)[^\s@]{1,250}\.[A-Za-z0-9]{1,5}", re.IGNORECASE)


_PATCHING: Final = ("apply_patch", "applypatch", "patch", "git")
"""Programs that are given patches."""
_PATCH: Final = re.compile(
    r"\s*(?:(?:<<\S*\s*)?\*\*\* Begin Patch|diff --git |Index: |--- \S[^\n]*+\n\+\+\+ )"
)
"""Codex takes the words of a shell around its patch for none of it."""
_PATCHED: Final = re.compile(
    r"^(?:[^\S\n]*+\*\*\* (Add File|Update File|Delete File|Move to): ([^\n]+)"
    r"|(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+))",
    re.MULTILINE,
)
"""Blanks may stand before a header of Codex, and a tab in its path."""


_CONTENT: Final = frozenset(
    [
        *("content", "contents", "text", "file text", "new string", "new str", "new text", "new source"),
        *("code", "code edit", "replacement", "insert text", "insert", "cell source", "new content"),
    ]
)
"""Keys of what is written, as words."""

_WRITING: Final = frozenset({"files", "repository"})
"""Kinds of tools that write what such an argument holds."""

_ADDED: Final = re.compile(r"^\+(?!\+\+ )(.*)$", re.MULTILINE)
_INTO: Final = frozenset({">", ">>", "&>", "&>>"})

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


class Files:
    """The four lists of one call. Relative paths are given as they are and as seen from outside `folders`."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = folders[:MOST_BASES]
        self.found: dict[Use, DistinctTexts] = {
            use: DistinctTexts() for use in ("reads", "writes", "deletes", "names")
        }
        self.partial = len(folders) > MOST_BASES
        self.room = MOST_READ

    def add(self, use: Use, word: str) -> None:
        self._add(use, word)
        for folder in self._folders:
            if self.room >= 0 and (joined := within(folder, word)) != word:
                self._add(use, joined)

    def add_from(self, folders: Sequence[str], use: Use, word: str) -> None:
        """A path of a command that runs in one of the folders."""
        for folder in folders:
            if self.room >= 0 and (joined := within(folder, word)) != word:
                self.add(use, joined)

    def _add(self, use: Use, word: str) -> None:
        self.room -= min(len(word), LONGEST) + 1
        if self.room < 0:
            self.partial = True
            return
        found = self.found[use]
        if not found.partial:
            for path in paths_of(word):
                found.add(path)

    def texts(self, member: str) -> tuple[list[str], bool]:
        """The paths of `reads`, `writes`, `deletes`, or of all (`files`), and whether some are not known."""
        uses: list[Use] = [use for use in self.found if member in (use, "files")]
        texts = dict.fromkeys(text for use in uses for text in self.found[use].texts())
        return list(texts), self.partial or any(self.found[use].partial for use in uses)


def files_of(
    leaves: Sequence[Leaf], commands: Iterable[Command], tool: ToolDeclaration, tool_name: str
) -> Files:
    """What a call does to which files; `commands` are those of `commands_there` too."""
    bases = _SHELL_BASES if tool.kind == "shell" else _BASES
    folders = (str(leaf.value)[:LONGEST] for leaf in leaves if leaf.key in bases)
    files = Files(list(filter(None, dict.fromkeys(folders))))
    named = words_of(tool_name).split()
    moves = not {"move", "rename", "mv"}.isdisjoint(named)
    if tool.effect == "read" and not _LOOKING.isdisjoint(named):
        for leaf in leaves:
            if isinstance(leaf.value, str) and not _PATH_WORDS.isdisjoint(leaf.key.split()):
                files.add("names", leaf.value)
        return files
    if "upload" in named:
        tool = replace(tool, effect="send")
    only = tool.effect in ("read", "delete") and "download" not in named
    targets = _TO - {"target"} if only else _TO
    asked = _asked(leaves)
    for leaf in leaves:
        value = leaf.value.strip("\r\n") if isinstance(leaf.value, str) else leaf.value
        if isinstance(value, str) and (address := file_address(value)) is not None:
            for use in _uses(leaf, address, tool, moves, targets):
                files.add(use, address)
        if not isinstance(value, str) or not value or "\n" in value:
            if isinstance(value, str) and not _PATH_WORDS.isdisjoint(leaf.key.split()):
                files.partial |= len(value) > LONGEST_LIST and "paths" in leaf.key
                lines = value[:LONGEST_LIST].splitlines()
                for line in filter(_is_path, map(str.strip, lines)):
                    for use in _uses(leaf, line, tool, moves, targets):
                        files.add(use, line)
            if tool.kind == "code" and isinstance(value, str):
                _add_code(files, value)
            elif isinstance(value, str) and tool.kind in _WITH_PATHS and tool.effect != "read":
                for use, path in _patched(value):
                    files.add(use, path)
            continue
        uses = _uses(leaf, value, tool, moves, targets)
        for use in (*uses, *asked) if "writes" in uses else uses:
            for path in _choices(files, value) if leaf.key in _GLOBS else (value,):
                files.add(use, path)
        if tool.kind == "code":
            _add_code(files, value)
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


def _is_path(line: str) -> bool:
    return looks_like_path(line) or file_address(line) is not None


def _asked(leaves: Iterable[Leaf]) -> frozenset[Use]:
    """What a tool for several things is told to do to its paths."""
    told = [leaf.value for leaf in leaves if leaf.key in _VERBS and isinstance(leaf.value, str)]
    words = {each.strip().lower() for each in told if len(each) < LONGEST_VERB}
    return frozenset(use for word, use in _ASKED.items() if word in words)


def _uses_of_command(command: Command) -> Iterable[tuple[Use, str]]:
    yield from uses_of(command)
    if command.program in _PATCHING:
        for text in (*command.inputs, *command.arguments):
            yield from _patched(text)


def _choices(files: Files, glob: str) -> list[str]:
    """`*.{env,ts}` and `*.env,*.ts` as `*.env` and `*.ts`."""
    try:
        found = (each for braced in braces(glob.translate(_BRACES)) for each in braced.split(COMMA))
        return [each.replace(CLOSE, "}") for each in found if not each.startswith("!")]
    except TooMuch:
        files.partial = True
        return [glob]


def _is_attached(leaf: Leaf, words: set[str], tool: ToolDeclaration) -> bool:
    if not words.isdisjoint(_ATTACHED):
        return True
    named = words.isdisjoint({"id", "ids", "type"}) and not words.isdisjoint(_PATH_WORDS | {"uri", "url"})
    if leaf.owner in _ATTACHED:
        return named
    sent = tool.kind == "browser" or not words.isdisjoint(_SENT_FILES)
    return named and sent and tool.effect == "send" and tool.kind != "files"


def _is_patch(text: str) -> bool:
    """Whether a text says which lines of files change, as `diff` or `apply_patch` writes it."""
    return _PATCH.match(text) is not None


def _patched(text: str) -> Iterable[tuple[Use, str]]:
    """The files that a patch changes; nothing of a text that is none."""
    if not _is_patch(text):
        return
    for verb, path, changed in _PATCHED.findall(text):
        yield ("deletes" if verb == "Delete File" else "writes"), path.rstrip() or changed


def _add_code(files: Files, text: str) -> None:
    for use, path in paths_in_code(text):
        files.add(use, path)


def _uses(
    leaf: Leaf, value: str, tool: ToolDeclaration, moves: bool, targets: frozenset[str]
) -> tuple[Use, ...]:
    words = set(leaf.key.split())
    if _is_attached(leaf, words, tool):
        is_file = looks_like_path(value) or not words.isdisjoint(_PATH_WORDS) or _FILE_NAME.fullmatch(value)
        return ("reads",) if is_file else ()
    if tool.kind in _OPENING and FILE_URL.match(value):
        return ("reads",)
    if tool.kind not in _WITH_PATHS:
        return ("names",) if not words.isdisjoint(_PATH_WORDS) and looks_like_path(value) else ()
    named = not words.isdisjoint(_PATH_WORDS)
    source, target = not words.isdisjoint(_FROM), not words.isdisjoint(targets)
    moved = moves and tool.kind == "files" and (source or target)
    if tool.kind == "files" and tool.effect == "read" and leaf.key in _GLOBS:
        return ("reads",)
    if not named and not moved and not looks_like_path(value) and not FILE_URL.match(value):
        return ()
    if not named and not source and not target:
        begins = ("file:", "/", "~") if tool.kind == "files" else ("file:",)
        if words.isdisjoint({"uri", "url", "location", "resource"}) or not value.lower().startswith(begins):
            return ()
    if source and not target:
        return ("reads", "deletes") if moves or tool.effect == "delete" else ("reads",)
    if target and not source:
        return ("writes",)
    if tool is UNDECLARED:
        return ("reads", "writes")
    return (_BY_EFFECT.get(tool.effect, "writes"),)


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
        elif command.program in _PATCHING:
            for text in filter(_is_patch, (*command.inputs, *command.arguments)):
                found.add(_added(text))
    return found


def _contents(payload: Json) -> Iterator[str]:
    """The arguments that are written, as they stand: what is JSON itself is not taken apart."""
    stack, unread = [("", payload)], Unread()
    while stack:
        key, value = stack.pop()
        if isinstance(value, str):
            if _is_patch(value):
                yield _added(value)
            elif key in _CONTENT:
                yield value
            elif (inside := opened(value, unread)) is not None:
                stack.append((key, inside))
        elif isinstance(value, dict):
            stack.extend((words_of(name), each) for name, each in reversed(value.items()))
        elif isinstance(value, list):
            stack.extend((key, each) for each in reversed(value))


def _added(patch: str) -> str:
    return "\n".join(_ADDED.findall(patch))
