"""Expressions: the cases of `cases/expressions`, guards, hints, and that nothing raises."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.compiler import compile_tree
from engine.cel.expression import Expression, compile_expression
from engine.cel.fast_paths import metered
from engine.cel.parser import parse
from engine.cel.semantics import CelError
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.hints import Literals, OneOf, Present, Regex, Threshold
from engine.fields.pattern import compile_pattern
from engine.fields.scalars import value_keys
from engine.model import ROOTS, Fault, ToolCall
from tests.harness import case_files, places
from tests.harness.effort import examples

CASES = places.CASES / "expressions"


def load(*names: str) -> list[Any]:
    found = []
    for name in names:
        content = case_files.read(CASES / f"{name}.yaml")
        for case in content["cases"]:
            call = content.get("call", {}) | case.pop("call", {})
            found.append(pytest.param(case, call, id=f"{name}: {case['expression'][:70]}"))
    return found


one_of = cache(st.sampled_from)


@st.composite
def written(draw: st.DrawFn, grammar: dict[str, list[str]], symbol: str, depth: int = 4) -> str:
    """A text of the grammar: one of the symbol's forms, with each `<symbol>` in it replaced likewise."""

    def text(symbol: str, depth: int) -> str:
        form = draw(one_of(tuple(grammar[symbol][: None if depth > 0 else 2])))
        return re.sub(r"<(\w+)>", lambda part: text(part[1], depth - 1), form)

    return text(symbol, depth)


def value_of(text: str, document: Any) -> Any:
    """What a whole expression gives, be it a truth value or not."""
    return compile_tree(parse(text))[0](metered(document))


@pytest.mark.parametrize(
    ("case", "call"),
    load("operators", "numbers", "text", "members", "macros", "absorption", "differences", "conformance"),
)
def test_an_expression_gives_what_its_case_says(case: dict[str, Any], call: dict[str, Any]) -> None:
    document = ToolCall.of(**call).document
    text = case["expression"]
    if "error" in case:
        with pytest.raises(CelError) as error:
            value_of(text, document)
        assert case["error"] in (True, str(error.value))
    else:
        assert repr(value_of(text, document)) == repr(case["gives"])
    try:
        expression = compile_expression(text)
    except ConditionError as refused:
        assert "a condition must be true or false" in refused.message
        return
    verdict = expression.evaluate(document)
    is_truth = type(case.get("gives")) is bool
    assert verdict is case["gives"] if is_truth else isinstance(verdict, Fault)


@pytest.mark.parametrize(("case", "call"), load("refused"))
def test_a_refused_expression_says_where_and_what_instead(case: dict[str, Any], call: object) -> None:
    with pytest.raises(ConditionError) as error:
        compile_expression(case["expression"])
    assert (error.value.message, error.value.offset) == (case["refused"], case["at"])
    assert error.value.part == "expression"


@pytest.mark.parametrize(("case", "call"), load("guards"))
def test_unguarded_paths_are_found(case: dict[str, Any], call: object) -> None:
    assert list(compile_expression(case["expression"]).unguarded_paths) == case["unguarded"]


@pytest.mark.parametrize(("case", "call"), load("tools"))
def test_a_restriction_of_the_tool_is_recognised(case: dict[str, Any], call: object) -> None:
    assert compile_expression(case["expression"]).restricts_tool_name is case["restricts"]


def test_terms_are_the_top_level_conjunction_as_written() -> None:
    text = 'toolName == "mail" && (inputPayload.a == 1 || false)\n && (has(inputPayload.b) && true)'
    expression = compile_expression(text)
    assert [term.text for term in expression.terms] == [
        'toolName == "mail"',
        "(inputPayload.a == 1 || false)",
        "has(inputPayload.b)",
        "true",
    ]
    document = ToolCall.of(toolName="mail", inputPayload={"a": 2}).document
    assert [term.evaluate(document) for term in expression.terms] == [True, False, False, True]
    assert expression.evaluate(document) is False
    assert [term.text for term in compile_expression("true || false").terms] == ["true || false"]


def test_equal_texts_are_compiled_once() -> None:
    assert compile_expression('toolName == "once"') is compile_expression('toolName == "once"')


# ---- hints -------------------------------------------------------------------------------------------


