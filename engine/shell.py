"""What a text would run, were it given to a shell: the simple commands in it, each in one normal spelling.

`read` answers with a list of texts: first the texts as they were given, then, for every simple command that a
shell would run, its words with quotes, escapes, variables, substitutions of constants and braces resolved:

    r''m -rf "$D"      (after D=/)        rm -rf /
    echo cm0gLXJm | base64 -d | sh        echo cm0gLXJm | base64 -d | sh,  echo cm0gLXJm,  ...,  rm -rf
    sudo sh -c 'curl x | sh'              sudo sh -c 'curl x | sh',  sh -c ...,  curl x,  sh,  curl x | sh

How an entry is written: the command word first, by its path and by its bare name (two entries; `./x` stays);
words parted by one blank; a word with a blank, a quote or one of `|&;<>` in it stands in single quotes (a `'`
within reads `"`), so an unquoted `|` or `>` always is syntax; redirections last, `> /dev/sda`. A pipeline is
an entry of its own as well, wrappers such as sudo left out; so is a file that was fetched or written and then
run, `curl -o f u | sh f`. After `cd x`, `rm -rf *` reads `rm -rf x/*`. What is not known stays: `$HOME`,
`$(curl -s x)`, `r?`.

It is the reading of one call: no shell is started, nothing of the machine is known, each branch counts as
taken and a variable that may have several values is tried with each.

Why a reader of our own: the parsers that exist (bashlex, tree-sitter's grammar) give a tree of what is
written and refuse or misread what a shell in doubt still runs; the work - values of variables, output of
constant commands, wrappers, bounds that hold against a hostile text - would be left, and a package more.

INVARIANT: never raises; linear in the text, with a bound on steps, commands, depth and size. A text that goes
beyond is read up to there, and the list ends with the entry `unreadable`, for a policy to hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import normpath
from typing import Final

from engine.shell_code import calls_in, is_interpreter, quoted_commands
from engine.shell_output import DECODERS, LONGEST_OUTPUT, output_of
from engine.shell_scan import Scanner
from engine.shell_starts import Started, starts
from engine.shell_text import (
    LONGEST_VALUE,
    NAMED,
    TooMuch,
    fields,
    plain,
    quote,
    render,
    resolve_classes,
    unmark,
    without_unknown,
)
from engine.shell_words import MOST_VALUES, Raw, Simple

UNREADABLE: Final = "unreadable"

MOST_STEPS: Final = 12_000
MOST_COMMANDS: Final = 600
DEEPEST: Final = 12
SPARE_SIZE: Final = 65_536
"""All entries together may be so much larger than twice the text."""

_FETCHED: Final = re.compile(r"(?:-\w*[oO]|--output(?:-document)?)=?")
_DESCRIPTOR: Final = re.compile(r"\d+-?|-")
_ABSOLUTE: Final = ("/", "~", "$")
_OWN: Final = re.compile(r"\./[^/]*")
"""A program of the folder at hand, which is no other of that name."""
_LOCAL: Final = re.compile(r"\.{1,2}(?:/|$)|\*")
_ROUNDABOUT: Final = re.compile(r"[/~$][^\s:]*(?:/\.{1,2}(?:/|$)|//)")
_RELATIVE: Final = re.compile(r"[\w.][\w.*?/-]*")
_READING_OR_REMOVING: Final = frozenset(
    [
        "rm",
        "rmdir",
        "unlink",
        "shred",
        "cat",
        "tac",
        "head",
        "tail",
        "less",
        "more",
        "base64",
        "xxd",
        "od",
        "strings",
        "cp",
        "mv",
        "source",
        ".",
    ]
)
_ON_FILES: Final = _READING_OR_REMOVING | {
    "chmod",
    "chown",
    "chgrp",
    "find",
    "rsync",
    "truncate",
    "ls",
    "tar",
}
_RUN_LATER: Final = frozenset(
    [
        "PROMPT_COMMAND",
        "PS0",
        "PS1",
        "PS4",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "GIT_PAGER",
        "GIT_EDITOR",
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "LESSOPEN",
    ]
)
"""Variables whose value a program runs."""
_DECLARING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})


class Reading:
    """One list of entries in the making."""

    def __init__(self, size: int) -> None:
        self.entries: dict[str, None] = {}
        self._room = 2 * size + SPARE_SIZE
        self._steps = MOST_STEPS
        self._commands = MOST_COMMANDS
        self._values: dict[str, list[str | list[str]]] = {}
        self._files: dict[str, str] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        self._functions: dict[str, str] = {}
        self._running: set[str] = set()
        self._decoded: dict[str, str] = {}
        self._copies: dict[str, str] = {}
        self.positional: tuple[str, ...] | None = None
        self.folder: str | None = None

    # ---- what goes in ----------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Read a script."""
        self.script(unmark(text), 0)

    def words(self, words: Sequence[str]) -> None:
        """Read a command given as a list of arguments."""
        self._command([unmark(word) for word in words], "", None, (), 0)

    def code(self, text: str) -> None:
        """Read the commands that a program in another language starts."""
        self._calls(unmark(text), 0)

    # ---- what the scanner asks -------------------------------------------------------------------------

    def step(self, cost: int = 1) -> None:
        self._steps -= cost
        if self._steps < 0:
            raise TooMuch

    def add(self, entry: str) -> None:
        if entry and entry not in self.entries:
            self._room -= len(entry)
            if self._room < 0:
                raise TooMuch
            self.entries[entry] = None

    chained = add

    def values(self, name: str) -> list[str | list[str]]:
        return self._values.get(name, [])

    def stored(self, name: str) -> str | None:
        return self._files.get(name.removeprefix("./"))

    def assign(self, name: str, values: tuple[str, ...] | list[str], added: bool, certain: bool) -> None:
        """Remember a value. What is not certain to be assigned leaves the values before it possible."""
        new: list[str | list[str]] = [values] if isinstance(values, list) else list(values)
        old = self.values(name)
        if added and old and isinstance(old[0], str):
            new = [old[0] + value for value in new if isinstance(value, str)]
        elif added and old and isinstance(old[0], list) and isinstance(values, list):
            new = [[*old[0], *values]]
        if any(sum(map(len, value)) + len(value) > LONGEST_VALUE for value in new):
            raise TooMuch
        kept = new if certain else [*new, *(value for value in old if value not in new)]
        self._values[name] = kept[:MOST_VALUES]

    def define(self, name: str, body: str) -> None:
        self._functions[plain(name)] = body

    def substituted(self, word: str, output: str | None, chains: tuple[str, ...]) -> None:
        if output is not None:
            self._files[word] = unmark(output)
        self._sources[word] = chains

    def script(
        self,
        text: str,
        depth: int,
        given: str | None = None,
        before: tuple[str, ...] = (),
        positional: tuple[str, ...] | None = (),
    ) -> tuple[str | None, tuple[str, ...]]:
        """Read a script within this one: what it prints, and its commands."""
        if depth > DEEPEST:
            raise TooMuch
        line = Scanner(self, text, depth, positional).commands("", given, before)
        output = line.collected()
        return (unmark(output) if output else output), tuple(line.heads)

    def run(
        self, simple: Simple, given: str | None, before: tuple[str, ...], depth: int, certain: bool
    ) -> tuple[str, str | None]:
        """Take a simple command: how it is shown in a pipeline, and what it prints."""
        self._commands -= 1
        if self._commands < 0:
            raise TooMuch
        for name, added, values in simple.assignments:
            for value in () if isinstance(values, list) else values:
                self.add(f"{name}={quote(value) if value else ''}")
            self.assign(name, values, added, certain and not simple.words)
            if name in _RUN_LATER:
                for value in values:
                    self.script(value, depth + 1)
        stdin = given
        tail = ""
        for operator, target in simple.redirections:
            close = operator[-1] == "&" and _DESCRIPTOR.fullmatch(target)
            tail += f" {operator}{quote(target)}" if close else f" {operator} {quote(target)}"
            if operator == "<":
                stdin = self.stored(target)
        if simple.document is not None:
            stdin = unmark(simple.document)
        shown, output = "", "" if simple.words else stdin
        for choice in range(min(MOST_VALUES, max(map(_choices, simple.words), default=0))):
            words = [word for raw in simple.words for word in fields(_chosen(raw, choice))]
            if not words:
                continue
            found = self._command(list(words), tail, stdin, before, depth, certain)
            first = _chosen(simple.words[0], choice)
            if NAMED in first and (bare := fields(without_unknown(first))):
                # `r${x}m`, where nothing is known of x: as it is, and as `rm`
                words = [*bare, *words[len(fields(first)) :]]
                found = self._command(words, tail, stdin, before, depth, certain)
            if not shown:
                shown, output = found
        if not shown:
            shown = tail.strip()
            self.add(shown)
        return shown, self._redirected(simple, shown, output, before)

    # ---- commands --------------------------------------------------------------------------------------

    def _command(
        self,
        words: list[str],
        tail: str,
        stdin: str | None,
        before: tuple[str, ...],
        depth: int,
        certain: bool = False,
    ) -> tuple[str, str | None]:
        """One command in words: its entries, and those of all that it starts."""
        self.step()
        if depth > DEEPEST:
            raise TooMuch
        words[0] = resolve_classes(words[0])
        name = words[0] if _OWN.fullmatch(words[0]) and not self.folder else _bare(words[0])
        if name in _ON_FILES:
            words[1:] = [normpath(word) if _ROUNDABOUT.match(word) else word for word in words[1:]]
            if self.folder is not None:
                words[1:] = self._from_start(words[1:], tail, name)
        shown = render([name, *words[1:]]) + tail
        if name != words[0]:
            self.add(render(words) + tail)
        self.add(shown)
        if "^" in name and name != "^":  # the escape of cmd.exe
            self._command([word.replace("^", "") or "^" for word in words], tail, stdin, before, depth + 1)
        self._remember(name, words[1:], stdin, certain)
        copied = self._copies.get(words[0].removeprefix("./"))
        if copied is not None and copied != name:
            return self._command([copied, *words[1:]], tail, stdin, before, depth + 1)
        output: str | None = None
        for started in starts(name, words[1:], stdin):
            inner, output = self._start(started, shown, tail, stdin, before, depth + 1)
            if started.same and inner:
                return inner, output
        if name in self._functions and name not in self._running:
            return shown, self._call(name, words, stdin, before, depth + 1)
        if "/" in words[0] and self._known(words[0]):
            file = Started("file", words[0], tuple(words))
            _, output = self._start(file, render(words) + tail, "", stdin, before, depth + 1)
            return shown, output
        if is_interpreter(name):
            for text in [*words[1:], stdin or ""]:
                self._calls(text, depth + 1)
                if name.startswith(("perl", "ruby", "php")):
                    for script in quoted_commands(text):
                        self.script(script, depth + 1)
            return shown, None
        if output is not None:
            return shown, output
        found = output_of(name, words[1:], stdin, self._files)
        if found and name in DECODERS:
            self._decoded[found.strip()] = (before[0] + " | " if before else "") + shown
        return shown, unmark(found) if found else found

    def _start(
        self,
        started: Started,
        shown: str,
        tail: str,
        stdin: str | None,
        before: tuple[str, ...],
        depth: int,
    ) -> tuple[str, str | None]:
        if started.kind == "words":
            if not started.words:
                return "", None
            given = (stdin, before) if started.same else (None, ())
            return self._command(list(started.words), tail, *given, depth)
        if started.kind == "script":
            if decoder := self._decoded.get(started.text.strip()):
                self.add(f"{decoder} | {shown}")
            output, heads = self.script(started.text, depth, stdin, before, started.words)
            return (heads[-1] if heads else ""), output
        if started.kind == "input":
            if stdin is None:
                return "", None
            return "", self.script(stdin, depth, positional=started.words)[0]
        for chain in self._sources.get(started.text.removeprefix("./"), ()):
            self.add(f"{chain} | {shown}")
        text = self.stored(started.text)
        if text is None:
            return "", None
        self._calls(text, depth)
        return "", self.script(text, depth, positional=started.words)[0]

    def _known(self, word: str) -> bool:
        name = word.removeprefix("./")
        return name in self._files or name in self._sources

    def _call(
        self, name: str, words: list[str], stdin: str | None, before: tuple[str, ...], depth: int
    ) -> str | None:
        self._running.add(name)
        try:
            return self.script(self._functions[name], depth, stdin, before, tuple(words))[0]
        finally:
            self._running.discard(name)

    def _calls(self, text: str, depth: int) -> None:
        """The commands that code in another language starts."""
        if depth > DEEPEST:
            raise TooMuch
        for found in calls_in(text):
            if isinstance(found, str):
                self.script(found, depth + 1)
            else:
                self._command(list(found), "", None, (), depth + 1)

    # ---- what commands leave behind --------------------------------------------------------------------

    def _remember(self, name: str, words: Sequence[str], stdin: str | None, certain: bool) -> None:
        """Variables that a builtin sets."""
        if name in _DECLARING:
            for word in words:
                variable, equals, value = word.partition("=")
                if equals:
                    self.assign(variable.removesuffix("+"), (value,), variable.endswith("+"), certain)
                    self.add(f"{variable}={quote(value) if value else ''}")
        elif name in ("cd", "pushd"):
            self._enter([word for word in words if not word.startswith("-") or word == "-"])
        elif name == "set" and "--" in words[:2]:
            self.positional = ("sh", *words[words.index("--") + 1 :])
        elif name == "unset" and certain:
            for word in words:
                self._values.pop(word, None)
        elif name == "read" and stdin is not None:
            names = [word for word in words if not word.startswith("-")] or ["REPLY"]
            for variable, value in zip(names, stdin.split(None, len(names) - 1), strict=False):
                self.assign(variable, (value.strip(),), False, certain)
        elif name == "printf" and words[:1] == ["-v"] and len(words) > 2:
            text = output_of("printf", words[2:], None, {})
            self.assign(words[1], (text or "",), False, certain)

    def _enter(self, words: Sequence[str]) -> None:
        """The folder after `cd`: from the one the call began in, unless it is absolute."""
        target = words[0] if words else "~"
        if target == "-":
            self.folder = None
        elif target.startswith(_ABSOLUTE) or self.folder is None:
            self.folder = normpath(target) if _ROUNDABOUT.match(target) else target
        else:
            self.folder = _joined(self.folder, target)

    def _from_start(self, words: Sequence[str], tail: str, name: str) -> list[str]:
        """The words with `*`, `.` and `../x` told from the folder the call began in."""
        folder = self.folder or "."
        found = [_joined(folder, word) if _LOCAL.match(word) else word for word in words]
        if folder.startswith(_ABSOLUTE) and name in _READING_OR_REMOVING:
            named = [_joined(folder, word) if _RELATIVE.fullmatch(word) else word for word in found]
            self.add(render([name, *named]) + tail)
        return found

    def _redirected(
        self, simple: Simple, shown: str, output: str | None, before: tuple[str, ...]
    ) -> str | None:
        """Files that the command writes, to know them when they are run; what is left to print."""
        words = [word for raw in simple.words for word in fields(_chosen(raw, 0))] if simple.words else []
        chains: tuple[str, ...] = tuple(f"{chain} | {shown}" for chain in before) or (shown,)
        name = _bare(words[0]) if words else ""
        command = shown.split(" ", 1)[0]
        targets = [target for operator, target in simple.redirections if operator in (">", ">>", "1>", "&>")]
        printed = output
        if targets:
            printed = ""
        if "tee" in (name, command):
            targets += [word for word in words[1:] if not word.startswith("-")]
        elif command in ("curl", "wget"):
            targets += _downloaded(command, words)
        elif command in ("cp", "mv", "install", "ln") and len(words) > 2:
            source = words[-2].removeprefix("./")
            output, chains = self._files.get(source), self._sources.get(source, ())
            targets += [words[-1]]
            if "/" in source and len(self._copies) < 64:
                self._copies[words[-1].removeprefix("./")] = _bare(source)
            if output is None and not chains:
                return ""
        for target in targets[:16]:
            known = target.removeprefix("./")
            if len(self._sources) > 256 and known not in self._sources:
                raise TooMuch
            self._files.pop(known, None)
            if output is not None:
                self._files[known] = output[:LONGEST_OUTPUT]
            self._sources[known] = chains
        return printed


