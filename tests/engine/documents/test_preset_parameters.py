"""Parameters of a preset become what they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.conditions.compiled import compile_condition
from engine.conditions.placeholders import escaped
from engine.documents.policy import (
    policy_from_json,
)
from engine.documents.presets import instantiate, load_preset
from engine.errors import DocumentError
from engine.model import Condition
from tests.harness.effort import examples

PRESET = b"""apiVersion: governance/v1
kind: Preset
presetId: p
category: mail
name: Hold mail
description: Holds mail that leaves {{domains}}.
action: require_approval
matchConditions:
  - {field: inputPayload.to, operator: not_matches, value: '@{{domains}}$'}
  - {field: inputPayload.size, operator: greater_than, value: '{{size}}'}
  - {field: toolName, operator: in, value: [send, '{{tools}}']}
  - {field: toolName, operator: matches, value: '^{{prefix}}'}
  - expression: 'inputPayload.note != {{note}}'
rateLimit: {limit: '{{size}}', windowSeconds: 60}
parameters:
  domains: {type: list, description: Yours, default: [corp.example, corp.test]}
  size: {type: integer, description: Bytes, default: 10, minimum: 1, maximum: 100}
  tools: {type: list, description: Tools, default: [gmail.send]}
  prefix: {format: regex, description: A pattern, default: 's|g'}
  note: {description: A text, default: it's "so"}
examples:
  - {match: true, toolName: send, inputPayload: {to: a@corp.other, size: 11, note: x}}
  - {match: false, toolName: send, inputPayload: {to: 'a@corp.example', size: 11, note: x}}
"""


def test_parameters_become_what_they_stand_for() -> None:
    preset = load_preset(PRESET, "p.yaml")
    body = instantiate(
        preset, {"domains": ["a.b", "c"], "size": 7, "tools": ["x", "y"], "note": 'q"'}, "mine"
    )
    assert body["matchConditions"] == [
        {"field": "inputPayload.to", "operator": "not_matches", "value": r"@(?:a\.b|c)$"},
        {"field": "inputPayload.size", "operator": "greater_than", "value": 7},
        {"field": "toolName", "operator": "in", "value": ["send", "x", "y"]},
        {"field": "toolName", "operator": "matches", "value": "^(?:s|g)"},
        {"expression": 'inputPayload.note != "q\\""'},
    ]
    assert body["rateLimit"] == {"limit": 7, "windowSeconds": 60}
    assert body["description"] == "Holds mail that leaves a.b, c."
    assert body["presetId"] == "p" and body["policyId"] == "mine"
    assert [example["match"] for example in body["examples"]] == [True], (
        "the other held for the defaults only"
    )
    policy_from_json(body)


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        ({"size": 0}, "/size"),
        ({"size": 101}, "/size"),
        ({"size": 1.5}, "/size"),
        ({"size": True}, "/size"),
        ({"domains": []}, "/domains"),
        ({"domains": "a"}, "/domains"),
        ({"domian": ["a"]}, "/domian"),
        ({"prefix": "("}, "/matchConditions/3/value"),
    ],
)
def test_parameters_that_do_not_fit(parameters: dict[str, Any], pointer: str) -> None:
    with pytest.raises(DocumentError) as caught:
        instantiate(load_preset(PRESET, "p.yaml"), parameters, "mine")
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
@examples(100, 2_000)
def test_escaped_text_matches_exactly_itself(text: str) -> None:
    """No parameter of format text can turn into a pattern."""
    condition = Condition("toolName", "matches", rf"\A{escaped(text)}\z")
    from engine.derived.facts import Facts

    compiled = compile_condition(condition)
    assert compiled.evaluate(Facts({"toolName": text})) is True
    assert compiled.evaluate(Facts({"toolName": text + "x"})) is False
