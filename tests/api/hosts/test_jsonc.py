"""Edits of somebody else's JSON: one place changes, everything else stays to the byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.hosts.jsonc import Document, NotUnderstood

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1_000, 1_000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
LAYOUTS = st.sampled_from([None, 1, 4, "\t"])


@given(JSON, LAYOUTS)
def test_every_json_is_read_as_json_reads_it(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    assert Document(text).root.value == json.loads(text)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), LAYOUTS, JSON)
def test_a_member_is_added_and_removed_again(
    value: dict[str, object], indent: int | str | None, more: object
) -> None:
    value.pop("hooks", None)
    text = json.dumps(value, indent=indent)
    document = Document(text)
    longer = document.added(document.root, more, "hooks")
    assert json.loads(longer) == {**value, "hooks": more}
    again = Document(longer)
    assert json.loads(again.removed(again.root, len(value))) == value


@given(st.lists(JSON, min_size=1, max_size=4), LAYOUTS, st.data())
def test_any_item_is_removed(value: list[object], indent: int | str | None, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(value) - 1))
    document = Document(json.dumps(value, indent=indent))
    assert json.loads(document.removed(document.root, index)) == value[:index] + value[index + 1 :]


def test_comments_and_order_stay() -> None:
    text = '{\n\t// first\n\t"b": "// no comment", /* why */\n\t"a": [1, 2,], // last\n}\n'
    document = Document(text)
    assert document.root.value == {"b": "// no comment", "a": [1, 2]}
    added = document.added(document.root, {"x": 1}, "c")
    assert added == text.replace("// last\n}", '// last\n\t"c": {\n\t\t"x": 1\n\t}\n}')
    listed = document.root.member("a")
    assert listed is not None
    assert '"a": [1,], // last' in document.removed(listed, 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: a value is missing"),
        ('{\n"a": }', "line 2: a value is missing"),
        ('{"a": 1\n"b": 2}', "line 2: a comma or `}` is missing"),
        ('{"a" 1}', "a colon is missing"),
        ("{a: 1}", "a key in quotation marks is missing"),
        ('{"a": 1, "a": 2}', "the key `a` stands twice"),
        ('{"a": 1} {}', "something follows the value"),
        ('{"a": "x}', "line 1: "),
        ('{"a": 01.2.3}', "is no value"),
        ("[1, 2", "a comma or `]` is missing"),
        ("[1, /* never ends", "a value is missing"),
    ],
)
def test_what_is_no_json_is_refused(text: str, why: str) -> None:
    with pytest.raises(NotUnderstood) as refused:
        Document(text)
    assert why in str(refused.value)
