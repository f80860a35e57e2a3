"""Doors: what is handed to one opens the same as what it asks the facts about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.fields.facts import MISSING, Facts
from engine.fields.paths import parse
from engine.fields.scalars import text_of, value_keys, whole
from engine.matching import lookups, multi_search
from engine.matching.lookups import Above, Below, Bucket, Door, Equal, Shaped, There, Written
from engine.matching.selectivity import Filed

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


def opened(door: Door, handed: Any, value: Any) -> set[Bucket]:
    work: list[Bucket] = []
    door.open(handed, Facts({"toolName": "t", "inputPayload": {"a": value}}), work)
    return {item for bucket in work for item in (bucket if isinstance(bucket, tuple) else (bucket,))}


def together(filed: Sequence[Filed]) -> Bucket:
    return tuple(entry.number for entry in filed)


@given(st.lists(scalars, min_size=1, max_size=6), values)
@example([1.0], 1)
@example([1], 1.0)
@example([1.0], "1.0")
@example(["1.0"], 1.0)
@example(["1"], 1)
@example(["STRASSE"], "Straße")
def test_what_is_handed_in_opens_what_the_facts_show(known: list[Any], value: Any) -> None:
    equal: dict[str, Bucket] = {key: at for at, each in enumerate(known) for key in value_keys(each)}
    literals = {whole(text_of(each)).casefold(): at for at, each in enumerate(known)}
    literals.pop("", None)
    bounds = [each for each in known if type(each) in (int, float) and each == each]
    above = [(float(bound), Filed(at, ())) for at, bound in enumerate(bounds)]
    every: list[Door] = [
        Equal(PATH, equal),
        Shaped(PATH, {"[0-9]": 0, "^a": 1, "(?i)S": 2}),
        Above(PATH, above[:], together),
        Below(PATH, [(-bound, entry) for bound, entry in above], together),
        There(PATH, 1),
    ]
    if literals:
        every.append(Written(PATH, literals))
    for door in every:
        assert opened(door, value, value) == opened(door, MISSING, value)
    numbers = {at for at, bound in enumerate(bounds) if type(value) in (int, float) and value >= bound}
    assert opened(every[2], value, value) >= numbers
    if any(set(value_keys(each)) & set(value_keys(value)) for each in known):
        assert opened(every[0], value, value)
