"""The bounded list of what a reading has found: texts, simple commands, pipelines, and what each hands on.

Decides how much one text may cost and leave. Knows nothing of syntax, of values or of which command starts
which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.shell.expansion import TooMuch
from engine.shell.variables.choices import MOST_TURNS

MOST_STEPS: Final = 12_000
MOST_COMMANDS: Final = 600
SPARE_SIZE: Final = 65_536
"""All entries together may be so much larger than twice the text."""
FEWEST_TURNS: Final = 8


class EntryList:
    """What was found so far; made for texts of `size` characters."""

    def __init__(self, size: int) -> None:
        self.entries: dict[str, None] = {}
        self.simple: dict[str, bool] = {}
        """The simple commands among them, and whether code in another language starts each."""
        self.chains: dict[str, None] = {}
        """The pipelines among them."""
        self.run_by: dict[str, dict[str, None]] = {}
        """For commands and pipelines, the programs that run what those give as their own program."""
        self.origins: dict[str, dict[str, None]] = {}
        """For commands and pipelines, those whose output they hand on: that wrote the files which they read,
        or that they start."""
        self.in_code = False
        self._room = 2 * size + SPARE_SIZE
        self._steps = MOST_STEPS
        self._commands = MOST_COMMANDS

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

    def chained(self, chain: str) -> None:
        self.add(chain)
        self.chains[chain] = None

    def command(self, shown: str) -> None:
        """Add the entry of a simple command."""
        self.add(shown)
        self.simple[shown] = self.simple.get(shown, True) and self.in_code

    def lengthened(self, before: tuple[str, ...], shown: str) -> tuple[str, ...]:
        """The pipelines that a command ends; where nothing is left of it, as of an empty `$1`, those before
        it."""
        if not shown:
            return before
        found = tuple(f"{chain} | {shown}" for chain in before) or (shown,)
        for chain, longer in zip(before, found, strict=False) if self.origins else ():
            self.behind(longer, [], (self.origins.get(chain, {}), self.origins.get(shown, {})))
        return found

    def behind(self, shown: str, chains: Sequence[str], origins: Sequence[Mapping[str, None]] = ()) -> None:
        """Tell that a command or pipeline hands on what others give, and what those hand on."""
        origins = [dict.fromkeys(chains), *(self.origins.get(chain, {}) for chain in chains), *origins]
        self.step(sum(map(len, origins)) // 16)
        for each in origins:
            if each:
                self.origins.setdefault(shown, {}).update(each)

    def given_program(self, chains: Sequence[str], shown: str) -> None:
        """Tell that a command runs what pipelines print, or what they hand on, as its program."""
        found = dict.fromkeys(origin for chain in chains for origin in self.origins.get(chain, ()))
        self.step(len(found))
        for origin in found:
            self.chained(f"{origin} | {shown}")
        for chain in (*chains, *found):
            self.run_by.setdefault(chain, {})[shown.partition(" ")[0]] = None

    def may_be(self, instead: str, shown: str, before: tuple[str, ...]) -> None:
        """Tell that a command may be another: a file of its name, if that is looked for before programs."""
        self.behind(shown, [instead])
        for chain in self.lengthened(before, instead) if before else ():
            self.chained(chain)

    def most_turns(self) -> int:
        """How many ways of one command may be tried: less where little is left."""
        return max(FEWEST_TURNS, min(MOST_TURNS, self._steps // 400))
