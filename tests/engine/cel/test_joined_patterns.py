"""Patterns of one text in an `||` are searched for together first: the verdict is that of each by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel.compiler import compile_tree
from engine.cel.fast_paths import metered
from engine.cel.joined_patterns import Joined, joined
from engine.cel.parser import parse
from engine.cel.semantics import CelError
from engine.errors import ConditionError
from tests.harness.effort import examples

PATTERNS = [
    *(
        "ab",
        "(?i)AB",
        "^b",
        "a$",
        r"\bc\b",
        "a.{0,3}c",
        "(?s)a.c",
        "[^a]b",
        "a|bc",
        "",
        "(?i)a(?-i)B",
        r"\x{e9}",
    ),
    *("(a{1,40}b){1,20}c", "(?m)^c$", r"\Qa)|(b\E", "(?P<x>a)c", "(?U)a+c"),
]
TEXTS = st.text(alphabet="aAbBc \n)|(é", max_size=12)


def written(patterns: list[str], target: str = "toolName") -> str:
    return " || ".join(f"{target}.matches({json.dumps(each)})" for each in patterns)


def verdict(expression: str, scope: dict[str, Any]) -> Any:
    run, _ = compile_tree(parse(expression))
    try:
        return run(metered(scope))
    except CelError as error:
        return str(error)


def is_joined(patterns: list[str]) -> bool:
    tree: Any = parse(written(patterns))
    return any(isinstance(each, Joined) for each in joined(tree.terms))


@examples(300, 6_000)
@given(st.lists(st.sampled_from(PATTERNS), min_size=3, max_size=6), TEXTS)
def test_together_they_find_what_one_of_them_finds(patterns: list[str], text: str) -> None:
    alone = [verdict(written([each]), {"toolName": text}) for each in patterns]
    assert verdict(written(patterns), {"toolName": text}) is any(alone)
    inside = f"inputPayload.exists(text, {written(patterns, 'text')} || text == 'none')"
    assert verdict(inside, {"inputPayload": ["", text]}) is (
        any(alone) or verdict(written(patterns), {"toolName": ""})
    )


def test_most_are_joined_and_what_is_not_a_text_is_an_error_still() -> None:
    assert is_joined(["ab", "(?i)cd", "^e"])
    assert not is_joined(["ab", "cd"])
    found = verdict(
        f"{written(['a', 'b', 'c'], 'inputPayload.x')} || agentId == 'a'",
        {"inputPayload": {"x": 1}, "agentId": "b"},
    )
    assert found == "`matches` cannot be used on a number"


def test_one_that_quotes_to_its_end_is_searched_alone() -> None:
    patterns = [r"\Qab", r"\Qx\E|d", "c"]
    assert not is_joined(patterns)
    assert [verdict(written(patterns), {"toolName": text}) for text in ("ab", "d", "c", "y")] == [
        True
    ] * 3 + [False]


def test_a_wrong_one_is_told_of_by_itself() -> None:
    with pytest.raises(ConditionError, match=r"a `\(` is not closed"):
        compile_tree(parse(written(["a", "b(", "c"])))


def test_a_text_that_is_too_long_for_one_of_them_is_an_error_where_that_might_match() -> None:
    patterns = ["x", "(?:ab{1,500}c){1,2}", "y"]
    long = "abc " * 200_000
    assert verdict(written(patterns), {"toolName": long}) == verdict(
        written(patterns[1:2]), {"toolName": long}
    )
    assert verdict(written(patterns), {"toolName": "-" * len(long)}) is False


def test_counts_that_are_small_one_by_one_are_not_too_many_together() -> None:
    patterns = [f"{letter}[a-z]{{1,3}}{letter.upper()}" for letter in "abcdefghijklmnopqrstuvw"]
    long = "ab" * 450_000
    assert is_joined(patterns)
    assert verdict(written(patterns), {"toolName": long + "A"}) is True
    assert verdict(written(patterns), {"toolName": f"{long}{'a' * 9}A".replace("baa", "b aa")}) is True
    assert verdict(written(patterns), {"toolName": long}) is False


@pytest.mark.parametrize("text", ["one", "two", "three", "none"])
def test_in_a_loop_they_take_no_more_steps_than_each_by_itself(text: str) -> None:
    patterns, texts = ["one", "two", "three"], [text] * 100
    left = []
    for target in ("each", "[each][0]"):  # the other is no path, so these are searched one by one
        run, _ = compile_tree(parse(f"inputPayload.filter(each, {written(patterns, target)}).size() >= 0"))
        scope = metered({"inputPayload": texts})
        assert run(scope) is True
        left.append(scope["#steps"][0])
    assert left[0] >= left[1]
