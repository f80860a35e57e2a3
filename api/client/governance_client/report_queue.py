"""Reports on their way to the service: in order within a run, many at a time, never two flights of one run.

It decides what is sent next and what becomes of what was answered; it knows nothing of HTTP and sends nothing
itself. INVARIANT: a report is in the queue until the service has taken or refused it; an event of a run
leaves after all that were queued before it for that run, and when the service has taken those of the runs
that started it, or that it goes on from.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from governance_client.events import ClientEvent
from governance_client.exchange import RETRIED, problem_text

log = logging.getLogger("governance_client")

MOST_EVENTS: Final = 200
"""Of a flight."""
MOST_BYTES: Final = 400_000
MOST_KEPT: Final = 10_000
"""Outputs in memory while the service is away, where no journal has them; beyond that the oldest go."""

UNREADABLE: Final = (400, 413, 422)
"""Refusals of what an event says; its output is then told as a short text, since nobody may get around a rule
by an output that cannot be recorded."""

FOR_THE_KEY: Final = (401, 403)
"""Refusals of the key that an event was told with, and not of what it says."""

Settled = Callable[[int, str], None]
"""Told of the status that an event was answered with, and of the words of a refusal. Raises OSError where
that cannot be kept yet."""

Keep = Callable[[Sequence[ClientEvent]], Sequence[Settled]]
"""Keeps events elsewhere, too; whom to tell what became of each."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What was said of one event: its answer, or the problem document of a refusal."""

    status: int
    content: Any

    def problem(self) -> str:
        """The refusal in a line."""
        return problem_text(self.status, self.content)


@dataclass(slots=True, eq=False)
class QueuedReport:
    """An event that waits; `settled` is told what became of it, where somebody keeps it, as the journal."""

    event: ClientEvent
    number: int
    settled: Settled | None = None


@dataclass(slots=True, eq=False)
class Flight:
    """Reports that were taken to be sent; `done` is for those who must come after them."""

    reports: list[QueuedReport]
    done: Future[None] = field(default_factory=Future)

    @property
    def number(self) -> int:
        """Of the report that was queued first."""
        return self.reports[0].number

    @property
    def runs(self) -> set[str]:
        return {report.event.run_id for report in self.reports}


