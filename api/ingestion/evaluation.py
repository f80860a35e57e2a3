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

from api.ingestion.batch import Batch
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
            organisation_id = event.caller.organisation_id
            run, ruleset = (
                self._known_runs.find(organisation_id, event.body.runId),
                self._rules(organisation_id),
            )
            if not _is_current(event, run, ruleset):
                _ask(event, run, ruleset)

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

    def of_commit(self, batch: Batch, event: Incoming, run: KnownRun, ruleset: Ruleset) -> Evaluated | None:
        """What the newest policies say of a call in this run; None: it is put off. The run's values are
        brought only where a policy asks for them."""
        if _wants_values(event.evaluated):
            batch.load_values(run)
        if _is_current(event, run, ruleset):
            return event.evaluated
        if self._is_over(event):
            return None
        begun = thread_time()
        evaluated = _ask(event, run, ruleset)
        if _wants_values(evaluated):
            batch.load_values(run)
            evaluated = _ask(event, run, ruleset)
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


def _is_current(event: Incoming, run: KnownRun | None, ruleset: Ruleset) -> bool:
    """Whether it was asked already, of a run that was just so and by these policies."""
    evaluated = event.evaluated
    if evaluated is None or evaluated.ruleset is not ruleset:
        return False
    if evaluated.run_facts != (None if run is None else run.facts()):
        return False
    memory = evaluated.memory
    return memory is None or (not memory.wanted and memory.version == (0 if run is None else run.flow))


def _ask(event: Incoming, run: KnownRun | None, ruleset: Ruleset) -> Evaluated:
    assert event.call is not None
    memory = None
    if ruleset.needs.memory:
        memory = RunMemory(values=NO_VALUES) if run is None else run.memory()
    facts = None if run is None else run.facts()
    evaluated = event.evaluated = evaluate(ruleset, event.call, facts, memory)
    return evaluated


def _wants_values(evaluated: Evaluated | None) -> bool:
    return evaluated is not None and evaluated.memory is not None and evaluated.memory.wanted
