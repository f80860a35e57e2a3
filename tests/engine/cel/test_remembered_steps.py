"""Reading by remembered steps: the same trees and the same refusals as by the tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import remembered_steps
from engine.cel.parser import _Builder, parse
from engine.cel.remembered_steps import RememberingParser
from engine.errors import ConditionError
from grammar import condition_grammar
from tests.test_agreement import EXPRESSIONS

WORDS = (
    *("toolName", "inputPayload", "a", "has", "size", "matches", "in", "true", "null", "x", "e", "for"),
    *(".", "(", ")", "[", "]", "{", "}", ",", ":", "?", "==", "<=", "<", "&&", "||", "!", "-", "+", "*", "/"),
    *('"a"', "'b'", 'r"c"', '"""d"""', '"\\n"', '"\\q"', "`q`", "b'e'"),
    *("1", "0x1F", "2.5", ".5", "3u", "1e3", "9223372036854775808", "99999999999999999999"),
    *(" ", "\n", "// told\n", "é", "=", "&", "“"),
)
"""Words of the language, and some that are not in it."""

MORE = (
    *("- -5", "!!has(inputPayload.a)", "-9223372036854775808", "9223372036854775808"),
    *("[1, 2, ]", '{"a": 1, "a": 2}', '{"a": 1, "b": 2}', 'inputPayload["a"]', "inputPayload[0]"),
    *("inputPayload.a.exists(x, x == 1)", "inputPayload.a.map(x, x > 1, x)", "true ? 1 : 2"),
    *("", " ", "toolName ==", "toolName == 'a", "a.b.", "(toolName)", "// nothing"),
)


def read(parser: Any, text: str) -> Any:
    try:
        return parser.parse(text)
    except Exception as error:
        return type(error), str(error), getattr(error, "offset", None)


def fresh() -> RememberingParser:
    return RememberingParser(condition_grammar(), _Builder())


KNOWING = fresh()
"""Which has read many a text."""


@pytest.mark.parametrize("text", [*EXPRESSIONS, *MORE])
def test_the_second_reading_is_the_first(text: str) -> None:
    expected = read(KNOWING._tables, text)
    assert read(KNOWING, text) == expected
    assert read(KNOWING, text) == expected


@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join))
def test_what_was_read_before_changes_nothing(text: str) -> None:
    for each in (text, text.replace("1", "4").replace('"a"', '"z"')):
        expected = read(KNOWING._tables, each)
        assert read(KNOWING, each) == expected
        assert read(KNOWING, each) == expected


@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join))
def test_tokens_are_those_of_the_tables(text: str) -> None:
    def seen(tokens: Any) -> Any:
        try:
            return [(token.type, str(token), token.start_pos, token.end_pos) for token in tokens]
        except Exception as error:
            return type(error)

    assert seen(KNOWING.lex(text)) == seen(KNOWING._tables.lex(text))


def test_texts_of_the_same_kinds_share_their_steps() -> None:
    parser = fresh()
    for number in range(5):
        tree = parser.parse(f'toolName == "t{number}" && has(inputPayload.k{number})')
        assert tree.terms[0].right.value == f"t{number}"
        assert tree.terms[1].target.key == f"k{number}"
    assert len(parser._known) == 1


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_steps, "MOST_KINDS", 3)
    monkeypatch.setattr(remembered_steps, "LONGEST", 20)
    parser = fresh()
    for terms in range(1, 15):
        text = " + ".join(["1"] * terms) + " == 1"
        assert parser.parse(text) == parse(text)
    assert len(parser._known) == 3


def test_a_refusal_of_the_rules_is_told_of_a_known_kind_too() -> None:
    parse("1 == 2")
    with pytest.raises(ConditionError, match="beyond 64 bits"):
        parse("1 == 99999999999999999999")
