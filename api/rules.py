"""What the API asks of the live policies; `engine.live.LiveRules` is the real thing.

Everything here may be called from any thread. The writing methods return once the change is committed and in
force in this process; they raise the errors of `engine.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.matching.ruleset import Ruleset
from engine.model import Policy
from engine.repository.archive import VersionRecord
from engine.repository.repository import Offer
from engine.repository.snapshot import Snapshot, Stored


class Rules(Protocol):
    """The newest snapshot, and the ways to change it."""

    @property
    def revision(self) -> int:
        """The revision of the snapshot in force."""

    @property
    def snapshot(self) -> Snapshot:
        """Policies with their files, presets and packs, as in force."""

    def ruleset(self, organisation_id: str) -> Ruleset:
        """The compiled policies of an organisation; an empty set when it has none."""

    def catch_up(self, revision: int) -> None:
        """Bring the snapshot to at least this revision; raises when it cannot, so that nothing is decided."""

    def health(self) -> dict[str, Any]:
        """`{revision, count, stale, errors}` for `/health`."""

    def create(self, organisation_id: str, body: Mapping[str, Any], *, author: str) -> Stored:
        """A new policy of a JSON body. Raises DocumentError, PolicyExists."""

    def create_many(
        self, organisation_id: str, bodies: Sequence[Mapping[str, Any]], *, author: str
    ) -> list[Stored]:
        """Several new policies at once, or none of them."""

    def update(
        self,
        organisation_id: str,
        policy_id: str,
        changes: Mapping[str, Any],
        *,
        author: str,
        if_match: str | None = None,
    ) -> Stored:
        """Change the members sent; null removes. Raises PolicyNotFound, PreconditionFailed, DocumentError."""

    def delete(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> None:
        """Remove a policy and its file; its versions stay."""

    def rollback(
        self,
        organisation_id: str,
        policy_id: str,
        version: int,
        *,
        author: str,
        if_match: str | None = None,
    ) -> Stored:
        """Write an old state as a new version. Raises VersionNotFound."""

    def preset_upgrade(self, organisation_id: str, policy_id: str) -> Offer:
        """What the preset of a policy would change. Raises PolicyNotFound, PresetNotFound."""

    def upgrade(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> Stored:
        """Take over what `preset_upgrade` offers. Raises DocumentError when the outcome would not be good."""

    def versions(self, organisation_id: str, policy_id: str) -> list[VersionRecord]:
        """Every version, newest first, also of a deleted policy; empty when there never was one."""

    def policies_at(self, organisation_id: str, moment: int | str) -> tuple[int, list[Policy]] | None:
        """Revision and policies as they were at a revision, or at an ISO 8601 UTC time; None: no such one."""
