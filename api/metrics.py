"""What the service counts about itself, for `GET /metrics` in the Prometheus text format.

Counters and histograms are moved where things happen, by functions that cost next to nothing; gauges are read
when somebody asks. Nothing here names a tool, an agent or a person: labels have few, fixed values.

With several worker processes on one machine, `PROMETHEUS_MULTIPROC_DIR` (a folder that is empty at start)
makes any worker answer for all of them; without it each answers for itself.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
    platform_collector,
    process_collector,
)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
process_collector.ProcessCollector(registry=REGISTRY)
platform_collector.PlatformCollector(registry=REGISTRY)

EVENTS = Counter("governance_events", "Events recorded, by type.", ["type"], registry=REGISTRY)
DECISIONS = Counter("governance_decisions", "Tool calls decided, by status.", ["status"], registry=REGISTRY)
EVENT_SECONDS = Histogram(
    "governance_event_seconds",
    "From reading an event's body to its committed answer.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
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
NOTICES = Counter(
    "governance_notification_attempts", "Messages to channels, by outcome.", ["outcome"], registry=REGISTRY
)

_TYPES = {
    name: EVENTS.labels(name)
    for name in ("run.started", "run.completed", "run.failed", "tool.called", "tool.completed", "tool.failed")
}
_CUSTOM = EVENTS.labels("custom")
_STATUSES = {name: DECISIONS.labels(name) for name in ("allowed", "blocked", "awaiting_approval")}
_RESOLVED = {name: RESOLUTIONS.labels(name) for name in ("approved", "rejected", "expired", "cancelled")}
_OUTCOMES = {name: DELIVERIES.labels(name) for name in ("delivered", "failed")}
_MESSAGES = {name: NOTICES.labels(name) for name in ("delivered", "failed")}


def recorded(event_types: Iterable[str], statuses: Iterable[str]) -> None:
    """A committed batch: the type of each event, and the status of each call decided for the first time."""
    for event_type, count in Tally(event_types).items():
        _TYPES.get(event_type, _CUSTOM).inc(count)
    for status, count in Tally(statuses).items():
        _STATUSES[status].inc(count)


def answered(seconds: float) -> None:
    """An event was answered this long after its body had been read."""
    EVENT_SECONDS.observe(seconds)


def committed(jobs: int, seconds: float) -> None:
    """A group commit of so many jobs."""
    COMMIT_JOBS.observe(jobs)
    COMMIT_SECONDS.observe(seconds)


def commit_failed() -> None:
    COMMIT_FAILURES.inc()


def resolved(status: str) -> None:
    """An approval ended."""
    _RESOLVED[status].inc()


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


def exposition(
    policies: Mapping[str, Any],
    uptime: float,
    *,
    pending: int | None,
    unreached: int | None,
    unindexed: int | None,
) -> bytes:
    """The text of `GET /metrics`. `policies`: as in `/health`; None: unknown, since the database is away."""
    now = CollectorRegistry()

    def gauge(name: str, help_text: str, value: float) -> None:
        Gauge(f"governance_{name}", help_text, registry=now).set(value)

    gauge("database_up", "1 while the database answers.", 0 if pending is None else 1)
    gauge("uptime_seconds", "Since this process started.", uptime)
    if pending is not None:
        gauge("approvals_pending", "Approvals that wait for a person.", pending)
    if unreached is not None:
        gauge(
            "approvals_unreached",
            "Approvals that wait, and no channel has delivered, and no reviewer opened them.",
            unreached,
        )
    gauge("policies", "Policies in force, of all organisations.", policies.get("count", 0))
    gauge("policy_revision", "The revision of the policy set in force.", policies.get("revision", 0))
    gauge(
        "policies_stale",
        "1 while the policy files do not load and the last good set stays in force.",
        1 if policies.get("stale") else 0,
    )
    if unindexed is not None:
        gauge("policies_unindexed", "Policies that no index narrows: each is tried on every call.", unindexed)
    counted: Any = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        counted = CollectorRegistry()
        multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
    # The gauges come from a registry of their own, which several processes must not add up.
    return _text(counted) + _text(now)


def _text(registry: Any) -> bytes:
    content: bytes = generate_latest(registry)
    return content
