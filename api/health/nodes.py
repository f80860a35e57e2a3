"""Nodes: the processes that serve the database, each with a row that it writes itself.

Record: `{nodeId, host, processId, version, policyRevision, policyDigest, stale, startedAt, seenAt}`. Times
are by the clock of the node that wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.clock import APART_SECONDS, iso
from api.database.connection import Database
from api.database.models import Node
from api.database.transaction import Transaction
from api.health.history import EVERY_SECONDS

KEPT_SECONDS: Final = 3600
"""So long a node that was killed is shown as one that is silent."""

SILENT_SECONDS: Final = 4 * EVERY_SECONDS
"""A node that has told nothing for so long is down, or cannot write."""

_COLUMNS: Final = {
    "nodeId": "node_id",
    "host": "host",
    "processId": "process_id",
    "version": "version",
    "policyRevision": "policy_revision",
    "policyDigest": "policy_digest",
    "stale": "stale",
    "startedAt": "started_at",
    "seenAt": "seen_at",
}
"""Member of a record -> column."""


def tell(transaction: Transaction, node: Mapping[str, Any], points: str) -> dict[str, str]:
    """Write a node's own row, and forget those that have long been silent. Gives the points of the others."""
    pull_back(transaction.store, transaction.now)
    values = {column: node[name] for name, column in _COLUMNS.items()} | {"points": points}
    others = [column for column in values if column != "node_id"]
    Node.insert(values).on_conflict(conflict_target=["node_id"], preserve=others).execute()
    forgotten = iso(transaction.now - KEPT_SECONDS)
    transaction.store.rows_changed("DELETE FROM nodes WHERE seen_at < ?", (forgotten,))
    return {row.node_id: row.points for row in Node.select().where(Node.node_id != node["nodeId"])}


def pull_back(store: Database, now: float) -> None:
    """Part of a transaction: who was seen at a time that is still to come, by a clock that was ahead, counts
    as seen now. Else a node that died then would be thought to run until that time."""
    ahead = iso(now + APART_SECONDS)
    store.rows_changed("UPDATE nodes SET seen_at = ? WHERE seen_at > ?", (iso(now), ahead))


def leave(transaction: Transaction, node_id: str) -> None:
    """The node stops."""
    transaction.store.rows_changed("DELETE FROM nodes WHERE node_id = ?", (node_id,))


def list_nodes() -> list[dict[str, Any]]:
    """By host and start."""
    rows = Node.select().order_by(Node.host, Node.started_at, Node.node_id)
    return [{name: getattr(row, column) for name, column in _COLUMNS.items()} for row in rows]


def running(now: float) -> dict[str, Any] | None:
    """A node that serves the database, or did so a moment ago."""
    heard = iso(now - SILENT_SECONDS)
    return next((node for node in list_nodes() if node["seenAt"] >= heard), None)
