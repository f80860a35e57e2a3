"""What a tool's schema declares for arguments that are left out."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Literal

import pytest
from governance_client.argument_defaults import completed
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class Card(BaseModel):
    number: str
    limit: int = 100


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    till: str
    coins: bool = True


class Loan(BaseModel):
    kind: Literal["loan"]
    till: str
    rate: float = 0.5


class Bill(BaseModel):
    to: str
    by: Card | Cash | Loan | None = None
    parts: list[Card] = []
    named: dict[str, Card] = {}
    pair: tuple[Card, int] | None = None
    below: Bill | None = None
    amount: int = 5


@pytest.mark.parametrize(
    "given",
    [
        {"to": "bob"},
        {"to": "bob", "amount": 7, "by": {"number": "1"}},
        {"to": "bob", "by": {"till": "left"}},
        {"to": "bob", "by": {"kind": "loan", "till": "left"}},
        {"to": "bob", "parts": [{"number": "1"}, {"number": "2", "limit": 3}]},
        {"to": "bob", "named": {"mine": {"number": "1"}}, "pair": [{"number": "1"}, 2]},
        {"to": "bob", "below": {"to": "ann", "below": {"to": "eve"}}},
    ],
)
def test_it_is_what_the_tool_is_given(given: dict[str, Any]) -> None:
    before = json.dumps(given)
    assert completed(given, Bill.model_json_schema()) == Bill.model_validate(given).model_dump(mode="json")
    assert json.dumps(given) == before


def test_of_two_members_of_a_union_none_is_guessed() -> None:
    class Other(BaseModel):
        number: str
        limit: int = 200

    schema = {
        "properties": {
            "by": TypeAdapter(Card | Other).json_schema(ref_template="#/properties/by/$defs/{model}")
        }
    }
    assert completed({"by": {"number": "1"}}, schema) == {"by": {"number": "1"}}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {},
        {"properties": []},
        {"properties": {"a": 1, "b": None}, "anyOf": 3, "allOf": [None], "required": "x"},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/none"},
        {"$ref": 7},
    ],
)
def test_a_schema_that_says_nothing_adds_nothing(schema: Any) -> None:
    assert completed({"a": {"b": [1]}}, schema) == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"properties": {"b": {"$ref": "#/properties/b"}}},
    ],
)
def test_a_schema_without_an_end_is_refused(schema: Any) -> None:
    with pytest.raises((ValueError, RecursionError)):
        completed({"a": 1}, schema)


REFERENCES = {"properties": {f"a{number}": {"$ref": "#/$defs/0"} for number in range(300)}}


@pytest.mark.parametrize(
    "defs",
    [
        {
            str(at): {"$ref": f"#/$defs/{at + 1}"} | dict.fromkeys(map(str, range(at * 100, at * 100 + 100)))
            for at in range(900)
        },
        {"0": {"default": "x" * 100_000}},
        {"0": {"default": [{"x": []}] * 10_000}},
    ],
    ids=["long way", "long text", "many parts"],
)
def test_what_many_arguments_lead_to_is_not_looked_at_without_end(defs: dict[str, Any]) -> None:
    """A server that nobody knows may say little that is much to read."""
    begun = time.monotonic()
    with pytest.raises(ValueError, match="leads too far"):
        completed({}, REFERENCES | {"$defs": defs})
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("large", [{"$ref": {"a": [1] * 200_000}}, {"type": [1] * 200_000}])
@pytest.mark.parametrize("union", ["oneOf", "allOf"])
def test_what_is_large_and_looked_at_often_is_weighed_or_not_read(large: dict[str, Any], union: str) -> None:
    schema = {"properties": {"a": {union: [{"$ref": "#/large"}] * 5_000}}, "large": large}
    begun = time.monotonic()
    with contextlib.suppress(ValueError):
        completed({"a": {"b": 1}}, schema)
    assert time.monotonic() - begun < 20


@settings(max_examples=300)
@given(value=st.dictionaries(st.text(max_size=3), JSON), schema=JSON)
def test_nothing_that_is_given_is_lost(value: dict[str, Any], schema: Any) -> None:
    found = completed(
        value, {"properties": {"": schema, "a": {"default": 1}}, "additionalProperties": schema}
    )
    assert found == {"a": 1, **value}
