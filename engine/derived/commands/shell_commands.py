"""Which texts of a call hold commands: what `derived.shellCommands` and `derived.commands` are made of.

Every text of the payload counts, whatever its key, except under keys that hold prose or folders: a tool may
call its argument `command`, `cmd`, `script`, `input` or anything else. A list of texts is read as one command
given in words, where its key or its form says so; else as scripts, one per text and all as the lines of one;
in doubt as both. Words among which `;` or `|` stands are a script as well. Lists and objects within such
words are words of it. A program that stands beside its arguments (`command` and `args`) is put together with
them, each such program with each such arguments: which of two keys a tool reads, also of two that differ in
case alone, is not known here. A tool that is called after a program (`kubectl`) is given the rest of a
command. JSON in a text is looked into as if it stood there itself. Prose is a text or a list of texts:
objects under its keys are looked into.

Knows what payloads look like; how a shell reads is the business of `shell`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain, product
from typing import Final

from engine.derived.commands.environment import ENVIRONMENTS, Environment, refers
from engine.derived.payload import unwrapped
from engine.fields.computed import UNREADABLE
from engine.fields.json_text import Readings, Unread, opened
from engine.fields.scalars import text_of
from engine.fields.words import LONGEST_NAME, word_set, words_of
from engine.model import Json
from engine.shell.expansion import TooMuch, render
from engine.shell.reader import reading
from engine.shell.reading import ShellReading
from engine.shell.scanner import is_plain
from engine.shell.starting.windows import replaced

_PROSE_NAMES: Final = (
    "description explanation reason reasoning thought thoughts comment note summary title label goal "
    "task instructions justification workdir cwd directory dir working_directory workingdirectory "
    "path"
)
PROSE: Final = frozenset(_PROSE_NAMES.split())
"""Keys (in any case) whose own texts are read by people, or name a place; they start nothing."""

_WORDS: Final = word_set("command cmd argv args arguments cmdline exec program")
"""Keys of a list that is one command, word by word."""

_PROGRAM_NAMES: Final = (
    "command cmd program executable file binary exec exe bin shell interpreter script path name"
)
_PROGRAMS: Final = frozenset(_PROGRAM_NAMES.split())
ARGUMENTS: Final = word_set("args arguments argv params parameters")
_SCRIPT_LISTS: Final = frozenset(["commands", "cmds", "scripts", "lines"])
"""Keys of a list of scripts; a list within it is one command, word by word."""
_SHELL_TEXTS: Final = word_set("command cmd cmdline commands shell bash")
"""Keys whose texts are shell; any other may hold code of another language as well."""

_NAMED: Final = word_set(
    "kubectl oc helm docker podman git gh glab aws gcloud gsutil az terraform tofu pulumi npm"
)
"""Programs that tools are called after, which are then given the rest of the command alone."""
_SHELLS: Final = word_set("bash sh zsh dash powershell pwsh")
"""The same of shells, where what they are given begins with an option: else it is a script."""
_AFTER: Final = _NAMED | _SHELLS
_PYTHON: Final = word_set("python python3 ipython jupyter notebook")
_NOT_PYTHON: Final = _AFTER | word_set("shell terminal console command commands cmd cli any")
_CALLED: Final = _AFTER | word_set(
    "run execute exec call use invoke command commands cmd cli tool generic raw"
)
"""All words of such a tool's name."""
_REST: Final = ARGUMENTS | word_set("command cmd cmdline input")
_OWNER: Final = re.compile(r"__|[./:]")
_FOR_A_SHELL: Final = re.compile(
    r"^[ \t]*[!%]|^#!|\A\s*+(?:rm|rmdir|mv|cp|cat|mkdir)[ \t]++[^\s=(][^\n]*+\s*+\Z", re.MULTILINE
)
"""What a notebook gives to a shell in the midst of Python, the first line of another script, and a line that
IPython hands to a shell by itself where it stands alone."""
_CAPTURED: Final = re.compile(r"^[ \t]*\w+[ \t]*=[ \t]*!(.+)", re.MULTILINE)

MOST_COMBINED: Final = 262_144
"""Characters of programs and arguments put together, where one call has several for one another."""

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_SYNTAX: Final = frozenset(["|", "||", "&", "&&", ";", "|&"])
"""Words that only a shell takes for more than words."""

_PLAIN: Final = re.compile(r"[\w./-]+")


_OF_WINDOWS: Final = re.compile(
    r"(?:(?<!\w)[A-Za-z]:"
    r"|(?<![\w.~%$\\/\"'])(?:~|\.{1,2}|%\w+%|\$(?:env:)?\w+|\$\{env:\w+\})(?=\\[\w.$%*]))"
    r"\\[^\s\"'|;&<>()]*",
    re.IGNORECASE,
)
"""A path as the shells of Windows have it, without quotes: they read no escapes in it."""


