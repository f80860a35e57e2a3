"""What a client knows of one run: who it is, what it was refused, and the calls that it asks about.

A refusal is remembered while the service is away: what was blocked, held or halted before stays so. The
service itself forgets nothing; as soon as it answers, its word counts.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

from governance_client.decision import Question, ToolDecision
from governance_client.events import ClientEvent, event, new_id
from governance_client.journal import OfflineJournal

MOST_REFUSED: Final = 10_000
"""Of a run, two for each call that was refused; one with more is refused everything while the service is
away."""
_REMEMBERED: Final = frozenset(("blocked", "rejected", "expired", "cancelled", "awaiting_approval"))
_STOPPING: Final = frozenset(("halted", "unauthorized"))
MOST_KNOWN: Final = 10_000
"""Calls that are known to have been made, or to go on; of a run with more the oldest are not."""
MOST_ALIKE: Final = 50
"""Executions of the same call under the same id whose decisions are found again after a restart."""
_OPEN: Final = frozenset(("awaiting_approval", "unavailable", "unauthorized"))
"""What may be said of a call that a person can still decide."""

_all: Final[weakref.WeakSet[ForkLock]] = weakref.WeakSet()


class ForkLock:
    """A lock that is free in a forked process, whoever held it when that began: no other thread goes on.
    The thread that has it may take it again, as what a signal interrupts may be this."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        """In the child: what this thread holds it still holds."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


def _after_fork() -> None:
    for lock in list(_all):
        lock.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class RunCalls:
    """Which call of a run a question is about: the id that it is asked under; used from any thread.

    Models number their calls as they like: anew in each answer, the same number twice, or another call under
    a number that was used. INVARIANT: one decision is for one execution of one call. A question that its own
    id cannot be for - that call has completed, is going on, or is another one - is asked under an id that
    follows from it, so that its decision and approval are found again after a restart, as under its own.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._made: OrderedDict[str, None] = OrderedDict()
        """Ids of calls that have completed."""
        self._going: OrderedDict[str, str] = OrderedDict()
        """Ids of calls that are asked about or run, and those that they were given."""
        self._first: OrderedDict[str, str] = OrderedDict()
        """Of the ids that were given, the call that each is for."""
        self._left: OrderedDict[str, list[str]] = OrderedDict()
        """By what they do, the ids of calls that a person may still decide, and nobody waits for."""
        self._taken = set[str]()
        """Ids of such calls that are asked about once more."""

    def begin(self, question: Question, *, goes_on: bool = False) -> Question:
        """The question under the id to ask it under; it is going on from now. With `goes_on` it may be one
        of the same call that nobody waits for any more."""
        with self._lock:
            name = self._take(question) if goes_on else None
            if name is None:
                name = self._name(question)
            else:
                self._taken.add(name)
            _keep(self._going, name, question.tool_call_id)
        return replace(question, tool_call_id=name)

    def end(self, asked: Question, decision: ToolDecision | None, *, goes_on: bool = False) -> None:
        """What was known when the question was over; a call that may run goes on until its outcome. One that
        was left waiting for a person still is, where nothing else was said of it."""
        with self._lock:
            name = asked.tool_call_id
            was_left = name in self._taken
            self._taken.discard(name)
            if decision is not None and decision.allowed:
                return
            self._going.pop(name, None)
            is_open = was_left if decision is None else decision.status in _OPEN
            if is_open and (was_left or (goes_on and decision is not None and decision.approval_id)):
                same = _hex(_same(asked))
                _keep(self._left, same, [*self._left.get(same, ()), name])

    def may_run(self, tool_call_id: str) -> None:
        """A person has said yes to a call that nobody was asking about just then."""
        with self._lock:
            self._going.setdefault(tool_call_id, tool_call_id)

    def is_another(self, question: Question) -> None:
        """The id of a question is that of another call."""
        with self._lock:
            _keep(self._first, question.tool_call_id, "")

    def completed(self, tool_call_id: str) -> None:
        """Which spends the decision of a call."""
        with self._lock:
            self._going.pop(tool_call_id, None)
            _keep(self._made, tool_call_id, None)

    def stopped(self, tool_call_id: str) -> None:
        """A call has failed, or was not made: it may be tried again."""
        with self._lock:
            self._going.pop(tool_call_id, None)

    def is_made(self, tool_call_id: str) -> bool:
        with self._lock:
            return tool_call_id in self._made

    def meant(self, given: str) -> str:
        """The id of the call that is meant by the one that was given: of those that go on, the first."""
        with self._lock:
            return next((name for name, own in self._going.items() if own == given), given)

    # With the lock --------------------------------------------------------------------------------

    def _take(self, question: Question) -> str | None:
        """One that was left."""
        same = _hex(_same(question))
        left = self._left.pop(same, [])
        if len(left) > 1:
            _keep(self._left, same, left[1:])
        return left[0] if left else None

    def _name(self, question: Question) -> str:
        own = question.tool_call_id
        alike = _hex(f"{own}\n{_same(question)}")
        first = self._first.get(own)
        if first is None:
            _keep(self._first, own, first := alike)
        names = (f"call-{alike}-{number}" for number in range(2, MOST_ALIKE + 1))
        free = (each for each in _one_and(own if first == alike else None, names) if self._is_free(each))
        return next(free, f"call-{new_id()}")

    def _is_free(self, name: str) -> bool:
        return name not in self._made and name not in self._going


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
    calls: RunCalls = field(default_factory=RunCalls)
    lock: ForkLock = field(default_factory=ForkLock)

    @property
    def run_id(self) -> str:
        return self.line[-1]

    @property
    def behind(self) -> tuple[str, ...]:
        """The run's own id, and before it those whose reports must be known before its own."""
        return (*(each for each in self.named if each not in self.line), *self.line)

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
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


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


def _one_and(first: str | None, others: Iterator[str]) -> Iterator[str]:
    if first is not None:
        yield first
    yield from others


def _same(question: Question) -> str:
    return f"{question.tool}\n{question.payload}"


def _keep(memory: OrderedDict[str, Any], name: str, value: Any) -> None:
    memory[name] = value
    memory.move_to_end(name)
    if len(memory) > MOST_KNOWN:
        memory.popitem(last=False)


def _hex(text: str) -> str:
    return _digest(text).hex()
