"""Upgrading a policy to its preset: members three-way, parameters as recorded, local edits always kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents.edit import same
from engine.documents.policy import policy_as_json, policy_from_json
from engine.documents.preset_upgrade import MEMBERS, Step, Upgrade, origin_of, plan
from engine.documents.presets import Parameter, Preset
from engine.model import Policy
from tests.harness.effort import examples
from tests.harness.preset_upgrades import (
    HOME,
    LARGE,
    LIMIT,
    NEW,
    OLD,
    PAY,
    TESTED,
    WIRE,
    activated,
    after,
    changed,
    edited,
    kept,
    made,
    upgrade,
)


def test_nothing_to_do() -> None:
    policy = activated(OLD)
    assert upgrade((policy, OLD), to=OLD) == Upgrade("wires")
    assert not upgrade((edited(policy, action="warn"), OLD), to=OLD).available


def test_an_unedited_policy_follows() -> None:
    policy = activated(OLD, limit=50)
    found = upgrade((policy, OLD), to=NEW)
    assert changed(found) == ["action", "matchConditions", "rateLimit"]
    assert found.available and not found.kept
    assert after(policy, found) == activated(NEW, limit=50)


def test_a_default_that_nobody_chose_follows() -> None:
    policy, lower = activated(OLD), made({"limit": Parameter("limit", "", 500, "number")})
    assert after(policy, upgrade((policy, OLD), to=lower)) == activated(lower)


def test_edited_members_stay() -> None:
    policy = activated(OLD)
    mine = edited(policy, action="warn", enabled=False, name="Ours")
    found = upgrade((policy, OLD), (mine, OLD), to=NEW)
    assert changed(found) == ["matchConditions", "rateLimit"]
    assert [(each.member, each.yours, each.preset) for each in found.kept] == [
        ("action", "warn", "require_approval")
    ]
    result = after(mine, found)
    assert (result.action, result.name, result.enabled) == ("warn", "Ours", False)


def test_the_same_change_on_both_sides_is_none() -> None:
    mine = edited(activated(OLD), action="require_approval")
    found = upgrade((activated(OLD), OLD), (mine, OLD), to=NEW)
    assert changed(found) == ["matchConditions", "rateLimit"] and not found.kept


def test_an_upgrade_is_the_next_base() -> None:
    first = activated(OLD)
    second = after(first, upgrade((first, OLD), to=NEW))
    third = made(action="warn", matchConditions=[PAY], description="Any amount.", parameters={})
    found = upgrade((first, OLD), (second, NEW), to=third)
    assert after(second, found) == activated(third) and not found.kept


def test_an_edit_after_an_upgrade_stays_even_when_it_is_the_old_value() -> None:
    first = activated(OLD)
    second = after(first, upgrade((first, OLD), to=NEW))
    third = edited(second, action="block")
    assert not upgrade((first, OLD), (second, NEW), (third, NEW), to=NEW).available
    found = upgrade((first, OLD), (second, NEW), (third, NEW), to=made(action="warn"))
    assert kept(found) == ["action"]


def test_taking_the_presets_value_by_hand_ends_an_edit() -> None:
    first = activated(OLD)
    mine = edited(first, action="warn")
    again = edited(mine, action="require_approval")
    found = upgrade((first, OLD), (mine, OLD), (again, NEW), to=made(action="allow"))
    assert "action" in changed(found)


def test_kept_members_are_told_of_until_they_agree() -> None:
    first = activated(OLD)
    mine = edited(first, action="warn")
    second = after(mine, upgrade((first, OLD), (mine, OLD), to=NEW))
    found = upgrade((first, OLD), (mine, OLD), (second, NEW), to=NEW)
    assert not found.available and kept(found) == ["action"]


def test_a_condition_of_ours_is_woven_in() -> None:
    mine = edited(activated(OLD), matchConditions=[WIRE, LARGE | {"value": 1000}, HOME])
    found = upgrade((activated(OLD), OLD), (mine, OLD), to=NEW)
    result = after(mine, found)
    assert policy_as_json(result)["matchConditions"] == [PAY, LARGE | {"value": 1000}, HOME]
    # and once more: what was woven is a base, too
    later = made(matchConditions=[WIRE | {"value": "pay"}, LARGE], examples=[TESTED[0] | {"toolName": "pay"}])
    found = upgrade((activated(OLD), OLD), (mine, OLD), (result, NEW), to=later)
    assert policy_as_json(after(result, found))["matchConditions"] == [
        WIRE | {"value": "pay"},
        LARGE | {"value": 1000},
        HOME,
    ]


@pytest.mark.parametrize(
    "conditions",
    [
        [WIRE | {"value": "wires"}, LARGE | {"value": 1000}],
        [LARGE | {"value": 1000}],
        [WIRE | {"value": "transfer"}],
    ],
)
def test_the_same_condition_changed_on_both_sides_stays(conditions: list[Any]) -> None:
    mine = edited(activated(OLD), matchConditions=conditions, examples=None)
    found = upgrade((activated(OLD), OLD), (mine, OLD), to=NEW)
    assert "matchConditions" in kept(found) and "matchConditions" not in changed(found)


def test_conditions_added_at_the_same_place_stay() -> None:
    mine = edited(activated(OLD), matchConditions=[WIRE, LARGE | {"value": 1000}, HOME])
    to = made(matchConditions=[WIRE, LARGE, HOME | {"value": "CH"}])
    assert kept(upgrade((activated(OLD), OLD), (mine, OLD), to=to)) == ["matchConditions"]


def test_examples_are_a_set() -> None:
    more = [
        {"match": False, "toolName": "wire", "inputPayload": {"amount": 1}},
        {"match": True, "toolName": "wire", "inputPayload": {"amount": 7000}},
    ]
    ours = {"match": False, "toolName": "read"}
    first = made(examples=[*TESTED, more[0]])
    mine = edited(activated(first), examples=[*TESTED, more[0], ours])
    found = upgrade((activated(first), first), (mine, first), to=made(examples=[*TESTED, more[1]]))
    assert found.changes[0].after == [*TESTED, ours, more[1]]


def test_new_examples_that_an_edit_makes_untrue_are_left_out() -> None:
    mine = edited(activated(OLD), matchConditions=[WIRE, LARGE | {"value": 2000}])
    small = {"match": True, "toolName": "wire", "inputPayload": {"amount": 1500}}
    found = upgrade((activated(OLD), OLD), (mine, OLD), to=made(examples=[*TESTED, small], action="warn"))
    assert changed(found) == ["action"] and found.available


def test_our_examples_go_on_to_hold_or_there_is_no_upgrade() -> None:
    ours = {"match": False, "toolName": "pay", "inputPayload": {"amount": 5000}}
    mine = edited(activated(OLD), examples=[*TESTED, ours])
    found = upgrade((activated(OLD), OLD), (mine, OLD), to=NEW)
    assert not found.available
    assert [(each.pointer, each.code) for each in found.problems] == [("/examples/1", "example_fails")]


def test_a_chosen_value_without_a_place_is_never_undone() -> None:
    policy = activated(OLD, limit=50)
    renamed = made(
        {"most": Parameter("most", "", 1000, "number")},
        matchConditions=[PAY, LARGE | {"value": "{{most}}"}],
        description="No more than {{most}}.",
        action="warn",
    )
    found = upgrade((policy, OLD), to=renamed)
    assert changed(found) == ["action"] and kept(found) == ["description", "matchConditions"]
    stricter = made({"limit": Parameter("limit", "", 1000, "number", minimum=100)}, action="warn")
    found = upgrade((policy, OLD), to=made(stricter.parameters, matchConditions=[PAY, LARGE]))
    assert kept(found) == ["description", "matchConditions"]


def test_what_a_file_says_differently_from_the_start_is_edited() -> None:
    mine = edited(activated(OLD), action="warn", matchConditions=[WIRE, LARGE | {"value": 70}])
    found = upgrade((mine, OLD), to=NEW)
    assert kept(found) == ["action"]
    # The other value of `limit` was read from the condition, so the condition follows with it.
    assert policy_as_json(after(mine, found))["matchConditions"] == [PAY, LARGE | {"value": 70}]


def test_without_history_nothing_is_replaced() -> None:
    policy = activated(OLD)
    found = plan(origin_of([Step(policy_as_json(policy), None)], {}), NEW, policy)
    assert not found.available and kept(found) == ["action", "matchConditions", "rateLimit"]


def test_a_preset_older_than_the_service_accepts_is_no_base() -> None:
    broken = made(matchConditions=[{"field": "nowhere", "operator": "exists"}])
    policy = activated(OLD)
    found = upgrade((policy, broken), to=NEW)
    assert not found.available and kept(found) == ["action", "matchConditions", "rateLimit"]


def test_a_preset_that_cannot_take_the_parameters_says_so() -> None:
    pattern = {"domain": Parameter("domain", "", "a", format="regex")}
    conditions = [{"field": "toolName", "operator": "matches", "value": "^{{domain}}"}]
    old = made(pattern, matchConditions=conditions, description="d")
    new = made(pattern, matchConditions=[WIRE | {"operator": "matches", "value": "{{domain}}(?=x)"}])
    found = upgrade((activated(old, domain="b"), old), to=new)
    assert found.problems and not found.available


# ---- properties ----------------------------------------------------------------------------------------

CONDITIONS = [
    WIRE,
    PAY,
    LARGE,
    HOME,
    {"field": "toolName", "operator": "contains", "value": "w"},
    {"expression": "toolName != 'x'"},
]
PRESETS = st.builds(
    made,
    st.just(LIMIT),
    name=st.sampled_from(["Hold wires", "Hold"]),
    description=st.sampled_from(["No more than {{limit}}.", "Anything."]),
    action=st.sampled_from(["block", "warn"]),
    scope=st.sampled_from([None, "action_only"]),
    mode=st.sampled_from([None, "shadow"]),
    matchConditions=st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=4),
    rateLimit=st.sampled_from([None, {"limit": 3, "windowSeconds": 60}]),
)
EDITS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("Ours"),
        "description": st.sampled_from([None, "Ours"]),
        "action": st.sampled_from(["require_approval", "warn"]),
        "scope": st.just("action_only"),
        "matchConditions": st.lists(
            st.sampled_from([*(c for c in CONDITIONS if c is not LARGE), LARGE | {"value": 5}]),
            min_size=1,
            max_size=4,
        ),
        "rateLimit": st.sampled_from([None, {"limit": 9, "windowSeconds": 9, "per": ["runId"]}]),
    },
)
LIMITS = st.sampled_from([{}, {"limit": 50}])


@examples(75, 1_500)
@given(st.lists(PRESETS, min_size=2, max_size=4), LIMITS)
def test_an_unedited_policy_becomes_a_fresh_one(line: list[Preset], parameters: dict[str, Any]) -> None:
    """Through any number of upgrades, taken or passed over."""
    shown = {name for name in parameters if "{{limit}}" in str(line[0].template)}
    parameters = {name: value for name, value in parameters.items() if name in shown}
    policy = activated(line[0], **parameters)
    history = [(policy, line[0])]
    for preset in line[1:]:
        found = upgrade(*history, to=preset)
        assert not found.kept and not found.problems
        policy = after(history[-1][0], found)
        assert policy == activated(preset, **parameters)
        history.append((policy, preset))
    assert after(history[0][0], upgrade(history[0], to=line[-1])) == policy


@examples(150, 3_000)
@given(PRESETS, EDITS, PRESETS, PRESETS, LIMITS)
def test_local_edits_survive(
    old: Preset, edits: dict[str, Any], new: Preset, newest: Preset, parameters: dict[str, Any]
) -> None:
    first = activated(old, **parameters)
    mine = edited(first, **edits)
    history = [(first, old), (mine, old)]
    for preset in (new, newest):
        theirs = policy_as_json(activated(preset, **parameters))
        found = upgrade(*history, to=preset)
        if found.problems:
            return
        before, result = policy_as_json(history[-1][0]), policy_as_json(after(history[-1][0], found))
        for name in MEMBERS:
            touched = not same(policy_as_json(first).get(name), policy_as_json(mine).get(name))
            if name == "matchConditions":
                added = [e for e in before[name] if e not in policy_as_json(first)[name]] if touched else []
                ours = [each for each in added if each in policy_as_json(mine)[name]]
                assert all(each in result[name] for each in ours) or _agreed(history, name)
            elif touched and not same(before.get(name), theirs.get(name)):
                still = same(before.get(name), policy_as_json(mine).get(name))
                assert not still or same(result.get(name), before.get(name)) or _agreed(history, name)
        for each in found.kept:
            assert same(result.get(each.member), each.yours) and not same(each.yours, each.preset)
        history.append((policy_from_json(result), preset))


def _agreed(history: list[tuple[Policy, Preset]], name: str) -> bool:
    """The edit once was what the preset said, so that it is no edit any more."""
    value = policy_as_json(history[-1][0]).get(name)
    return any(same(value, policy_as_json(activated(preset)).get(name)) for _, preset in history)