def shell_reading(document: Mapping[str, Json], kind: str | None = None) -> ShellReading:
    """What the payload of a call would run, in normal form (see `shell.reader`); read only in part, its
    entries end with `UNREADABLE`. `kind` is that of the tool, where one is declared."""
    tool = _words_of_tool(document.get("toolName"))
    payload = _Payload(document.get("inputPayload"), kind != "shell" and _runs_python(tool))
    if (program := _named_after(tool)) is not None:
        payload.given_to(program, unwrapped(document.get("inputPayload"), Unread()))
    found = reading(payload.texts, payload.lists, payload.code, payload.surrounded)
    if payload.room < 0 or payload.unread or payload.is_partial:
        found.entries[UNREADABLE] = None
    return found


def shell_commands(document: Mapping[str, Json]) -> tuple[str, ...]:
    """The entries; () when the payload holds no text."""
    return tuple(shell_reading(document).entries)


class _Payload:
    """The texts of a payload, the commands given in words, and the texts that may be code.

    INVARIANT: linear in the payload. What is put together a first time costs its own size; whatever lies
    within it and is put together again, and each further pair of a program and arguments, takes of `room`.
    """

    def __init__(self, payload: Json, is_python: bool) -> None:
        self._is_python = is_python
        self.texts: list[str] = []
        self.lists: list[list[str]] = []
        self.code: list[str] = []
        self.surrounded: list[str] = []
        """Texts with the variables that stand beside them, which not every tool takes."""
        self.room = MOST_COMBINED
        self.unread = Unread()
        self.is_partial = False
        self._payload = payload
        self._stack: list[tuple[str, Json, bool]] = [("", payload, False)]
        """Key, value, and whether the value is part of what was put together already."""
        while self._stack:
            key, value, again = self._stack.pop()
            if isinstance(value, dict):
                key, value = "" if key in PROSE else key, _listed(value)
            if isinstance(value, str):
                self._text(key, value, again)
            elif isinstance(value, dict):
                self._object(value, again)
            elif isinstance(value, list):
                self._list(key, value, again)

    def given_to(self, program: str, payload: Json) -> None:
        """What a tool that is called after a program is told to run."""
        members = payload.items() if isinstance(payload, dict) else ()
        given = self._named([(str(name).casefold(), member) for name, member in members], _REST, True)
        if program in _SHELLS:
            given = [each for each in given if _first(each).startswith("-")]
        self._combine([program], [each for each in given if _first(each) != program])

    def _text(self, key: str, text: str, again: bool) -> None:
        if key not in PROSE:
            self._script(key, text)
        inside = opened(text, self.unread)
        if inside is not None:
            self._stack.append((key, inside, again))

    def _script(self, key: str, text: str) -> None:
        if not text:
            return
        if key not in _SHELL_TEXTS:
            self.code.append(text)
            if self._is_python:
                self.texts += _CAPTURED.findall(text)
                if _FOR_A_SHELL.search(text) is None:
                    return
        self.texts.append(text)
        if "\\" in text:
            turned = _OF_WINDOWS.sub(lambda found: found[0].replace("\\", "/"), text)
            if turned != text:
                self.texts.append(turned)
        try:
            if (filled := replaced(text)) is not None:
                self.texts.append(filled)
        except TooMuch:
            self.is_partial = True

    def _object(self, value: Mapping[str, Json], again: bool) -> None:
        members = [(str(name).casefold(), member) for name, member in value.items()]
        names = {name for name, _ in members}
        paired = not (names.isdisjoint(_PROGRAMS) or names.isdisjoint(ARGUMENTS))
        if self._refers and not names.isdisjoint(ENVIRONMENTS):
            self._surrounded(members, paired)
        joined: frozenset[str] = frozenset()
        if paired:
            joined = _PROGRAMS | ARGUMENTS
            self._combine(self._named(members, _PROGRAMS, again), self._named(members, ARGUMENTS, again))
        self._stack.extend((name, member, again or name in joined) for name, member in reversed(members))

    @cached_property
    def _refers(self) -> bool:
        return refers(self._payload)

    def _surrounded(self, members: Sequence[tuple[str, Json]], paired: bool) -> None:
        """The commands beside variables, with those that they find there."""
        environment = Environment(members)
        if not environment:
            return
        alone: list[str | list[str]] = [
            member
            for name, member in members
            if isinstance(member, str) and name not in PROSE and name not in ENVIRONMENTS
        ]
        alone += self._named(members, _WORDS, True)
        named = [self._named(members, names, True) for names in (_PROGRAMS, ARGUMENTS)] if paired else [[]]
        for command in chain(product(alone), product(*named)):
            text = " ".join(each if isinstance(each, str) else shlex.join(each) for each in command)
            if given := environment.set_for(text):
                self.surrounded.append(given + text)
            if given or len(command) > 1:
                self.room -= len(given) + len(text)
            if self.room < 0:
                return

    def _list(self, key: str, value: list[Json], again: bool) -> None:
        plain = not any(isinstance(item, (dict, list)) for item in value)
        if key in PROSE and not plain:
            key = ""
        if isinstance(value, Readings) or key in PROSE or key in _SCRIPT_LISTS or not value:
            pass
        elif plain:
            words = [text_of(word) for word in value]
            self.lists.append(words)
            joined = key in _WORDS and " " in words[0].strip()
            if joined or not _SYNTAX.isdisjoint(words) or words[0][:1] == "$":
                self._script(key, " ".join(words))
            if key in _WORDS and not _is_script(words[0]):
                return
        elif len(value) > 1 and (key in _WORDS or not isinstance(value[0], (dict, list))):
            self.lists.append(self._words(value, again))
            again = True
        if key not in PROSE:
            self._lines(key, value)
        within = "" if key in _SCRIPT_LISTS else key
        self._stack.extend(
            (within if isinstance(item, list) else key, item, again) for item in reversed(value)
        )

    def _lines(self, key: str, value: Sequence[Json]) -> None:
        """The texts of a list as the lines of one script; it runs no more than each of them, where none has
        anything that spans lines."""
        lines = [line for line in value if isinstance(line, str)]
        if len(lines) > 1:
            script = "\n".join(lines)
            if all(map(is_plain, lines)):
                self.code.append(script)
            else:
                self._script(key, script)

    def _named(
        self, members: Sequence[tuple[str, Json]], names: Collection[str], again: bool
    ) -> list[str | list[str]]:
        """The members under one of the names: texts, and words."""
        values: list[str | list[str]] = []
        for name, member in members:
            if name in names and member is not None:
                inside = opened(member, Unread()) if isinstance(member, str) else member
                if isinstance(inside, (dict, list)):
                    values.append(self._words(inside, again))
                else:
                    values.append(text_of(member))
        return [value for value in values if value]

    def _words(self, value: Json, again: bool) -> list[str]:
        """The scalars of a list or an object in order, however deep, with the keys that are options."""
        words: list[str] = []
        stack: list[Json] = [value]
        while stack and self.room >= 0:
            each = stack.pop()
            self.room -= again
            if isinstance(each, dict):
                each = _listed(each)
            if isinstance(each, list):
                stack.extend(reversed(each))
            elif isinstance(each, dict):
                for name, member in reversed(each.items()):
                    stack.append(member)
                    if name.startswith("-"):
                        stack.append(name)
            else:
                words.append(text_of(each))
                self.room -= len(words[-1]) if again else 0
        return words

    def _combine(self, programs: Sequence[str | list[str]], arguments: Sequence[str | list[str]]) -> None:
        """Each program with each of the arguments, as far as there is room."""
        pairs = len(programs) * len(arguments)
        if pairs > 1:
            self.room -= pairs + len(arguments) * _size(programs) + len(programs) * _size(arguments)
        combined = product(programs, arguments) if self.room >= 0 else zip(programs, arguments, strict=False)
        for program, given in combined:
            self._pair(program, given)

    def _pair(self, program: str | list[str], arguments: str | list[str]) -> None:
        """`{command: rm, args: [-rf, /]}` is one command. What is more than a name is read by a shell too."""
        if isinstance(arguments, list):
            self.lists.append([*([program] if isinstance(program, str) else program), *arguments])
        if isinstance(arguments, str) or (isinstance(program, str) and not _PLAIN.fullmatch(program)):
            first = program if isinstance(program, str) else render(program)
            self.texts.append(f"{first} {arguments if isinstance(arguments, str) else render(arguments)}")


