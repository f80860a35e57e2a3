"""One reading: the entries of a text in the making, command by command.

Decides which command starts which, and what each of them adds. How a text is parted into commands is the
scanner's; what they leave behind is the state's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from engine.shell.commands import Assignment, SimpleCommand
from engine.shell.cut_short import spelled_out
from engine.shell.dialects import HOLDING_CODE, quoted_elsewhere, readings_elsewhere
from engine.shell.embedded_code import INPUT, calls_in, is_interpreter, program_file, quoted_commands
from engine.shell.emulation import DECODERS, output_of
from engine.shell.expansion import (
    TooMuch,
    effort,
    fields,
    plain,
    quote,
    render,
    resolve_classes,
    unescape,
    unmark,
    written_to,
)
from engine.shell.files.settled_path import settled
from engine.shell.files.whereabouts import ROUNDABOUT
from engine.shell.scanner import Scanner, is_plain
from engine.shell.starting import surroundings
from engine.shell.starting.started import Started
from engine.shell.starting.windows import is_of_folder
from engine.shell.starting.wrappers import starts
from engine.shell.state import DEEPEST, DESCRIPTOR, ON_FILES, OWN, State, bare
from engine.shell.variables.choices import chosen, turns, without_unknown_program

_SUBSCRIPT: Final = re.compile(r"\w\[[^\]]*+")
"""`a[$(rm x)]`: the subscript is evaluated wherever a number is wanted, ..."""
_CALCULATING_NAMES: Final = (
    "let [[ [ test printf read unset mapfile readarray getopts wait declare local typeset export"
)
_CALCULATING: Final = frozenset(_CALCULATING_NAMES.split())
"""... and where the name of a variable is."""


class ShellReading(State):
    """One list of entries in the making."""

    # ---- what goes in ----------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Read a script; whether that before it came to where it went is not known."""
        self.whereabouts = self.whereabouts.known(False)
        if is_plain(text):
            words = text.split()
            self.step(len(words))
            self.run(SimpleCommand([[word] for word in words]), None, (), 0, True)
            return
        self.script(unmark(text), 0)
        for other in quoted_elsewhere(text):
            self.script(unmark(other), 0)

    def words(self, words: Sequence[str]) -> None:
        """Read a command given as a list of arguments."""
        self._command([unmark(word) for word in words], "", None, (), 0)

    def code(self, text: str) -> None:
        """Read the commands that a program in another language starts."""
        self._calls(unmark(text), 0)

    def assign(
        self, name: str, values: tuple[str, ...] | list[str], added: bool, certain: bool, source: str = ""
    ) -> None:
        """Remember a value, and read what an arithmetic expression would run that takes it for a number."""
        super().assign(name, values, added, certain, source)
        known = [each for each in self.values(name) if isinstance(each, str)] if added else []
        self._calculate([*values, *known])

    def give(self, words: Sequence[str], certain: bool) -> None:
        super().give(words, certain)
        self._calculate(words)

    def _calculate(self, words: Iterable[str]) -> None:
        """Read what arithmetic would run that takes the words for numbers, or for names of variables."""
        for word in words:
            if "[" not in word:
                continue
            self.step(1 + len(word) // 256)
            if any("$(" in found[0] or "`" in found[0] for found in _SUBSCRIPT.finditer(word)):
                self.script(f': "{word}"', DEEPEST // 2)

    # ---- what the scanner asks -------------------------------------------------------------------------

    def script(
        self,
        text: str,
        depth: int,
        given: str | None = None,
        before: tuple[str, ...] = (),
        positional: tuple[str, ...] | None = None,
    ) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
        """Read a script within this one: what it may print, and its commands. Without words of its own it has
        those of this one."""
        if depth > DEEPEST:
            raise TooMuch
        if text.startswith("$("):
            self.given_program([text.strip()[2:-1]], "eval")
        outside = self.positional
        if positional is not None:
            self.positional = [positional]
            self._calculate(positional)
        line = Scanner(self, text.replace("\0", ""), depth).commands("", given, before)
        if positional is not None:
            self.positional = outside
        outputs = line.collected_each()
        return tuple(unmark(each) if each else each for each in outputs), tuple(line.heads)

    def run(
        self, simple: SimpleCommand, given: str | None, before: tuple[str, ...], depth: int, certain: bool
    ) -> tuple[str, str | None]:
        """Take a simple command: how it is shown in a pipeline, and what it prints."""
        self._commands -= 1
        if self._commands < 0:
            raise TooMuch
        marks = self.variables.get("IFS")
        for each in simple.assignments:
            self._assign(each, certain, depth, prefixed=bool(simple.words))
        targets = [raw for _, raw in simple.redirections]
        document = [] if simple.document is None else [simple.document]
        shown, output = "", "" if simple.words else given
        outputs: list[str | None] = []
        last: dict[str, None] = {}
        tails: dict[str, str] = {}
        for turn in turns([*simple.words, *targets, *document], self.most_turns()):
            redirections = [
                (operator, written_to(chosen(raw, turn))) for operator, raw in simple.redirections
            ]
            tail, from_start, stdin = self._redirections(redirections, given)
            if simple.document is not None:
                stdin = unmark(plain(chosen(simple.document, turn)))
            words = [word for raw in simple.words for word in fields(chosen(raw, turn))]
            if not words:
                output = output if simple.words else stdin
                tails[tail] = from_start
                continue
            last[words[-1]] = None
            found = self._command(list(words), tail, stdin, before, depth, certain and not outputs)
            bare = without_unknown_program(simple.words, turn)
            if bare is not None and not self.is_lost(bare[0]):
                # `r${x}m`, where nothing is known of x: as it is, and as `rm`
                found = self._command(bare, tail, stdin, before, depth)
            outputs += (found[1], *self.also)
            self.also.clear()
            if not shown:
                shown, output = found
            if from_start != tail:
                self.command(found[0].removesuffix(tail) + from_start)
        for tail, from_start in () if shown else tails.items():
            shown = self._redirected_alone(tail, from_start) or shown
        if simple.words:
            self.restore("IFS", marks)
        self.ended_with(list(last) or [""], certain)
        kept = self.redirected(simple, shown, output, before, outputs)
        self.printed = tuple(outputs) if outputs and kept == output else (kept,)
        return shown, kept

    def _assign(self, each: Assignment, certain: bool, depth: int, prefixed: bool) -> None:
        """Take an assignment; in front of a command it is for that command alone."""
        lists = [value for value in each.values if isinstance(value, list)]
        texts = tuple(value for value in each.values if isinstance(value, str))
        for text in texts:
            self.add(f"{each.name.partition('[')[0]}={quote(text) if text else ''}")
        certain = (certain and not prefixed) or (prefixed and each.name == "IFS")
        if texts:
            self.assign(each.name, texts, each.added, certain, each.source)
        for turn, values in enumerate(lists):
            self.assign(each.name, values, each.added, certain and not turn)
        for text in texts:
            if each.name.partition("[")[0] in HOLDING_CODE:
                self.script(text, depth + 1)
            self._held(each.name, text, depth)

    def _held(self, name: str, text: str, depth: int) -> None:
        """Read what programs run that find a variable in their surroundings."""
        for started in surroundings.held(name, text, self.values):
            self._start(started, surroundings.shown(name, text), "", None, (), depth + 1)

    def _redirections(
        self, redirections: Sequence[tuple[str, str]], stdin: str | None
    ) -> tuple[str, str, str | None]:
        """How the redirections of a command are shown, also from where the call began, and its input."""
        tail = from_start = ""
        fed: list[str] = []
        for operator, target in redirections:
            close = operator[-1] == "&" and DESCRIPTOR.fullmatch(target)
            part = f" {operator}{quote(target)}" if close else f" {operator} {quote(target)}"
            tail += part
            is_no_file = close or "<<" in operator
            from_start += part if is_no_file else f" {operator} {quote(self.told(target))}"
            if operator in ("<", "0<", "<&", "0<&"):
                file = target if operator[-1] == "<" else f"/dev/fd/{target}"
                stdin = self.stored(file)
                fed += self.sources.get(self.key(file), ())
            elif operator[:-1].isdecimal() and operator[-1] == "<":
                chains = self.sources.get(self.key(target), ())
                self.substituted(f"/dev/fd/{operator[:-1]}", self.stored(target), chains)
        if fed or tail in self.fed:
            self.fed[tail] = tuple(fed)
        return tail, from_start, stdin

    def _redirected_alone(self, tail: str, from_start: str) -> str:
        """Redirections without a command."""
        shown = tail.strip()
        if shown:
            self.command(shown)
            self.run_there(self.stands([], shown), shown)
            self.reads(shown, (), tail, None)
            if from_start != tail:
                self.command(from_start.strip())
        return shown

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
        self.step(3 + len(words) // 16 + sum(map(effort, words)) + (effort(stdin) if stdin else 0))
        if depth > DEEPEST:
            raise TooMuch
        while words[0] in ("{", "!") and len(words) > 1:
            del words[0]  # `time { rm x; }`
        words[0] = resolve_classes(words[0])
        if self.is_lost(words[0]):
            raise TooMuch
        name = words[0] if OWN.fullmatch(words[0]) and not self.folder else bare(words[0])
        words[1:] = spelled_out(name, words[1:])
        there = self.stands([name, *words[1:]], tail)
        if name in ON_FILES:
            words[1:] = [settled(word) if ROUNDABOUT.match(word) else word for word in words[1:]]
            if self.folder is not None:
                words[1:] = self.from_start(words[1:], tail, name)
            words[1:] = [word if word.startswith("<(") else resolve_classes(word) for word in words[1:]]
        if name in _CALCULATING:
            self._calculate(words)
        shown = render([name, *words[1:]]) + tail
        if name != words[0]:
            self.add(render(words) + tail)
        self.command(shown)
        self.run_there(there, shown)
        self.reads(shown, words[1:], tail, stdin)
        if name.startswith("$("):
            self.given_program([name[2:-1]], "eval")
        if name == "git" and any(word.startswith("--config-env") for word in words):
            self._command(surroundings.configured(words, self.values), tail, stdin, before, depth + 1)
        for other in readings_elsewhere(name, words):
            self._command(other, tail, stdin, before, depth + 1)
        if name in ("read", "mapfile", "readarray"):
            stdin = self.described(words[1:], stdin)
        self.remember(name, words[1:], stdin, certain)
        if name in surroundings.ASSIGNING:
            for variable, _, text in (word.partition("=") for word in words[1:] if "=" in word):
                self._held(variable, text, depth)
        copied = self.copies.get(self.key(words[0]))
        if copied is not None and copied != name:
            instead = self._command([copied, *words[1:]], tail, stdin, before, depth + 1)
            if "/" in words[0] and name not in self.functions:
                return instead
            self.may_be(instead[0], shown, before)
        output: str | None = None
        if name == "xargs":
            stdin = self.argument_file(words[1:], stdin)
        for started in (*starts(name, words[1:], stdin), *self.from_files(name, words[1:])):
            outside = self.goes_to(started.folder)
            inner, output = self._start(started, shown, tail, stdin, before, depth + 1)
            self.whereabouts = outside or self.whereabouts
            if started.same and inner and not self.is_own(name):
                return inner, output
        if name in self.aliases and name not in self.running:  # which not every shell looks for
            text = self.aliases[name] + ' "$@"'
            self.behind(shown, self._call(name, text, words, stdin, before, depth + 1)[1])
        if name in self.functions and name not in self.running:
            (output, *others), heads = self._call(name, self.functions[name], words, stdin, before, depth + 1)
            self.also += others
            self.behind(shown, heads)
            return shown, output
        path = self.placed.get(words[0], words[0] if is_of_folder(words[0]) else "")
        if path and self.known(path):
            file = Started("file", path, tuple(words))
            started_as = render([path, *words[1:]]) + tail
            return shown, self._start(file, started_as, "", stdin, before, depth + 1)[1]
        if is_interpreter(name):
            self._interpreted(name, words, shown, stdin, before, depth + 1)
            return shown, None
        if output is not None:
            return shown, output
        found = output_of(name, words[1:], stdin, self.files)
        if name == "echo" and found and (escaped := unescape(found)) != found:
            self.also.append(escaped)  # as dash and zsh read it
        if found and name in DECODERS:
            self.decoded[found.strip()] = (before[0] + " | " if before else "") + shown
        return shown, unmark(found, null="\0") if found else found

    def _interpreted(
        self, name: str, words: list[str], shown: str, stdin: str | None, before: tuple[str, ...], depth: int
    ) -> None:
        """What code in another language starts, whether its words, its input or a file hold it."""
        if (program := program_file(name, words[1:])) == INPUT:
            self.given_program((*before, shown), shown)
        elif program:
            self._run_file(program, shown)
        for word in words[1:]:
            self._run_file(word, shown)
            if not word.startswith("-"):
                break
        for text in [*words[1:], unmark(stdin or "")]:
            self._calls(text, depth)
            for script in quoted_commands(name, text):
                self.script(script, depth)

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
            inner, output = self._command(list(started.words), tail, *given, depth)
            if inner != shown:
                self.behind(shown, [inner])
            return inner, output
        if started.kind == "script":
            if started.text == "{}":  # where xargs puts what it reads
                self.given_program((*before, shown), shown)
            if decoder := self.decoded.get(started.text.strip()):
                self.chained(f"{decoder} | {shown}")
            words = None if started.here else started.words
            (output, *others), heads = self.script(started.text, depth, stdin, before, words)
            self.also += others
            inner = heads[-1] if heads else ""
            self.behind(inner if started.same else shown, heads[: -1 if started.same else None])
            return inner, output
        if started.kind == "input":
            self.given_program((*before, shown), shown)
            words = started.words
            return "", None if stdin is None else self.script(stdin, depth, positional=words)[0][0]
        self._run_file(started.text, shown)
        text = self.stored(started.text)
        if text is None:
            return "", None
        self._calls(text, depth)
        words = None if started.here and len(started.words) < 2 else started.words
        return "", self.script(text, depth, positional=words)[0][0]

    def _run_file(self, name: str, shown: str) -> None:
        """Tell what wrote the program that a command runs."""
        chains = self.sources.get(self.key(name), ())
        for chain in chains:
            self.chained(f"{chain} | {shown}")
        self.given_program(chains, shown)

    def _call(
        self, name: str, text: str, words: list[str], stdin: str | None, before: tuple[str, ...], depth: int
    ) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
        self.running.add(name)
        try:
            return self.script(text, depth, stdin, before, tuple(words))
        finally:
            self.running.discard(name)

    def _calls(self, text: str, depth: int) -> None:
        """The commands that code in another language starts."""
        if depth > DEEPEST:
            raise TooMuch
        self.step(effort(text))
        outside, self.in_code = self.in_code, True
        try:
            for found in calls_in(text):
                if isinstance(found, str):
                    self.script(found, depth + 1)
                else:
                    self._command(list(found), "", None, (), depth + 1)
        finally:
            self.in_code = outside
