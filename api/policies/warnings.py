"""What is in force as the files say, and is hardly meant: `/health` names it, and the log once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.caller import Caller
from api.clock import seconds
from api.database.table import counter
from api.database.transaction import Transaction
from api.store import accounts, runs
from engine.analysis.sequences import Sequences, waits
from engine.conditions.values import never
from engine.errors import Problem
from engine.live import LivePolicies
from engine.matching.ruleset import Ruleset
from engine.repository.repository import Repository
from engine.repository.snapshot import Snapshot
from engine.worktree.disk import listed_paths
from engine.worktree.paths import DEFAULT, path_for, path_of_settings
from schemas.suggestion import suggestion

MOST_ERRORS = 100
MOST_REPLACED = 10
ACCEPTED = "#replaced_accepted"
"""The counter that says up to when the files that were replaced are accepted, in milliseconds."""


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


def nothing_watched(repository: Repository) -> list[Problem]:
    """A folder of a version without detectors raises no alerts. An empty folder says that none is meant."""
    if repository.snapshot.detectors or "detectors" in repository.worktree.observer.folders:
        return []
    message = (
        "nothing unusual raises an alert: the policies folder has no `detectors/`, as one of an older"
        " version; copy `detectors/` and `tools/library/` from the `policies.d` that comes with the service,"
        " or make an empty folder `detectors/` if none is meant"
    )
    return [Problem(message, "", "no_detectors", "detectors")]


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


def _nothing_enforced(live: LivePolicies) -> list[Problem]:
    snapshot = live.snapshot
    governed = {each for each in snapshot.organisations() if _enforces(live.ruleset(each))}
    if governed:
        ungoverned = [each for each in runs.organisations_with_runs() if each not in governed]
        return [
            Problem(
                f"no policy is enforced for the agents of `{name}`, so that every call of theirs is allowed: "
                f"make some of its own, such as `{path_for(name, 'ID')}`, since those of others do not count",
                "",
                "nothing_enforced",
            )
            for name in ungoverned[:MOST_ERRORS]
        ]
    there = "there is none" if snapshot.count == 0 else "each one is disabled, in shadow mode or inactive"
    message = f"no policy is enforced, so that every call is allowed: {there}"
    return [Problem(message, "", "nothing_enforced")]


def _enforces(ruleset: Ruleset) -> bool:
    rules = ruleset.rules.values()
    return any(each.policy.enabled and each.policy.mode == "enforce" and not each.lacking for each in rules)


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
        if (wanted := approvers(settings.values)) > 1
        and (there := accounts.count_admins(name)) < wanted
        and accounts.organisation(name) is not None
    ]


def approvers(settings: Mapping[str, Any]) -> int:
    """How many admins must agree to a change."""
    return int((settings.get("changes") or {}).get("approvers", 1))


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
    """What the policies of a snapshot ask for: of fields, and of what came before, `in_vain`, and of whom
    `approvals`, as one policy for each organisation, number and roles."""

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
        ruleset = live.ruleset(name)
        for policy_id, rule in sorted(ruleset.rules.items()):
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
        found.in_vain.extend(_waiting_in_vain(name, ruleset))
    del found.in_vain[MOST_ERRORS:]
    if live.snapshot is found.snapshot:  # else the rules may be those of another one
        _last_asked = found
    return found


def _waiting_in_vain(organisation_id: str, ruleset: Ruleset) -> Iterator[Problem]:
    """Of policies whose turn never comes, as after the one that they wait for was deleted."""
    if not any(map(waits, ruleset.rules.values())):
        return
    for policy_id, why in Sequences(ruleset.rules, ruleset.tools).never_begins():
        message = f"`{policy_id}` of `{organisation_id}` waits in vain: {why}; put that back, or change what "
        yield Problem(message + "it waits for", "", "sequence_never")
