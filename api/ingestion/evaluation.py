"""When a call is evaluated: before the write lock, as a bounded amount of work of each key in a commit.

What the policies say of a call depends on the call, the policies and what is known of its run; whatever was
evaluated early is compared with the truth when the event is decided. A key whose calls take long in one
commit has those behind them put off: they are evaluated beside the event loop, in turns (`turns.py`), and
come again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter, thread_time
from typing import Any, Final

from api.ingestion.batch import Batch
from api.ingestion.event import Evaluated, Incoming
from api.ingestion.known.runs import KnownRun, KnownRuns
from api.ingestion.quotas import MOST_OF_A_COMMIT, ORDINARY, ProcessorTime
from engine.derived.evaluated import evaluated
from engine.derived.summary import summary_of
from engine.derived.tools import ANNOTATIONS, Tools
from engine.flow.memory import NO_VALUES, RunMemory
from engine.matching.ruleset import Ruleset
from engine.model import BEFORE, ToolCall

ORDINARY_CALLS: Final = tuple(
    ToolCall.of(toolName=name, inputPayload=payload)
    for name, payload in (
        (
            "Bash",
            {"command": "cd web && git pull --rebase && npm ci && npm test | tee out.log"},
        ),
        (
            "execute_sql",
            {"query": "SELECT id, name FROM customers WHERE region = 'EU' ORDER BY name"},
        ),
        ("http_request", {"method": "POST", "url": "https://api.acme.example/v1/orders", "body": {"id": 7}}),
        ("send_email", {"to": ["a@acme.example"], "subject": "Report", "body": "The numbers are in. " * 20}),
        ("write_file", {"path": "src/app.py", "content": "def main() -> None:\n    print('ready')\n" * 20}),
    )
)
TIMES: Final = 3.0
"""An ordinary call may take so many times as long as the dearest of these."""
MOST_ORDINARY: Final = 0.004
"""Seconds that no policies make ordinary."""
AGAIN: Final = 60.0
"""Seconds after which policies that have changed are measured again."""
MOST_SUMMARIES: Final = 256
_BESIDE_PAYLOAD: Final = frozenset((BEFORE, ANNOTATIONS))
"""Roots of a call that its summary may depend on, beside what the digest covers."""


class PutOff(Exception):
    """An event that was not decided in this commit, which has done enough for its key; nothing is changed."""

    code = "unavailable"
    retry_after = 1

    def __init__(self, event: Incoming) -> None:
        super().__init__("the calls of this API key take too long; try again shortly")
        self.event = event


class _Group(threading.local):
    """What one commit has taken, on the thread that makes it."""

    spent = 0.0
    """Seconds, as far as they are worth counting."""
    left_out = False
    """Calls that were not evaluated before its transaction are put off."""


class Summaries:
    """What the calls that were held last are about. To work it out takes up to some milliseconds, and agents
    ask for the same call again and again. For any thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Tools, dict[str, Any]]] = {}
        """By the digest of tool and payload."""
        self._adding = threading.Lock()

    def of(self, digest: str, tools: Tools, call: ToolCall) -> dict[str, Any]:
        """Its summary, which nobody may change."""
        depends = not _BESIDE_PAYLOAD.isdisjoint(call.document)
        if depends or evaluated(call.document.get("agentContext")) is not None:
            return summary_of(call, tools)
        known = self._known.get(digest)
        if known is not None and known[0] is tools:
            return known[1]
        made = summary_of(call, tools)
        with self._adding:
            self._known[digest] = tools, made
            if len(self._known) > MOST_SUMMARIES:
                del self._known[next(iter(self._known))]
        return made


