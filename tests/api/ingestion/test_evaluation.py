"""Whom the time of an evaluation is counted for, and what a held call is about: worked out once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.ingestion import evaluation
from api.ingestion.evaluation import MOST_SUMMARIES, Evaluator, Summaries
from api.ingestion.event import Incoming
from api.ingestion.known_runs import KnownRuns
from api.ingestion.quotas import MOST_AT_ONCE, ORDINARY, PER_SECOND, ProcessorTime
from engine.derived.summary import summary_of
from engine.derived.tools import NO_TOOLS, Tools
from engine.model import ToolCall


class _Machine:
    """Its two clocks, and the events of one key that take so much of each."""

    def __init__(self) -> None:
        self.wall = self.computed = 0.0

    def take(self, computed: float, interrupted: float = 0.0) -> None:
        self.computed += computed
        self.wall += computed + interrupted

    def commit(self, taken: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch) -> ProcessorTime:
        """What is counted of a commit whose events each take so much, and are interrupted for so long."""
        spent = ProcessorTime()
        evaluator = Evaluator(lambda organisation_id: cast(Any, None), KnownRuns(), spent)
        left = iter(taken)
        monkeypatch.setattr(evaluation, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(evaluation, "thread_time", lambda: self.computed)
        monkeypatch.setattr(evaluator, "evaluate", lambda event: self.take(*next(left)))
        caller = SimpleNamespace(key_id="k")
        evaluator.prepare([cast(Incoming, SimpleNamespace(call=True, caller=caller)) for _ in taken])
        return spent


def test_an_interruption_makes_no_key_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event at which the machine turned to something else is not counted for those before it."""
    ordinary = ORDINARY / 5
    taken = [(ordinary, 0.004 if number % 10 == 9 else 0.0) for number in range(5_000)]
    assert _Machine().commit(taken, monkeypatch)._even == {}


def test_a_dear_event_is_counted_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = MOST_AT_ONCE + PER_SECOND
    for place in (0, 7, 19):
        taken = [(dear if number == place else ORDINARY / 2, 0.0) for number in range(20)]
        assert _Machine().commit(taken, monkeypatch).is_spent("k")


def _call(number: int, **roots: Any) -> ToolCall:
    return ToolCall.of(toolName="files.remove", inputPayload={"path": f"/srv/{number}"}, **roots)


def test_what_a_call_is_about_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[ToolCall] = []

    def counted(call: ToolCall, tools: Tools) -> dict[str, Any]:
        worked_out.append(call)
        return summary_of(call, tools)

    monkeypatch.setattr(evaluation, "summary_of", counted)
    summaries, expected = Summaries(), summary_of(_call(1), NO_TOOLS)
    assert [summaries.of("1", NO_TOOLS, _call(1, agentId=agent)) for agent in "ab"] == [expected] * 2
    assert len(worked_out) == 1
    # Other declarations may say another thing of the same call, and so may what is beside its payload.
    assert summaries.of("1", Tools(()), _call(1)) == expected and len(worked_out) == 2
    annotated = summaries.of("1", NO_TOOLS, _call(1, toolAnnotations={"destructiveHint": True}))
    assert (annotated["effect"], len(worked_out)) == ("delete", 3)
    assert summaries.of("1", NO_TOOLS, _call(1))["effect"] == expected["effect"] != "delete"
    for number in range(2, 3 * MOST_SUMMARIES):
        assert summaries.of(str(number), NO_TOOLS, _call(number)) == summary_of(_call(number), NO_TOOLS)
    assert len(summaries._known) == MOST_SUMMARIES
