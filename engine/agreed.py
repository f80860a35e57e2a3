"""What disk and archive last agreed on: by it, an edit of a file is told from a file that is merely old.

Kept by path, with the revision at which the two were seen to be the same; after a restart it is read back
from the marker, as far as that is known. It decides nothing about files.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.archive import Records
from engine.notes import Marker


class Agreed:
    """Digests by path; None: there was no file. Nothing is `known` of a folder that was never compared."""

    def __init__(self) -> None:
        self.known = False
        # A path that is not in it was agreed to have no file, at `_revision`.
        self._paths: dict[str, tuple[str | None, int]] = {}
        self._revision = 0

    @classmethod
    def by(cls, marker: Marker | None, records: Records) -> Agreed:
        """What the marker of a folder stands for, if the archive knows it."""
        agreed = cls()
        if marker is None or records.recorded_at(marker.revision) != marker.recorded_at:
            return agreed
        said: dict[str, str | None] = {path: record.digest for path, record in records.files().items()}
        for path in records.changed_since(marker.revision):
            said[path] = None
            for at, digest in records.history(path):
                if at <= marker.revision:
                    said[path] = digest
        agreed.begin(said, marker.revision)
        return agreed

    def begin(self, said: Mapping[str, str | None], revision: int) -> None:
        """All of the disk was compared at this revision, and all was the same."""
        self.known, self._revision, self._paths = True, revision, {}
        self.add(said, revision)

    def add(self, said: Mapping[str, str | None], revision: int) -> None:
        """These paths were the same at this revision; ignored as long as nothing is known of the others."""
        if self.known:
            self._paths.update({path: (digest, revision) for path, digest in said.items()})

    def on(self, path: str) -> str | None:
        """What the file was."""
        return self._paths.get(path, (None, 0))[0]

    def at(self, path: str) -> int:
        """The revision at which that was so."""
        return self._paths.get(path, (None, self._revision))[1]
