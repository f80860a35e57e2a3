"""When a call is evaluated: before the write lock, as a bounded amount of work of each key in a commit.

What the policies say of a call depends on the call, the policies and what is known of its run; whatever was
evaluated early is compared with the truth when the event is decided. A key whose calls take long in one
commit has those behind them put off: they are evaluated beside the event loop, in turns (`turns.py`), and
come again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, thread_time

from api.ingestion.decide import evaluate
from api.ingestion.event import Evaluated, Incoming
from api.ingestion.known_runs import KnownRun, KnownRuns
from api.ingestion.quotas import MOST_OF_A_GROUP, ORDINARY, ProcessorTime
from engine.flow.memory import NO_VALUES, RunMemory
from engine.matching.ruleset import Ruleset


class PutOff(Exception):
    """An event that was not decided in this commit, which has done enough for its key; nothing is changed."""

    code = "unavailable"
    retry_after = 1

    def __init__(self, event: Incoming) -> None:
        super().__init__("the calls of this API key take too long; try again shortly")
        self.event = event


class _Group(threading.local):
    """What one commit has taken, on the thread that makes it."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        """Key to the seconds that its calls took, as far as they are worth counting."""


class Evaluator:
    """One per process. `prepare` and `of_commit` are called by whoever makes a commit, on one thread."""

    def __init__(
        self, rules: Callable[[str], Ruleset], known_runs: KnownRuns, processor_time: ProcessorTime
    ) -> None:
        self._rules = rules
        self._known_runs = known_runs
        self._processor_time = processor_time
        self._group = _Group()

    def evaluate(self, event: Incoming) -> None:
        """Ask the newest policies of a call, as its run was last seen; on any thread."""
        if event.call is not None:
            run = self._known_runs.find(event.caller.organisation_id, event.body.runId)
            if event.evaluated is None or not self._is_current(event, run):
                self._ask(event, run)

    def prepare(self, events: Sequence[Incoming]) -> None:
        """Evaluate the calls of one commit, of many in a row, which keeps what they need in the processor's
        caches."""
        spent = self._group.spent
        spent.clear()
        computed, started = thread_time(), perf_counter()
        for event in events:
            if event.call is None or (spent and self._is_over(event)):
                continue
            self.evaluate(event)
            ended = perf_counter()
            if ended - started > ORDINARY:
                # By the processor's time; those before it since the last look took little.
                now = thread_time()
                self._count(event, min(now - computed, ended - started))
                computed, ended = now, perf_counter()
            started = ended

    def of_commit(
        self, event: Incoming, run: KnownRun | None, load: Callable[[KnownRun], object]
    ) -> Evaluated | None:
        """What holds for a call in this run, or in a new one; None: it is put off. `load` brings the run's
        values, which is done only where a policy asks for them."""
        if run is not None and _wants_values(event.evaluated):
            load(run)
        if self._is_current(event, run):
            return event.evaluated
        if self._is_over(event):
            return None
        begun = thread_time()
        evaluated = self._ask(event, run)
        if run is not None and _wants_values(evaluated):
            load(run)
            evaluated = self._ask(event, run)
        self._count(event, thread_time() - begun)
        return evaluated

    @contextmanager
    def counted(self, event: Incoming) -> Iterator[None]:
        """What else an event takes, which cannot be put off."""
        begun = thread_time()
        yield
        self._count(event, thread_time() - begun)

    def _is_over(self, event: Incoming) -> bool:
        return self._group.spent.get(event.caller.key_id, 0.0) > MOST_OF_A_GROUP

    def _count(self, event: Incoming, seconds: float) -> None:
        if seconds > ORDINARY:
            key_id, spent = event.caller.key_id, self._group.spent
            spent[key_id] = spent.get(key_id, 0.0) + seconds
            self._processor_time.took(key_id, seconds)

    def _is_current(self, event: Incoming, run: KnownRun | None) -> bool:
        """Whether it was asked already, of a run that was just so and by the newest policies."""
        evaluated = event.evaluated
        if evaluated is None or evaluated.run_facts != (None if run is None else run.facts()):
            return False
        if evaluated.ruleset is not self._rules(event.caller.organisation_id):
            return False
        memory = evaluated.memory
        if memory is None:
            return True
        return not memory.wanted and memory.version == (0 if run is None else run.flow)

    def _ask(self, event: Incoming, run: KnownRun | None) -> Evaluated:
        assert event.call is not None
        ruleset = self._rules(event.caller.organisation_id)
        memory = None
        if ruleset.needs.memory:
            memory = RunMemory(values=NO_VALUES) if run is None else run.memory()
        facts = None if run is None else run.facts()
        evaluated = event.evaluated = evaluate(ruleset, event.call, facts, memory)
        return evaluated


def _wants_values(evaluated: Evaluated | None) -> bool:
    return evaluated is not None and evaluated.memory is not None and evaluated.memory.wanted
