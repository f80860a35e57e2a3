"""What disk and archive last agreed on: by it, an edit of a file is told from a file that is merely old.

Kept by path, with the revision at which the two were seen to be the same; after a restart it is read back
from the marker, as far as that is known. It decides nothing about files.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.repository.archive import FileRecord, Records
from engine.worktree.markers import Marker


class Agreed:
    """Digests by path; None: there was no file. Nothing is `known` of a folder that was never compared."""

    def __init__(self) -> None:
        self.known = False
        self._said: dict[str, str | None] = {}
        self._at: dict[str, int] = {}
        # A path that is in neither was agreed to have no file, at this revision.
        self._revision = 0

    @classmethod
    def by(cls, marker: Marker | None, records: Records, files: Mapping[str, FileRecord]) -> Agreed:
        """What the marker of a folder stands for, if the archive knows it; `files` are those at its head."""
        agreed = cls()
        if marker is None or records.recorded_at(marker.revision) != marker.recorded_at:
            return agreed
        said: dict[str, str | None] = {path: record.digest for path, record in files.items()}
        for path in records.changed_since(marker.revision):
            said[path] = None
            for at, digest in records.history(path):
                if at <= marker.revision:
                    said[path] = digest
        agreed.begin(said, marker.revision)
        return agreed

    def begin(self, said: Mapping[str, str | None], revision: int) -> None:
        """All of the disk was compared at this revision, and all was the same."""
        self.known, self._revision, self._said, self._at = True, revision, {}, {}
        self.add(said, revision)

    def add(self, said: Mapping[str, str | None], revision: int) -> None:
        """These paths were the same at this revision; ignored as long as nothing is known of the others."""
        if self.known:
            self._said.update(said)
            self._at.update(dict.fromkeys(said, revision))

    def on(self, path: str) -> str | None:
        """What the file was."""
        return self._said.get(path)

    def at(self, path: str) -> int:
        """The revision at which that was so."""
        return self._at.get(path, self._revision)
