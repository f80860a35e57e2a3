"""Documents: every case file, the schemas against the engine, and what no text may do to the reader."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import schemas
from engine.conditions.compiled import compile_condition
from engine.conditions.operators import OPERATORS
from engine.documents.policy import (
    load_policy,
    load_policy_test,
    policy_as_json,
    policy_from_json,
    policy_from_state,
    slug,
)
from engine.documents.presets import escaped, instantiate, load_preset
from engine.documents.typed_shape import is_policy
from engine.documents.yaml import MAX_BYTES, read
from engine.errors import DocumentError
from engine.model import ACTIONS, RATE_LIMIT_KEYS, ROOTS, Condition, Policy
from engine.repository import loader
from schemas.validation import violations
from tests.harness import places

CASES = places.CASES / "documents"
SCHEMA = json.loads((CASES / "case.schema.json").read_text(encoding="utf-8"))
MINIMAL = {
    "name": "Hold wires",
    "action": "block",
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "wire"}],
}


def case(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
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
    assert set(definitions["example"]["properties"]) == {"match", *ROOTS}
    call = schemas.load("documents/policy_test")["$defs"]["test"]["properties"]["call"]
    assert set(call["properties"]) == set(ROOTS)
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


def test_what_the_quick_shape_accepts_the_schema_accepts() -> None:
    rng = random.Random(7)
    whole = case(CASES / "accepted" / "every-member-of-a-policy.yaml")
    document = read(source_of(whole)).root.value
    both = only_schema = 0
    for _ in range(3000):
        value = mangled(rng, document)
        if rng.random() < 0.3:
            value = mangled(rng, value)
        found = violations("documents/policy", value)
        if is_policy(value):
            assert found == [], value
            both += 1
        elif not found:
            only_schema += 1
    assert both > 100 and only_schema < both, "it is worth having"


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


# ---- strict reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *[
            (text, text)
            for text in ("yes", "no", "on", "off", "~", "True", "NULL", "012", "0x1f", "1_000", "0o17")
        ],
        *[
            (text, text)
            for text in (".inf", "-.Inf", ".nan", "NaN", "2026-01-01", "12:30:00", "+1", ".5", "5.", "1e")
        ],
        *[("true", True), ("false", False), ("null", None), ("0", 0), ("-0", 0), ("12", 12), ("1.0", 1.0)],
        *[("-1.5e3", -1500.0), ("1E2", 100.0), ("'1'", "1"), ('"true"', "true"), ("9" * 300, int("9" * 300))],
    ],
)
def test_only_json_scalars_are_not_text(written: str, value: Any) -> None:
    found = read(f"a: {written}\n".encode()).root.value["a"]
    assert found == value and type(found) is type(value)


def test_keys_are_always_text() -> None:
    assert read(b"{1: a, true: b, null: c, 2026-01-01: d}").root.value == {
        "1": "a",
        "true": "b",
        "null": "c",
        "2026-01-01": "d",
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=20,
)


@given(JSON)
@settings(max_examples=300, deadline=None)
def test_all_json_is_read_as_json_would_read_it(value: Any) -> None:
    """But for the keys `<<`, which are refused, and characters that a file may only hold escaped."""
    text = json.dumps({"a": value}, ensure_ascii=True)
    if '"<<"' not in text and len(max(text.split('"'), key=len)) < 900:
        try:
            assert read(text.encode()).root.value == {"a": value}
        except DocumentError as error:
            assert "\\ud8" in text or "\\ud" in text, error  # surrogate pairs are JSON's own escape


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=500, deadline=None)
def test_whatever_bytes_are_a_document_error_or_a_policy(source: bytes) -> None:
    try:
        load_policy(source, "p.yaml")
    except DocumentError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.message and str(problem).isprintable()


def test_mutilated_documents_are_refused_or_loaded_never_a_crash() -> None:
    whole = (places.SHIPPED / "policies").rglob("*.yaml")
    sources = [path.read_bytes() for path in whole if not path.name.endswith("_test.yaml")]
    rng = random.Random(4)
    for _ in range(400):
        source = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(source))
            source[at : at + rng.randint(0, 3)] = rng.choice(
                [b"", b"\t", b"\n", b": ", b"-", b"'", b"\xff", b"{"]
            )
        try:
            load_policy(bytes(source), "policies/p.yaml")
        except DocumentError as error:
            assert error.problems


@pytest.mark.parametrize(
    "source",
    [
        b"[" * 500_000,
        b"{a: " * 200_000,
        b"- " * 400_000,
        b"a: " + b"x" * 1_000_000,
        b"a: '" + b"''" * 400_000,
        b"? " * 300_000,
        b"a: &b [" + b"*b, " * 200_000,
        b"#" * 1_000_000,
        b"a: |\n" + b" x\n" * 300_000,
        b"x" * (10 * MAX_BYTES),
    ],
    ids=["brackets", "braces", "dashes", "long", "quotes", "keys", "aliases", "comment", "lines", "huge"],
)
def test_hostile_sizes_are_answered_soon(source: bytes) -> None:
    begun = time.monotonic()
    with pytest.raises(DocumentError):
        load_policy(source, "p.yaml")
    assert time.monotonic() - begun < 5


def test_line_ends_do_not_change_the_meaning_or_the_lines() -> None:
    text = "apiVersion: governance/v1\nkind: Policy\npolicyId: p\nname: x\naction: blok\n"
    text += "matchConditions: [toolName == 1]\n"
    for ending in ("\n", "\r\n", "\r"):
        for mark in ("", "\ufeff"):
            with pytest.raises(DocumentError) as caught:
                load_policy((mark + text.replace("\n", ending)).encode(), "p.yaml")
            assert [(p.line, p.column) for p in caught.value.problems] == [(5, 9)]


# ---- presets --------------------------------------------------------------------------------------------

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
@settings(max_examples=200, deadline=None)
def test_escaped_text_matches_exactly_itself(text: str) -> None:
    """No parameter of format text can turn into a pattern."""
    condition = Condition("toolName", "matches", rf"\A{escaped(text)}\z")
    from engine.fields.facts import Facts

    compiled = compile_condition(condition)
    assert compiled.evaluate(Facts({"toolName": text})) is True
    assert compiled.evaluate(Facts({"toolName": text + "x"})) is False
