"""The text of `GET /metrics`: what was counted, and gauges of how things are at this moment.

Decides names and words of the gauges. Knows nothing of HTTP, nor of how the database is asked.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from platform import python_version
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily

from api import metrics
from api.version import REVISION, VERSION
from engine.model import SEVERITIES

log = logging.getLogger("governance")

_unread: set[str] = set()
"""The folder of the workers' files, once it was said that it cannot be read."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits: how many, and for how many seconds the oldest."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What the database says now, of all organisations."""

    kind: str
    """Of the database."""
    pending: Waiting
    """Approvals."""
    unreached: int
    webhooks: Waiting
    webhooks_off: int
    """By the service itself."""
    notices: Waiting
    halts: Mapping[str, int]
    """In force, by their scope."""
    alerts: Mapping[str, int]
    """That nobody has acknowledged, by severity."""


NOTHING_STORED = DatabaseState(
    "sqlite", Waiting(0, 0), 0, Waiting(0, 0), 0, Waiting(0, 0), {"all": 0}, dict.fromkeys(SEVERITIES, 0)
)


class _Now:
    """The gauges of one answer, which are of no process: neither added up nor kept for the next."""

    def __init__(self) -> None:
        self._families: list[GaugeMetricFamily] = []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families

    def gauge(self, name: str, help_text: str, value: float, **labels: str) -> None:
        made = GaugeMetricFamily(f"governance_{name}", help_text, labels=list(labels))
        made.add_metric(list(labels.values()), value)
        self._families.append(made)

    def by_label(self, name: str, help_text: str, label: str, values: Mapping[str, float]) -> None:
        made = GaugeMetricFamily(f"governance_{name}", help_text, labels=[label])
        for each, value in values.items():
            made.add_metric([each], value)
        self._families.append(made)

    def backlog(self, name: str, what: str, found: Waiting) -> None:
        self.gauge(name, f"{what}.", found.count)
        self.gauge(
            f"{name}_oldest_seconds", f"For how long the oldest waits of: {what}; 0: none.", found.seconds
        )


def exposition(
    policies: Mapping[str, Any], uptime: float, stored: DatabaseState | None, *, unindexed: int | None
) -> bytes:
    """The text of `GET /metrics`. `policies`: as in `/health`; None: unknown, since the database is away."""
    metrics.catch_up()
    now = _Now()
    now.gauge(
        "build_info", "1; what is running.", 1, version=VERSION, revision=REVISION, python=python_version()
    )
    now.gauge("database_up", "1 while the database answers.", 0 if stored is None else 1)
    now.gauge("uptime_seconds", "Since this process started.", uptime)
    if stored is not None:
        now.gauge("database_info", "1; which database it is.", 1, kind=stored.kind)
        now.backlog("approvals_pending", "Approvals that wait for a person", stored.pending)
        now.gauge(
            "approvals_unreached",
            "Approvals that wait, and no channel has delivered, and no reviewer opened them.",
            stored.unreached,
        )
        now.backlog("webhook_deliveries_pending", "Deliveries that webhooks wait for", stored.webhooks)
        now.gauge(
            "webhooks_off",
            "Webhooks that the service has switched off, since the receiver is gone or failed for days, or "
            "the secret was lost.",
            stored.webhooks_off,
        )
        now.backlog("notifications_pending", "Messages that channels wait for", stored.notices)
        now.by_label("halts", "Halts in force, by scope.", "scope", stored.halts)
        now.by_label(
            "alerts_open", "Alerts that nobody has acknowledged, by severity.", "severity", stored.alerts
        )
    now.gauge("policies", "Policies in force, of all organisations.", policies.get("count", 0))
    now.gauge("policy_revision", "The revision of the policy set in force.", policies.get("revision", 0))
    now.gauge(
        "policies_stale",
        "1 while the policy files do not load and the last good set stays in force.",
        1 if policies.get("stale") else 0,
    )
    if unindexed is not None:
        now.gauge(
            "policies_unindexed", "Policies that no index narrows: each is tried on every call.", unindexed
        )
    return _counted() + _text(now)


def _counted() -> bytes:
    """Of all worker processes where they share a folder, as far as its files are there and whole."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is not None:
        try:
            if not Path(folder, f"counter_{os.getpid()}.db").exists():
                raise FileNotFoundError(errno.ENOENT, "they were removed, or the disk was full")
            all_of_them = CollectorRegistry()
            multiprocess.MultiProcessCollector(all_of_them)  # type: ignore[no-untyped-call]
            text = _text(all_of_them)
        except Exception as error:  # whatever the library makes of a damaged file
            _say_unread(folder, error)
        else:
            _unread.discard(folder)
            return text
    return _text(metrics.REGISTRY)


def _say_unread(folder: str, error: Exception) -> None:
    """Once, until it can be read again."""
    if folder in _unread:
        return
    _unread.add(folder)
    log.warning(
        "`/metrics` tells only what the process that answers has counted: the files in `%s`, "
        "PROMETHEUS_MULTIPROC_DIR, cannot be read (%s); stop the service, empty that folder, see that "
        "nobody tidies it away, and start again",
        folder,
        (isinstance(error, OSError) and error.strerror) or error,
    )


def _text(registry: Any) -> bytes:
    content: bytes = generate_latest(registry)
    return content
