"""How the live policies of a service process are opened and watched, and who is told of bad files, of
policies that govern nobody, and of what an edit of files took away from the API."""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api import metrics
from api.auth.signing_secret import signing_secret
from api.caller import Caller
from api.clock import Clock, Ids, iso, random_ids, seconds, system_clock
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.table import INSTALLATION, counter
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.settings import Settings
from api.store import accounts
from api.store.policy_archive import SqlArchive
from engine.conditions.values import never
from engine.documents.yaml import read
from engine.errors import Problem
from engine.live import LivePolicies
from engine.repository import definitions
from engine.repository.archive import FileChange, FileRecord
from engine.repository.cache import DocumentCache
from engine.repository.repository import Repository
from engine.repository.snapshot import Snapshot
from engine.worktree import git
from engine.worktree.commits import CommitQueue
from engine.worktree.disk import listed_paths, shown
from engine.worktree.observer import Progress
from engine.worktree.paths import DEFAULT, path_of_settings
from schemas.suggestion import suggestion

log = logging.getLogger("governance.policies")

MOST_ERRORS = 100
MOST_REPLACED = 10
ACCEPTED = "#replaced_accepted"
"""The counter that says up to when the files that were replaced are accepted, in milliseconds."""
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
    commits = CommitQueue(settings.policies_dir, metrics.commits_waiting)
    repository = Repository(
        settings.policies_dir,
        SqlArchive(store, clock, ids, writer),
        clock=lambda: iso(clock()),
        cache=DocumentCache(
            settings.data_dir / "cache", hmac.digest(signing_secret(settings), CACHE_PURPOSE, "sha256")
        ),
        commit=commits.add if settings.git == "commit" else None,
        installation=f"{installation:016x}",
    )
    if settings.git == "commit" and not git.in_work_tree(settings.policies_dir):
        log.warning(
            "GOVERNANCE_GIT=commit, but `%s` is in no git work tree, so nothing will be committed; "
            "run `git init` there, or leave the setting out",
            settings.policies_dir,
        )
    told = Teller()

    def changed(changes: Sequence[FileChange]) -> None:
        _tell_of_lost(repository, changes)
        _tell_of_lost_settings(repository, changes)
        told.tell(store, live)

    live = LivePolicies(
        repository,
        on_changed=changed,
        on_failed=lambda problems: _tell(writer, live, problems),
        warnings=lambda: [*commits.problems, *_nothing_watched(repository)],
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


class Teller:
    """Tells the log of warnings and of policies that wait for a setting of their organisation, each once;
    `/health` names them as long as they are there."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, store: Database, live: LivePolicies) -> None:
        messages = {each["message"] for each in live.inactive()}
        with contextlib.suppress(DatabaseUnavailable):
            messages |= {problem.message for problem in store.read_here(warnings, live)}
        messages |= {problem.message for problem in _nothing_watched(live.repository)}
        for message in sorted(messages - self._told):
            log.warning("%s", message)
        self._told = messages


def warnings(live: LivePolicies) -> list[Problem]:
    """What is in force as the files say, and is hardly meant. For a thread that may query."""
    return [
        *_nothing_enforced(live),
        *_unknown_organisations(live),
        *_nobody_agrees(live),
        *_nobody_approves(live),
        *_unguarded(live),
        *_asked_of(live).in_vain,
        *_told_of_replaced(live),
    ]


def replaced(live: LivePolicies) -> list[str]:
    """The files of this folder that gave way to what is in force, although nobody knew whether they were
    meant, and that no admin has accepted since. For a thread that may query."""
    until = counter(ACCEPTED)
    return sorted(each.path for each in live.replaced() if seconds(each.at) * 1_000 >= until)


def accept_replaced(transaction: Transaction, caller: Caller, files: Sequence[str]) -> None:
    """An admin has read which files gave way."""
    transaction.put({ACCEPTED: int(transaction.now * 1_000) + 1})
    transaction.audit(
        caller.organisation_id,
        "policy.replaced_accepted",
        actor=caller.actor,
        details={"count": len(files), "files": files[:MOST_ERRORS]},
    )


def _told_of_replaced(live: LivePolicies) -> list[Problem]:
    files = replaced(live)
    if not files:
        return []
    message = (
        "this policies folder is of another time than the database, as after a deployment or a copy was put "
        "back, so these files gave way to what is in force: "
        + f"{listed_paths(files, MOST_REPLACED)}; put there again what you mean, or save or roll back the "
        "policy; if what is in force is "
        "right, an admin says so with `POST /v1/policies/accept-replaced`"
    )
    return [Problem(message, "", "replaced")]


def _named(transaction: Transaction) -> int:
    """The id of a database that has none yet."""
    if not transaction.counter(INSTALLATION):
        transaction.put({INSTALLATION: secrets.randbits(62) + 1})
    return transaction.counter(INSTALLATION)


def _nothing_enforced(live: LivePolicies) -> list[Problem]:
    snapshot = live.snapshot
    for organisation_id in snapshot.organisations():
        for rule in live.ruleset(organisation_id).rules.values():
            if rule.policy.enabled and rule.policy.mode == "enforce" and not rule.lacking:
                return []
    there = "there is none" if snapshot.count == 0 else "each one is disabled, in shadow mode or inactive"
    message = f"no policy is enforced, so that every call is allowed: {there}"
    return [Problem(message, "", "nothing_enforced")]


def _nothing_watched(repository: Repository) -> list[Problem]:
    """A folder of a version without detectors raises no alerts. An empty folder says that none is meant."""
    if repository.snapshot.detectors or (repository.root / "detectors").is_dir():
        return []
    message = (
        "nothing unusual raises an alert: the policies folder has no `detectors/`, as one of an older"
        " version; copy `detectors/` and `tools/library/` from the `policies.d` that comes with the service,"
        " or make an empty folder `detectors/` if none is meant"
    )
    return [Problem(message, "", "no_detectors", "detectors")]


def _unknown_organisations(live: LivePolicies) -> list[Problem]:
    """Files of an organisation that is not there govern nobody; mostly its name is misspelt."""
    snapshot = live.snapshot
    files = {
        f"organisations/{name}": (name, f"the files in `organisations/{name}/` govern nobody")
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


def _nobody_agrees(live: LivePolicies) -> list[Problem]:
    """Where two admins must agree and there is one, no change is ever made, and no halt ended."""
    return [
        Problem(
            f"`{path_of_settings(name)}` asks for {wanted} admins to agree to a change, and to the end of a "
            f"halt, but {there} can log in: `governance users add EMAIL --role admin --organisation {name}` "
            "makes another one",
            "",
            "nobody_agrees",
            path_of_settings(name),
        )
        for name, settings in sorted(live.snapshot.settings.items())
        if (wanted := _approvers(settings.values)) > 1
        and (there := accounts.count_admins(name)) < wanted
        and accounts.organisation(name) is not None
    ]


def _unguarded(live: LivePolicies) -> list[Problem]:
    told = "sets `systemFolders` without `/`, so that nothing keeps agents from deleting all; name it again"
    return [
        Problem(f"`{path_of_settings(name)}` {told}", "", "unguarded", path_of_settings(name))
        for name, settings in sorted(live.snapshot.settings.items())
        if "/" not in settings.values.get("systemFolders", "/")
    ]


def _nobody_approves(live: LivePolicies) -> list[Problem]:
    """Policies whose calls wait for more people than there are."""
    return [
        Problem(
            f"`{policy_id}` asks for {wanted} people to approve a call, each {' or '.join(roles)}, but "
            f"{there} can log in: `governance users add EMAIL --role {roles[-1]} --organisation {name}` "
            "makes another one",
            "",
            "nobody_approves",
        )
        for (name, wanted, roles), policy_id in sorted(_asked_of(live).approvals.items())
        if (there := accounts.count_people(name, roles)) < wanted and accounts.organisation(name) is not None
    ]


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What the policies of a snapshot ask for: of fields `in_vain`, and of whom `approvals`, as one policy
    for each organisation, number and roles."""

    snapshot: Snapshot
    in_vain: list[Problem]
    approvals: dict[tuple[str, int, tuple[str, ...]], str]


_last_asked: AskedFor | None = None


def _asked_of(live: LivePolicies) -> AskedFor:
    """Looked for once a snapshot, since there may be very many policies."""
    global _last_asked
    if (last := _last_asked) is not None and last.snapshot is live.snapshot:
        return last
    found = AskedFor(live.snapshot, [], {})
    for name in sorted(found.snapshot.organisations()):
        for policy_id, rule in sorted(live.ruleset(name).rules.items()):
            policy = rule.policy
            if not policy.enabled:
                continue
            found.in_vain.extend(
                Problem(f"`{policy_id}` of `{name}` asks in vain: {why}", "", "value_never")
                for condition in rule.conditions
                if (why := never(condition)) is not None
            )
            if policy.action == "require_approval" and policy.mode == "enforce" and policy.approval:
                asked = name, policy.approval.approvers, policy.approval.roles
                found.approvals.setdefault(asked, policy_id)
    del found.in_vain[MOST_ERRORS:]
    if live.snapshot is found.snapshot:  # else the rules may be those of another one
        _last_asked = found
    return found


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


def _tell_of_lost_settings(repository: Repository, changes: Sequence[FileChange]) -> None:
    """The same of an organisation's settings: who must agree to changes and who is told stand there, in a
    file that git may not know yet."""
    for change in changes:
        before = change.before
        if change.source != "file" or before is None or before.kind != "settings":
            continue
        mine = before.organisation_id
        versions = definitions.versions_of(repository, "settings", mine, mine)
        contents = [each.content for each in versions if each.version == before.version]
        if not contents:
            continue
        was = read(contents[0]).root.value["settings"]
        now = repository.snapshot.settings_of(mine).values
        alone = _approvers(now) < 2 <= _approvers(was)
        lost = sorted({name for name in was if name not in now} | ({"changes"} if alone else set()))
        if lost:
            gone = "is gone" if change.after is None else "does not say so any more"
            log.warning(
                "of the settings of `%s`, %s is not in force any more%s, since its file `%s` %s; version %s "
                "stays in `GET /v1/organisation/settings/versions`, and `PUT /v1/organisation/settings` "
                "brings it back",
                mine,
                ", ".join(f"`{name}`" for name in lost),
                ", so that one admin alone may change policies and people" if alone else "",
                shown(change.path),
                gone,
                before.version,
            )


def _approvers(settings: Mapping[str, Any]) -> int:
    """How many admins must agree to a change."""
    return int((settings.get("changes") or {}).get("approvers", 1))


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
