"""What it takes to make the index of policies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.matching import index
from engine.matching.ruleset import Ruleset
from engine.matching.selectivity import AccessPath, costs
from engine.model import Condition, Policy

LIST = 1_000


def test_policies_of_the_same_long_lists_are_weighed_by_what_they_can_still_be_found_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under each entry of a list stand all policies that have it. To weigh all that these say once more for
    each would take as many steps as the square of the list."""
    weighed = []

    def counted(usable: Sequence[Sequence[AccessPath]]) -> dict[AccessPath, float]:
        weighed.append(sum(len(access.keys) for each in usable for access in each))
        return costs(usable)

    monkeypatch.setattr(index, "costs", counted)
    conditions = tuple(
        Condition(f"inputPayload.l{number}", "in", [f"{number}-{each}" for each in range(LIST)])
        for number in range(4)
    )
    policies = [
        Policy(policy_id=f"p{number}", name=f"P{number}", action="block", conditions=conditions)
        for number in range(8)
    ]
    Ruleset.build(policies)
    assert sum(weighed) <= 2 * len(policies) * len(conditions) * LIST
