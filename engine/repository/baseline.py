"""The merge base of disk and archive: by it, an edit of a file is told from a file that is merely old.

Kept by path, with the revision at which the two were seen to be the same; after a restart it is read back
from the marker, as far as that is known. It decides nothing about files.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.repository.archive import FileRecord, Records
from engine.worktree.markers import Marker


class Baseline:
    """Digests by path; None: there was no file. Nothing is `known` of a folder that was never compared."""

    def __init__(self) -> None:
        self.known = False
        self.went_back = False
        """The archive is older than the folder: it was put back from a copy, and they disagree yet."""
        self._digests: dict[str, str | None] = {}
        self._revisions: dict[str, int] = {}
        # A path that is in neither had no file, at this revision.
        self._revision = 0

    def restore(self, marker: Marker | None, records: Records, files: Mapping[str, FileRecord]) -> None:
        """What the marker of a folder stands for, if the archive knows it; `files` are those at its head."""
        self.known = False
        self.went_back = marker is not None and marker.revision > records.head()[0]
        if marker is None or records.recorded_at(marker.revision) != marker.recorded_at:
            return
        digests: dict[str, str | None] = {path: record.digest for path, record in files.items()}
        for path in records.changed_since(marker.revision):
            digests[path] = None
            for at, digest in records.history(path):
                if at <= marker.revision:
                    digests[path] = digest
        self.begin(digests, marker.revision)

    def forget(self) -> None:
        """The archive does not know what the folder followed: it was put back, or another one took over."""
        self.known, self.went_back = False, True
        self._digests, self._revisions = {}, {}

    def begin(self, digests: Mapping[str, str | None], revision: int) -> None:
        """Start anew: disk and archive agreed on all paths at this revision."""
        self.known, self.went_back = True, False
        self._revision, self._digests, self._revisions = revision, {}, {}
        self.add(digests, revision)

    def add(self, digests: Mapping[str, str | None], revision: int) -> None:
        """Note that disk and archive agreed on these paths at this revision. Ignored before `begin`: a path
        that is not named is taken for one without a file."""
        if self.known:
            self._digests.update(digests)
            self._revisions.update(dict.fromkeys(digests, revision))

    def digest(self, path: str) -> str | None:
        """The digest of the file when disk and archive last agreed on it; None: there was no file."""
        return self._digests.get(path)

    def revision(self, path: str) -> int:
        """The revision at which they last agreed on it."""
        return self._revisions.get(path, self._revision)
