"""Reads one script: words, quotes, expansions, pipelines, groups, functions, here-documents.

Reads as bash does, tolerantly: what a shell would refuse is read on as well as can be. Each simple command is
handed to a `Runner`, which says what it prints; so `$(echo rm)` is `rm` here as it is there. Every step is
counted, and a script within a script is as deep as a bound allows: TooMuch ends the reading.
Knows nothing of what commands mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.shell.commands import Pipeline, Raw, SimpleCommand
from engine.shell.expansion import CLOSE, OPEN, QUOTED, TooMuch, plain
from engine.shell.words import IN_DOCUMENT, MOST_VALUES, WordReader

_BLANK: Final = re.compile(r"(?>(?:[ \t\r]++|\\\r?\n){0,2000})(?>(?:#[^\n]*+)?)")
_OPERATOR: Final = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|\n()]")
_REDIRECTION: Final = re.compile(r"(\d{0,9}|\{\w{1,64}\})(<<<|<<-?|<>|<&|>>|>\||>&|<|>)|(&>>?)")
_DELIMITER: Final = re.compile(r"[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^ \t\n;&|<>()'\"\\])+)")
LONGEST_DELIMITER: Final = 256
"""Of a here-document: it becomes a pattern, which is kept, and takes many times as much."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w{0,120})(\[(?:[^\]\s$`]|\$(?!\()){0,200}\])?(\+?)=", re.ASCII)
_FOR: Final = re.compile(r"[ \t]+([A-Za-z_]\w*)[ \t\n]*(?:in\b|;|\n)", re.ASCII)

_DECLARING: Final[list[Raw]] = [["declare"], ["local"], ["typeset"], ["readonly"], ["export"]]
_PARENTHESES: Final = re.compile(r"[ \t]*+(?:\([ \t]*+\))?\s*+")
_CLOSED: Final = re.compile(r"[ \t]*\)\s*")

_TEST: Final = re.compile(r"\[\[[ \t](?:[^;&|\n`$]|\$[{\w]|\|[\w^.(\[]){0,500}?\]\]")
"""`[[ ... ]]` in which no command can hide, in whatever shell."""

_OPENERS: Final = frozenset(["if", "while", "until", "for", "select", "case", OPEN])
_LOOPS: Final = frozenset(["while", "until", "for", "select"])
_CLOSERS: Final = frozenset(["fi", "done", "esac", CLOSE])
_BETWEEN: Final = frozenset(["then", "do", "else", "elif", "!"])


@dataclass(slots=True)
class Frame:
    """A group that is open: what opened it, the pipeline it is a stage of, the function it is the body of,
    where it began, and the arguments and the folder outside."""

    opener: str
    outer: Pipeline
    defining: str
    start: int
    positional: tuple[str, ...] | None
    folder: str | None