def hints_of(text: str) -> list[str]:
    shown = []
    for hint in compile_expression(text).hints:
        match hint:
            case OneOf(path=path, keys=keys):
                shown.append(f"{path} in {sorted(keys)}")
            case Literals(path=path, any_of=any_of, typed=typed):
                shown.append(f"{path} has {sorted(any_of)}{', if a text' if typed else ''}")
            case Regex(path=path, pattern=pattern, typed=typed):
                shown.append(f"{path} like {pattern}{', if a text' if typed else ''}")
            case Threshold(path=path, above=above, bound=bound, typed=True):
                shown.append(f"{path} {'from' if above else 'to'} {bound}, if a number")
            case Present(path=path):
                shown.append(f"{path} there")
            case _:
                raise AssertionError(hint)
    return shown


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ('toolName == "mail"', ["toolName in ['mail']"]),
        ('"mail" == toolName && inputPayload.a > 1', ["toolName in ['mail']"]),
        ('toolName in ["a", "b"]', ["toolName in ['a', 'b']"]),
        ('toolName == "a" || toolName in ["b"] || toolName == "c"', ["toolName in ['a', 'b', 'c']"]),
        ('toolName == "a" && inputPayload.x == 1 || toolName == "b"', ["toolName in ['a', 'b']"]),
        ('toolName == "a" || agentId == "b"', []),
        ('toolName == "a" || inputPayload.x == 1', []),
        ('toolName.contains("SQL")', ["toolName has ['sql']"]),
        ('agentId.startsWith("Straße")', ["agentId has ['strasse']"]),
        ('toolName.contains("a") || toolName.endsWith("b")', ["toolName has ['a', 'b']"]),
        ('toolName.contains("")', []),
        ('toolName.matches("^send")', ["toolName like ^send"]),
        ("has(inputPayload.a)", ["inputPayload.a there"]),
        ('"a" in inputPayload', ["inputPayload.a there"]),
        ("has(inputPayload.a) || has(inputPayload.b)", []),
        ("inputPayload.a == 1", []),
        ("inputPayload.a == 1 && has(inputPayload.a)", ["inputPayload.a in ['1']", "inputPayload.a there"]),
        (
            'has(inputPayload.a) && inputPayload.a in ["x", 1.0]',
            ["inputPayload.a there", "inputPayload.a in ['1', '1.0', 'x']"],
        ),
        (
            "has(inputPayload.a) && inputPayload.a > 1",
            ["inputPayload.a there", "inputPayload.a from 1.0, if a number"],
        ),
        (
            "has(inputPayload.a) && 1 > inputPayload.a",
            ["inputPayload.a there", "inputPayload.a to 1.0, if a number"],
        ),
        ('has(inputPayload.a) && inputPayload.a < "b"', ["inputPayload.a there"]),
        ("has(inputPayload.a) && inputPayload.a < true", ["inputPayload.a there"]),
        ("inputPayload.a > 1", []),
        (
            'has(inputPayload.a) && inputPayload.a.contains("x")',
            ["inputPayload.a there", "inputPayload.a has ['x'], if a text"],
        ),
        (
            'has(inputPayload.a) && inputPayload.a.matches("^s")',
            ["inputPayload.a there", "inputPayload.a like ^s, if a text"],
        ),
        (
            'has(inputPayload.a) && (inputPayload.a.startsWith("x") || inputPayload.a.endsWith("y"))',
            ["inputPayload.a there", "inputPayload.a has ['x', 'y'], if a text"],
        ),
        ('inputPayload.a.contains("x")', []),
        ('has(derived.amount) && derived.text.contains("x")', []),
        ("has(inputPayload.a) && has(inputPayload.a.b)", ["inputPayload.a there"]),
        ("!has(inputPayload.a)", []),
        ('toolName != "a"', []),
        ("has(user.id)", []),
        ('has(user.id) && user.id == "x"', []),
        ("true", []),
    ],
)
def test_hints_are_given_only_where_they_are_certain(text: str, hints: list[str]) -> None:
    assert hints_of(text) == hints


def holds(hint: Any, facts: Facts) -> bool:
    """What a hint promises, in the plainest words."""
    if getattr(hint, "typed", False):
        types = (int, float) if isinstance(hint, Threshold) else (str,)
        if any(type(end) not in types for end in facts.at(hint.path).ends):
            return True
    match hint:
        case Threshold(path=path, above=above, bound=bound):
            numbers, others = facts.at(path).numbers()
            return others or any(n >= bound if above else n <= bound for n in numbers)
        case OneOf(path=path, keys=keys):
            return any(not keys.isdisjoint(value_keys(value)) for value in facts.at(path).values())
        case Literals(path=path, any_of=any_of):
            return any(each in text.casefold() for text in facts.at(path).texts() for each in any_of)
        case Regex(path=path, pattern=pattern):
            return any(compile_pattern(pattern).search(text) is True for text in facts.at(path).texts())
        case Present(path=path):
            return facts.at(path).values() != ()
    raise AssertionError(hint)


