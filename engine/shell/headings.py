"""Reads what stands before the commands of a loop, a `case` or a function, and the lists of arrays.

Knows nothing of groups, pipelines or of what commands do.
"""

from __future__ import annotations

import re
from typing import Final

from engine.shell.commands import SimpleCommand
from engine.shell.expansion import TooMuch, fields, plain
from engine.shell.redirections import RedirectionReader
from engine.shell.variables.choices import Raw, chosen, first, source, turns
from engine.shell.variables.store import MOST_VALUES, Value

COUNTED: Final = frozenset(["for", "select", "foreach"])
"""Loops over a list."""
_FOR: Final = re.compile(
    r"[ \t]+(?:((?:[A-Za-z_]\w*[ \t]+(?!(?:do|in)\b)){1,8}?[A-Za-z_]\w*)[ \t\n]*(?:in\b|\()"
    r"|([A-Za-z_]\w*)(?:[ \t\n]*(?:in\b|;|\n|\()|[ \t]+(?=do\b)))",
    re.ASCII,
)
_PARENTHESES: Final = re.compile(r"[ \t]*+(?:\([ \t]*+\))?\s*+")
_CLOSED: Final = re.compile(r"[ \t]*\)\s*")
_COMPOUND: Final = re.compile(r"[{(]|\[\[|(?:if|while|until|for|select|case)\b")
LONGEST_CALCULATED: Final = 400


class HeadingReader(RedirectionReader):
    """Reads the beginnings of groups in `text`."""

    def _function_name(self) -> str:
        name = plain(first(self._spaced_word()))
        found = _PARENTHESES.match(self.text, self.at)
        self.at = found.end() if found else self.at
        while (start := self._after_blanks()) > self.at or self.text.startswith("\n", start):
            self.runner.step()
            self.at = start + self.text.startswith("\n", start)
        return name

    def _is_of_fish(self) -> bool:
        """Whether the function that was named has no braces: then its body ends with `end`."""
        return self.at < len(self.text) and _COMPOUND.match(self.text, self.at) is None

    def _is_loop(self) -> bool:
        """Whether `foreach` begins one, and is no name of something else: `foreach x (a b)`."""
        found = _FOR.match(self.text, self.at)
        return found is not None and found[0].endswith("(")

    def _defined(self, simple: SimpleCommand) -> str | None:
        """The name of the function that `name (` begins to define, if `)` follows."""
        if len(simple.words) != 1 or simple.redirections:
            return None
        closed = _CLOSED.match(self.text, self.at)
        if closed is None:
            return None
        self.at = closed.end()
        return plain(first(simple.words[0]))

    def _heading(self, opener: str) -> tuple[str, list[Value]]:
        """What stands between `for` or `case` and the commands; of `for` the variable, and what it was."""
        if opener == "case":
            self._spaced_word()
            self.at = self._after_blanks()
            if self.text.startswith("in", self.at):
                self.at += 2
        elif opener in COUNTED:
            found = _FOR.match(self.text, self.at)
            if found is None:
                return "", []
            self.at = found.end()
            values: list[str] = []
            several = False
            if found[0].endswith(("in", "(")):
                while (start := self._after_blanks()) < len(self.text):
                    self.runner.step()
                    self.at = start
                    if self.text[start] in ";\n&|()<>":
                        self.at += found[0].endswith("(") and self.text[start] == ")"
                        break
                    word = self._word()
                    several = several or bool(source(word))
                    values += self._fields(word)
                values = [*dict.fromkeys(values)]
            else:
                self.at -= 1
                given = self.runner.positional
                values = ["$1"] if given is None else [word for words in given for word in words[1:]]
            if len(values) > MOST_VALUES and not several:
                raise TooMuch
            name, *others = (found[2] or found[1]).split()
            before = self.runner.values(name)
            for each in others:  # `for a b in x y` of zsh
                self.runner.assign(each, tuple(values) or ("",), False, False)
            self.runner.assign(name, tuple(values) or ("",), False, True)
            return name, before
        return "", []

    def _calculated(self) -> None:
        """What `((...))` assigns is not worked out."""
        if self.text.startswith("(", self.at):
            end = self.text.find("))", self.at, self.at + LONGEST_CALCULATED)
            if end >= 0:
                self.runner.remember("let", [self.text[self.at : end]], None, False)

    def _array(self) -> list[list[str]]:
        """What an array may be assigned."""
        self.at += 1
        words: list[Raw] = []
        while self.at < len(self.text):
            self.runner.step()
            self.at = self._after_blanks()
            char = self.text[self.at : self.at + 1]
            if char == ")":
                self.at += 1
                self._word()  # what is glued to it belongs to it
                break
            is_substitution = char in "<>" and self.text.startswith("(", self.at + 1)
            if char in ("", "\n"):
                self.at += 1
                continue
            if char in ";&|<>(" and not is_substitution:
                break  # bash gives up there, and goes on with the next line
            words.append(self._word())
        return [[word for raw in words for word in fields(chosen(raw, turn))] for turn in turns(words)]
