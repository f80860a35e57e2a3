"""What a tool's schema declares for arguments that are left out."""

from __future__ import annotations

import contextlib
import enum
import json
import time
from typing import Any, Literal

import pytest
from governance_client.declared_arguments import UnfitArguments, as_declared
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.server.mcpserver.utilities.func_metadata import func_metadata
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

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
    assert as_declared(given, Bill.model_json_schema()) == Bill.model_validate(given).model_dump(mode="json")
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
    assert as_declared({"by": {"number": "1"}}, schema) == {"by": {"number": "1"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": [{}, 3]}}},
        {"properties": {"a": {"type": "OBJECT"}}},
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
    assert as_declared({"a": {"b": [1]}}, schema) == {"a": {"b": [1]}}


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
        as_declared({"a": 1}, schema)


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
        as_declared({}, REFERENCES | {"$defs": defs})
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("large", [{"$ref": {"a": [1] * 200_000}}, {"type": [1] * 200_000}])
@pytest.mark.parametrize("union", ["oneOf", "allOf"])
def test_what_is_large_and_looked_at_often_is_weighed_or_not_read(large: dict[str, Any], union: str) -> None:
    schema = {"properties": {"a": {union: [{"$ref": "#/large"}] * 5_000}}, "large": large}
    begun = time.monotonic()
    with contextlib.suppress(ValueError):
        as_declared({"a": {"b": 1}}, schema)
    assert time.monotonic() - begun < 20


@settings(max_examples=300)
@given(value=st.dictionaries(st.text(max_size=3), JSON), schema=JSON.filter(lambda given: given is not False))
def test_nothing_that_is_given_is_lost(value: dict[str, Any], schema: Any) -> None:
    found = as_declared(
        value, {"properties": {"": schema, "a": {"default": 1}}, "additionalProperties": schema}
    )
    assert found == {"a": 1, **value}


class Part(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    path: str = Field(alias="file")
    deep: bool = False
    size: int | None = None


class Other(BaseModel):
    path: str
    count: int


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Left(BaseModel):
    kind: Literal["a", "b"]
    count: int


class Right(BaseModel):
    kind: Literal["x", "y"]
    count: str = "5"


class Wish(BaseModel):
    force: bool = False
    auto: bool | Literal["a"] | Colour = "a"
    side: Left | Right | None = Field(None, discriminator="kind")
    copies: int = 1
    share: float = 0.5
    name: str = ""
    ids: list[int] = []
    flags: dict[str, bool] = {}
    part: Part | None = None
    parts: list[Part] = []
    one: Part | Other | bool | None = None
    either: str | list[str] = ""
    loose: Any = None
    number: int | str = 0
    pair: tuple[bool, int] | None = None
    kind: Literal["a", "b"] = "a"


ODD = st.sampled_from(
    [
        *(True, False, "true", "yes", "1", 1, 0, 1.0, 1.5, "1.0", "5", 5, None, "a", ""),
        *([], ["5"], [5], [True], "[5]", '["admin"]', {}, {"file": "x"}, {"path": "x"}, '{"file": "x"}'),
        *({"file": "x", "deep": "on"}, {"path": "x", "count": "2"}, {"path": "x", "count": 2}),
        *({"x": "yes"}, {"x": True}, {"file": "x", "size": "3"}, [True, 1], [1, 1], {"file": 3}, [{}]),
        *({"kind": "a", "count": "5"}, {"kind": "a", "count": 5}, {"kind": "x", "count": "5"}, {"kind": "x"}),
        *("null", " null", "red", "RED"),
    ]
)
MANY = st.dictionaries(st.sampled_from([*Wish.model_fields, "other"]), ODD | st.lists(ODD, max_size=2))


def exactly(value: Any) -> Any:
    """Alike only where conditions see the same: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return {name: exactly(each) for name, each in value.items()}
    if isinstance(value, list):
        return [exactly(each) for each in value]
    return (str(value),) if isinstance(value, bool) else value


@settings(max_examples=1_500)
@given(MANY)
def test_what_is_told_is_what_a_model_of_the_tool_makes_of_it(given: dict[str, Any]) -> None:
    """Also where that converts `"yes"` to true, and takes members by their names or aliases."""
    try:
        told = as_declared(given, Wish.model_json_schema())
        made = Wish.model_validate(given).model_dump(mode="json", by_alias=True)
    except ValueError:
        return  # refused here, or there
    assert exactly(told) == exactly(made)


def wish(
    force: bool = False, name: str = "", ids: list[str] | None = None, one: Part | None = None,
    loose: Any = None, either: str | list[str] = "", maybe: str | None = None, by: Literal["a", "1"] = "a",
) -> None:  # fmt: skip
    """A tool of a server."""


@settings(max_examples=1_500)
@given(
    st.dictionaries(st.sampled_from(["force", "name", "ids", "one", "loose", "either", "maybe", "by"]), ODD)
)
def test_what_is_told_is_what_a_server_in_python_makes_of_it(given: dict[str, Any]) -> None:
    """Also where it reads JSON in texts."""
    tool = func_metadata(wish)
    try:
        told = as_declared(given, tool.arg_model.model_json_schema())
        made = tool.arg_model.model_validate(tool.pre_parse_json(given)).model_dump(
            mode="json", by_alias=True
        )
    except ValueError:
        return
    assert exactly(told) == exactly(made)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"force": "yes"}, "`force` is a text, and the tool takes true or false"),
        ({"copies": True}, "`copies` is true or false, and the tool takes a whole number"),
        ({"share": "1"}, "`share` is a text, and the tool takes a number"),
        (
            {"parts": [{"file": "x", "size": "3"}]},
            "`parts[0].size` is a text, and the tool takes null or a whole number",
        ),
        ({"part": {"path": "x"}}, "the tool declares no `part.path`, but `file`, `deep`, `size`"),
        ({"flags": {"x": 1}}, "`flags.x` is a whole number, and the tool takes true or false"),
        ({"either": '["x"]'}, "`either` is a list in a text; give it as what it is"),
        ({"loose": '{"x": 1}'}, "`loose` is an object in a text; give it as what it is"),
        ({"one": {"path": "x"}}, "`one` is none of what the tool takes"),
        ({"auto": "yes"}, '`auto` is none of what the tool takes: "a", "blue", "red", true or false'),
        (
            {"side": {"kind": "a", "count": "5"}},
            "`side.count` is a text, and the tool takes a whole number",
        ),
        ({"kind": "A"}, '`kind` is none of what the tool takes: "a", "b"'),
        ({"loose": " null"}, "`loose` is null in a text; give it as what it is"),
        ({"one": {"path": "x", "count": "2"}}, "`one.count` is a text, and the tool takes a whole number"),
    ],
)
def test_who_gave_what_does_not_fit_reads_what_to_give(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UnfitArguments) as refused:
        as_declared(given, Wish.model_json_schema())
    assert str(refused.value) == said


@pytest.mark.parametrize(
    "given",
    [
        {"name": '{"x": 1}', "copies": 2.0, "share": 1, "force": None},
        {"either": "[x] to do", "loose": "{curly", "number": "12"},
        {"one": {"file": "x", "deep": True, "size": None}, "flags": {"x": True}, "ids": []},
    ],
)
def test_what_fits_is_told_as_it_is(given: dict[str, Any]) -> None:
    found = as_declared(given, Wish.model_json_schema())
    assert {name: found[name] for name in given} == given


def test_what_says_that_it_takes_more_does() -> None:
    more = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    assert as_declared({"a": "x", "b": 1}, more) == {"a": "x", "b": 1}
    with pytest.raises(UnfitArguments, match="`b` is a text"):
        as_declared({"a": "x", "b": "1"}, more)
    both = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    assert as_declared({"a": 1, "b": 1}, both) == {"a": 1, "b": 1}
    with pytest.raises(UnfitArguments, match="declares no `c`"):
        as_declared({"c": 1}, both)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"kind": {}}, "if": {}, "then": {"properties": {"more": {}}}},
        {"properties": {"kind": {}}, "dependentSchemas": {"kind": {"properties": {"more": {}}}}},
        {"properties": {"kind": {}, "more": {"$ref": "#more"}}, "$defs": {"a": {"$anchor": "more"}}},
        {"properties": {"kind": {}, "more": {"anyOf": [{"properties": {"a": {}}}, {"type": "object"}]}}},
    ],
)
def test_what_a_schema_allows_in_other_ways_is_not_refused(schema: dict[str, Any]) -> None:
    given = {"kind": "x", "more": {"b": 1}}
    assert as_declared(given, schema) == given


def test_references_lead_into_unions_and_items_may_be_told_one_by_one() -> None:
    """As zod writes them, for what stands twice in a schema, and for tuples."""
    row = {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}}
    schema = {
        "properties": {
            "first": {"anyOf": [{"type": "string"}, row]},
            "second": {"$ref": "#/properties/first/anyOf/1"},
            "pair": {"type": "array", "items": [{"type": "number"}, row]},
        }
    }
    told = as_declared({"second": {}, "pair": [1, {}]}, schema)
    assert told == {"second": {"deep": True}, "pair": [1, {"deep": True}]}
    with pytest.raises(UnfitArguments, match=r"`second\.deep` is a text"):
        as_declared({"second": {"deep": "yes"}}, schema)


def test_many_rows_of_many_columns_are_read() -> None:
    class Row(BaseModel):
        cells: dict[str, int | str | None]
        more: Bill

    rows = [{"cells": dict.fromkeys("abcdefghijklmnopqrst", 1), "more": {"to": "bob"}}] * 1_000
    schema = {
        "properties": {
            "rows": TypeAdapter(list[Row]).json_schema(ref_template="#/properties/rows/$defs/{model}")
        }
    }
    assert as_declared({"rows": rows}, schema)["rows"][0]["more"]["amount"] == 5