NAMES = st.sampled_from(["mail", "Mail", "pay", "sql_run", "STRASSE", ""])
SCALARS = st.sampled_from(["mail", "1", 1, 1.0, 2, True, False, None, 0, -0.0, [1], {}, {"b": 1}, [], "x"])
DOCUMENTS = st.builds(
    lambda tool, payload: ToolCall.of(toolName=tool, inputPayload=payload).document,
    NAMES,
    st.dictionaries(st.sampled_from(["a", "b", "0"]), SCALARS),
)
WRITTEN = st.sampled_from(['"mail"', '"1"', "1", "1.0", "true", "null", '"x"', "0", "[1]"])
TESTS = st.one_of(
    st.builds("toolName == {}".format, WRITTEN),
    st.builds("toolName in [{}, {}]".format, WRITTEN, WRITTEN),
    st.sampled_from(
        ['toolName.contains("straße")', 'toolName.startsWith("ma")', 'toolName.matches("(?i)MAIL")']
    ),
    st.builds("has(inputPayload.{})".format, st.sampled_from("ab")),
    st.builds('"{}" in inputPayload'.format, st.sampled_from("ab0")),
    st.builds("inputPayload.{} == {}".format, st.sampled_from("ab"), WRITTEN),
    st.builds("inputPayload.{} in [{}]".format, st.sampled_from("ab"), WRITTEN),
    st.builds("inputPayload.{} > {}".format, st.sampled_from("ab"), WRITTEN),
    st.builds("{} >= inputPayload.{}".format, WRITTEN, st.sampled_from("ab")),
    st.builds(
        'inputPayload.{}.{}("{}")'.format,
        st.sampled_from("ab"),
        st.sampled_from(["contains", "startsWith", "endsWith", "matches"]),
        st.sampled_from(["x", "1", "ma", "MAIL"]),
    ),
    st.builds("has(inputPayload.a.{})".format, st.sampled_from("ab")),
    st.sampled_from(["true", "false", "1 / 0 == 1"]),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@examples(200, 4_000)
@given(st.lists(CONDITIONS, min_size=1, max_size=4).map(" && ".join), DOCUMENTS)
def test_a_hint_that_does_not_hold_means_false(text: str, document: Any) -> None:
    expression = compile_expression(text)
    if expression.evaluate(document) is not False:
        facts = Facts(document)
        assert all(holds(hint, facts) for hint in expression.hints)


@examples(200, 4_000)
@given(st.lists(CONDITIONS, min_size=1, max_size=4).map(" && ".join), DOCUMENTS)
def test_without_unguarded_paths_nothing_missing_is_read(text: str, document: Any) -> None:
    expression = compile_expression(text)
    verdict = expression.evaluate(document)
    if not expression.unguarded_paths and isinstance(verdict, Fault):
        assert "is missing" not in verdict.message or "is no object" in verdict.message


# ---- nothing raises ----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
    | st.sampled_from([2**63, "\ud800", float("nan"), float("inf")])
    | st.integers(400, 5000).map(lambda digits: 10**digits),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "\ud800"]), inner, max_size=3)
    ),
    max_leaves=12,
)
GRAMMAR = {
    "any": [
        *("<leaf>", "<leaf>", "(<any> <operator> <any>)", "(<any>).<method>(<any>)", "!(<any>)", "-(<any>)"),
        *('(<any>).matches("a|.|\\\\d")', "size(<any>)", "(<any>)[<any>]", "[<any>, <any>]", '{"a": <any>}'),
        *("(<any> ? <any> : <any>)", "(<any>).<macro>(x, <any> == x)", "(<any>).map(y, [y, <any>])"),
    ],
    "leaf": [
        *(
            "inputPayload",
            "inputPayload.a",
            "inputPayload.a.b",
            'inputPayload["a"][0]',
            "agentContext",
            "reason",
        ),
        *("run.task", "user", "1", "0", "-1", "1.5", "0.0", '"a"', '""', "[]", "{}", "null", "true"),
    ],
    "operator": ["==", "!=", "<", "<=", ">", ">=", "in", "&&", "||", "+", "-", "*", "/", "%"],
    "method": ["contains", "startsWith", "endsWith"],
    "macro": ["all", "exists", "exists_one", "filter"],
}


@examples(300, 6_000)
@given(written(GRAMMAR, "any"), JSON, JSON)
def test_evaluation_never_raises(text: str, payload: Any, other: Any) -> None:
    document = {"toolName": "mail", "inputPayload": payload, "reason": other, "user": other, "run": payload}
    try:
        expression = Expression(f"({text}) == {text} || ({text})")
    except ConditionError:  # a member that a root cannot have, a hidden variable
        return
    verdict = expression.evaluate(document)
    assert verdict is True or verdict is False or isinstance(verdict, Fault)


@examples(200, 4_000)
@given(
    st.text(st.sampled_from(list("inaxtoolName.()[]{}?:,+-*/%!&|=<>\"'\\ru01e \n`@\ud800é")), max_size=40)
    | st.text(max_size=20)
)
def test_any_text_compiles_or_is_refused_with_a_place(text: str) -> None:
    try:
        Expression(text)
    except ConditionError as refused:
        assert refused.part == "expression"
        assert refused.offset is not None and 0 <= refused.offset <= len(text)
        ours = refused.message.replace(text, "")
        assert "Token(" not in ours and "Error" not in ours


def test_deep_documents_do_not_exhaust_the_stack() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    document = ToolCall.of(inputPayload={"a": deep, "b": deep}).document
    assert Expression("inputPayload.a == inputPayload.b").evaluate(document) is True
    assert Expression("inputPayload.a in [inputPayload.b, 1]").evaluate(document) is True
    assert Expression("inputPayload.a == 1").evaluate(document) is False
    assert Expression('inputPayload.a == ""').evaluate(document) is False
    assert isinstance(Expression("inputPayload.a > 1").evaluate(document), Fault)


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_is_a_name(root: str) -> None:
    assert Expression(f"has({root})").evaluate({}) is False
