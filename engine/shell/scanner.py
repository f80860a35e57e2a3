"""Reads one script: words, quotes, expansions, pipelines, groups, functions, here-documents.

Reads as bash does, tolerantly: what a shell would refuse is read on as well as can be. Each simple command is
handed to a `Runner`, which says what it prints; so `$(echo rm)` is `rm` here as it is there. Every step is
counted, and a script within a script is as deep as a bound allows: TooMuch ends the reading.
Knows nothing of what commands mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.shell.commands import Assignment, Pipeline, SimpleCommand
from engine.shell.dialects import TAKING_SCRIPTS
from engine.shell.expansion import CLOSE, OPEN, QUOTED, plain
from engine.shell.files.whereabouts import Whereabouts
from engine.shell.headings import COUNTED, HeadingReader
from engine.shell.variables.choices import Raw, every, first, source, together
from engine.shell.variables.store import Positional, Value

_OPERATOR: Final = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|\n()]")
_REDIRECTION: Final = re.compile(r"(\d{0,9}|\{\w{1,64}\})(<<<|<<-?|<>|<&|>>|>\||>&|<|>)|(&>>?)")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w{0,120})(\[(?:[^\]\s$`]|\$(?!\()){0,200}\])?(\+?)=", re.ASCII)

_DECLARING: Final[list[Raw]] = [["declare"], ["local"], ["typeset"], ["readonly"], ["export"]]

_COPROC: Final = re.compile(
    r"[ \t]+(?:[A-Za-z_]\w*[ \t]+)?(?=[({]|(?:if|while|until|for|case|select)\b)", re.ASCII
)
"""What stands behind `coproc` before a group."""
MOST_READINGS: Final = 4
"""How often the body of a loop is read again."""
MOST_OTHERS: Final = 16
_TEST: Final = re.compile(r"\[\[[ \t](?:[^;&|\n`$]|\$[{\w]|\|[\w^.(\[]){0,500}?\]\]")
"""`[[ ... ]]` in which no command can hide, in whatever shell."""

_ENTERED: Final = re.compile(r"\s*cd\s+(?![$-])")
"""A `cd` that stands alone before `&&`: if it fails, what follows is not run."""
_LOOPS: Final = COUNTED | {"while", "until"}
_OPENERS: Final = _LOOPS | {"if", "case", OPEN}
_CLOSERS: Final = frozenset(["fi", "done", "esac", "end", CLOSE])
_BETWEEN: Final = frozenset(["then", "do", "else", "elif", "!"])
_KEYWORDS: Final = _OPENERS | _CLOSERS | _BETWEEN | {"function", "coproc"}
LONGEST_PLAIN: Final = 1_024
_PLAIN_WORDS: Final = re.compile(r"[ \t]*([\w./:@,+-]++)[\w./:@,+\- \t]*+")


@dataclass(slots=True)
class Frame:
    """A group that is open: what opened it, the pipeline it is a stage of, the function it is the body of,
    where it began, the arguments and the folder outside, and the variables before."""

    opener: str
    outer: Pipeline
    defining: str
    start: int
    positional: list[Positional] | None
    whereabouts: Whereabouts
    variables: Mapping[str, list[Value]]
    certain: bool
    fed: Sequence[str | None] = ()
    """What the group may read besides what it is read with."""
    loop: tuple[str, list[Value]] = ("", [])
    """Of `for` the variable, and what it was before."""
    given_to: Sequence[Raw] = ()
    """The words before a `(`: for fish those of a command that is given what is printed there."""


class Scanner(HeadingReader):
    """Reads the commands of `text`."""

    def commands(self, closer: str, given: str | None, before: tuple[str, ...]) -> Pipeline:
        """Read up to `closer` (or the end); the line has the output and the commands of all that was read."""
        frames: list[Frame] = []
        line, simple, defining = Pipeline(given, before), SimpleCommand(), ""
        outermost = self.depth == 0 and not closer
        conditional = is_either = False
        begin = self.at
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
                    certain = outermost and not frames and not conditional
                    line = self._open(word, line, frames, defining, certain)
                    defining = ""
                    frames[-1].loop = self._heading(word)
                    if word in COUNTED:
                        frames[-1].start = self.at
                elif word == "end" and not _ends_by_word(frames):
                    simple.words.append([word])
                elif word in _CLOSERS and frames:
                    line = self._close(line, simple, frames, len(word))
                elif word == "function":
                    defining = self._function_name()
                    if defining and self._is_of_fish():
                        line = self._open(word, line, frames, defining, False)
                        defining = ""
                elif frames and frames[-1].defining and simple.words[-1:] == [[CLOSE]]:
                    # zsh needs no `;` before it
                    self.runner.define(frames[-1].defining, self._within(frames[-1], 1))
                continue
            token = operator[0]
            self.at = operator.end()
            certain = outermost and not frames and not conditional and token != "&"
            if token == "(":
                if (name := self._defined(simple)) is not None:
                    defining, simple = name, SimpleCommand()
                    continue
                self._stage(line, simple, certain)
                line = self._open(token, line, frames, defining, certain)
                frames[-1].given_to = simple.words
                simple, defining = SimpleCommand(), ""
                self._calculated()
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
                self.runner.whereabouts = self.runner.whereabouts.known(False)
            else:
                is_piped = line.piped
                self._finish(line, simple, certain)
                simple, conditional = SimpleCommand(), token in ("&&", "||")
                is_either = token == "||" or (is_either and token == "&&")
                if token != "&&":
                    self.runner.whereabouts = self.runner.whereabouts.known(False)
                elif not (is_piped or is_either) and _ENTERED.match(self.text, begin, operator.start()):
                    self.runner.surely_there("cd")
                if token == "\n":
                    self.at = self.documents_to.pop(self.at - 1, self.at)
            begin = self.at
        while frames:
            line = self._close(line, simple, frames, 0)
        return self._finish(line, simple, outermost and not conditional)

    # ---- groups ----------------------------------------------------------------------------------------

    def _open(
        self, opener: str, line: Pipeline, frames: list[Frame], defining: str, certain: bool
    ) -> Pipeline:
        """The line within the group, fed by what is left of the group."""
        runner = self.runner
        frames.append(
            Frame(
                opener,
                line,
                defining,
                self.at,
                runner.positional,
                runner.whereabouts,
                dict(runner.variables) if opener in _LOOPS else {},
                certain,
            )
        )
        if defining:
            runner.positional = None
        fed = line.staged and line.piped
        if fed:
            frames[-1].fed = self._others(line)
        return Pipeline(line.output, line.chains) if fed else Pipeline(line.given, line.before)

    def _close(self, line: Pipeline, simple: SimpleCommand, frames: list[Frame], closer: int) -> Pipeline:
        """The line outside, after the group's end; the group is one stage of it."""
        inner = self._finish(line, simple, False)
        frame = frames.pop()
        simple.clear()
        if frame.opener == "(" or frame.defining:
            self.runner.positional, self.runner.whereabouts = frame.positional, frame.whereabouts
        outer = frame.outer
        if frame.defining:
            self.runner.define(frame.defining, self._within(frame, closer))
            return outer
        outer.printed = inner.repeated()
        if frame.opener in _LOOPS:
            if not any(each.opener in _LOOPS or each.defining for each in frames):
                self._turn(frame, closer)
            if frame.loop[0] and not frame.certain:
                for value in frame.loop[1]:
                    self.runner.assign(
                        frame.loop[0], value if isinstance(value, list) else (value,), False, False
                    )
            outer.printed = (None if None in outer.printed else "".join(filter(None, outer.printed)),)
        for other in frame.fed:
            outer.printed += self.runner.again(self._within(frame, closer), self.depth + 1, other)
        outer.output, outer.chains = outer.printed[0], self._known_by(inner.heads)
        outer.staged = True
        outer.group = self._within(frame, closer)
        if frame.given_to:
            self._substituted(frame.given_to, outer)
        return outer

    def _substituted(self, words: Sequence[Raw], group: Pipeline) -> None:
        """`rm (echo x)` of fish; what is printed and not known counts where it is run."""
        known = any(text for text in group.printed)
        if known or plain(first(words[0])) in TAKING_SCRIPTS:
            shown = self._shown(list(group.chains))
            printed = self._inserted(group.printed, shown, True)
            if shown.endswith("psub"):
                printed = f"{QUOTED}<({shown})"
                self.runner.substituted(f"<({shown})", together(group.printed), group.chains)
            self.runner.run(SimpleCommand([*words, [printed]]), None, (), self.depth, False)

    def _within(self, frame: Frame, closer: int) -> str:
        """The text of a group."""
        return self.text[frame.start : max(frame.start, self.at - closer)]

    def _turn(self, frame: Frame, closer: int) -> None:
        """Read the body of a loop again while it assigns what was not known before."""
        runner, body = self.runner, self._within(frame, closer)
        before, given = frame.variables, frame.positional
        for turn in range(MOST_READINGS):
            if not runner.feeds_back(body, before, given):
                return
            if turn:
                is_last = turn == MOST_READINGS - 1
                runner.loosen(frame.variables if is_last else before, turn > 1)
            before, given = dict(runner.variables), runner.positional
            runner.again(body, self.depth + 1)

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
                for text in every(simple.document):  # `done <<< "rm x"`
                    self.runner.script(line.group, self.depth + 1, plain(text))
            return
        fed = line.staged and line.piped
        given, before = (line.output, line.chains) if fed else (line.given, line.before)
        others = self._others(line) if fed else []
        shown, line.output = self.runner.run(simple, given, before, self.depth, certain)
        line.printed = self.runner.printed
        for other in others:
            self.runner.run(simple, other, before, self.depth, False)
            line.printed += self.runner.printed
        line.chains = self.runner.lengthened(before, shown)
        line.staged = True

    def _others(self, line: Pipeline) -> list[str | None]:
        """What the last stage may print besides its output."""
        found = list(dict.fromkeys(each for each in line.printed if each != line.output))
        return found if len(found) <= MOST_OTHERS else [None]

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
            may_assign = simple.words == [["time"]] or (
                simple.words[0] in _DECLARING and self._array_follows()
            )
            if not (may_assign and self._assigned(simple)):
                simple.words.append(self._word())
            return ""
        start = self.at
        if self._assigned(simple) or self._tested(simple):
            return ""
        word = self._word()
        if len(word) == 1 and isinstance(word[0], str):
            text = word[0]
            if text == "foreach" and not self._is_loop():
                pass
            elif not simple and (text in _OPENERS or text in _CLOSERS or text == "function"):
                return text
            if text in _BETWEEN:
                return ""
            if text == "coproc" and (found := _COPROC.match(self.text, self.at)):
                self.at = found.end()
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
        values: list[Value]
        by, word = "", None
        if self.text.startswith("(", self.at):
            values = [*self._array()]
        else:
            word = self._word()
            values, by = [], source(word)
        name, subscript, added = assignment.groups()
        if subscript:
            name = f"{name}[{self._key(subscript[1:-1]) or ''}]"
        if word is not None:
            values = [plain(each) for each in every(word, name)]
        simple.assignments.append(Assignment(name, bool(added), values, by))
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


def is_plain(text: str) -> bool:
    """Whether a script is one command of plain words, such as a name or a sentence."""
    found = _PLAIN_WORDS.fullmatch(text) if len(text) <= LONGEST_PLAIN else None
    return found is not None and found[1] not in _KEYWORDS


def _ends_by_word(frames: Sequence[Frame]) -> bool:
    """Whether groups end with `end`, since they stand in a function that has no braces."""
    return any(frame.opener == "function" for frame in frames)
