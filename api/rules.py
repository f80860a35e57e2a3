"""What the API asks of the live policies; `engine.live.LiveRules` is the real thing."""

from __future__ import annotations

from typing import Any, Protocol

from engine.ruleset import Ruleset


class Rules(Protocol):
    """The newest snapshot, by organisation."""

    @property
    def revision(self) -> int:
        """The revision of the snapshot in force."""

    def ruleset(self, organisation_id: str) -> Ruleset:
        """The compiled policies of an organisation; an empty set when it has none."""

    def catch_up(self, revision: int) -> None:
        """Bring the snapshot to at least this revision; raises when it cannot, so that nothing is decided."""

    def health(self) -> dict[str, Any]:
        """`{revision, count, stale, errors}` for `/health`."""
