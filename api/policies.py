"""How the live policies of a service process are opened and watched, and who is told of bad files."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from api import metrics
from api.clock import Clock, Ids, iso, random_ids, system_clock
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.settings import Settings
from api.store import accounts
from api.store.policy_archive import SqlArchive
from engine.errors import Problem
from engine.live import LivePolicies
from engine.repository.cache import DocumentCache
from engine.repository.repository import Repository
from engine.worktree import git
from engine.worktree.commits import CommitQueue
from engine.worktree.observer import Progress
from schemas.suggestion import suggestion

log = logging.getLogger("governance.policies")

MOST_ERRORS = 100


@contextlib.contextmanager
def open_policies(
    settings: Settings,
    store: Database,
    writer: Writer,
    *,
    clock: Clock = system_clock,
    ids: Ids = random_ids,
    progress: Progress | None = None,
) -> Iterator[LivePolicies]:
    """The policies in force, watched until the end. Raises RefusedToStart."""
    commits = CommitQueue(settings.policies_dir)
    repository = Repository(
        settings.policies_dir,
        SqlArchive(store, clock, ids, writer),
        clock=lambda: iso(clock()),
        cache=DocumentCache(settings.data_dir / "cache"),
        commit=commits.add if settings.git == "commit" else None,
    )
    if settings.git == "commit" and not git.in_work_tree(settings.policies_dir):
        log.warning(
            "GOVERNANCE_GIT=commit, but `%s` is in no git work tree, so nothing will be committed; "
            "run `git init` there, or leave the setting out",
            settings.policies_dir,
        )
    live = LivePolicies(
        repository,
        on_changed=lambda changes: _tell_of_unknown(
            store, {each.subject.organisation_id for each in changes}
        ),
        on_failed=lambda problems: _tell(writer, live, problems),
    )
    live.start(progress)
    _tell_of_unknown(store, set(live.snapshot.policies))
    live.watch()
    if settings.git == "commit":
        commits.start()
    try:
        yield live
    finally:
        live.close()
        commits.close()


def _tell_of_unknown(store: Database, organisations: set[str]) -> None:
    """Policies in the folder of an organisation that is not there govern nobody; mostly it is misspelt."""
    try:
        known = {each["organisationId"] for each in store.read_here(accounts.list_organisations)}
    except DatabaseUnavailable:
        return
    for name in sorted(organisations - known):
        log.warning(
            "the policies in `organisations/%s/` govern nobody: there is no such organisation%s",
            name,
            suggestion(name, sorted(known)),
        )


def _tell(writer: Writer, live: LivePolicies, problems: Sequence[Problem]) -> None:
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
