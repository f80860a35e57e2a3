"""Paths, texts, numbers and keys of values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.conditions.operands import Choices, json_equal
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.paths import MAX_PATH_LENGTH, canonical, parse
from engine.fields.scalars import number_of, text_of, value_keys, whole
from tests.harness.values import scalars, texts, values


def values_at(path: str, payload: Any) -> tuple[Any, ...]:
    return Facts({"inputPayload": payload}).at(parse(path)).values()


def test_a_path_has_one_spelling() -> None:
    assert parse('inputPayload["a"].b').text == "inputPayload.a.b"
    assert parse('inputPayload["a"].b') == parse("inputPayload.a.b")
    assert hash(parse('inputPayload["a"]')) == hash(parse("inputPayload.a"))
    assert parse('inputPayload["a.b"]').text == 'inputPayload["a.b"]'
    assert parse('inputPayload["a\\"b"][""]').segments == ('a"b', "")


@given(st.lists(texts, max_size=5))
def test_every_path_can_be_written_and_read_back(segments: list[str]) -> None:
    text = canonical("inputPayload", segments)
    if len(text) <= MAX_PATH_LENGTH:
        assert parse(text).segments == tuple(segments)
        assert parse(text).text == text


def test_a_path_too_long_is_refused() -> None:
    with pytest.raises(ConditionError) as refusal:
        parse("inputPayload" + ".a" * 600)
    assert refusal.value.message == "the field is longer than 1024 characters"
    assert refusal.value.part == "field"


@given(st.text(max_size=30))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    for candidate in (text, "inputPayload." + text, "inputPayload" + text):
        try:
            path = parse(candidate)
        except ConditionError as refusal:
            assert refusal.part == "field"
            assert refusal.message
        else:
            assert parse(path.text) == path


def test_what_a_path_is_called_can_be_printed() -> None:
    assert parse('inputPayload["a\u202e"]').text == r'inputPayload["a\u202e"]'
    assert parse("inputPayload.a\u202eb").text == r'inputPayload["a\u202eb"]'
    assert parse("inputPayload.\ud800").text == r'inputPayload["\ud800"]'
    assert parse("inputPayload.données").text == "inputPayload.données"
    with pytest.raises(ConditionError) as refusal:
        parse("in\ud800")
    refusal.value.message.encode()


def test_values_follow_mongodb() -> None:
    assert values_at("inputPayload.a", {"a": [1, [2]]}) == ([1, [2]], 1, [2])
    assert values_at("inputPayload.a.b", {"a": [{"b": 1}, {"b": [2]}, [{"b": 3}]]}) == (1, [2], 2)
    assert values_at("inputPayload.a.0", {"a": [{"0": "key"}, "x"]}) == ({"0": "key"}, "key")
    assert values_at("inputPayload.a.1.b", {"a": [1, [{"b": 2}]]}) == (2,)
    assert values_at("inputPayload.a.length", {"a": [1]}) == ()
    assert values_at("inputPayload.a.0", {"a": "xyz"}) == ()


@given(values)
def test_texts_are_every_key_and_scalar(value: Any) -> None:
    found = Facts({"inputPayload": {"v": value}}).at(parse("inputPayload.v")).texts()

    def expected(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [text for key, item in value.items() for text in (key, *expected(item))]
        if isinstance(value, list):
            return [text for item in value for text in expected(item)]
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
            return [text_of(value), str(int(value))]  # 22.0 reads as 22, too
        return [] if value is None else [text_of(value)]

    assert list(found) == [whole(text) for text in expected(value)]
    for text in found:
        text.encode()


@given(scalars | values, scalars | values)
def test_equal_values_share_a_key(one: Any, two: Any) -> None:
    assert json_equal(one, two) == json_equal(two, one)
    if Choices([one]).hold(two):
        assert set(value_keys(one)) & set(value_keys(two))


@given(scalars)
def test_a_scalar_equals_its_own_text(value: Any) -> None:
    assert Choices([value]).hold(value)
    assert Choices([text_of(value)]).hold(value)
    assert Choices([value]).hold(text_of(value))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1", 1),
        ("+1.50", 1.5),
        ("007", 7),
        ("-1e3", -1000.0),
        ("1e400", float("inf")),
        ("9007199254740993", 9007199254740993),
        (True, None),
        (None, None),
        ("", None),
        (" 1", None),
        ("1\n", None),
        ("1.", None),
        (".5", None),
        ("1_0", None),
        ("nan", None),
        ("inf", None),
        ("0x1", None),
        ("١", None),
        ("１", None),
        ("9" * 401, None),
        ([1], None),
        (float("nan"), None),
    ],
)
def test_what_counts_as_a_number(value: Any, number: int | float | None) -> None:
    found = number_of(value)
    assert found == number
    assert type(found) is type(number)


def test_true_and_one_stay_apart_at_every_depth() -> None:
    assert not json_equal(1, True)
    assert not json_equal([0], [False])
    assert not json_equal({"a": {"b": [1]}}, {"a": {"b": [True]}})
    assert json_equal({"a": [1, 2.0]}, {"a": [1.0, 2]})
    assert not json_equal(None, False)
    assert not json_equal("1", 1)
