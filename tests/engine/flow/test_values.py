"""Which values a text holds, and how two spellings of one value meet."""

from __future__ import annotations

import time

import pytest

from engine.flow import values
from engine.flow.structure import leaves

TEXT = (
    "Please pay the bill 'bill-december-2023.txt' to Bob Smith, IBAN UK12 3456 7890 1234, $98.70 at"
    " https://www.x.example/a/. Mail bob.smith@Acme.example; see ~/notes/a.md, item_7,"
    " (call +49 30 1234567) in 50 days"
)


def found(value: object, text: str, *, phrases: bool = True) -> bool:
    known = {*values.whole(text), *values.marked(text), *values.words(text, phrases=phrases)}
    return any(each in known for each in values.whole(value))


@pytest.mark.parametrize(
    "value",
    [
        *(
            "UK12345678901234",
            "uk12 3456 7890 1234",
            "Bob  SMITH",
            "bill-december-2023.txt",
            98.7,
            "98.70",
            "$98.70",
        ),
        *(
            "https://www.x.example/a",
            "www.x.example/a",
            "www.x.example",
            "BOB.SMITH@acme.example",
            "~/notes/a.md",
        ),
        *("item_7", "+49301234567", "ｂob smith", "bo\u200bb", "pay the bill", "days"),
    ],
)
def test_a_value_is_found_however_it_is_spelt(value: object) -> None:
    assert found(value, TEXT)


@pytest.mark.parametrize(
    "value",
    [
        50,
        "50",
        "Smith Bob",
        "smith@acme.example",
        "x.example",
        "pay a bill",
        "98",
        "",
        "a b c d e f g",
    ],
)
def test_what_is_not_named_is_not_found(value: object) -> None:
    assert not found(value, TEXT)


def test_a_short_number_is_found_as_a_whole() -> None:
    assert found(50, "50") and found("50", " 50. ") and not found(50, "50 of them")


def test_of_outputs_phrases_do_not_count() -> None:
    assert not found("bob smith", TEXT, phrases=False) and found("bob", TEXT, phrases=False)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "1 ",
        "a@",
        "a-",
        "'a",
        "1,",
        "/a",
        "$1",
        "ab12 ",
        "_",
        "[(",
        "«a",
        "- a: &b *b\n",
        "{",
        "-\n",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    for _ in (*values.marked(text), *values.words(text, phrases=True), *values.whole(text)):
        pass
    leaves(text)
    assert time.process_time() - begun < 10  # milliseconds where nothing else is asked of the machine


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('{"a": [1, {"b": "x: y"}], "c": null}', [(("a",), 1), (("a", "b"), "x: y")]),
        (
            "- id_: '3'\n  body: |-\n    id: 7\n    hi\n- id_: 4\n",
            [(("id",), "3"), (("body",), "id: 7\nhi"), (("id",), "4")],
        ),
        ("Note: see below\nand more", [((), "Note: see below\nand more")]),
        ("a: &x 1\nb: *x", [((), "a: &x 1\nb: *x")]),
        ("a: 1\na: 2", [((), "a: 1\na: 2")]),
        ('{"a": 1', [((), '{"a": 1')]),
        ({"userId": {"x": ["1", 2]}}, [(("user id", "x"), "1"), (("user id", "x"), 2)]),
        ({"text": '{"id": 5}'}, [(("text",), '{"id": 5}')]),
        ("[" * 5_000, [((), "[" * 5_000)]),
        (None, []),
        ("", []),
    ],
)
def test_outputs_are_taken_leaf_by_leaf(output: object, expected: object) -> None:
    assert leaves(output)[0] == expected
