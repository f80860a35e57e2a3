"""What a client knows of one run: who it is, what it was refused, and the calls that it asks about.

A refusal is remembered while the service is away: what was blocked, held or halted before stays so. The
service itself forgets nothing; as soon as it answers, its word counts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

from governance_client.decision import Question, ToolDecision
from governance_client.events import ClientEvent, event, new_id
from governance_client.journal import OfflineJournal

MOST_REFUSED: Final = 10_000
"""Of a run, two for each call that was refused; one with more is refused everything while the service is
away."""
MOST_MADE: Final = 10_000
"""Calls that are known to have been made; of a run with more the oldest are not."""
MOST_ALIKE: Final = 50
"""Executions of the same call under the same id whose decisions are found again after a restart."""
_REMEMBERED: Final = frozenset(("blocked", "rejected", "expired", "cancelled", "awaiting_approval"))
_STOPPING: Final = frozenset(("halted", "unauthorized"))


@dataclass(slots=True, eq=False)
class ClientRunMemory:
    """See the module; used from any thread. `line` ends with the run's own id, its parents before it; `named`
    are others that it or they go on from or were started by, known by their ids alone."""

    line: tuple[str, ...]
    agent_id: str
    journal: OfflineJournal
    parent: ClientRunMemory | None = None
    named: tuple[str, ...] = ()
    stopped: ToolDecision | None = None
    refused: OrderedDict[bytes, ToolDecision] = field(default_factory=OrderedDict)
    beyond: ToolDecision | None = None
    """One refusal of those that are not remembered."""
    made: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Ids of calls that have completed."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def run_id(self) -> str:
        return self.line[-1]

    @property
    def behind(self) -> tuple[str, ...]:
        """The run's own id, and before it those whose reports must be known before its own."""
        return (*(each for each in self.named if each not in self.line), *self.line)

    def was_made(self, tool_call_id: str) -> None:
        """A call has completed, which spends its decision; one that has failed may be tried again."""
        with self.lock:
            self.made[tool_call_id] = None
            if len(self.made) > MOST_MADE:
                self.made.popitem(last=False)

    def unspent(self, question: Question) -> Question:
        """The question under its own id or, where that call was made, under one that follows from the call.

        INVARIANT: one decision is for one execution: some models number their calls anew each time. And the
        approval of each is found again after a restart.
        """
        with self.lock:
            if question.tool_call_id not in self.made:
                return question
            alike = _digest(f"{question.tool_call_id}\n{question.tool}\n{question.payload}").hex()
            names = (f"call-{alike}-{number}" for number in range(2, MOST_ALIKE + 1))
            name = next((each for each in names if each not in self.made), f"call-{new_id()}")
        return replace(question, tool_call_id=name)

    def learn(self, question: Question, decision: ToolDecision) -> None:
        """Remember what the service has said."""
        keys = _keys(question)
        with self.lock:
            if decision.status in _STOPPING:
                self.stopped = decision
            elif decision.allowed:
                self.stopped = None
                for key in keys:
                    self.refused.pop(key, None)
            elif decision.status in _REMEMBERED and len(self.refused) < MOST_REFUSED:
                self.refused.update(dict.fromkeys(keys, decision))
            elif decision.status in _REMEMBERED:
                self.beyond = decision

    def against(self, question: Question) -> ToolDecision | None:
        """What is known against a call that nobody can be asked about."""
        with self.lock:
            known = self.stopped or next(filter(None, map(self.refused.get, _keys(question))), self.beyond)
        if known is None:
            return None if self.parent is None else self.parent.against(question)
        return replace(known, tool=question.tool, run_id=question.run_id, tool_call_id=question.tool_call_id)


def _keys(question: Question) -> tuple[bytes, bytes]:
    """A call is known by its id, and by what it would do."""
    own, same = f"id {question.tool_call_id}", f"{question.tool}\n{question.payload}"
    return _digest(own), _digest(same)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, eq=False)
class AskedCall:
    """A call of a run, and the event that asks about it."""

    memory: ClientRunMemory
    question: Question
    event: ClientEvent
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, memory: ClientRunMemory, question: Question, metadata: Mapping[str, Any]) -> AskedCall:
        """Raises ValueError for metadata that has no form in JSON."""
        return cls(memory, question, _called(memory, question, metadata), metadata)

    def offline(self) -> ClientEvent:
        """The event that reports it later on. It has an id of its own: the first one may have arrived."""
        return _called(self.memory, self.question, {**self.metadata, "decidedOffline": True})


def _called(memory: ClientRunMemory, question: Question, metadata: Mapping[str, Any]) -> ClientEvent:
    about = {"toolCallId": question.tool_call_id, "toolName": question.tool}
    written = {"inputPayload": question.payload}
    return event("tool.called", memory.behind, memory.agent_id, {**about, **metadata}, written)