class Scanner(WordReader):
    """Reads the commands of `text`."""

    def commands(self, closer: str, given: str | None, before: tuple[str, ...]) -> Pipeline:
        """Read up to `closer` (or the end); the line has the output and the commands of all that was read."""
        frames: list[Frame] = []
        line, simple, defining = Pipeline(given, before), SimpleCommand(), ""
        outermost = self.depth == 0 and not closer
        conditional = False
        while True:
            self.runner.step()
            self.at = self._after_blanks()
            if self.at >= len(self.text):
                break
            redirection = _REDIRECTION.match(self.text, self.at)
            if redirection is not None and not self._is_substitution(redirection):
                self._redirect(simple, redirection)
                continue
            operator = _OPERATOR.match(self.text, self.at)
            if operator is None:
                word = self._word_of(simple)
                if word in _OPENERS:
                    line = self._open(word, line, frames, defining)
                    defining = ""
                    self._heading(word)
                elif word in _CLOSERS and frames:
                    line = self._close(line, simple, frames, len(word))
                elif word == "function":
                    defining = self._function_name()
                continue
            token = operator[0]
            self.at = operator.end()
            certain = outermost and not frames and not conditional
            if token == "(":
                if (name := self._defined(simple)) is not None:
                    defining, simple = name, SimpleCommand()
                    continue
                self._stage(line, simple, certain)
                simple = SimpleCommand()
                line = self._open(token, line, frames, defining)
                defining = ""
            elif token == ")":
                if frames and frames[-1].opener == "case":
                    simple = SimpleCommand()  # what was read is the pattern of a case
                elif any(frame.opener == "(" for frame in frames):
                    while frames[-1].opener != "(":
                        line = self._close(line, simple, frames, 1)
                    line = self._close(line, simple, frames, 1)
                elif closer == ")":
                    break
            elif token in ("|", "|&"):
                self._stage(line, simple, False)
                simple, line.piped = SimpleCommand(), True
            else:
                self._finish(line, simple, certain)
                simple, conditional = SimpleCommand(), token in ("&&", "||")
                if token == "\n":
                    self.at = self.documents_to.pop(self.at - 1, self.at)
        while frames:
            line = self._close(line, simple, frames, 0)
        return self._finish(line, simple, outermost and not conditional)

    def _after_blanks(self) -> int:
        found = _BLANK.match(self.text, self.at)
        return found.end() if found else self.at

    # ---- groups ----------------------------------------------------------------------------------------

    def _open(self, opener: str, line: Pipeline, frames: list[Frame], defining: str) -> Pipeline:
        """The line within the group, fed by what is left of the group."""
        frames.append(Frame(opener, line, defining, self.at, self.positional, self.runner.folder))
        if defining:
            self.positional = None
        fed = line.staged and line.piped
        return Pipeline(line.output, line.chains) if fed else Pipeline(line.given, line.before)

    def _close(self, line: Pipeline, simple: SimpleCommand, frames: list[Frame], closer: int) -> Pipeline:
        """The line outside, after the group's end; the group is one stage of it."""
        inner = self._finish(line, simple, False)
        frame = frames.pop()
        simple.clear()
        self.positional = frame.positional
        if frame.opener == "(" or frame.defining:
            self.runner.folder = frame.folder
        outer = frame.outer
        if frame.defining:
            self.runner.define(frame.defining, self.text[frame.start : max(frame.start, self.at - closer)])
            return outer
        outer.printed = inner.repeated()
        if frame.opener in _LOOPS:
            outer.printed = (None if None in outer.printed else "".join(filter(None, outer.printed)),)
        outer.output, outer.chains = outer.printed[0], self._known_by(inner.heads)
        outer.staged = True
        outer.group = self.text[frame.start : max(frame.start, self.at - closer)]
        return outer

    def _stage(self, line: Pipeline, simple: SimpleCommand, certain: bool) -> None:
        """The simple command is the next stage of the pipeline."""
        if not simple:
            return
        if line.staged and not line.piped:
            # Redirections (or, where the shell is another, words) behind a group.
            shown, _ = self.runner.run(simple, line.output, line.chains, self.depth, certain)
            for chain in line.chains:
                self.runner.behind(chain, [shown])
            if simple.document is not None and line.group:
                self.runner.script(line.group, self.depth + 1, simple.document)  # `done <<< "rm x"`
            return
        fed = line.staged and line.piped
        given, before = (line.output, line.chains) if fed else (line.given, line.before)
        shown, line.output = self.runner.run(simple, given, before, self.depth, certain)
        line.printed = self.runner.printed
        line.chains = self.runner.lengthened(before, shown)
        line.staged = True

    def _finish(self, line: Pipeline, simple: SimpleCommand, certain: bool) -> Pipeline:
        """End the pipeline: tell its chains, keep what it prints."""
        self._stage(line, simple, certain and not line.piped)
        if line.staged:
            if line.piped or line.before:
                for chain in line.chains:
                    self.runner.chained(chain)
            line.outputs.append(line.output)
            line.turns.append(line.printed)
            line.heads.extend(line.chains)
        line.output, line.chains, line.staged, line.piped = None, (), False, False
        return line

    # ---- where a command begins ------------------------------------------------------------------------

    def _word_of(self, simple: SimpleCommand) -> str:
        """Take the next word into the command; answers with it when it is a keyword instead."""
        if simple.words:
            if not (simple.words[0] in _DECLARING and self._array_follows() and self._assigned(simple)):
                simple.words.append(self._word())
            return ""
        start = self.at
        if self._assigned(simple) or self._tested(simple):
            return ""
        word = self._word()
        if len(word) == 1 and isinstance(word[0], str):
            text = word[0]
            if not simple and (text in _OPENERS or text in _CLOSERS or text == "function"):
                return text
            if text in _BETWEEN:
                return ""
            if len(text) > 1 and text[0] == "!" and text[1].isalpha():
                word = [text[1:]]  # a notebook's `!command`
        if self.at == start:
            self.at += 1  # nothing that a word begins with
        else:
            simple.words.append(word)
        return ""

    def _array_follows(self) -> bool:
        found = _ASSIGNMENT.match(self.text, self.at)
        return found is not None and self.text.startswith("(", found.end())

    def _assigned(self, simple: SimpleCommand) -> bool:
        assignment = _ASSIGNMENT.match(self.text, self.at)
        if assignment is None:
            return False
        self.at = assignment.end()
        values: tuple[str, ...] | list[str]
        values = (
            self._array()
            if self.text.startswith("(", self.at)
            else tuple(map(plain, self._choices(self._word())))
        )
        name, subscript, added = assignment.groups()
        if subscript:
            name = f"{name}[{self._key(subscript[1:-1]) or ''}]"
        simple.assignments.append((name, bool(added), values))
        return True

    def _tested(self, simple: SimpleCommand) -> bool:
        """`[[ ... ]]` is one word, unless commands may hide in it."""
        found = _TEST.match(self.text, self.at)
        if found is None or "<(" in found[0]:
            return False
        test = found[0]
        simple.words.append([QUOTED + test])
        self.at = found.end()
        return True

    def _function_name(self) -> str:
        name = plain(self._first(self._spaced_word()))
        found = _PARENTHESES.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return name

    def _defined(self, simple: SimpleCommand) -> str | None:
        """The name of the function that `name (` begins to define, if `)` follows."""
        if len(simple.words) != 1 or simple.redirections:
            return None
        closed = _CLOSED.match(self.text, self.at)
        if closed is None:
            return None
        self.at = closed.end()
        return plain(self._first(simple.words[0]))

    def _spaced_word(self) -> Raw:
        self.at = self._after_blanks()
        return self._word()

    def _heading(self, word: str) -> None:
        """What stands between `for` or `case` and the commands."""
        if word == "case":
            self._spaced_word()
            self.at = self._after_blanks()
            if self.text.startswith("in", self.at):
                self.at += 2
        elif word in ("for", "select"):
            found = _FOR.match(self.text, self.at)
            if found is None:
                return
            self.at = found.end()
            values: list[str] = []
            if found[0].endswith("in"):
                while (start := self._after_blanks()) < len(self.text):
                    self.runner.step()
                    self.at = start
                    if self.text[start] in ";\n&|()<>":
                        break
                    values += self._fields(self._word())
            if len(values) > MOST_VALUES:
                raise TooMuch
            self.runner.assign(found[1], tuple(values) or ("",), False, True)

    def _array(self) -> list[str]:
        self.at += 1
        values: list[str] = []
        while self.at < len(self.text):
            self.runner.step()
            self.at = self._after_blanks()
            char = self.text[self.at : self.at + 1]
            if char == ")":
                self.at += 1
                break
            if char in ("", *"\n;&|<>("):
                self.at += 1
                continue
            values += self._fields(self._word())
        return values

    # ---- redirections ----------------------------------------------------------------------------------

    def _is_substitution(self, found: re.Match[str]) -> bool:
        return found[2] in ("<", ">") and not found[1] and self.text.startswith("(", found.end())

    def _redirect(self, simple: SimpleCommand, found: re.Match[str]) -> None:
        self.at = found.end()
        operator = found[2] or found[3]
        if operator in ("<<", "<<-"):
            simple.document = self._document(operator == "<<-")
            self._describe(found[1], simple.document)
            return
        target = plain(self._first(self._spaced_word()))
        if operator == "<<<":
            simple.document = target + "\n"
            self._describe(found[1], simple.document)
        simple.redirections.append(((found[1] or "") + operator.replace(">|", ">"), target))

    def _describe(self, descriptor: str, text: str | None) -> None:
        """Remember what a descriptor gives to read: `exec 3<<< x; sh <&3`."""
        if descriptor.isdecimal():
            self.runner.substituted(f"/dev/fd/{descriptor}", text, ())

    def _document(self, tabs: bool) -> str | None:
        """The here-document announced here, which begins on the next line."""
        found = _DELIMITER.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        delimiter = re.sub(r"['\"\\]", "", found[1])
        if len(delimiter) > LONGEST_DELIMITER:
            raise TooMuch
        literal = delimiter != found[1]
        if self.line_end < self.at:
            end = self.text.find("\n", self.at)
            self.line_end = len(self.text) if end < 0 else end
        start = self.documents_to.get(self.line_end, self.line_end + 1)
        self.runner.step()
        last = re.compile("^" + ("\t*" if tabs else "") + re.escape(delimiter) + "$", re.MULTILINE)
        close = last.search(self.text, start)
        stop = close.start() if close else len(self.text)
        self.documents_to[self.line_end] = min(close.end() + 1, len(self.text)) if close else len(self.text)
        body = self.text[start:stop]
        if tabs:
            body = re.sub(r"(?m)^\t+", "", body)
        if literal or not re.search(r"[\\$`]", body):
            return body
        inner = Scanner(self.runner, body, self.depth, self.positional)
        return plain("".join(inner._first_of(part) for part in inner._quoted(IN_DOCUMENT, "")))
