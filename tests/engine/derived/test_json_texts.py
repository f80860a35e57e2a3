"""JSON in texts, the usual form of function calls: policies look into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.conditions.compiled import compile_condition
from engine.derived.facts import Facts
from engine.derived.payload import leaves
from engine.fields.json_text import MOST_OPENED, Unread, opened
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall
from tests.engine.derived.declared import is_partial, shown
from tests.engine.derived.test_bounds import nested, repeated


@pytest.mark.parametrize(
    ("operator", "value", "holds"),
    [
        ("matches", "^rm -rf", True),
        ("starts_with", "rm -rf", True),
        ("contains", "rm -rf", True),
        ("contains", "r\\u006d", True),
        ("ends_with", "/", True),
        ("not_contains", "rm -rf", False),
        ("matches", "^command$", True),
        ("equals", "rm -rf /", False),
    ],
)
def test_text_operators_on_the_payload_look_into_json_texts(operator: str, value: str, holds: bool) -> None:
    call = ToolCall.of(toolName="x", inputPayload={"arguments": '{"command": "r\\u006d -rf /"}'})
    condition = Condition("inputPayload", operator, value)
    assert compile_condition(condition).evaluate(Facts(call.document)) is holds
    ruleset = Ruleset.build([Policy("p", "p", "block", (condition,))])
    assert ruleset.evaluate(call) == ruleset.scan(call)
    assert bool(ruleset.evaluate(call).matches) is holds


@pytest.mark.parametrize(
    "text", [nested('{"command": "r\\u006d -rf /"}', 1_100), repeated('{"command": "r\\u006d -rf /"}', 6)]
)
def test_text_operators_on_the_payload_look_into_json_of_any_depth(text: str) -> None:
    call = ToolCall.of(toolName="x", inputPayload={"arguments": text})
    ruleset = Ruleset.build([Policy("p", "p", "block", (Condition("inputPayload", "contains", "rm -rf"),))])
    assert ruleset.evaluate(call).matches
    assert ruleset.evaluate(call) == ruleset.scan(call)


def test_a_member_of_the_payload_is_the_text_that_it_is() -> None:
    call = ToolCall.of(toolName="x", inputPayload={"to": '["mallory@evil.example", "a@acme.example"]'})
    guard = Condition("inputPayload.to", "not_matches", "@acme\\.example$")
    assert compile_condition(guard).evaluate(Facts(call.document)) is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n["a"]', ["a"]),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": 1, "a": 2, "b": 3}', [{"a": 2, "b": 3}, {"a": 1, "b": 3}]),
        ('{"a": 1, "a": 2, "a": 3}', [{"a": 3}, {"a": 1}, {"a": 2}]),
        ('{"b": [{"c": 1, "c": 2}], "a": 1, "a": 2}', [{"b": [[{"c": 2}, {"c": 1}]], "a": 2}, {"a": 1}]),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('{"a": NaN, "b": -Infinity}', {"a": "NaN", "b": "-Infinity"}),
        (
            '{"a": 1.50, "b": 1e3, "c": 100.00000000000000001}',
            {"a": 1.5, "b": 1000.0, "c": "100.00000000000000001"},
        ),
        ('{"a": ' + "9" * 500 + "}", {"a": "9" * 500}),
        ("{a: 1}", None),
        ('"a"', None),
        ("12", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_what_is_taken_for_json(text: str, value: Any) -> None:
    assert opened(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"to": "a@acme.example", "to": "mallory@evil.example"}',
        '{"to": "mallory@evil.example", "to": "a@acme.example"}',
        '{"to": "a@acme.example", "to": "mallory@evil.example", "to": "a@acme.example"}',
        '[{"mail": {"to": "a@acme.example", "to": "mallory@evil.example"}}]',
    ],
)
def test_a_key_that_stands_twice_hides_no_target(text: str) -> None:
    for fact in ("targets", "untrustedTargets", "unaskedTargets"):
        assert "mallory@evil.example" in shown("transfer", {"arguments": text}, fact), fact


@pytest.mark.parametrize(
    "text",
    [
        '{"amount": 1, "amount": 200}',
        '{"amount": 200, "amount": 1}',
        '{"amount": 1, "other": {"amount": 1, "amount": 200}}',
        '{"amount": NaN}',
        '{"amount": 100.00000000000000001}',
    ],
)
@pytest.mark.parametrize(
    "condition",
    [
        Condition("derived.payload.amount", "greater_than", 100),
        Condition(expression="has(derived.payload.amount) && derived.payload.amount > 100"),
    ],
)
def test_what_tools_may_read_in_two_ways_hides_no_member(text: str, condition: Condition) -> None:
    """Which key or number the tool reads is not known, so what asks for one cannot be evaluated."""
    guard = Condition("toolName", "equals", "pay")
    ruleset = Ruleset.build([Policy("p", "p", "block", (guard, condition))])
    call = ToolCall.of(toolName="pay", inputPayload={"arguments": text})
    assert ruleset.evaluate(call).matches
    assert ruleset.evaluate(call) == ruleset.scan(call)


MANY = list(range(MOST_OPENED))
MEMBERS = ("payload", "shellCommands", "reads", "hosts", "recipients", "sql", "text")


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"command": "rm -rf /", "many": MANY}).replace("rm", "r\\u006d"),
        json.dumps(json.dumps({"command": "rm -rf /", "many": [[]] * MOST_OPENED}).replace("rm", "r\\u006d")),
        [json.dumps(MANY[:1_000]) for _ in range(MOST_OPENED // 1_000)],
    ],
    ids=["one text", "a text in a text", "many texts"],
)
def test_json_in_texts_holds_no_more_values_than_a_payload_may(arguments: Any) -> None:
    """What is beyond is not left out: all that is worked out of the call is known only in part, and a text
    that stands in it is found."""
    payload = {"arguments": arguments}
    for member in MEMBERS:
        single = member == "payload" and not isinstance(arguments, str)
        assert is_partial("bash", payload, member) is not single, member
    if isinstance(arguments, str):
        condition = Condition("inputPayload", "contains", "rm -rf")
        assert (
            compile_condition(condition).evaluate(Facts({"toolName": "x", "inputPayload": payload})) is True
        )
    policies = [
        Policy(member, member, "block", (Condition(f"derived.{member}", "contains", "curl"),))
        for member in MEMBERS
    ]
    ruleset, call = Ruleset.build(policies), ToolCall.of(toolName="bash", inputPayload=payload)
    assert ruleset.evaluate(call) == ruleset.scan(call)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"command": "ls", "prose": "[a], {b}, " * MOST_OPENED}),
        json.dumps({"command": "ls", "many": MANY[: MOST_OPENED - 10]}),
    ],
    ids=["what stands in quotes is not counted", "almost as many"],
)
def test_json_in_a_text_that_is_only_long_is_read(text: str) -> None:
    assert not is_partial("bash", {"arguments": text}, "payload")
    assert shown("bash", {"arguments": text}, "payload")["command"] == "ls"


def test_what_is_no_json_is_not_taken_for_what_is_not_read() -> None:
    unread = Unread()
    assert opened("[ -f a ] && rm {a,b,c}\n" * MOST_OPENED, unread) is None
    assert not unread


def as_json(text: str) -> str:
    """The text in quotes, which takes five bytes more for each that was escaped before."""
    escaped = text.replace("\\", r"\u005c").replace('"', r"\u0022")
    return f'"{escaped}"'


@pytest.mark.parametrize("header", ['["headers", {}]', '{"name": "headers", "value": {}}'])
def test_headers_within_headers_are_not_followed_twice_at_each_depth(header: str) -> None:
    depth, text = 12, "x"
    for _ in range(depth):
        text = header.replace("{}", as_json(text))
    assert len(leaves({"inputPayload": {"headers": text}}, Unread())) < 4 * depth
