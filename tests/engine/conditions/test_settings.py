"""What a policy becomes by the settings of its organisation."""

from __future__ import annotations

from typing import Any

import pytest

import schemas
from engine.conditions.settings import SAMPLES, SETTINGS, SHIPPED, in_force, missing, reads, value_of
from engine.documents.policy import check_body, policy_from_json
from engine.documents.presets import instantiate, load_preset, needs, settings_of
from engine.errors import DocumentError
from engine.matching.ruleset import Ruleset
from engine.model import Condition, OrganisationSettings, Policy, ToolCall
from schemas.validation import violations

ACME = OrganisationSettings({"companyDomains": ["own.com", "a+b.example"]})


def policy(*conditions: Condition, **members: Any) -> Policy:
    return Policy("p", "P", "block", conditions, **members)


@pytest.mark.parametrize("name", SETTINGS)
def test_samples_and_shipped_values_are_good(name: str) -> None:
    fragment = "/$defs/settings"
    assert violations("documents/organisation_settings", {name: SETTINGS[name].default}, fragment) == []
    assert SETTINGS[name].refuse(SETTINGS[name].default) is None
    if name in SHIPPED:
        assert violations("documents/organisation_settings", {name: SHIPPED[name]}, fragment) == []


def test_nothing_is_invented() -> None:
    shipped = schemas.load("documents/organisation_settings")["$defs"]["settings"]["properties"]
    assert "default" not in shipped["companyDomains"] and "default" not in shipped["currencies"]
    assert missing(["companyDomains", "systemFolders"], OrganisationSettings()) == ("companyDomains",)


def test_a_setting_is_filled_in_by_where_it_stands() -> None:
    written = policy(
        Condition("inputPayload.domain", "in", "{{companyDomains}}"),
        Condition("inputPayload.other", "in", ["x.example", "{{companyDomains}}"]),
        Condition("inputPayload.to", "matches", "@{{companyDomains}}$"),
        Condition("inputPayload.n", "greater_than", "{{paymentLimit}}"),
        Condition(expression="{{companyDomains}}.exists(own, toolName == own)"),
        message="outside {{companyDomains}}: {inputPayload.to}",
    )
    assert set(reads(written)) == {"companyDomains", "paymentLimit"}
    found = in_force(written, ACME)
    assert [each.value if each.expression is None else each.expression for each in found.conditions] == [
        ["own.com", "a+b.example"],
        ["x.example", "own.com", "a+b.example"],
        r"@(?:own\.com|a\+b\.example)$",
        10000,
        '["own.com", "a+b.example"].exists(own, toolName == own)',
    ]
    assert found.message == "outside own.com and a+b.example: {inputPayload.to}"
    assert in_force(policy(Condition("toolName", "equals", "x")), ACME).conditions[0].value == "x"


def test_domains_are_compared_in_lower_case_however_they_are_set() -> None:
    outside = policy(Condition("derived.recipientDomains", "not_in", "{{companyDomains}}"))
    ruleset = Ruleset.build([outside], settings=OrganisationSettings({"companyDomains": ["Acme.Example"]}))
    for to, held in (("a@acme.example", False), ("b@ACME.example", False), ("c@other.com", True)):
        call = ToolCall.of(toolName="send_email", inputPayload={"to": to})
        assert bool(ruleset.evaluate(call).matches) is held, to


def test_a_policy_that_lacks_a_setting_is_inactive_and_says_so() -> None:
    written = policy(Condition("toolName", "in", "{{companyDomains}}"))
    call = ToolCall.of(toolName="acme.com")
    ruleset = Ruleset.build([written])
    assert ruleset.evaluate(call).matches == () == ruleset.scan(call).matches
    assert ruleset.explain(call)[0].summary == (
        "the policy is inactive until the organisation's `companyDomains` is set"
    )
    (rule,) = ruleset.rules.values()
    assert rule.lacking == ("companyDomains",)
    active = ruleset.changed({"p": written}, 2, SAMPLES)
    assert len(active.evaluate(call).matches) == 1 and active.digest != ruleset.digest
    assert active.digest == Ruleset.build([written], settings=SAMPLES).digest


