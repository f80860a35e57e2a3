"""`governance diff OLD NEW`: what a change of policies changes, with calls that prove it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from api.cli.policy_source import shown_path, sound
from api.cli.report import Remark, add_format, compact, outcome, print_json, print_remarks, progress, say
from api.cli.terminal import FAILED, Subparsers, filled

if TYPE_CHECKING:
    from engine.analysis.diff import Difference, DifferingCall
    from engine.repository.checkout import Checkout

REPEATS = 3
"""Policies with the same change that are shown one by one."""

EPILOG = """\
OLD and NEW are policies folders, or folders in git: `HEAD~1:policies.d` (counted from the root of the
repository; `HEAD~1:./policies.d` from here).

Every added, removed or changed policy is described, with a call that the two sets decide differently - both
were asked - or the remark that none was found. Policies that are dead, shadowed or contradictory only since
the change are reported too. The same change of many policies is shown three times and then counted. Rate
limits count as not reached, or as reached where the output says so.

exit codes:
  0  both say the same
  1  they differ
  2  wrong usage, or documents that cannot be read or do not load

examples:
  governance diff HEAD:policies.d policies.d
  governance diff main:policies.d HEAD:policies.d --format github
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "diff",
        help="what decides differently between two policies folders or revisions, with calls that show it",
        description="Says what decides differently under NEW than under OLD.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument("old", metavar="OLD", type=filled)
    parser.add_argument("new", metavar="NEW", type=filled)
    add_format(parser)
    parser.set_defaults(run=_diff)


def _diff(arguments: argparse.Namespace) -> int:
    from engine.analysis.diff import changed_ids, differences

    old, new = sound(arguments.old), sound(arguments.new)
    found: list[tuple[str, Difference]] = []
    for organisation_id in sorted(old.policies.keys() | new.policies.keys()):
        before, after = old.ruleset(organisation_id), new.ruleset(organisation_id)
        with progress("comparing", len(changed_ids(before, after))) as step:
            for difference in differences(before, after):
                found.append((organisation_id, difference))
                step()
    if arguments.format == "json":
        print_json({"differences": [_as_json(organisation, each) for organisation, each in found]})
    elif arguments.format == "github":
        print_remarks([_remark(each, old, new, arguments) for _, each in found], "github")
    else:
        groups: dict[object, list[tuple[str, Difference]]] = {}
        for organisation_id, difference in found:
            groups.setdefault(_repeat(organisation_id, difference), []).append((organisation_id, difference))
        for group in groups.values():
            for organisation_id, difference in group[:REPEATS]:
                _show(organisation_id, difference, old, new, arguments)
            if rest := [f"`{each.policy.policy_id}`" for _, each in group[REPEATS:]]:
                say(f"the same of {len(rest):,} more: {', '.join(rest)}\n")
        _summary([difference for _, difference in found])
    return FAILED if found else 0


def _repeat(organisation_id: str, difference: Difference) -> object:
    """What two differences have in common that need not both be shown."""
    if difference.kind != "changed" or difference.findings:
        return difference.policy.policy_id, organisation_id
    proof = difference.proof
    outcomes = proof and (proof.old.action, proof.new.action, proof.beyond_limits)
    return organisation_id, difference.words, outcomes


def _place(
    difference: Difference, old: Checkout, new: Checkout, arguments: argparse.Namespace
) -> tuple[str, int, int]:
    source, name = (old, arguments.old) if difference.new is None else (new, arguments.new)
    path = source.file_of(difference.policy)
    pointer = "" if difference.kind == "removed" else "/action"
    return (shown_path(name, path), *source.place(path, pointer))


