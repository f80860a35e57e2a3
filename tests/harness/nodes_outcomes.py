"""What becomes of calls and runs while `nodes_model.py` walks over several nodes, and what must be on record.

A call that was allowed has one outcome, whichever nodes are told of several; and as soon as the end of a run
is answered, every call in it is flagged.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.harness.nodes_model import Call, History, Key, Send

MORE_THAN_ONCE = "the tool call ran more than once"
BLOCKED = "the tool call ran although it was blocked"
LATE = "after_run_ended"


class Outcomes:
    """Of one walk."""

    def __init__(self, name: str, chance: random.Random, runs: Mapping[str, tuple[str, History]]) -> None:
        """`runs`: of each its agent, and whether it has ended."""
        self._name = name
        self._chance = chance
        self._runs = runs
        self._open = list(runs)
        self._numbers = count()
        self._told: Counter[str] = Counter()
        """How many outcomes of a call, by its id, were acknowledged."""

    async def completes(self, timed: Callable[..., Any], send: Send, call: Call) -> Any:
        """Tell of an outcome; returns when it was sent, the answer, and when that came."""
        event = {
            **call.event,
            "eventId": f"{self._name}-done-{next(self._numbers)}",
            "eventType": self._chance.choice(["tool.completed", "tool.failed"]),
            "metadata": {"toolCallId": call.event["metadata"]["toolCallId"]},
        }
        told = await timed(send, event, call.key)
        if told[1].status == 200:
            self._told[event["metadata"]["toolCallId"]] += 1
        return told

    async def ends(self, timed: Callable[..., Any], send: Send, key: Key) -> None:
        """End a run that has not ended yet, if there is one."""
        if not self._open:
            return
        run = self._open.pop(self._chance.randrange(len(self._open)))
        agent, ended = self._runs[run]
        event = {
            "eventId": f"{self._name}-end-{run}",
            "runId": run,
            "agentId": agent,
            "eventType": "run.completed",
            "timestamp": "2026-01-31T09:30:00Z",
            "metadata": {},
        }
        with ended.changed(True):
            _, answer, _ = await timed(send, event, key)
            assert answer.status == 200, answer.content

    def ended(self, run: str, sent: float, answered: float) -> set[bool]:
        """Whether the run had ended for a call that was sent and answered then."""
        return self._runs[run][1].between(sent, answered) if run in self._runs else {False}

    def check(self, calls: Iterable[Call], records: Iterable[dict[str, Any]]) -> None:
        """Against the audit log."""
        gaps: Counter[tuple[str, str]] = Counter()
        late: dict[str, bool] = {}
        for record in records:
            if record["type"] == "enforcement.gap":
                gaps[record["toolCallId"], record["reason"]] += 1
            elif record["type"] == "decision":
                late[record["auditId"]] = LATE in record["details"].get("flags", ())
        for call in calls:
            name, audit_id = call.event["metadata"]["toolCallId"], call.answer.json()["auditId"]
            told = self._told[name]
            if call.status == "allowed":
                assert gaps[name, MORE_THAN_ONCE] == max(0, told - 1), (name, told, gaps)
            elif call.status == "blocked":
                assert gaps[name, BLOCKED] == told, (name, told, gaps)
            assert late[audit_id] in call.ended, f"{name}: {late[audit_id]} where {call.ended} was possible"
