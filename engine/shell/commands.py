"""Commands while they are read: the simple command, its pipeline, and what a reader asks of earlier ones.

Knows nothing of syntax or of what commands mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.shell.emulation import LONGEST_OUTPUT
from engine.shell.expansion import TooMuch
from engine.shell.files.whereabouts import Whereabouts
from engine.shell.variables.choices import MOST_TURNS, Raw
from engine.shell.variables.store import Positional, Value


@dataclass(slots=True)
class Assignment:
    """An assignment as written; `values` are what it may assign, of an array the lists, which go by
    `source`."""

    name: str
    added: bool
    values: list[Value]
    source: str = ""


@dataclass(slots=True)
class SimpleCommand:
    """A simple command as written: its words, its redirections, its assignments."""

    words: list[Raw] = field(default_factory=list)
    redirections: list[tuple[str, Raw]] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    document: Raw | None = None
    """What a here-document or here-string gives it to read."""

    def __bool__(self) -> bool:
        return bool(self.words or self.redirections or self.assignments)

    def clear(self) -> None:
        self.words, self.redirections, self.assignments, self.document = [], [], [], None


@dataclass(slots=True)
class Pipeline:
    """A pipeline on its way. `given` and `before` are the input and the commands that a group it stands in
    is fed by; `output` and `chains` those of its last stage so far."""

    given: str | None
    before: tuple[str, ...]
    output: str | None = None
    chains: tuple[str, ...] = ()
    staged: bool = False
    piped: bool = False
    printed: tuple[str | None, ...] = ()
    """The output with each of the values that the variables in it may have."""
    outputs: list[str | None] = field(default_factory=list)
    turns: list[tuple[str | None, ...]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    group: str = ""
    """The text of the group that is the last stage."""

    def repeated(self) -> tuple[str | None, ...]:
        """The same for each turn of a loop around it."""
        most = max(map(len, self.turns), default=1)
        if most * sum(len(max(each, key=_size) or "") for each in self.turns if each) > LONGEST_OUTPUT:
            raise TooMuch
        every = [[each[min(turn, len(each) - 1)] for each in self.turns if each] for turn in range(most)]
        return tuple(None if None in texts else "".join(filter(None, texts)) for texts in every)

    def collected_each(self) -> tuple[str | None, ...]:
        """All that may have been printed so far, with each value that the variables in it may have."""
        if len(self.turns) == 1 and len(self.turns[0]) == 1 and _size(self.turns[0][0]) <= LONGEST_OUTPUT:
            return self.turns[0]
        found: list[str | None] = [""]
        for each in self.turns:
            several = list(dict.fromkeys(each)) or [""]
            if len(found) * len(several) > MOST_TURNS:
                return (None,)
            found = [None if one is None or two is None else one + two for one in found for two in several]
        if sum(map(_size, found)) > LONGEST_OUTPUT:
            raise TooMuch
        return tuple(dict.fromkeys(found))


def _size(text: str | None) -> int:
    return len(text or "")


class Runner(Protocol):
    """What a scanner needs to know of the commands read so far. `positional` are `$0`, `$1`, ...,
    `whereabouts` is where `cd` led, `printed` what the last command prints with each value that its variables
    may have."""

    positional: list[Positional] | None
    changes: int
    variables: dict[str, list[Value]]
    scattered: set[str]
    whereabouts: Whereabouts
    printed: tuple[str | None, ...]

    def step(self, cost: int = 1) -> None: ...
    def run(
        self, simple: SimpleCommand, given: str | None, before: tuple[str, ...], depth: int, certain: bool
    ) -> tuple[str, str | None]: ...
    def chained(self, chain: str) -> None: ...
    def behind(self, shown: str, chains: Sequence[str]) -> None: ...
    def lengthened(self, before: tuple[str, ...], shown: str) -> tuple[str, ...]: ...
    def values(self, name: str) -> list[Value]: ...
    def source(self, name: str) -> str: ...
    def assign(
        self, name: str, values: tuple[str, ...] | list[str], added: bool, certain: bool, source: str = ""
    ) -> None: ...
    def define(self, name: str, body: str) -> None: ...
    def surely_there(self, word: str) -> None: ...
    def substituted(self, word: str, output: str | None, chains: tuple[str, ...]) -> None: ...
    def script(
        self, text: str, depth: int, given: str | None = None
    ) -> tuple[tuple[str | None, ...], tuple[str, ...]]: ...
    def again(self, text: str, depth: int, given: str | None = None) -> tuple[str | None, ...]: ...
    def feeds_back(
        self, body: str, before: Mapping[str, list[Value]], given: list[Positional] | None
    ) -> bool: ...
    def loosen(self, before: Mapping[str, list[Value]], last: bool) -> None: ...
    def remember(self, name: str, words: Sequence[str], stdin: str | None, certain: bool) -> None: ...
    def stored(self, name: str) -> str | None: ...
