"""Whom the time of an evaluation is counted for, and what a held call is about: worked out once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.ingestion import evaluation
from api.ingestion.evaluation import (
    MOST_ORDINARY,
    MOST_SUMMARIES,
    ORDINARY_CALLS,
    Evaluator,
    OrdinaryCall,
    Summaries,
)
from api.ingestion.event import Incoming
from api.ingestion.known.runs import KnownRuns
from api.ingestion.quotas import MOST_AT_ONCE, MOST_OF_A_COMMIT, ORDINARY, PER_SECOND, ProcessorTime
from engine.derived.summary import summary_of
from engine.derived.tools import NO_TOOLS, Tools
from engine.model import ToolCall
from tests.harness.waiting import busy


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
        event = cast(Incoming, SimpleNamespace(call=True, caller=caller, evaluated=None, raw=b""))
        evaluator.prepare([event] * len(taken))
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


def _sent(key: str, size: int) -> Incoming:
    named = SimpleNamespace(call=True, caller=SimpleNamespace(key_id=key), evaluated=None, raw=b" " * size)
    return cast(Incoming, named)


def test_however_many_keys_send_dear_calls_a_commit_does_not_take_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody's small call stands behind those of fifty keys, which are put off, whatever came first."""
    spent = ProcessorTime()
    evaluator = Evaluator(lambda organisation_id: cast(Any, None), KnownRuns(), spent)
    done: list[str] = []

    def evaluate(event: Incoming) -> None:
        done.append(event.caller.key_id)
        busy(0.02 if event.caller.key_id != "few" else 0.0)

    monkeypatch.setattr(evaluator, "evaluate", evaluate)
    dear = [_sent(f"many-{number}", 4_000) for number in range(50)]
    evaluator.prepare([*dear, small := _sent("few", 400)])
    assert done[0] == "few" and len(done) < 10
    left = cast(Any, None)
    assert evaluator.of_commit(left, dear[-1], left, left) is None, "it is put off"
    assert not evaluator.has_told_enough(), "what else is told has its part of the commit"
    evaluator.count(dear[0], MOST_OF_A_COMMIT)
    assert evaluator.has_told_enough(), "beyond which it is put off, too, and comes first then"
    evaluator.prepare([])
    assert not evaluator.has_told_enough()
    assert evaluator.in_turn([dear[0], small, dear[40]]) == [small, dear[40], dear[0]]
    assert evaluator.in_turn([*dear[40:], small]) == [*dear[40:], small], (
        "of those that took nothing none is first"
    )


class _Rules:
    """Policies that take so much of the processor for every call."""

    def __init__(self, seconds: float, digest: str = "d") -> None:
        self.seconds, self.digest, self.asked = seconds, digest, 0

    def evaluate(self, call: ToolCall) -> None:
        self.asked += 1
        busy(self.seconds)


def test_what_policies_ask_of_every_call_makes_no_key_dear() -> None:
    spent = ProcessorTime()
    evaluator = Evaluator(lambda organisation_id: cast(Any, None), KnownRuns(), spent)
    rules = _Rules(2 * ORDINARY)
    caller = SimpleNamespace(key_id="k", organisation_id="o")
    event = cast(Incoming, SimpleNamespace(caller=caller, evaluated=SimpleNamespace(ruleset=rules)))
    for _ in range(3 * round(MOST_AT_ONCE / PER_SECOND / ORDINARY)):
        assert not evaluator.took(event, 4 * ORDINARY)
    spent.took("k", 4 * ORDINARY)  # a check or a read, wherever it is done
    assert spent._even == {} and rules.asked == 2 * len(ORDINARY_CALLS)
    assert evaluator.took(event, MOST_AT_ONCE + PER_SECOND) and spent.is_spent("k")
    spent.took("other", MOST_AT_ONCE + PER_SECOND)
    assert spent.is_spent("other")


def test_ordinary_calls_are_measured_again_at_times_and_have_an_end() -> None:
    ordinary = OrdinaryCall()
    assert ordinary.seconds("o", cast(Any, cheap := _Rules(0.0))) == ORDINARY
    assert ordinary.seconds("o", cast(Any, dear := _Rules(1.0, "other"))) == ORDINARY and dear.asked == 0
    assert ordinary.seconds("p", cast(Any, dear)) == MOST_ORDINARY and dear.asked == 2
    assert ordinary.seconds("o", cast(Any, cheap)) == ORDINARY and cheap.asked == 2 * len(ORDINARY_CALLS)


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
