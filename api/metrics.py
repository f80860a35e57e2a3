"""What the service counts about itself, for `GET /metrics` in the Prometheus text format.

Counters and histograms are moved where things happen, by functions that cost next to nothing; gauges are read
when somebody asks. Nothing here names a tool, an agent or a person: labels have few values, and policies are
named up to `MOST_POLICIES`.

With several worker processes on one machine, `PROMETHEUS_MULTIPROC_DIR` (a folder that is empty at start)
makes any worker answer for all of them; without it each answers for itself.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections import Counter as Tally
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from multiprocessing import current_process
from pathlib import Path
from typing import Any, Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    platform_collector,
    process_collector,
    values,
)

from api.in_place import write_in_place

T = TypeVar("T")
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FILE_BYTES: Final = {"counter": 1 << 20, "histogram": 1 << 16, "gauge_livesum": 1 << 16}
"""Of the files of a process: more than it ever fills (`MOST_POLICIES`, `MOST_REQUESTS`), since the library
lets a file that is full grow without any room for it on the disk."""


def _reserve() -> None:
    """The room that this process's files need; a worker makes the folder again, which was there when the
    service was started.

    The library writes into mapped files: where the disk is full that would end the process without a word.
    Who gets no room counts in its own memory, and `/metrics` says so.
    """
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder or sys.platform == "win32":
        return
    files = {Path(folder, f"{kind}_{os.getpid()}.db"): size for kind, size in FILE_BYTES.items()}
    try:
        if current_process().name != "MainProcess":
            Path(folder).mkdir(parents=True, exist_ok=True)
        write_in_place(Path(folder))
        for path, size in files.items():
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        for path in files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        values.ValueClass = values.MutexValue


_reserve()
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
process_collector.ProcessCollector(registry=REGISTRY)
platform_collector.PlatformCollector(registry=REGISTRY)

EVENTS = Counter("governance_events", "Events recorded, by type.", ["type"], registry=REGISTRY)
DECISIONS = Counter("governance_decisions", "Tool calls decided, by status.", ["status"], registry=REGISTRY)
LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Seconds; what takes longer than the last comes into one more bucket."""
POLICY_DECISIONS = Counter(
    "governance_policy_decisions",
    "Tool calls that a policy decided - the first of those that matched -, by policy and status. Beyond 500 "
    "pairs of these in a process, the others count together, without a policy.",
    ["organisation", "policy", "status"],
    registry=REGISTRY,
)
REQUESTS = Counter(
    "governance_requests",
    "Requests answered, by route and status. Without a route: what is no route, or could not be read, and "
    "what comes beyond 1000 sets of these in a process; status 499: the client had left.",
    ["method", "route", "status"],
    registry=REGISTRY,
)


