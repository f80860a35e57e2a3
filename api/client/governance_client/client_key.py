"""Whose is what stands in the journal: programs share its folder, each with an API key of its own, also of
other organisations.

A file has the tag of the secret that it was written with in its name. As what the service knows that key, by
its organisation and its id, which a rotation leaves as they are, is noted beside it, as soon as the service
has said so to any program that has the secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Final

from governance_client.events import new_id
from governance_client.settings import ClientSettings

KEY_HEADER: Final = "Governance-Key"
_NOTE: Final = "key"


class ClientKey:
    """The API key of one client; used from any thread, also after a fork."""

    def __init__(self, settings: ClientSettings) -> None:
        self._folder, self._service = settings.journal, digest(settings.url)
        self.tag = digest(settings.api_key)
        """Of its secret, which nobody gets from that."""
        self._known: dict[str, str] = {}

    @property
    def is_known(self) -> bool:
        """Whether the service, or a note, has said as what it knows the key."""
        return bool(self._id_of(self.tag))

    def learn(self, key_id: str) -> None:
        """As what the service says that it knows the key."""
        if key_id and self._id_of(self.tag) != key_id:
            self._known[self.tag] = key_id
            with contextlib.suppress(OSError):  # the next process is told the same
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                written = self._folder / f"{new_id()}.new"
                try:
                    written.write_text(json.dumps({_NOTE: key_id}), encoding="utf-8")
                    written.replace(self._note(self.tag))
                finally:
                    written.unlink(missing_ok=True)

    def has(self, tag: str) -> bool | None:
        """Whether a secret is one of this key, such as one from before a rotation; None: nobody can tell."""
        if tag == self.tag:
            return True
        mine, theirs = self._id_of(self.tag), self._id_of(tag)
        return mine == theirs if mine and theirs else None

    def is_replaced(self, tag: str) -> bool:
        """Whether a secret is one of another key of the same organisation. There only one key has a run, so
        where this one goes on with a run of that key, it has taken its place."""
        mine, theirs = self._id_of(self.tag), self._id_of(tag)
        return bool(theirs) and mine != theirs and mine.partition("/")[0] == theirs.partition("/")[0]

    def _id_of(self, tag: str) -> str:
        """Empty where it is not known, or its note is damaged."""
        if tag not in self._known:
            with contextlib.suppress(OSError, ValueError, RecursionError, TypeError, LookupError):
                self._known[tag] = str(json.loads(self._note(tag).read_bytes())[_NOTE])
        return self._known.get(tag, "")

    def _note(self, tag: str) -> Path:
        return self._folder / f"{self._service}-k{tag}.key"


def digest(text: str) -> str:
    """What stands for a text in the names of files."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
