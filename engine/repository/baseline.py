"""The merge base of disk and archive: by it, an edit of a file is told from a file that is merely old.

Kept by path, with the revision at which the two were seen to be the same; after a restart it is read back
from the marker, as far as that is known. It decides nothing about files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from engine.repository.archive import FileRecord, Records
from engine.worktree.markers import Marker


class Baseline:
    """Digests by path; None: there was no file. Nothing is `known` of a folder that was never compared."""

    def __init__(self) -> None:
        self.known = False
        self.parted_at: str | None = None
        """When that was recorded which the folder followed and the archive does not know: it was put back
        from a copy, or another one took over, and they disagree yet; if it was so again, the first time."""
        self._followed: Mapping[str, str] | None = None
        self._digests: dict[str, str | None] = {}
        self._revisions: dict[str, int] = {}
        # A path that is in neither had no file, at this revision.
        self._revision = 0

    def restore(self, marker: Marker | None, records: Records, files: Mapping[str, FileRecord]) -> None:
        """What the marker of a folder stands for, if the archive knows it; `files` are those at its head."""
        self.parted_at = None
        if marker is None:
            self.forget(None)
            return
        for each, followed in ((marker, None), (marker.last, {})):
            if records.recorded_at(each.revision) != each.recorded_at:
                self.forget(each.recorded_at, followed)
                return
        digests: dict[str, str | None] = {path: record.digest for path, record in files.items()}
        for path in records.changed_since(marker.revision):
            digests[path] = None
            for at, digest in records.history(path):
                if at <= marker.revision:
                    digests[path] = digest
        self.begin(digests, marker.revision)

    def forget(self, parted_at: str | None, followed: Mapping[str, str] | None = None) -> None:
        """Nothing is known of the folder, or it followed what the archive does not know, recorded then:
        files of these digests, all that it has where nothing is said."""
        self.known, self._followed = False, followed
        self.parted_at = min(filter(None, (self.parted_at, parted_at)), default=None)
        self._digests, self._revisions = {}, {}

    def begin(self, digests: Mapping[str, str | None], revision: int) -> None:
        """Start anew: disk and archive agreed on all paths at this revision."""
        self.known, self.parted_at = True, None
        self._revision, self._digests, self._revisions = revision, {}, {}
        self.add(digests, revision)

    def add(self, digests: Mapping[str, str | None], revision: int) -> None:
        """Note that disk and archive agreed on these paths at this revision. Ignored before `begin`, but
        where they have parted: a path that is not named is taken for one without a file."""
        if self.known or self.parted_at is not None:
            self._digests.update(digests)
            self._revisions.update(dict.fromkeys(digests, revision))

    def knows(self, path: str) -> bool:
        """Whether disk and archive have agreed on it."""
        return self.known or path in self._digests

    def followed(self, path: str, digest: str | None) -> bool:
        """Whether what the archive does not know any more had such a file."""
        if self.parted_at is None or digest is None:
            return False
        return self._followed is None or self._followed.get(path) == digest

    def parted_since(self, records: Records, history: Sequence[tuple[int, str | None]]) -> int:
        """How many changes of a file the archive had after they have parted, through the API or from another
        node, so that none of the two is known to be the newer."""
        parted_at = self.parted_at
        if parted_at is None:
            return 0
        times = (records.recorded_at(at) or "" for at, _ in reversed(history))
        return sum(1 for _ in takewhile(lambda each: each > parted_at, times))

    def digest(self, path: str) -> str | None:
        """The digest of the file when disk and archive last agreed on it; None: there was no file."""
        return self._digests.get(path)

    def revision(self, path: str) -> int:
        """The revision at which they last agreed on it."""
        return self._revisions.get(path, self._revision)
