"""Runs what people wrote down about policies: `*_test.yaml` against the whole set.

Decides whether each call of a test is decided as expected, and says what is different. Rate limits count as
not reached, since a test is one call. Examples are checked where a document is loaded (`examples`).

It must not know where files live nor how results are printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.documents.policy import CallTest, PolicyTest
from engine.matching.decision import decide
from engine.matching.ruleset import Ruleset
from engine.model import Decision, Policy
from schemas.suggestion import suggestion


@dataclass(frozen=True, slots=True)
class Result:
    """One call of a test: what was decided, and every difference from what was expected, in words."""

    test: PolicyTest
    case: CallTest
    decision: Decision
    differences: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.differences


def run(test: PolicyTest, ruleset: Ruleset) -> Iterator[Result]:
    """The result of every call; `ruleset` holds all policies of the organisation."""
    chosen = narrowed(test, ruleset)
    known = ruleset.policies
    unknown = [
        f"`policies` names `{each}`, but there is no {_unknown(each, known)}"
        for each in sorted((test.policies or set()) - known.keys())
    ]
    for case in test.tests:
        decision = decide(chosen.evaluate(case.call), lambda policy: False)
        yield Result(test, case, decision, (*unknown, *_differences(case, decision, known)))


def narrowed(test: PolicyTest, ruleset: Ruleset) -> Ruleset:
    """The policies that a test is about."""
    if test.policies is None:
        return ruleset
    chosen = (policy for key, policy in ruleset.policies.items() if key in test.policies)
    return Ruleset.build(chosen, tools=ruleset.tools.sets, settings=ruleset.settings)


def _differences(case: CallTest, decision: Decision, known: Mapping[str, Policy]) -> Iterator[str]:
    if decision.status != case.status:
        yield f"expected `{case.status}`, got `{decision.status}`: {decision.reason}"
    for word, expected, matches in (
        ("match", case.matched, decision.matched),
        ("match in shadow mode", case.shadow, decision.shadow),
    ):
        if expected is None:
            continue
        reasons = {match.policy.policy_id: match.reason for match in matches}
        for policy_id in sorted(expected - reasons.keys()):
            where = "" if policy_id in known else f"; there is no {_unknown(policy_id, known)}"
            yield f"expected `{policy_id}` to {word}, but it does not{where}"
        for policy_id in sorted(reasons.keys() - expected):
            yield f"expected `{policy_id}` not to {word}, but it does: {reasons[policy_id]}"


def _unknown(policy_id: str, known: Iterable[str]) -> str:
    return f"policy `{policy_id}`{suggestion(policy_id, known)}"
