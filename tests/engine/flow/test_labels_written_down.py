"""The labels of a run that people write down for a simulation."""

from __future__ import annotations

import pytest

from engine.model import Json, ToolCall


@pytest.mark.parametrize(
    ("run", "labels"), [({}, ["b"]), ({"labels": None}, ["b"]), ({"labels": ["a", "b"]}, ["a", "b"])]
)
def test_a_label_of_a_step_before_is_one_of_the_run(run: Json, labels: list[str]) -> None:
    call = ToolCall.of(toolName="x", run=run, before=[{"toolName": "y", "labels": ["b"]}])
    found = call.document["run"]
    assert isinstance(found, dict) and found["labels"] == labels