class _ManyAtOnce(Histogram):
    """A histogram that counts many values with as few changes of its buckets as can be."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        self._sum.inc(sum(amounts))
        for bucket, count in Tally(bisect_left(self._upper_bounds, each) for each in amounts).items():
            self._buckets[bucket].inc(count)


EVENT_SECONDS = _ManyAtOnce(
    "governance_event_seconds",
    "From reading an event's body to its committed answer.",
    buckets=LATENCY_BOUNDS,
    registry=REGISTRY,
)
COMMIT_SECONDS = Histogram(
    "governance_commit_seconds",
    "One group commit: deciding, writing and waiting for the disk.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
    registry=REGISTRY,
)
COMMIT_JOBS = Histogram(
    "governance_commit_jobs",
    "Jobs that shared one commit.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    registry=REGISTRY,
)
COMMIT_FAILURES = Counter(
    "governance_commit_failures", "Group commits that the database refused.", registry=REGISTRY
)
RESOLUTIONS = Counter(
    "governance_approvals_resolved", "Approvals that ended, by status.", ["status"], registry=REGISTRY
)
APPROVAL_SECONDS = Histogram(
    "governance_approval_seconds",
    "From the request of an approval to its end, by status.",
    ["status"],
    buckets=(5, 15, 30, 60, 300, 900, 3_600, 14_400, 86_400, 604_800),
    registry=REGISTRY,
)
LOOP_LAG_SECONDS = Histogram(
    "governance_event_loop_lag_seconds",
    "By how much the event loop was late, looked at once a second.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 5),
    registry=REGISTRY,
)
RELOAD_FAILURES = Counter(
    "governance_policy_reload_failures",
    "Changes of policy files that did not load; the last good set stayed in force.",
    registry=REGISTRY,
)
COMMITS_WAITING = Gauge(
    "governance_git_commits_waiting",
    "Changes of policies that git has not taken yet, with GOVERNANCE_GIT=commit.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
DELIVERIES = Counter(
    "governance_webhook_attempts", "Webhook attempts, by outcome.", ["outcome"], registry=REGISTRY
)
ALERTS = Counter(
    "governance_alerts",
    "Alerts raised, by detector and severity.",
    ["detector", "severity"],
    registry=REGISTRY,
)
NOTICES = Counter(
    "governance_notification_attempts", "Messages to channels, by outcome.", ["outcome"], registry=REGISTRY
)

EVENTS_PATH: Final = "/v1/events"
"""The route that has a fast path (`server/connections/event_fast_path.py`)."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""What else a client may call its method counts as none."""
MOST_POLICIES: Final = 500
"""Pairs of a policy and a status that are counted by name."""
MOST_REQUESTS: Final = 1_000
"""Methods with routes and statuses that are counted as such. Whoever asks each route for what it answers in
each way, with a key or without, makes thousands."""
_counted_policies: dict[tuple[str, str, str], Counter] = {}
_counted_requests: dict[tuple[str, str, int], Counter] = {}
_TYPES = {
    name: EVENTS.labels(name)
    for name in ("run.started", "run.completed", "run.failed", "tool.called", "tool.completed", "tool.failed")
}
_CUSTOM = EVENTS.labels("custom")
_QUICK_REQUESTS = REQUESTS.labels("POST", EVENTS_PATH, "200")
_STATUSES = {name: DECISIONS.labels(name) for name in ("allowed", "blocked", "awaiting_approval")}
_ENDS = ("approved", "rejected", "expired", "cancelled")
_RESOLVED = {name: (RESOLUTIONS.labels(name), APPROVAL_SECONDS.labels(name)) for name in _ENDS}
_OUTCOMES = {name: DELIVERIES.labels(name) for name in ("delivered", "failed")}
_MESSAGES = {name: NOTICES.labels(name) for name in ("delivered", "failed")}


def requested(method: str, route: str, status: int) -> None:
    """A request was answered; `route` is one of the table, so that there are few."""
    known = _counted_requests.get((method, route, status))
    if known is None:
        known = _counter_of(method if method in METHODS else "", route, status)
    known.inc()


def _counter_of(method: str, route: str, status: int) -> Counter:
    known = _counted_requests.get((method, route, status))
    if known is None:
        if len(_counted_requests) >= MOST_REQUESTS:
            return REQUESTS.labels("", "", str(status))
        known = _counted_requests[method, route, status] = REQUESTS.labels(method, route, str(status))
    return known


_TOGETHER: Final = 1 if "PROMETHEUS_MULTIPROC_DIR" in os.environ else 64
"""Nobody here is asked for what other processes have not counted."""

Recorded = tuple[Sequence[str], Sequence[str], Sequence[tuple[str, str, str]]]
_batches: deque[Recorded] = deque()
"""Of batches that are not counted yet: policies that decide are many, and often the same."""


def recorded(
    event_types: Sequence[str], statuses: Sequence[str], decided: Sequence[tuple[str, str, str]] = ()
) -> None:
    """A committed batch: the type of each event, the status of each call decided for the first time, and
    organisation, policy and status where a policy decided it."""
    _batches.append((event_types, statuses, decided))
    if len(_batches) >= _TOGETHER:
        _count_batches()