def _words_of_tool(name: Json) -> list[str]:
    """The words of a tool's name, without those of who owns it; none of what is no name."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        return []
    return words_of(_OWNER.split(name)[-1]).split()


def _named_after(words: Sequence[str]) -> str | None:
    """The program that a tool is called after, as `kubectl` and `run_gcloud_command` are."""
    return next((word for word in words if word in _AFTER), None) if _CALLED.issuperset(words) else None


def _runs_python(words: Sequence[str]) -> bool:
    """Whether a tool is called after Python alone: what it is given is no text of a shell."""
    return not _PYTHON.isdisjoint(words) and _NOT_PYTHON.isdisjoint(words)


def _first(given: str | list[str]) -> str:
    words = given.split(maxsplit=1) if isinstance(given, str) else given
    return words[0] if words else ""


def _is_script(word: str) -> bool:
    """Whether the first of some words is no program, but a script or an assignment."""
    return any(blank in word for blank in " \t\n") or _ASSIGNMENT.match(word) is not None


def _listed(value: dict[str, Json]) -> dict[str, Json] | list[Json]:
    """An object whose keys are indices is the list that they make."""
    if not all(name.isascii() and name.isdecimal() for name in value):
        return value
    return [value[name] for name in sorted(value, key=lambda name: (len(name), name))]


def _size(members: Sequence[str | list[str]]) -> int:
    return sum(len(each) if isinstance(each, str) else sum(map(len, each)) + len(each) for each in members)
