"""Our expressions against CEL's own evaluator: generated ones, and the facts of CEL's conformance tests.

Both evaluate without type checking, as values of any type meet in a JSON document. Where we differ
deliberately (see `engine/cel/compiler.py`), the generator keeps away; `differences.yaml` says what we do.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from cel_expr_python import cel
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.compiler import compile_tree
from engine.cel.fast_paths import metered
from engine.cel.parser import parse
from engine.cel.semantics import CelError
from engine.errors import ConditionError
from tests.engine.cel.test_expression import load, written
from tests.harness.effort import examples

ERROR = "ERROR"
ENVIRONMENT = cel.NewEnv(variables={"inputPayload": cel.Type.DYN, "toolName": cel.Type.STRING})


def theirs(text: str, document: dict[str, Any]) -> Any:
    try:
        result = ENVIRONMENT.compile(text, disable_check=True).eval(data=document)
    except RuntimeError as error:
        if "duplicate key" not in str(error):
            raise
        return ERROR
    return ERROR if result.type() == cel.Type.ERROR else result.plain_value()


def ours(text: str, document: dict[str, Any]) -> Any:
    try:
        return compile_tree(parse(text))[0](metered(document))
    except CelError:
        return ERROR


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, objects in any order."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize(("case", "call"), load("conformance"))
def test_a_conformance_fact_holds_for_both(case: dict[str, Any], call: object) -> None:
    expected = ERROR if "error" in case else case["gives"]
    assert same(ours(case["expression"], {}), expected)
    if (
        "\r\n" not in case["expression"]
    ):  # the conformance tests keep a line end as it is, the library does not
        assert same(theirs(case["expression"], {}), expected)


@pytest.mark.parametrize(
    ("case", "call"),
    [
        each
        for each in load("operators", "numbers", "text", "members", "macros", "absorption")
        if "differs" not in each.values[0]
    ],
)
def test_our_cases_are_cels_too(case: dict[str, Any], call: dict[str, Any]) -> None:
    text = case["expression"]
    payload = {key: value for key, value in call["inputPayload"].items() if key != "huge"}
    document = {"toolName": call.get("toolName", ""), "inputPayload": payload}
    assert same(theirs(text, document), ERROR if "error" in case else case["gives"])


@pytest.mark.parametrize(("case", "call"), load("differences"))
def test_a_deliberate_difference_is_one(case: dict[str, Any], call: dict[str, Any]) -> None:
    """CEL refuses, has an ERROR, or compares doubles inexactly, where we do what the case says."""
    document = {"toolName": "mail", "inputPayload": call["inputPayload"]}
    try:
        value = theirs(case["expression"], document)
    except RuntimeError:
        value = ERROR
    assert value == ERROR or not same(value, case.get("gives")) or "huge" in case["expression"]


# ---- generated expressions -----------------------------------------------------------------------------
# Typed loosely: mostly what makes sense, so that values come out, sometimes not, so that errors do.
# Whole and other numbers do not meet in arithmetic, nor beyond 2^53 in comparisons (deliberate differences).

GRAMMAR = {
    "expression": [
        *("<test>", "<test>", "(<expression>) && (<expression>)", "(<expression>) || (<expression>)"),
        *("!(<expression>)", "(<expression>) ? (<expression>) : (<expression>)"),
        *("(<expression>) == (<expression>)", "size(<expression>)", "<list>.<macro>(x, <body>)"),
        *("<array>.map(x, <body>)", "<array>.map(x, <body>, <body>)", "<array>.filter(x, <body>)"),
        "<list>.<macro>(x, (<body>) && (<expression>))".replace("<expression>", "<test>"),
        "<list>.<macro>(x, <list>.<macro>(y, x == y || (<test>)))",
    ],
    "test": [
        *("true", "false", "inputPayload.t", "inputPayload.u", "<has>", "<item>", "<item> <compare> <item>"),
        *("<int> <compare> <int>", "<big> <compare> <big>", "<whole> <compare> <double>", "<item> in <list>"),
        *("<text>.<method>(<text>)", "(<odd>).<method>(<text>)", "<text>.matches('<pattern>')"),
    ],
    "item": [
        *("<int>", "<double>", "<text>", "inputPayload.t", "<odd>", "<list>", "<list>[<index>]"),
        *("<list> + <list>", "[<item>, <item>]", "{'a': <item>, 'b': <item>}"),
    ],
    "int": ["<whole>", "<whole>", "(<int> <arithmetic> <int>)", "-(<int>)"],
    "double": ["<other>", "<other>", "(<double> <arithmetic> <double>)", "-(<double>)"],
    "big": ["<large>", "<whole>", "(<large> <arithmetic> <big>)", "-(<large>)"],
    "text": ["<word>", "<word>", "(<text> + <text>)"],
    "whole": ["0", "1", "2", "-3", "7", "inputPayload.n", "inputPayload.m.n", "size(inputPayload.l)"],
    "other": ["0.0", "0.5", "-1.5", "2.0", "inputPayload.f"],
    "large": ["9223372036854775807", "-9223372036854775808", "4611686018427387904", "inputPayload.big"],
    "word": ['""', '"a"', '"ab"', '"é"', '"😀"', "inputPayload.s", "inputPayload.m.s", "toolName"],
    "odd": ["null", "inputPayload.x", "inputPayload.m.x", "inputPayload.s.x", "1 / 0", "inputPayload.nil"],
    "array": ["[]", "[1, 2, 'a']", "inputPayload.l"],  # CEL's objects have no order, so no maps of them
    "list": ["[]", "[1, 2]", "inputPayload.l", "[inputPayload.n, 'a']", "inputPayload.m.l", "inputPayload.m"],
    "has": [f"has(inputPayload.{path})" for path in ("n", "x", "m.n", "m.x", "s.x", "x.y", "nil")],
    "index": ["0", "1", "-1", "5", "1.0", "0.5", "'n'", "'x'", "true", "null"],
    "compare": ["==", "!=", "<", "<=", ">", ">="],
    "arithmetic": ["+", "-", "*", "/", "%"],
    "method": ["contains", "startsWith", "endsWith"],
    "pattern": ["a", "^a?$", "é|😀", "."],
    "macro": ["all", "exists", "exists_one"],
    "body": [
        *("x == 1", "x > 1", "x != 'a'", "x == null", "x % 2 == 1", "has(x.a)", "x.a == 1", "x"),
        *("x in inputPayload.l", "true"),
    ],
}
SCALAR = st.sampled_from([None, True, False, 0, 1, -3, 2**53, 0.0, 0.5, -2.0, "", "a", "é", "😀b"])
NO_DOUBLE = SCALAR.filter(lambda value: not isinstance(value, float))  # it meets whole numbers in sums
LISTS = st.lists(SCALAR | st.fixed_dictionaries({}, optional={"a": SCALAR}), max_size=4)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([0, 1, -3, 7, 10**6]),
        "f": st.sampled_from([0.0, -0.0, 0.5, 2.0, 1e300]),
        "big": st.sampled_from([2**63 - 1, -(2**63), 2**62]),
        "s": st.sampled_from(["", "a", "ab", "é", "e\u0301", "😀", "\uffff"]),
        "t": st.just(True) | SCALAR,
        "u": st.just(False) | SCALAR,
        "nil": st.none(),
        "l": LISTS,
        "m": st.fixed_dictionaries({}, optional={"n": NO_DOUBLE, "s": SCALAR, "l": LISTS, "a": SCALAR}),
    },
)


@examples(750, 15_000)
@given(written(GRAMMAR, "expression"), PAYLOADS, st.sampled_from(["", "a", "mail"]))
def test_generated_expressions_agree_with_cel(text: str, payload: dict[str, Any], tool: str) -> None:
    document = {"toolName": tool, "inputPayload": payload}
    try:
        mine = ours(text, document)
    except ConditionError as refused:
        pytest.fail(f"{text}: {refused}")
    assert same(mine, theirs(text, document)), (text, mine, theirs(text, document))
