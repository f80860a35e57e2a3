"""What matches a call when some labels of its run do not count, since a person exempted the run from them.

Decides nothing about who may exempt, or for how long.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.flow.memory import RunMemory
from engine.flow.steps import Steps
from engine.matching.ruleset import Ruleset
from engine.model import BEFORE, Evaluation, Match, Policy, ToolCall


def evaluate_exempt(
    ruleset: Ruleset, call: ToolCall, found: Evaluation, labels: Collection[str], memory: RunMemory | None
) -> Evaluation:
    """What of `found`, which matches with all labels, matches without these as well; `memory` is that of the
    run, if policies ask for it.

    INVARIANT: an exemption never loosens a block, nor a policy for which one reviewer is not enough.
    """
    without = ruleset.evaluate(_without(call, labels, memory))
    return Evaluation(_left(found.matches, without.matches), _left(found.shadow, without.shadow))


def _without(call: ToolCall, labels: Collection[str], memory: RunMemory | None) -> ToolCall:
    document = dict(call.document)
    run = {name: value for name, value in (document.pop("run", None) or {}).items() if name != "labels"}
    if left := [label for label in (call.document.get("run") or {}).get("labels", ()) if label not in labels]:
        run["labels"] = left
    if run:
        document["run"] = run
    if memory is not None:
        gone = {f"label:{label}" for label in labels}
        steps = memory.steps
        marks = {key: at for key, at in steps.marks.items() if key not in gone}
        document[BEFORE] = RunMemory(memory.version, Steps(steps.calls, marks, steps.tools), memory.loaded)
    return ToolCall(document)


def _left(found: tuple[Match, ...], without: tuple[Match, ...]) -> tuple[Match, ...]:
    known = {match.policy.policy_id for match in without}
    return tuple(
        match for match in found if match.policy.policy_id in known or not _may_be_exempt(match.policy)
    )


def _may_be_exempt(policy: Policy) -> bool:
    terms = policy.approval
    one_reviewer = terms is None or (terms.approvers == 1 and "reviewer" in terms.roles)
    return policy.action != "block" and one_reviewer
