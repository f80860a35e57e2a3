"""In which folders a shell may be, by the `cd` before.

One that fails leaves the shell where it was, and the script goes on: so each folder before counts as well,
unless `&&` follows. Pure; knows nothing of a disk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.shell.expansion import TooMuch
from engine.shell.files.settled_path import settled

ABSOLUTE: Final = ("/", "~", "$")
ROUNDABOUT: Final = re.compile(r"[/~$][^\s:]*(?:/\.{1,2}(?:/|$)|//)|~\+(?:/|$)")
_UP: Final = re.compile(r"\.\.(?:/\.\.)*/?")
MOST_FOLDERS: Final = 32


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """`folder` is where each `cd` led, None where the call began; `others` are where the last one may have
    led instead, and `before` where the shell may be if it failed, which is left out where it is `sure`. Where
    the call began is among them without being named."""

    folder: str | None = None
    others: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    sure: bool = False

    def folders(self) -> tuple[str, ...]:
        """All that are known, without the one where the call began."""
        found = (self.folder, *self.others, *(() if self.sure else self.before))
        return tuple(each for each in dict.fromkeys(found) if each)

    def entered(self, target: str, certain: bool, searched: Sequence[str] = ()) -> Whereabouts:
        """The place after `cd target`; `searched` are the folders of `CDPATH`."""
        led = (self.folder, *self.others)
        sources = led if self.sure else (*led, *self.before, None)
        others = _distinct([_entered(each, target) for each in (*sources, *searched)])
        before = () if certain and _UP.fullmatch(target) else _distinct([*led, *self.before])
        if len(others) + len(before) > MOST_FOLDERS:
            raise TooMuch
        return Whereabouts(_entered(self.folder, target), others, before)

    def somewhere(self) -> Whereabouts:
        """The place after going back to one before."""
        return Whereabouts(None, (), _distinct([self.folder, *self.others, *self.before]))

    def known(self, sure: bool) -> Whereabouts:
        """The same place, where `&&` stands behind `cd` or no more."""
        return self if self.sure == sure or self.folder is None else replace(self, sure=sure)


def _distinct(folders: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys(folders) if each is not None)


def _entered(folder: str | None, target: str) -> str | None:
    if not target:
        return folder
    if target.startswith(ABSOLUTE) or folder is None:
        return settled(target) if ROUNDABOUT.match(target) else target
    return joined(folder, target)


def joined(folder: str, word: str) -> str:
    """A path from where the call began, of one from a folder."""
    if len(folder) + len(word) > 4096:
        raise TooMuch
    path = settled(f"{folder}/{word}")
    return "/" + path.lstrip("/") if path.startswith("/") else path
