"""What is compiled for one tool answers as what asks each time, in as many steps."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from engine.cel import term as terms
from engine.cel.compiler import compile_tree
from engine.cel.control import METER
from engine.cel.expression import Expression
from engine.cel.fast_paths import Constant, metered
from engine.cel.parser import parse
from engine.cel.semantics import CelError, Spent
from engine.cel.term import WORTH, Term
from engine.errors import ConditionError
from tests.engine.cel.test_expression import GRAMMAR, JSON, written
from tests.harness.effort import examples

TESTS = [
    *('tool.words.matches("^delete|rows$")', 'tool.kind in ["sql", "shell"]', 'tool.effect == "delete"'),
    *("tool.kind == tool.effect", "tool.words.contains(tool.kind)", "size(tool.words) > 3", "tool.words"),
    *('"x" in inputPayload.a', "inputPayload.a == inputPayload.b", "inputPayload.a.all(y, tool.kind == y)"),
    'inputPayload.a.exists(y, tool.words.matches("rows") && y == tool.kind)',
]
OF_TOOLS = GRAMMAR | {
    "truth": ["<test>", "<test>", "(<truth> && <truth>)", "(<truth> || <truth>)", "!(<truth>)", "<any>"],
    "test": [*TESTS, "<any>"],
}
TOOLS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["sql", "unknown"]),
        "effect": st.sampled_from(["delete", "sql"]),
        "words": st.sampled_from(["delete rows", "", "sql"]),
    }
)

SQL = {"kind": "sql", "effect": "", "words": ""}


def outcome(run: Any, scope: dict[str, Any]) -> tuple[object, int]:
    """What comes of it, errors being alike, and the steps that are left."""
    scope = metered(scope, 400)
    try:
        found = run(scope)
    except CelError:
        found = CelError
    except Spent:
        found = Spent
    return repr(found), scope[METER][0]


@examples(400, 8_000)
@given(written(OF_TOOLS, "truth"), TOOLS, JSON)
@example(
    'inputPayload == inputPayload && tool.kind == "shell"', {"kind": "sql", "effect": "", "words": ""}, [1]
)
@example(
    'tool.kind == inputPayload || tool.kind == "sql"', {"kind": "sql", "effect": "", "words": ""}, "x" * 999
)
@example("true || 1 / 0 == 1 && tool.kind", {"kind": "sql", "effect": "", "words": ""}, None)
@example('inputPayload == inputPayload && !(tool.kind == "sql" || 1 in inputPayload)', SQL, [1] * 999)
@example('inputPayload == inputPayload || (tool.kind == "sql" || 1 in inputPayload)', SQL, [1] * 999)
def test_a_tree_for_one_tool_answers_the_same_in_as_many_steps(text: str, tool: Any, payload: Any) -> None:
    try:
        tree = parse(text)
        always, of_one = compile_tree(tree)[0], compile_tree(tree, tool)[0]
    except ConditionError:
        return
    scope = {"tool": tool, "inputPayload": payload, "toolName": "t"}
    assert outcome(of_one, scope) == outcome(always, scope)


def test_what_a_tool_decides_is_not_asked_any_more() -> None:
    tree = parse('tool.words.matches("rows") && inputPayload.a.exists(x, x == 1)')
    run, is_metered = compile_tree(tree, {"words": "list files"})
    assert isinstance(run, Constant) and run.value is False and not is_metered
    tree = parse('tool.words.matches("rows") || inputPayload.a == 1')
    run, is_metered = compile_tree(tree, {"words": "list files"})
    assert not isinstance(run, Constant) and run({"inputPayload": {"a": 1}}) is True  # without the tool


def test_a_term_is_compiled_for_a_tool_that_comes_often(monkeypatch: Any) -> None:
    made: list[object] = []
    compiled = compile_tree
    monkeypatch.setattr(terms, "compile_tree", lambda *tree: made.append(tree[1:]) or compiled(*tree))
    term = Term("", parse('tool.kind == "sql" && inputPayload == 1'))
    for number in range(3 * WORTH):
        scope = {"tool": {"kind": "sql" if number % 2 else "shell"}, "inputPayload": 1}
        assert term.evaluate(scope) is (number % 2 == 1)
    assert made == [(), ({"kind": "shell"},), ({"kind": "sql"},)]
    assert (
        term.evaluate({"inputPayload": 1}) is not True
    )  # a document without the tool is a fault, never an error


def test_terms_that_spend_are_asked_last() -> None:
    text = 'inputPayload.l.all(a, inputPayload.l.all(b, a == b)) && toolName == "mail"'
    purse = [1000]
    document = {"toolName": "other", "inputPayload": {"l": list(range(100))}}
    assert Expression(text).evaluate(document, purse) is False
    assert purse == [1000]
