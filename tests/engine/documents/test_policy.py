"""Policy documents: accepted and refused cases, JSON bodies, and the schemas that say the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import schemas
from engine.conditions.operators import OPERATORS
from engine.derived.tools import ANNOTATIONS
from engine.documents.ids import slug
from engine.documents.policy import (
    load_policy_test,
    policy_as_json,
    policy_from_json,
    policy_from_state,
)
from engine.documents.yaml import read
from engine.errors import DocumentError
from engine.model import ACTIONS, BEFORE, RATE_LIMIT_KEYS, ROOTS, Condition, Policy
from engine.repository import loader
from schemas import acceptance
from schemas.acceptance import accepts
from schemas.validation import explained
from tests.harness import case_files, places
from tests.harness.policy_bodies import on_tool

CASES = places.CASES / "documents"
SCHEMA = json.loads((CASES / "case.schema.json").read_text(encoding="utf-8"))
MINIMAL = on_tool("Hold wires", "block", "wire")


def case(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = case_files.read(path)
    jsonschema.validate(found, SCHEMA)
    return found


def source_of(found: dict[str, Any]) -> bytes:
    return bytes.fromhex(found["bytes"]) if "bytes" in found else found["source"].encode()


def load(file: str, source: bytes) -> Any:
    return load_policy_test(source, file) if file.endswith("_test.yaml") else loader.load(file, source)


@pytest.mark.parametrize("path", sorted((CASES / "rejected").glob("*.yaml")), ids=lambda p: p.stem)
def test_rejected(path: Path) -> None:
    found = case(path)
    with pytest.raises(DocumentError) as caught:
        load(found["file"], source_of(found))
    assert [str(problem) for problem in caught.value.problems] == found["problems"]


@pytest.mark.parametrize("path", sorted((CASES / "accepted").glob("*.yaml")), ids=lambda p: p.stem)
def test_accepted(path: Path) -> None:
    found = case(path)
    loaded = load(found["file"], source_of(found))
    if "policy" in found:
        assert policy_as_json(loaded.document) == found["policy"]


def test_there_are_enough_rejected_cases() -> None:
    assert len(list((CASES / "rejected").glob("*.yaml"))) >= 80


# ---- schemas and engine say the same --------------------------------------------------------------------


@pytest.mark.parametrize("name", schemas.names())
def test_schemas_are_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.load(name))


def test_enumerations_are_the_engines() -> None:
    definitions = schemas.load("documents/policy")["$defs"]
    assert set(definitions["operator"]["enum"]) == set(OPERATORS)
    assert set(definitions["action"]["enum"]) == set(ACTIONS)
    assert definitions["rateLimit"]["properties"]["per"]["items"]["enum"] == list(RATE_LIMIT_KEYS)
    assert set(definitions["example"]["properties"]) == {"match", "about", BEFORE, ANNOTATIONS, *ROOTS}
    call = schemas.load("documents/policy_test")["$defs"]["test"]["properties"]["call"]
    assert set(call["properties"]) == {BEFORE, ANNOTATIONS, *ROOTS}
    whole = schemas.load("documents/policy")
    assert (
        whole["properties"].keys() - {"apiVersion", "kind", "version"}
        == definitions["body"]["properties"].keys()
    )


def mangled(rng: random.Random, value: Any) -> Any:
    """A document with one thing changed somewhere: another value, a key more, a key less."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        changed = dict(value)
        key = rng.choice(list(changed))
        match rng.randrange(5):
            case 0:
                del changed[key]
            case 1:
                changed[rng.choice(["value", "expression", "per", "user", "owner", "version"])] = rng.choice(
                    ODD
                )
            case _:
                changed[key] = mangled(rng, changed[key])
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], mangled(rng, value[at]), *value[at + rng.randrange(2) :]]
    return rng.choice(ODD)


ODD = [
    None,
    True,
    0,
    1,
    -1,
    5.0,
    1.5,
    10**400,
    "",
    "a",
    "a\n",
    "A b",
    "x" * 20_000,
    [],
    ["a"],
    {},
    {"a": 1},
    "exists",
]
ODD += ["toolName == 1", "in", "agentId", "block", "fail", 2**31, ["agentId", "agentId"], [1] * 70]


def test_the_quick_yes_is_the_schemas() -> None:
    rng = random.Random(7)
    whole = case(CASES / "accepted" / "every-member-of-a-policy.yaml")
    document = read(source_of(whole)).root.value
    yes = 0
    for _ in range(3000):
        value = mangled(rng, document)
        if rng.random() < 0.3:
            value = mangled(rng, value)
        accepted = accepts("documents/policy")(value)
        assert accepted is not bool(explained("documents/policy", value)), value
        yes += accepted
    assert 100 < yes < 2900, "both are tried"