class ReportQueue:
    """See the module; used from any thread. `on_added` is called whenever there is something to send."""

    def __init__(self, on_added: Callable[[], None]) -> None:
        self._on_added = on_added
        self._lock = threading.RLock()
        self._added = threading.Condition(self._lock)
        self._pending: dict[str, deque[QueuedReport]] = {}
        self._flying: dict[str, Flight] = {}
        self._number = 0
        self._held: dict[str, str] = {}
        """By run that is held back, why."""
        self._kept = 0
        self._most = MOST_EVENTS

    def add(self, event: ClientEvent, settled: Settled | None = None) -> None:
        with self._lock:
            self._append(event, settled)
        self._on_added()

    def add_first(self, *kept: Sequence[tuple[ClientEvent, Settled]]) -> None:
        """Queue what was kept elsewhere before all that is queued here: it happened before that. Each in its
        order, and by their times, as is what came so before and still waits."""
        if not any(kept):
            return
        with self._lock:
            known = [report for report in self._all() if report.number < 0]
            fresh = [[QueuedReport(event, -1, settled) for event, settled in each] for each in kept]
            first = list(heapq.merge(known, *fresh, key=lambda report: report.event.at))
            for number, report in enumerate(first, -len(first)):
                report.number = number
            added = [report for each in fresh for report in each]
            self._put(added)
            self._kept += len(added)
            self._added.notify_all()
        self._on_added()

    def hold_back(self, run_id: str, why: str) -> None:
        """Nothing of a run is taken, nor of those that come behind it, until it is released."""
        with self._lock:
            self._held[run_id] = why

    def release(self, run_id: str) -> None:
        with self._lock:
            self._held.pop(run_id, None)

    def held(self, line: Collection[str] | None) -> str | None:
        """Why one is held back, of these with all that they come behind, or of all; None: none is."""
        with self._lock:
            if not self._held:
                return None
            runs = self._held if line is None else self._with_those_before(line, self._number)
            return next((self._held[run_id] for run_id in runs if run_id in self._held), None)

    def inherit(self, other: ReportQueue) -> None:
        """Have what another process tells told by this one as well, should it have to be known. It is that
        one's to keep: whoever answers for it there knows what becomes of it."""
        reports = other._all()
        with self._lock:
            for report in reports:
                self._append(report.event, None if report.settled is None else kept_there)

    def hold(self) -> None:
        """Nothing changes until `let_go`."""
        self._lock.acquire()

    def let_go(self) -> None:
        self._lock.release()

    @property
    def newest(self) -> int:
        """The number of the report that was queued last."""
        with self._lock:
            return self._number

    def take(self, line: Collection[str], until: int) -> Flight | Future[None]:
        """What is queued for these runs up to a number, to be sent next; while that is being sent, what to
        wait for. INVARIANT: it is no more than that, since a run may report without end."""
        with self._lock:
            line = self._with_those_before(line, until)
            for run_id in line:
                if (flight := self._flying.get(run_id)) is not None and flight.number <= until:
                    return flight.done
            waiting = [each for run_id in line for each in self._pending.get(run_id, ())]
            return self._take([each for each in waiting if each.number <= until])

    def take_any(self) -> Flight | Future[None]:
        """The same of any run of which nothing is being sent."""
        with self._lock:
            flight = self._take([each for reports in self._pending.values() for each in reports])
            if not flight.reports and self._flying:
                return next(iter(self._flying.values())).done
            return flight

    def settle(self, flight: Flight, results: Sequence[BatchResult]) -> bool:
        """What was answered, result by result; what may be asked again stays. Returns whether none did."""
        kept: list[QueuedReport] = []
        for report, result in zip(flight.reports, results, strict=True):
            status = result.status
            if status in RETRIED:
                kept.append(report)
                continue
            if status in UNREADABLE and report.event.plainer is not None:
                report.event = report.event.plainer()
                kept.append(report)
                continue
            if status in FOR_THE_KEY and report.settled is None and _is_outcome(report):
                kept.append(report)  # up to the end of the process, and then in a journal
                continue
            if status != 200:
                log.warning("the service refused %s: %s", report.event.event_type, result.problem())
            if report.settled is not None:
                try:
                    report.settled(status, result.problem())
                except OSError as error:
                    log.error("what the service refused cannot be kept, and is sent again: %s", error)
                    kept.append(report)
        self._end(flight, kept)
        return not kept

    def put_back(self, flight: Flight, *, smaller: bool = False) -> None:
        """Nothing is known of a flight; all of it goes again, `smaller` one by one."""
        with self._lock:
            self._most = 1 if smaller else MOST_EVENTS
        self._end(flight, flight.reports)

    def wait(self, seconds: float) -> bool:
        """Until there is something to send; returns whether there is."""
        with self._lock:
            if not self._pending:
                self._added.wait(seconds)
            return bool(self._pending)

    def wake(self) -> None:
        with self._lock:
            self._added.notify_all()

    @property
    def is_empty(self) -> bool:
        with self._lock:
            return not self._pending and not self._flying

    def keep(self, event: ClientEvent, keep: Keep) -> None:
        """Queue an event once it is kept, together with what is queued or being sent before it and not kept
        yet. Raises what `keep` raises; nothing is queued then."""
        with self._lock:
            line = self._with_those_before(event.line, self._number)
            flights = {flight for run_id in line if (flight := self._flying.get(run_id)) is not None}
            flying = [each for flight in flights for each in flight.reports if each.event.run_id in line]
            before = flying + [each for run_id in line for each in self._pending.get(run_id, ())]
            fresh = sorted((each for each in before if each.settled is None), key=lambda each: each.number)
            told = keep([*(each.event for each in fresh), event])
            for report, settled in zip(fresh, told, strict=False):
                report.settled = settled
            self._append(event, told[-1])
        self._on_added()

    def keep_rest(self, keep: Keep) -> None:
        """Have what is queued or being sent, and not kept yet, kept, where it says what became of a call, or
        what a run goes on with: on nothing else depends what a run is answered later. Raises what `keep`
        raises."""
        with self._lock:
            fresh = [report for report in self._all() if report.settled is None]
            if any(_is_outcome(report) or _goes_on(report) for report in fresh):
                told = keep([report.event for report in fresh])
                for report, settled in zip(fresh, told, strict=True):
                    report.settled = settled

    # With the lock --------------------------------------------------------------------------------

    def _all(self) -> list[QueuedReport]:
        """In the order in which they were queued."""
        flights = set(self._flying.values())
        reports = [report for flight in flights for report in flight.reports]
        reports += [report for pending in self._pending.values() for report in pending]
        return sorted(reports, key=lambda report: report.number)

    def _with_those_before(self, line: Collection[str], until: int) -> Collection[str]:
        """These runs, and those that the reports which wait for them, up to a number, come behind."""
        found = dict.fromkeys(line)
        going = list(found)
        for run_id in going:  # which grows meanwhile
            for report in self._pending.get(run_id, ()):
                if report.number > until:
                    break
                fresh = [each for each in report.event.line if each not in found]
                found |= dict.fromkeys(fresh)
                going += fresh
        return found

    def _append(self, event: ClientEvent, settled: Settled | None) -> None:
        self._number += 1
        report = QueuedReport(event, self._number, settled)
        self._pending.setdefault(event.run_id, deque()).append(report)
        self._kept += 1
        if self._kept > MOST_KEPT and settled is None and _is_outcome(report):
            self._forget_one()
        self._added.notify_all()

    def _put(self, reports: Sequence[QueuedReport]) -> None:
        """Have them wait. INVARIANT: what waits of a run is in the order of its numbers."""
        of_runs: dict[str, list[QueuedReport]] = {}
        for report in reports:
            of_runs.setdefault(report.event.run_id, []).append(report)
        for run_id, those in of_runs.items():
            those += self._pending.get(run_id, ())
            self._pending[run_id] = deque(sorted(those, key=lambda report: report.number))

    def _take(self, waiting: list[QueuedReport]) -> Flight:
        waiting.sort(key=lambda report: report.number)
        taken: list[QueuedReport] = []
        size = 0
        for report in islice(_apart(waiting, self._flying, self._held), self._most):
            size += len(report.event.content)
            if taken and size > MOST_BYTES:
                break
            taken.append(report)
        flight = Flight(taken)
        flight.done.set_running_or_notify_cancel()
        for report in taken:
            run_id = report.event.run_id
            self._pending[run_id].popleft()
            if not self._pending[run_id]:
                del self._pending[run_id]
            self._flying[run_id] = flight
        if taken:
            self._most = MOST_EVENTS
        return flight

    def _end(self, flight: Flight, kept: Sequence[QueuedReport]) -> None:
        with self._lock:
            for run_id in flight.runs:
                self._flying.pop(run_id, None)
            self._put(kept)
            self._kept -= len(flight.reports) - len(kept)
            self._added.notify_all()
        flight.done.set_result(None)

    def _forget_one(self) -> None:
        """INVARIANT: only what can be forgotten counts, so that no output goes for what waits beside it."""
        waiting = (report for reports in self._pending.values() for report in reports)
        outputs = [report for report in waiting if report.settled is None and _is_outcome(report)]
        if len(outputs) > MOST_KEPT:
            run_id = outputs[0].event.run_id
            self._pending[run_id].remove(outputs[0])
            if not self._pending[run_id]:
                del self._pending[run_id]
            self._kept -= 1
            log.error("too many reports wait for the service; the oldest output is dropped")


