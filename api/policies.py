"""How the live policies of a service process are opened and watched, and who is told of bad files, of
policies that govern nobody, and of what an edit of files took away from the API."""

from __future__ import annotations

import contextlib
import hmac
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from api import metrics
from api.auth.signing_secret import signing_secret
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
from engine.repository.archive import FileChange, FileRecord
from engine.repository.cache import DocumentCache
from engine.repository.repository import Repository
from engine.worktree import git
from engine.worktree.commits import CommitQueue
from engine.worktree.disk import shown
from engine.worktree.observer import Progress
from engine.worktree.paths import DEFAULT, path_of_settings
from schemas.suggestion import suggestion

log = logging.getLogger("governance.policies")

MOST_ERRORS = 100
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
    commits = CommitQueue(settings.policies_dir, metrics.commits_waiting)
    repository = Repository(
        settings.policies_dir,
        SqlArchive(store, clock, ids, writer),
        clock=lambda: iso(clock()),
        cache=DocumentCache(
            settings.data_dir / "cache", hmac.digest(signing_secret(settings), CACHE_PURPOSE, "sha256")
        ),
        commit=commits.add if settings.git == "commit" else None,
    )
    if settings.git == "commit" and not git.in_work_tree(settings.policies_dir):
        log.warning(
            "GOVERNANCE_GIT=commit, but `%s` is in no git work tree, so nothing will be committed; "
            "run `git init` there, or leave the setting out",
            settings.policies_dir,
        )
    told = Told()

    def changed(changes: Sequence[FileChange]) -> None:
        _tell_of_lost(repository, changes)
        told.tell(store, live)

    live = LivePolicies(
        repository,
        on_changed=changed,
        on_failed=lambda problems: _tell(writer, live, problems),
        warnings=lambda: commits.problems,
    )
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


class Told:
    """Tells the log of warnings and of policies that wait for a setting of their organisation, each once;
    `/health` names them as long as they are there."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, store: Database, live: LivePolicies) -> None:
        messages = {each["message"] for each in live.inactive()}
        with contextlib.suppress(DatabaseUnavailable):
            messages |= {problem.message for problem in store.read_here(warnings, live)}
        for message in sorted(messages - self._told):
            log.warning("%s", message)
        self._told = messages


def warnings(live: LivePolicies) -> list[Problem]:
    """What is in force as the files say, and is hardly meant. For a thread that may query."""
    return [*_nothing_enforced(live), *_unknown_organisations(live)]


def _nothing_enforced(live: LivePolicies) -> list[Problem]:
    snapshot = live.snapshot
    for organisation_id in snapshot.organisations():
        for rule in live.ruleset(organisation_id).rules.values():
            if rule.policy.enabled and rule.policy.mode == "enforce" and not rule.lacking:
                return []
    there = "there is none" if snapshot.count == 0 else "each one is disabled, in shadow mode or inactive"
    message = f"no policy is enforced, so that every call is allowed: {there}"
    return [Problem(message, "", "nothing_enforced")]


def _unknown_organisations(live: LivePolicies) -> list[Problem]:
    """Files of an organisation that is not there govern nobody; mostly its name is misspelt."""
    snapshot = live.snapshot
    files = {
        f"organisations/{name}": (name, f"the policies in `organisations/{name}/` govern nobody")
        for name in sorted(snapshot.organisations())
    } | {
        path_of_settings(name): (name, f"the settings in `{path_of_settings(name)}` are nobody's")
        for name in sorted(snapshot.settings)
    }
    if {name for name, _ in files.values()} <= {DEFAULT}:
        return []
    known = sorted({DEFAULT, *(each["organisationId"] for each in accounts.list_organisations())})
    return [
        Problem(
            f"{what}: there is no such organisation{suggestion(name, known)}",
            "",
            "unknown_organisation",
            file,
        )
        for file, (name, what) in files.items()
        if name not in known
    ]


def _tell_of_lost(repository: Repository, changes: Sequence[FileChange]) -> None:
    """In the log: what an edit of files took out of force, and how it comes back. A checkout, a reset or a
    rebase that is given up does that to changes through the API."""
    lost = [
        each for each in changes if each.source == "file" and each.before and each.before.kind == "policy"
    ]
    for change in lost[:MOST_ERRORS]:
        before, after = change.before, change.after
        assert before is not None
        if change.moved:
            continue
        if after is None:
            what = f"its file `{shown(change.path)}` is gone"
        elif before.source == "api" and (older := _older(repository, after)) is not None:
            what = f"its file `{shown(change.path)}` says again what version {older} said"
        else:
            continue
        log.warning(
            "version %s of the policy `%s` is not in force any more, since %s; it stays in the archive, and "
            '`POST /v1/policies/%s/rollback` with {"version": %s} brings it back',
            before.version,
            before.document_id,
            what,
            before.document_id,
            before.version,
        )


def _older(repository: Repository, record: FileRecord) -> int | None:
    """The newest earlier version with the same bytes."""
    found = repository.versions(record.organisation_id, record.document_id)
    same = (each.version for each in found if each.version < record.version and each.digest == record.digest)
    return next(same, None)


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
