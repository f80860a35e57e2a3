"""Doors: what is handed to one opens the same as what it asks the facts about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.derived.facts import MISSING, Facts
from engine.fields.hints import OneOf
from engine.fields.paths import parse
from engine.fields.required_literals import spaced
from engine.fields.scalars import text_of, value_keys, whole
from engine.matching import lookups, multi_search
from engine.matching.lookups import (
    Bucket,
    LiteralLookup,
    Lookup,
    LowerBoundLookup,
    PatternSetLookup,
    PlaceLookup,
    PresenceLookup,
    TypedLookup,
    UpperBoundLookup,
    ValueLookup,
    at_place,
)
from engine.matching.selectivity import TEXTS, IndexEntry, access_paths, costs

PATH = parse("inputPayload.a")
WORDS = ["a", "ab", "b1", "ß", "ss", "ſ", "é", "12", "1.0", "-1", "true", "null", "{}", "�", "��"]

scalars = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=6),
    st.integers(-3, 15),
    st.floats(-3, 15),
    st.just(math.nan),
    st.booleans(),
    st.none(),
)
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from(WORDS), scalars, max_size=2)
)


@pytest.fixture(autouse=True, scope="module", params=["production", "tiny"])
def sizes(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tiny":
            for module, name in ((lookups, "MANY_KEYS"), (multi_search, "FEW"), (multi_search, "SHORT")):
                patch.setattr(module, name, 0)
            patch.setattr(lookups, "BLOCK", 2)
        yield


def opened(lookup: Lookup, handed: Any, value: Any) -> set[Bucket]:
    work: list[Bucket] = []
    lookup.collect(handed, Facts({"toolName": "t", "inputPayload": {"a": value}}), work)
    return {item for bucket in work for item in (bucket if isinstance(bucket, tuple) else (bucket,))}


def together(entries: Sequence[IndexEntry]) -> Bucket:
    return tuple(entry.item for entry in entries)


@given(st.lists(scalars, min_size=1, max_size=6), values)
@example([1.0], 1)
@example([1], 1.0)
@example([1.0], "1.0")
@example(["1.0"], 1.0)
@example(["1"], 1)
@example(["STRASSE"], "Straße")
@example(["a  b"], "xA  b")
def test_what_is_handed_in_opens_what_the_facts_show(known: list[Any], value: Any) -> None:
    equal: dict[str, Bucket] = {key: at for at, each in enumerate(known) for key in value_keys(each)}
    literals = {whole(text_of(each)).casefold(): at for at, each in enumerate(known)}
    literals.pop("", None)
    bounds = [each for each in known if type(each) in (int, float) and each == each]
    above = [(float(bound), IndexEntry(at, ())) for at, bound in enumerate(bounds)]
    every: list[Lookup] = [
        ValueLookup(PATH, equal),
        PatternSetLookup(PATH, {"[0-9]": 0, "^a": 1, "(?i)S": 2}),
        PatternSetLookup(PATH, {"[A-Z]": 0, "É": 1}, True),
        LowerBoundLookup(PATH, above[:], together),
        UpperBoundLookup(PATH, [(-bound, entry) for bound, entry in above], together),
        PresenceLookup(PATH, 1),
    ]
    if literals:
        every.append(LiteralLookup(PATH, literals))
        wanted = opened(every[-1], value, value) if isinstance(value, str) else {99}
        assert opened(TypedLookup(every[-1], TEXTS, 99), value, value) == wanted
        every.append(LiteralLookup(PATH, literals, True))
        if isinstance(value, str):
            text, phrases = whole(value).casefold(), spaced(whole(value))
            found = {at for literal, at in literals.items() if literal in text or literal in phrases}
            assert opened(every[-1], value, value) == found
    for lookup in every:
        assert opened(lookup, value, value) == opened(lookup, MISSING, value)
    numbers = {at for at, bound in enumerate(bounds) if type(value) in (int, float) and value >= bound}
    assert opened(every[3], value, value) >= numbers
    if any(set(value_keys(each)) & set(value_keys(value)) for each in known):
        assert opened(every[0], value, value)


def test_what_many_name_costs_more_and_what_is_derived_most() -> None:
    hints = [OneOf(parse("toolName"), frozenset({"mail"}))] * 3 + [
        OneOf(parse("toolName"), frozenset({"wire"})),
        OneOf(parse("derived.recipients"), frozenset({"a@b.c"})),
    ]
    found = [access_paths(hint) for hint in hints]
    cost = costs(found)
    mail, wire, derived = (cost[found[at][0]] for at in (0, 3, 4))
    assert wire < mail < derived


@given(st.dictionaries(st.sampled_from(WORDS), st.integers(0, 9), min_size=1), values, st.booleans())
@example({"b1": 1, "12": 2}, "aB1", False)
@example({"ss": 1}, ["a", "xß"], False)
@example({"ss": 1}, "ẞx", True)
def test_what_stands_at_one_end_of_a_text(literals: dict[str, int], value: Any, start: bool) -> None:
    folded = {literal.casefold(): at for literal, at in literals.items()}
    cuts = [slice(length) if start else slice(-length, None) for length in set(map(len, folded))]
    lookup = PlaceLookup(PATH, folded, cuts)
    holds = str.startswith if start else str.endswith
    texts = [text.casefold() for text in Facts({"inputPayload": {"a": value}}).at(PATH).texts()]
    there = {at for literal, at in folded.items() if any(holds(text, literal) for text in texts)}
    anywhere = opened(LiteralLookup(PATH, folded), value, value)
    assert there <= opened(lookup, value, value) <= anywhere
    assert opened(lookup, MISSING, value) == anywhere
    if isinstance(value, str) and value.isascii():
        assert opened(lookup, value, value) == there


@pytest.mark.parametrize(("count", "placed"), [(15, False), (16, True), (256, True), (257, False)])
def test_few_lengths_of_many_literals_are_cut_off(count: int, placed: bool) -> None:
    literals = {f"{number:03}{'x' * (number % 8)}": number for number in range(count)}
    cuts = [slice(-length, None) for length in set(map(len, literals))]
    assert isinstance(at_place(PATH, literals, cuts), PlaceLookup) is placed