@pytest.mark.parametrize("name", schemas.names())
def test_every_schema_has_a_quick_yes(name: str) -> None:
    """A keyword that nobody reads would make every value of that schema slow to check."""
    acceptance._referred(name, "")


def test_unknown_schema() -> None:
    with pytest.raises(schemas.UnknownSchema):
        schemas.load("documents/../../secrets")


# ---- JSON bodies ----------------------------------------------------------------------------------------


def problems(body: Any) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        policy_from_json(body)
    return [(problem.pointer, problem.code) for problem in caught.value.problems]


def test_body_becomes_a_policy_with_a_slug() -> None:
    policy = policy_from_json(MINIMAL)
    assert policy == Policy(
        "hold-wires", "Hold wires", "block", (Condition("toolName", "equals", "wire"),), enabled=True
    )
    assert policy_from_json(MINIMAL, policy_id="mine", organisation_id="acme").policy_id == "mine"


def test_a_policy_of_fields_is_checked_without_making_its_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(condition: Condition) -> None:
        raise AssertionError(f"{condition} was made for nothing")

    for room in ("policy", "sequence"):
        monkeypatch.setattr(f"engine.documents.{room}.compile_condition", made)
    body = {**MINIMAL, "matchConditions": [{"field": "inputPayload.a", "operator": "matches", "value": "x+"}]}
    assert policy_from_json(body).conditions == (Condition("inputPayload.a", "matches", "x+"),)
    body["matchConditions"][0]["value"] = "("
    assert problems(body) == [("/matchConditions/0/value", "invalid_condition")]


def test_problems_of_a_body_come_at_once_with_pointers() -> None:
    body = {
        "nmae": "x",
        "action": "allow",
        "matchConditions": [
            {"field": "toolName", "operator": "matches", "value": "("},
            {"field": "toolName", "operator": "equals", "value": "x", "a/b~c": 1},
            "1 +",
        ],
    }
    assert problems(body) == [
        ("", "missing"),
        ("/nmae", "unknown_key"),
        ("/matchConditions/1/a~1b~0c", "unknown_key"),
        ("/matchConditions/0/value", "invalid_condition"),
        ("/matchConditions/2", "invalid_condition"),
    ]


def test_an_example_says_why_and_its_call_does_not() -> None:
    entry = {"match": True, "about": "a wire", "toolName": "wire"}
    policy = policy_from_json(MINIMAL | {"policyId": "p", "examples": [entry]})
    assert policy.examples[0].call == {"toolName": "wire"}
    assert policy_as_json(policy)["examples"] == [entry]
    with pytest.raises(DocumentError, match=r"this example \(`a wire`\) must not match, but "):
        policy_from_json(MINIMAL | {"policyId": "p", "examples": [entry | {"match": False}]})


def test_examples_gate_a_body() -> None:
    assert problems(MINIMAL | {"examples": [{"match": True, "toolName": "mail"}]}) == [
        ("/examples/0", "example_fails")
    ]


@pytest.mark.parametrize("member", ["policyId", "name", "presetId"])
@pytest.mark.parametrize("end", ["\n", "\r", "\x00", "\x85"])
def test_a_line_end_at_the_end_is_not_overlooked(member: str, end: str) -> None:
    assert problems(MINIMAL | {member: f"abc{end}"}) == [(f"/{member}", "wrong_form")]


def test_body_that_is_no_object() -> None:
    assert problems([1]) == [("", "wrong_type")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Hold mail to outside addresses", "hold-mail-to-outside-addresses"),
        ("  ÄÖÜ 1/2 ", "aou-1-2"),
        ("Ünï / 日本", "uni"),
        ("Straße é", "strasse-e"),
        ("e\u0301te\u0301", "ete"),
        ("日本", "policy"),
        ("con", "policy-con"),
        ("a_test", "a-test"),
        ("x" * 200, "x" * 80),
    ],
)
def test_slugs(name: str, expected: str) -> None:
    assert slug(name) == expected
    policy_from_json(MINIMAL | {"name": name[:200]})


def test_state_comes_back_as_the_same_policy() -> None:
    full = MINIMAL | {
        "description": "d",
        "presetId": "x",
        "scope": "action_only",
        "enabled": False,
        "mode": "shadow",
        "rateLimit": {"limit": 5, "windowSeconds": 60},
        "approval": {"expiresAfterSeconds": 10},
        "failurePolicy": "ignore",
        "examples": [{"match": True, "toolName": "wire", "user": {"id": "u"}}],
        "matchConditions": ['toolName == "wire"', {"field": "user.id", "operator": "exists"}],
    }
    policy = policy_from_json(full, organisation_id="acme")
    assert policy_from_state(policy_as_json(policy), "acme") == policy
    assert policy_from_json(policy_as_json(policy), organisation_id="acme") == policy