def _is_outcome(report: QueuedReport) -> bool:
    """Whether it says what became of a call."""
    return report.event.event_type.startswith("tool.")


def _goes_on(report: QueuedReport) -> bool:
    """Whether it says with which others a run goes on."""
    return report.event.event_type == "run.started" and len(report.event.line) > 1


def kept_there(status: int, why: str) -> None:
    """The process that keeps an event is told the same."""


def _apart(
    reports: Sequence[QueuedReport], flying: Mapping[str, Flight], held: Collection[str]
) -> Iterator[QueuedReport]:
    """Those that come behind none of another run among them, or of one that is being sent or held back: it
    may have to be told again, and a run that begins meanwhile has nothing of it. INVARIANT: of each run the
    first ones, as two reports of one run may name different ones before it."""
    going, waiting = set[str](), set(held)
    for report in reports:
        *before, run_id = report.event.line
        sent = (flying.get(each) for each in before)
        if (
            run_id in flying
            or run_id in waiting
            or any(each in going or each in waiting for each in before)
            or any(flight is not None and flight.number < report.number for flight in sent)
        ):
            waiting.add(run_id)
        else:
            going.add(run_id)
            yield report


def result_of(result: Any) -> BatchResult:
    """One result of a batch; a malformed one may be asked for again."""
    if not isinstance(result, dict) or type(result.get("status")) is not int:
        return BatchResult(500, None)
    return BatchResult(result["status"], result.get("answer" if result["status"] == 200 else "error"))
