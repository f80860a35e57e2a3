"""Of an output, values for which there is no room: they change nothing, and take next to no time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.flow import memory
from engine.flow.memory import MOST_VALUES, NO_VALUES
from engine.model import Json
from tests.engine.flow.test_memory import ACT, PAGE, REGISTER
from tests.harness.effort import examples


@examples(60, 600)
@given(st.lists(st.sampled_from(("a b", "a", "id-1", "b, c", "c d e", "x@y.zz", 4711, "17")), max_size=30))
def test_what_finds_no_room_changes_nothing_and_is_not_worked_out(leaves: list[Json]) -> None:
    output = {"id": leaves[:5], "notes": leaves[5:15], "rest": leaves[15:]}
    for tool in (REGISTER, PAGE, ACT):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "MOST_VALUES", 4)
            found = NO_VALUES.outcome(output, tool, {})
            patch.setattr(memory._Gathered, "takes", lambda *_: True)
            assert found == NO_VALUES.outcome(output, tool, {})


def test_of_an_output_without_end_little_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, looked = 0, memory.words

    def counted(value: Json) -> Iterator[int]:
        nonlocal asked
        asked += 1
        return looked(value)

    monkeypatch.setattr(memory, "words", counted)
    assert NO_VALUES.outcome([f"m{number} n{number}" for number in range(5_000)], PAGE, {}).full
    assert asked <= MOST_VALUES
