"""The paths that one call reads, writes, deletes or names, each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.derived.files.path_text import LONGEST, paths_of, within
from engine.derived.payload import DistinctTexts
from engine.shell.files.file_calls import Use

MOST_BASES: Final = 8
"""Folders of a call, each of which a tool may take for that."""
MOST_READ: Final = 2**20
"""Characters of the paths of one call, each as far as `LONGEST`: many may begin in one folder, or be what one
command does to many names in many folders. What comes beyond is not read."""


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
