"""A policy says the parameters of its preset that were chosen, and an upgrade takes these."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.conditions.placeholders import Parameter
from engine.documents.policy import policy_as_json
from engine.documents.preset_upgrade import Upgrade
from engine.model import Policy
from tests.engine.documents.test_shipped_presets import PRESET_FILES, presets
from tests.harness.effort import examples
from tests.harness.preset_upgrades import (
    LARGE,
    NEW,
    OLD,
    PAY,
    activated,
    changed,
    edited,
    kept,
    made,
    upgrade,
)

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")),
    min_size=1,
    max_size=12,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "words": st.lists(TEXTS, min_size=1, max_size=4),
    "number": st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6).map(lambda each: round(each, 2)),
    "pattern": st.sampled_from(["b+", "x|y", "[)]", "a{2,}", r"\|"]),
    "flag": st.booleans(),
}
EVERY_KIND = {
    "text": Parameter("text", "", "default text"),
    "words": Parameter("words", "", ["default"], "list"),
    "number": Parameter("number", "", 12, "number"),
    "pattern": Parameter("pattern", "", "z", format="regex"),
    "flag": Parameter("flag", "", False, "boolean"),
}
PLACES: list[Any] = [
    {"field": "toolName", "operator": "equals", "value": "{{text}}"},
    {"field": "toolName", "operator": "contains", "value": "a {{text}} b"},
    {"field": "toolName", "operator": "matches", "value": "^{{text}}$"},
    {"field": "toolName", "operator": "in", "value": ["x", "{{words}}", "y"]},
    {"field": "toolName", "operator": "matches", "value": "(?i){{words}}@{{pattern}}$"},
    {"field": "inputPayload.a", "operator": "less_than", "value": "{{number}}"},
    {"field": "inputPayload.a", "operator": "equals", "value": "{{flag}}"},
    "toolName in {{words}} && toolName != {{text}} && {{flag}} == ({{number}} > 4)",
    {"expression": "toolName.matches('a') || toolName == {{text}}"},
]


def recorded(policy: Policy) -> Any:
    return policy_as_json(policy).get("presetParameters", {})


@examples(75, 1_500, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_chosen_parameters_are_recorded(data: st.DataObject) -> None:
    places = data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=5))
    preset = made(EVERY_KIND, matchConditions=places, description="d")
    used = {name for name in EVERY_KIND if f"{{{{{name}}}}}" in str(places)}
    given_ = {name: data.draw(VALUES[name]) for name in sorted(used) if data.draw(st.booleans())}
    wanted = {name: value for name, value in given_.items() if value != EVERY_KIND[name].default}
    assert recorded(activated(preset, **given_)) == wanted


@pytest.mark.parametrize("path", PRESET_FILES, ids=lambda path: path.stem)
def test_shipped_presets_say_what_they_were_made_with(path: Any) -> None:
    preset = presets()[path.stem]
    assert recorded(activated(preset)) == {}
    other = {
        name: [*each.default, "other.example"] if each.type == "list" else f"{each.default}x"
        for name, each in preset.parameters.items()
        if each.type in ("list", "string")
    }
    other |= {
        name: each.default + 1
        for name, each in preset.parameters.items()
        if each.type in ("number", "integer")
    }
    policy = activated(preset, **other)
    assert recorded(policy) == other
    assert upgrade((policy, preset), to=preset) == Upgrade(preset.preset_id), "and are filled in again"


def test_a_policy_that_does_not_say_its_parameters_keeps_what_they_made() -> None:
    policy = edited(activated(OLD, limit=50), presetParameters=None)
    found = upgrade((policy, OLD), to=made(matchConditions=[PAY, LARGE], description="At most {{limit}}."))
    assert found.sent == {"matchConditions": [PAY, LARGE | {"value": 50}]} and kept(found) == ["description"]


def test_parameters_that_were_added_later_count_from_the_beginning() -> None:
    silent = edited(activated(OLD, limit=50), presetParameters=None)
    found = upgrade((silent, OLD), (edited(silent, presetParameters={"limit": 50}), OLD), to=NEW)
    assert changed(found) == ["action", "matchConditions", "rateLimit"] and kept(found) == []