class OrdinaryCall:
    """What an ordinary call takes by the policies in force, so that no key counts as dear for what the
    policies of its organisation ask about every call: presets that read commands, SQL and addresses take
    their time. Measured on calls that stand here, so that no caller has a say in it. For any thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float, float]] = {}
        """By organisation: the digest of its policies, the seconds, and when they were measured."""

    def seconds(self, organisation_id: str, ruleset: Ruleset) -> float:
        """What one evaluation may take without being counted for its key."""
        known = self._known.get(organisation_id)
        if known is not None and (known[0] == ruleset.digest or monotonic() < known[2] + AGAIN):
            return known[1]
        seconds = _measured(ruleset)
        self._known[organisation_id] = (ruleset.digest, seconds, monotonic())
        return seconds


def _measured(ruleset: Ruleset) -> float:
    """At least `ORDINARY`, at most `MOST_ORDINARY`. Takes some milliseconds where policies are dear."""
    found = ORDINARY
    for call in ORDINARY_CALLS:
        best = MOST_ORDINARY
        for _ in range(2):
            begun = thread_time()
            ruleset.evaluate(call)
            best = min(best, thread_time() - begun)
        found = min(MOST_ORDINARY, max(found, TIMES * best))
        if found == MOST_ORDINARY:
            break
    return found


class Evaluator:
    """One per process. `prepare` and `of_commit` are called by whoever makes a commit, on one thread."""

    def __init__(
        self, rules: Callable[[str], Ruleset], known_runs: KnownRuns, processor_time: ProcessorTime
    ) -> None:
        self._rules = rules
        self._known_runs = known_runs
        self._processor_time = processor_time
        self._summaries = Summaries()
        self._ordinary_call = OrdinaryCall()
        self._group = _Group()

    def evaluate(self, event: Incoming) -> None:
        """Ask the newest policies of a call, as its run was last seen; on any thread."""
        if event.call is not None:
            organisation_id = event.caller.organisation_id
            run = self._known_runs.find(organisation_id, event.body.runId)
            ruleset = self._rules(organisation_id)
            if event.evaluated is None or not _is_current(event.evaluated, run, ruleset):
                self._ask(event, run, ruleset)

    def prepare(self, events: Sequence[Incoming]) -> None:
        """Evaluate the calls of one commit, of many in a row, which keeps what they need in the processor's
        caches."""
        group = self._group
        group.spent, group.left_out = 0.0, False
        # INVARIANT: a small call of a key that has taken nothing lately stands behind no dear one.
        events = self.in_turn(sorted(events, key=_size))
        computed = thread_time()
        looked = started = perf_counter()
        for event in events:
            if event.call is None:
                continue
            if self.has_told_enough():
                group.left_out = True
                break
            self.evaluate(event)
            ended = perf_counter()
            if ended - started > ORDINARY:
                # By the processor's time, of which those before it took no more than the clock says.
                now = thread_time()
                self.count(event, now - computed - (started - looked))
                computed = thread_time()
                looked = ended = perf_counter()
            started = ended
        # INVARIANT: however dear its calls are, what else is told has its part of the commit. Who sends one
        # after the other has some in each, so that it would be put off for ever.
        group.spent = min(group.spent, MOST_OF_A_COMMIT / 2)

    def in_turn(self, events: Sequence[Incoming]) -> Sequence[Incoming]:
        """Those of keys that have taken least lately first. INVARIANT: those of one key keep their order."""
        if len(events) < 2:
            return events
        lately = self._processor_time.lately
        taken = {key_id: lately(key_id) for key_id in {event.caller.key_id for event in events}}
        if not any(taken.values()):
            return events
        return sorted(events, key=lambda event: taken[event.caller.key_id])

    def of_commit(self, batch: Batch, event: Incoming, run: KnownRun, ruleset: Ruleset) -> Evaluated | None:
        """What the newest policies say of a call in this run; None: it is put off. The run's values are
        brought only where a policy asks for them."""
        evaluated = event.evaluated
        if evaluated is not None:
            if evaluated.memory is not None and evaluated.memory.wanted and run.values is None:
                begun = thread_time()
                batch.load_values(run)
                self.counted(event, begun)
            if _is_current(evaluated, run, ruleset):
                return evaluated
        if self.has_told_enough() or (evaluated is None and self._group.left_out):
            return None
        begun = thread_time()
        evaluated = self._ask(event, run, ruleset)
        if evaluated.memory is not None and evaluated.memory.wanted:
            batch.load_values(run)
            evaluated = self._ask(event, run, ruleset)
        self.counted(event, begun)
        return evaluated

    def _ask(self, event: Incoming, run: KnownRun | None, ruleset: Ruleset) -> Evaluated:
        call, needs = event.call, ruleset.needs
        assert call is not None
        facts = memory = about = None
        if run is not None and (facts := run.facts()) is not None:
            call = ToolCall({**call.document, "run": facts})
        if needs.memory:
            memory = RunMemory(values=NO_VALUES) if run is None else run.memory()
            call = ToolCall({**call.document, BEFORE: memory})
        found = ruleset.evaluate(call)
        if found.matches and any(match.policy.action == "require_approval" for match in found.matches):
            about = self._summaries.of(event.digest, ruleset.tools, call)
        evaluated = event.evaluated = Evaluated(ruleset, facts, call, found, memory, about)
        return evaluated

    def counted(self, event: Incoming, begun: float) -> None:
        """What else an event took, which cannot be put off, since this `thread_time`."""
        self.count(event, thread_time() - begun)

    def has_told_enough(self) -> bool:
        """Whether what is dear in this commit took so long that what else may be so is put off. It cannot be
        looked at before."""
        return self._group.spent > MOST_OF_A_COMMIT

    def count(self, event: Incoming, seconds: float) -> None:
        """What an event took in this commit."""
        if self.took(event, seconds):
            self._group.spent += seconds

    def took(self, event: Incoming, seconds: float) -> bool:
        """An event took so long; whether that is more than belongs to every one."""
        if seconds <= ORDINARY:
            return False
        ordinary = self.expects(event)
        self._processor_time.took(event.caller.key_id, seconds)
        return seconds > ordinary

    def expects(self, event: Incoming) -> float:
        """The seconds that belong to an event, by the policies that were asked of it; of its key they are not
        counted, wherever it is evaluated."""
        if event.evaluated is None:
            return ORDINARY
        caller = event.caller
        seconds = self._ordinary_call.seconds(caller.organisation_id, event.evaluated.ruleset)
        self._processor_time.expect(caller.key_id, seconds)
        return seconds


def _size(event: Incoming) -> int:
    return len(event.raw)


def _is_current(evaluated: Evaluated, run: KnownRun | None, ruleset: Ruleset) -> bool:
    """Whether it was asked of a run that was just so, and by these policies."""
    if evaluated.ruleset is not ruleset or evaluated.run_facts != (None if run is None else run.facts()):
        return False
    memory = evaluated.memory
    return memory is None or (not memory.wanted and memory.version == (0 if run is None else run.flow))
