"""Precedence and limits, for any policies in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.matching.decision import decide
from engine.model import ACTIONS, STATUS, STRENGTH, Action, Evaluation, Match, Policy, RateLimit

policies = st.builds(
    lambda number, name, action, limited: Policy(
        f"p{number}", name, action, (), rate_limit=RateLimit(3, 60) if limited else None
    ),
    st.integers(0, 99),
    st.sampled_from("ABCDE"),
    st.sampled_from(ACTIONS),
    st.booleans(),
)
sets = st.lists(policies, max_size=6, unique_by=lambda policy: policy.policy_id)
overs = st.sets(st.sampled_from("ABCDE"))


def evaluation(matches: list[Policy], shadow: list[Policy]) -> Evaluation:
    def ordered(found: list[Policy]) -> tuple[Match, ...]:
        return tuple(sorted((Match(policy, "why") for policy in found), key=lambda match: match.policy.order))

    return Evaluation(ordered(matches), ordered(shadow))


@given(sets, sets, overs)
def test_the_strongest_effective_match_decides(
    matches: list[Policy], shadow: list[Policy], over: set[str]
) -> None:
    decision = decide(evaluation(matches, shadow), lambda policy: policy.name in over)
    effective = [policy for policy in matches if policy.rate_limit is None or policy.name in over]
    strongest: Action = min(
        (policy.action for policy in effective), key=STRENGTH.__getitem__, default="allow"
    )
    assert decision.action == strongest
    assert decision.status == STATUS[strongest]
    assert {match.policy for match in decision.matched} == set(effective)
    assert list(decision.matched) == sorted(decision.matched, key=lambda match: match.policy.order)
    for policy in effective:
        if policy.action == strongest:
            assert f"`{policy.name}`" in decision.reason
    if not effective:
        assert decision.reason == "no policy matched"


@given(sets, sets, overs)
def test_counts_go_to_every_limited_match_unless_blocked(
    matches: list[Policy], shadow: list[Policy], over: set[str]
) -> None:
    decision = decide(evaluation(matches, shadow), lambda policy: policy.name in over)
    limited = [policy for policy in (*matches, *shadow) if policy.rate_limit is not None]
    if decision.status == "blocked":
        assert decision.counted == ()
    else:
        assert sorted(map(id, decision.counted)) == sorted(map(id, limited))


@given(sets, sets)
def test_limits_are_asked_once_and_only_for_limited_policies(
    matches: list[Policy], shadow: list[Policy]
) -> None:
    asked: list[Policy] = []

    def over_limit(policy: Policy) -> bool:
        asked.append(policy)
        return False

    decide(evaluation(matches, shadow), over_limit)
    assert sorted(map(id, asked)) == sorted(id(p) for p in (*matches, *shadow) if p.rate_limit is not None)


@given(sets, policies, overs)
def test_one_more_match_never_loosens(matches: list[Policy], more: Policy, over: set[str]) -> None:
    def rank(found: list[Policy]) -> int:
        return STRENGTH[decide(evaluation(found, []), lambda policy: policy.name in over).action]

    assert rank([*matches, more]) <= rank(matches)


@given(sets, sets, overs)
def test_shadow_matches_decide_nothing(matches: list[Policy], shadow: list[Policy], over: set[str]) -> None:
    with_shadow = decide(evaluation(matches, shadow), lambda policy: policy.name in over)
    without = decide(evaluation(matches, []), lambda policy: policy.name in over)
    assert (with_shadow.action, with_shadow.reason, with_shadow.matched) == (
        without.action,
        without.reason,
        without.matched,
    )