def test_examples_are_decided_by_samples() -> None:
    body = {
        "name": "P",
        "action": "block",
        "enabled": True,
        "matchConditions": [
            {"field": "inputPayload.to", "operator": "not_in", "value": "{{companyDomains}}"}
        ],
        "examples": [
            {"match": False, "inputPayload": {"to": "acme.com"}},
            {"match": True, "inputPayload": {"to": "else.example"}},
        ],
    }
    written = policy_from_json(body)
    assert written.conditions[0].value == "{{companyDomains}}"
    assert in_force(written, SAMPLES).examples == written.examples
    assert in_force(written, ACME).examples == ()
    body["examples"][0]["match"] = True  # type: ignore[index]
    with pytest.raises(DocumentError):
        policy_from_json(body)


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ({"value": "{{companyDomain}}"}, "/matchConditions/0/value", "did you mean `companyDomains`?"),
        ({"value": "{{config}}"}, "/matchConditions/0/value", "there is no setting `config`"),
        ({"value": ["{{nothing}}"]}, "/matchConditions/0/value/0", "there is no setting `nothing`"),
    ],
)
def test_unknown_settings_are_refused(body: dict[str, Any], pointer: str, says: str) -> None:
    condition = {
        "field": "toolName",
        "operator": "in" if isinstance(body["value"], list) else "equals",
    } | body
    _, problems = check_body({"name": "P", "action": "block", "matchConditions": [condition]})
    assert [(each.pointer, says in each.message) for each in problems] == [(pointer, True)]


PRESET = """
apiVersion: governance/v1
kind: Preset
presetId: outside
category: comms
name: Outside mail
description: Mail to others.
message: outside {{own}}
action: block
parameters:
  own: {type: list, format: domain, description: Ours., default: '{{companyDomains}}'}
matchConditions:
  - {field: toolName, operator: equals, value: mail}
  - {field: inputPayload.to, operator: not_in, value: '{{own}}'}
  - {field: inputPayload.path, operator: not_in, value: '{{systemFolders}}'}
examples:
  - {match: true, toolName: mail, inputPayload: {to: else.example, path: /x}}
  - {match: false, toolName: mail, inputPayload: {to: '{{own}}', path: /x}}
"""


def test_a_preset_reads_settings_too() -> None:
    preset = load_preset(PRESET.encode(), "presets/comms/outside.yaml")
    assert settings_of(preset) == ("companyDomains", "systemFolders")
    assert needs(preset, OrganisationSettings()) == ("companyDomains",) and needs(preset, ACME) == ()
    by_default = instantiate(preset, {}, "p")
    assert by_default["matchConditions"][1]["value"] == "{{companyDomains}}"
    assert by_default["message"] == "outside {{companyDomains}}"
    assert by_default["examples"][1]["inputPayload"]["to"] == ["acme.com"]
    assert reads(policy_from_json(by_default)) == ("companyDomains", "systemFolders")
    chosen = instantiate(preset, {"own": ["mine.example"]}, "p")
    assert chosen["matchConditions"][1]["value"] == ["mine.example"]
    assert chosen["presetParameters"] == {"own": ["mine.example"]}
    assert reads(policy_from_json(chosen)) == ("systemFolders",)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{{companyDomains}}'}", "{{companyDomain}}'}", "did you mean `companyDomains`?"),
        ("{{companyDomains}}'}", "{{paymentLimit}}'}", "the setting `paymentLimit` is a number"),
        ("{{systemFolders}}", "{{systemFolder}}", "did you mean `systemFolders`?"),
        ("Mail to others.", "'Beyond {{paymentLimit}}.'", "only `matchConditions` and `message` may read"),
    ],
)
def test_settings_of_presets_are_checked(old: str, new: str, says: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        load_preset(PRESET.replace(old, new).encode(), "presets/comms/outside.yaml")
    assert says in str(refusal.value)


def test_values_of_settings() -> None:
    assert value_of(OrganisationSettings({"paymentLimit": 5}), "paymentLimit") == 5
    assert value_of(OrganisationSettings(), "paymentLimit") == 10000
