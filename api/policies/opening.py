"""How the live policies of a service process are opened and watched, and who is told of bad files."""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from api import metrics
from api.auth.signing_secret import signing_secret
from api.clock import Clock, Ids, iso, random_ids, system_clock
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.postgres import Postgres
from api.database.table import INSTALLATION, counter
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.policies.lost import tell_of_lost, tell_of_lost_documents, tell_of_lost_settings
from api.policies.warnings import MOST_ERRORS, nothing_watched, warnings
from api.settings import Settings
from api.store.policy_archive import SqlArchive
from engine.errors import Problem
from engine.live import LivePolicies
from engine.repository.archive import FileChange
from engine.repository.cache import DocumentCache
from engine.repository.repository import Repository
from engine.worktree import git_state
from engine.worktree.commits import CommitQueue
from engine.worktree.observer import Progress

log = logging.getLogger("governance.policies")
CACHE_PURPOSE = b"agent-governance-service: cache of checked policies"


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
    installation = store.read_here(counter, INSTALLATION) or writer.write_here(_named)
    if isinstance(store.peewee, Postgres):
        store.peewee.installation = installation
    commits = CommitQueue(settings.policies_dir, metrics.commits_waiting)
    repository = Repository(
        settings.policies_dir,
        SqlArchive(store, clock, ids, writer),
        clock=lambda: iso(clock()),
        cache=DocumentCache(
            settings.data_dir / "cache", hmac.digest(signing_secret(settings), CACHE_PURPOSE, "sha256")
        ),
        commit=commits.add if settings.git == "commit" else None,
        note_commit=commits.note if settings.git == "commit" else None,
        installation=f"{installation:016x}",
    )
    if settings.git == "commit" and not git_state.in_work_tree(settings.policies_dir):
        log.warning(
            "GOVERNANCE_GIT=commit, but `%s` is in no git work tree, so nothing will be committed; "
            "run `git init` there, or leave the setting out",
            settings.policies_dir,
        )
    told = Teller()

    def changed(changes: Sequence[FileChange]) -> None:
        tell_of_lost(repository, changes)
        tell_of_lost_settings(repository, changes)
        tell_of_lost_documents(repository, changes)
        told.tell(store, live)

    live = LivePolicies(
        repository,
        on_changed=changed,
        on_failed=lambda problems: _tell(writer, live, problems),
        warnings=lambda: [*commits.problems, *nothing_watched(repository)],
    )
    if settings.git == "commit":
        commits.recover()
    live.start(progress)
    told.tell(store, live)
    live.watch()
    if settings.git == "commit":
        commits.start()
    try:
        yield live
    finally:
        live.close()
        commits.close()


class Teller:
    """Tells the log of warnings and of policies that wait for a setting of their organisation, each once;
    `/health` names them as long as they are there."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, store: Database, live: LivePolicies) -> None:
        messages = {each["message"] for each in live.inactive()}
        with contextlib.suppress(DatabaseUnavailable):
            messages |= {problem.message for problem in store.read_here(warnings, live)}
        messages |= {problem.message for problem in nothing_watched(live.repository)}
        for message in sorted(messages - self._told):
            log.warning("%s", message)
        self._told = messages


def _named(transaction: Transaction) -> int:
    """The id of a database that has none yet."""
    if not transaction.counter(INSTALLATION):
        transaction.put({INSTALLATION: secrets.randbits(62) + 1})
    return transaction.counter(INSTALLATION)


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
