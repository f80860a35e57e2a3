"""The live policies of a service process: what the API asks of them, and how they are opened and watched.

Everything in `Rules` may be called from any thread. The writing methods return once the change is committed
and in force in this process; they raise the errors of `engine.errors`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from api import metrics
from api.clock import Clock, Ids, iso, random_ids, system_clock
from api.database.connection import Database, DatabaseUnavailable
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.settings import Settings
from api.store.policy_archive import SqlArchive
from engine.errors import Problem
from engine.live import LiveRules
from engine.matching.ruleset import Ruleset
from engine.model import Policy
from engine.repository.archive import VersionRecord
from engine.repository.cache import DocumentCache
from engine.repository.repository import Offer, Repository
from engine.repository.snapshot import Snapshot, Stored
from engine.worktree import git
from engine.worktree.observer import Progress

log = logging.getLogger("governance.policies")

MOST_ERRORS = 100


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


@contextlib.contextmanager
def open_rules(
    settings: Settings,
    store: Database,
    writer: Writer,
    *,
    clock: Clock = system_clock,
    ids: Ids = random_ids,
    progress: Progress | None = None,
) -> Iterator[LiveRules]:
    """The policies in force, watched until the end. Raises RefusedToStart."""
    repository = Repository(
        settings.policies_dir,
        SqlArchive(store, clock, ids, writer),
        clock=lambda: iso(clock()),
        cache=DocumentCache(settings.data_dir / "cache"),
        commit=git.commit if settings.git == "commit" else None,
    )
    if settings.git == "commit" and not git.in_work_tree(settings.policies_dir):
        log.warning(
            "GOVERNANCE_GIT=commit, but `%s` is in no git work tree, so nothing will be committed; "
            "run `git init` there, or leave the setting out",
            settings.policies_dir,
        )
    live = LiveRules(repository, on_failed=lambda problems: _tell(writer, live, problems))
    live.start(progress)
    live.watch()
    try:
        yield live
    finally:
        live.close()


def _tell(writer: Writer, live: LiveRules, problems: Sequence[Problem]) -> None:
    """Count a refused batch, and put it into the audit log and the outbox."""
    metrics.reload_failed()
    data = {
        "policyRevision": live.revision,
        "count": len(problems),
        "errors": [_shown(problem) for problem in problems[:MOST_ERRORS]],
    }

    def job(transaction: Transaction) -> None:
        transaction.audit(
            "default", "policy.reload_failed", actor="file", policyRevision=live.revision, details=data
        )
        transaction.notify("default", "policy.reload_failed", data)

    try:
        writer.write_here(job)
    except DatabaseUnavailable as error:
        log.warning("the failed reload could not be recorded: %s", error)


def _shown(problem: Problem) -> dict[str, Any]:
    shape: dict[str, Any] = {"message": problem.message}
    for name in ("file", "line", "column", "pointer", "code"):
        if value := getattr(problem, name):
            shape[name] = value
    return shape