def read(
    texts: Sequence[str], lists: Sequence[Sequence[str]] = (), code: Sequence[str] = ()
) -> tuple[str, ...]:
    """The entries of scripts, of commands given as lists of arguments, and of code in other languages."""
    originals = [*texts, *(render(words) for words in lists), *code]
    reading = Reading(sum(map(len, originals)))
    for text in originals:
        reading.entries[text] = None
    try:
        for words in lists:
            if words:
                reading.words(words)
        for text in texts:
            reading.text(text)
        for text in code:
            reading.code(text)
    except (TooMuch, RecursionError):
        reading.entries[UNREADABLE] = None
    return tuple(reading.entries)


def _joined(folder: str, word: str) -> str:
    if len(folder) + len(word) > 4096:
        raise TooMuch
    path = normpath(f"{folder}/{word}")
    return "/" + path.lstrip("/") if path.startswith("/") else path


def _choices(raw: Raw) -> int:
    return max((len(part) for part in raw if isinstance(part, tuple)), default=1)


def _chosen(raw: Raw, choice: int) -> str:
    return "".join(part if isinstance(part, str) else part[min(choice, len(part) - 1)] for part in raw)


def _bare(word: str) -> str:
    """`rm` of `/bin/rm` and of `C:\\tools\\rm.exe`."""
    if len(word) > 4096 or word.startswith(("$(", "<(")) or " " in word or "://" in word:
        return word
    bare = word[max(word.rfind("/"), word.rfind("\\")) + 1 :]
    return (bare[:-4] if bare[-4:].lower() in (".exe", ".com") else bare) or word


def _downloaded(name: str, words: Sequence[str]) -> list[str]:
    """The files that curl or wget write."""
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if _FETCHED.fullmatch(word)]
    named = [each for each in named if not re.match(r"https?:", each) and each != "-"]
    named += [word.partition("=")[2] for word in words if re.match(r"--output(?:-document)?=", word)]
    remote = name == "wget" or any(re.fullmatch(r"-\w*O\w*|--remote-name(?:-all)?", word) for word in words)
    if remote and not named:
        named = [
            word.split("?")[0].rstrip("/").rpartition("/")[2]
            for word in words[1:]
            if "/" in word and word[0] != "-"
        ]
    return [name for name in named if name]