_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def _show(
    organisation_id: str,
    difference: Difference,
    old: Checkout,
    new: Checkout,
    arguments: argparse.Namespace,
) -> None:
    policy = difference.policy
    mark, style = _MARKS[difference.kind]
    file, line, _ = _place(difference, old, new, arguments)
    of = "" if organisation_id == "default" else f" of {organisation_id}"
    say(f"{mark} {difference.kind} `{policy.policy_id}`{of} ({policy.name})  {file}:{line}", f"bold {style}")
    for words in difference.words:
        say(f"    {words}")
    for text in _proved(difference):
        say(f"    {text}")
    for finding in difference.findings:
        whose = "" if finding.policy.policy_id == policy.policy_id else f"`{finding.policy.policy_id}`: "
        say(f"    now {finding.code}: {whose}{finding.message}", "bold red")
        if finding.call is not None:
            say(f"        {finding.outcome}: {compact(finding.call)}", "dim")
    say()


def _proved(difference: Difference) -> list[str]:
    from engine.analysis.witness import shown

    proof = difference.proof
    if proof is None:
        return [f"no decision was found that changes{_why(difference)}"]
    once = ", once the limit is reached" if proof.beyond_limits else ""
    call = compact(shown(proof.call))
    if not proof.changes_action:
        return [
            f"the outcome stays `{proof.new.status}`, other policies match{once}: {call}",
            f"    matched before: {_names(proof, False)}; after: {_names(proof, True)}",
        ]
    old, new = (outcome(decision.action) for decision in (proof.old, proof.new))
    return [
        f"{old} -> {new}{once}: {call}",
        f"    before: {proof.old.reason}",
        f"    after: {proof.new.reason}",
    ]


def _why(difference: Difference) -> str:
    policies = [policy for policy in (difference.old, difference.new) if policy is not None]
    if all(not policy.enabled for policy in policies):
        return ": the policy is disabled"
    if len(policies) == 1 and policies[0].action == "allow":
        return ": an `allow` changes nothing"
    return ""


def _names(proof: DifferingCall, after: bool) -> str:
    decision = proof.new if after else proof.old
    names = [f"`{match.policy.policy_id}`" for match in decision.matched]
    names += [f"`{match.policy.policy_id}` (shadow)" for match in decision.shadow]
    return ", ".join(names) or "none"


def _remark(difference: Difference, old: Checkout, new: Checkout, arguments: argparse.Namespace) -> Remark:
    policy = difference.policy
    words = "; ".join(difference.words)
    details = [*_proved(difference)]
    details += [f"now {finding.code}: {finding.message}" for finding in difference.findings]
    level = "warning" if difference.findings else "note"
    message = f"{difference.kind} `{policy.policy_id}`: {words}"
    return Remark(level, "policy-changed", message, *_place(difference, old, new, arguments), tuple(details))


def _as_json(organisation_id: str, difference: Difference) -> dict[str, Any]:
    from engine.analysis.witness import shown
    from engine.documents.policy import policy_as_json

    shape: dict[str, Any] = {
        "organisationId": organisation_id,
        "policyId": difference.policy.policy_id,
        "kind": difference.kind,
        "words": list(difference.words),
        "old": policy_as_json(difference.old) if difference.old else None,
        "new": policy_as_json(difference.new) if difference.new else None,
        "proof": None,
        "findings": [
            {
                "code": finding.code,
                "policyId": finding.policy.policy_id,
                "message": finding.message,
                "related": list(finding.related),
                "call": finding.call and dict(finding.call),
                "outcome": finding.outcome,
            }
            for finding in difference.findings
        ],
    }
    proof = difference.proof
    if proof is not None:
        shape["proof"] = {
            "call": shown(proof.call),
            "oldAction": proof.old.action,
            "newAction": proof.new.action,
            "oldReason": proof.old.reason,
            "newReason": proof.new.reason,
            "oldMatched": [match.policy.policy_id for match in proof.old.matched],
            "newMatched": [match.policy.policy_id for match in proof.new.matched],
            "limitsReached": proof.beyond_limits,
        }
    return shape


def _summary(found: list[Difference]) -> None:
    if not found:
        say("both say the same", "green")
        return
    counts = {kind: sum(each.kind == kind for each in found) for kind in ("added", "removed", "changed")}
    proved = sum(each.proof is not None and each.proof.changes_action for each in found)
    text = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    say(f"{text}; {proved:,} of them change decisions, each shown by a call", "bold")
