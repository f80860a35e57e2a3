"""What a tool gave back, leaf by leaf: how far a text is read as YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.flow import structure


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The events that the parser of YAML was asked for."""
    events: list[Any] = []
    parse = structure.yaml.parse

    def noted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for event in parse(*arguments, **options):
            events.append(event)
            yield event

    monkeypatch.setattr(structure.yaml, "parse", noted)
    return events


@pytest.mark.parametrize("opening", ["[", "{", "[a, ", "{a: ", "{? ", "- "])
def test_what_nests_too_deeply_is_given_up_at_once(opening: str, read: list[Any]) -> None:
    """libyaml takes time in the square of the brackets that are open, so it must not be asked to go on."""
    text = (opening * 20_000)[:65_000] + ":"
    assert structure.leaves(text) == ([((), text)], True)
    assert len(read) <= 4 * structure.DEEPEST


def test_what_nests_as_deeply_as_is_read_is_taken_apart() -> None:
    text = "{a: " * structure.DEEPEST + "x" + "}" * structure.DEEPEST
    assert structure.leaves(text) == ([(("a",) * structure.DEEPEST, "x")], True)
    deeper = f"[{text}]"
    assert structure.leaves(f"[{deeper}]") == ([((), f"[{deeper}]")], True)


def test_a_text_of_very_many_parts_is_given_up_and_read_once(read: list[Any]) -> None:
    text = "- - - - - - many\n" * 3_800
    assert structure.leaves(text) == structure.leaves(text) == ([((), text)], True)
    assert len(read) <= structure.MOST_EVENTS + 2
