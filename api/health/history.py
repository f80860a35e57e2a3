"""The last hour of every node that serves the database, in points of some seconds: rates, latency and queues.

Kept in memory: each node has its own points, and what the others tell of theirs (`heartbeat.py`), so that any
of them answers for all. What was before the start of a node is known to those that ran then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from api.clock import iso
from api.metrics import LATENCY_BOUNDS, Totals

EVERY_SECONDS: Final = 15
KEPT: Final = 3600 // EVERY_SECONDS
"""Points of one node."""
TOLD: Final = 4
"""Points that a node tells the others each time, so that one it was late with is not missed."""


class Point(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Some seconds of one node. What the database holds for all of them is counted by each of them."""

    slot: int
    """Its end, as a number of such spans since the epoch."""
    allowed: int
    blocked: int
    awaiting_approval: int
    events: int
    """All that were recorded, calls included."""
    latency: tuple[int, ...]
    """Events answered, by the bucket of `LATENCY_BOUNDS`."""
    writer: int
    """Jobs and events that wait to be written."""
    webhooks: int
    notifications: int
    approvals: int


def slot_of(now: float) -> int:
    """The span that has ended just now."""
    return round(now / EVERY_SECONDS)


def point_of(
    slot: int, before: Totals, after: Totals, writer: int, webhooks: int, notifications: int, approvals: int
) -> Point:
    """What was counted between two looks, and what waits."""
    decided = {name: count - before.decisions.get(name, 0) for name, count in after.decisions.items()}
    return Point(
        slot=slot,
        allowed=decided["allowed"],
        blocked=decided["blocked"],
        awaiting_approval=decided["awaiting_approval"],
        events=after.events - before.events,
        latency=tuple(new - old for new, old in zip(after.latency, before.latency, strict=True)),
        writer=writer,
        webhooks=webhooks,
        notifications=notifications,
        approvals=approvals,
    )


class History:
    """Used on the event loop."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, Point]] = {}

    def add(self, node_id: str, points: Iterable[Point], now: int) -> None:
        """What a node has told, of another version perhaps. `now`: the newest span of this node, whatever
        clocks others have."""
        for point in points:
            if now - KEPT < point.slot <= now + 1 and len(point.latency) == len(LATENCY_BOUNDS) + 1:
                self._slots.setdefault(point.slot, {})[node_id] = point
        for slot in [slot for slot in self._slots if slot <= now - KEPT]:
            del self._slots[slot]

    def newest(self, node_id: str) -> list[Point]:
        """What a node tells the others, oldest first."""
        own = [points[node_id] for _, points in sorted(self._slots.items()) if node_id in points]
        return own[-TOLD:]

    def told(self) -> list[dict[str, Any]]:
        """All nodes together, oldest first; spans that nobody tells of are left out."""
        return [_together(slot, points) for slot, points in sorted(self._slots.items())]


def _together(slot: int, points: Mapping[str, Point]) -> dict[str, Any]:
    each = points.values()
    latency = [sum(counts) for counts in zip(*(point.latency for point in each), strict=True)]

    def rate(name: str) -> float:
        count: int = sum(getattr(point, name) for point in each)
        return round(count / EVERY_SECONDS, 3)

    return {
        "at": iso(slot * EVERY_SECONDS),
        "nodes": len(points),
        "eventsPerSecond": rate("events"),
        "allowedPerSecond": rate("allowed"),
        "blockedPerSecond": rate("blocked"),
        "heldPerSecond": rate("awaiting_approval"),
        "p50Ms": quantile(0.5, latency),
        "p99Ms": quantile(0.99, latency),
        "writer": sum(point.writer for point in each),
        "webhooks": max(point.webhooks for point in each),
        "notifications": max(point.notifications for point in each),
        "approvals": max(point.approvals for point in each),
    }


def quantile(share: float, counts: list[int]) -> float | None:
    """Milliseconds within which this share was answered, evenly spread in its bucket; None: nothing was.

    Beyond the last bound it is that bound: nobody knows how much longer it was.
    """
    rank = share * sum(counts)
    if not rank:
        return None
    below, lower = 0, 0.0
    for upper, count in zip(LATENCY_BOUNDS, counts, strict=False):
        if below + count >= rank:
            return round((lower + (upper - lower) * (rank - below) / count) * 1000, 3)
        below, lower = below + count, upper
    return LATENCY_BOUNDS[-1] * 1000
