"""The processes that serve the database; see `models.py` for what holds of all tables."""

from __future__ import annotations

from peewee import BigIntegerField, BooleanField, TextField

from api.database.table import Table


class Node(Table):
    """One process. It writes its row every few seconds, and takes it away when it stops."""

    node_id = TextField(primary_key=True)
    """Made at its start."""
    host = TextField()
    process_id = BigIntegerField()
    version = TextField()
    policy_revision = BigIntegerField()
    policy_digest = TextField()
    stale = BooleanField()
    """Its policy files do not load."""
    started_at = TextField()
    seen_at = TextField()
    points = TextField()
    """What its last seconds were like, for the others (JSON); see `api/health/history.py`."""

    class Meta:
        table_name = "nodes"
