"""The tables of lanes, as peewee models; the others are in `api/database/models.py`."""

from __future__ import annotations

from peewee import BigIntegerField, CompositeKey, DoubleField, TextField, UUIDField

from api.database.table import Table


class Id(Table):
    """Where an event or a call is, by its id; see `api/database/lanes/keys.py`."""

    organisation_id = TextField()
    key = UUIDField()
    no = BigIntegerField()

    class Meta:
        table_name = "ids"
        primary_key = CompositeKey("organisation_id", "key")


class LaneRow(Table):
    """The lanes, on PostgreSQL; see `api/database/lanes/lease.py`."""

    lane_no = BigIntegerField(primary_key=True)
    epoch = BigIntegerField()
    version = BigIntegerField()
    next_no = BigIntegerField()
    owner = TextField()
    expires_at = DoubleField()

    class Meta:
        table_name = "lanes"