def _count_batches() -> None:
    """INVARIANT: called before anybody is told what was counted, as `_count_answers` is."""
    taken = _taken(_batches)
    for event_type, count in Tally(chain.from_iterable(batch[0] for batch in taken)).items():
        _TYPES.get(event_type, _CUSTOM).inc(count)
    for status, count in Tally(chain.from_iterable(batch[1] for batch in taken)).items():
        _STATUSES[status].inc(count)
    for decided, count in Tally(chain.from_iterable(batch[2] for batch in taken)).items():
        _decided_by(decided).inc(count)


def _decided_by(decided: tuple[str, str, str]) -> Counter:
    known = _counted_policies.get(decided)
    if known is None:
        if len(_counted_policies) >= MOST_POLICIES:
            return POLICY_DECISIONS.labels("", "", decided[2])
        known = _counted_policies[decided] = POLICY_DECISIONS.labels(*decided)
    return known


def answered(seconds: float) -> None:
    """An event was answered this long after its body had been read."""
    EVENT_SECONDS.observe(seconds)


_quick_answers: deque[float] = deque()
"""Seconds of those that are not counted yet. Counted one by one they cost as much as an event's digests."""


def answered_quickly(seconds: float) -> None:
    """The fast path has answered an event, this long after its body had been read."""
    _quick_answers.append(seconds)
    if len(_quick_answers) >= _TOGETHER:
        _count_answers()


def _count_answers() -> None:
    """INVARIANT: called before anybody is told what was counted."""
    taken = _taken(_quick_answers)
    EVENT_SECONDS.observe_all(taken)
    _QUICK_REQUESTS.inc(len(taken))


def _taken(waiting: deque[T]) -> list[T]:
    """All that waits to be counted."""
    taken: list[T] = []
    with suppress(IndexError):  # another thread may take some
        while True:
            taken.append(waiting.popleft())
    return taken


def committed(jobs: int, seconds: float) -> None:
    """A group commit of so many jobs."""
    COMMIT_JOBS.observe(jobs)
    COMMIT_SECONDS.observe(seconds)


def commit_failed() -> None:
    COMMIT_FAILURES.inc()


def resolved(status: str, seconds: float) -> None:
    """An approval ended, so long after it was requested."""
    count, waited = _RESOLVED[status]
    count.inc()
    waited.observe(seconds)


def looped(late: float) -> None:
    """The event loop came so many seconds late to what was to be done."""
    LOOP_LAG_SECONDS.observe(late)


def alerted(detector_id: str, severity: str) -> None:
    """An alert was raised."""
    ALERTS.labels(detector_id, severity).inc()


def reload_failed() -> None:
    """The policies folder changed to something that does not load."""
    RELOAD_FAILURES.inc()


def commits_waiting(count: int) -> None:
    """So many commits to git are to be tried again."""
    COMMITS_WAITING.set(count)


def attempted(delivered: bool) -> None:
    """One webhook attempt."""
    _OUTCOMES["delivered" if delivered else "failed"].inc()


def notified(delivered: bool) -> None:
    """One attempt to send a message to a channel."""
    _MESSAGES["delivered" if delivered else "failed"].inc()


@dataclass(frozen=True, slots=True)
class Totals:
    """What this process has counted since its start."""

    decisions: Mapping[str, int]
    """Calls decided, by status."""
    events: int
    """All events, calls included."""
    latency: tuple[int, ...]
    """Events answered within each bucket of `LATENCY_BOUNDS`, not within a smaller one."""


def catch_up() -> None:
    """Count what was noted and not counted yet."""
    _count_answers()
    _count_batches()


def totals() -> Totals:
    """The counters since the start of this process, those that are noted and not counted yet included."""
    catch_up()
    events = sum(int(each.value) for each in _samples(EVENTS))
    decisions = {each.labels["status"]: int(each.value) for each in _samples(DECISIONS)}
    within = [int(each.value) for each in _samples(EVENT_SECONDS) if each.name.endswith("_bucket")]
    return Totals(decisions, events, tuple(after - before for before, after in pairwise([0, *within])))


def _samples(metric: Any) -> list[Any]:
    return [sample for family in metric.collect() for sample in family.samples]
