"""What several policies ask of one approval: of each point the strictest, whatever their order."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from engine.documents.approval_terms import strictest, terms_as_json, terms_from_json
from engine.model import REVIEW_ROLES, ApprovalTerms

times = st.integers(min_value=1, max_value=1_000)
roles = st.sampled_from([REVIEW_ROLES, ("reviewer",), ("admin",)])
untimed = st.builds(ApprovalTerms, approvers=st.integers(1, 10), roles=roles, allow_self=st.booleans())
timed = st.builds(ApprovalTerms, times, st.just("block"), st.none(), st.integers(1, 10), roles, st.booleans())
escalating = st.builds(
    ApprovalTerms, times, st.just("escalate"), times, st.integers(1, 10), roles, st.booleans()
)
terms = st.one_of(untimed, timed, escalating)


@given(terms)
def test_terms_come_back_as_they_were(one: ApprovalTerms) -> None:
    assert terms_from_json(terms_as_json(one)) == one
    assert strictest([one]) == one


@given(st.lists(st.none() | terms, min_size=1, max_size=3))
def test_more_policies_only_make_it_stricter(asked: list[ApprovalTerms | None]) -> None:
    together = strictest(asked)
    assert all(strictest(order) == together for order in permutations(asked))
    for each in (one or ApprovalTerms() for one in asked):
        assert together.approvers >= each.approvers
        assert set(together.roles) <= set(each.roles) or together.roles == ("admin",)
        assert each.allow_self or not together.allow_self
        if each.expires_after_seconds is not None:
            assert (together.expires_after_seconds or 0) <= each.expires_after_seconds
            assert each.on_expiry == "escalate" or together.on_expiry == "block"


def test_where_roles_have_none_in_common_admins_approve() -> None:
    asked = [ApprovalTerms(roles=("reviewer",)), ApprovalTerms(roles=("admin",))]
    assert strictest(asked).roles == ("admin",)
