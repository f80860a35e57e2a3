"""What was noticed in the log: alerts, agents, and how far the log was read for them; see `models.py`."""

from __future__ import annotations

from peewee import BigIntegerField, CompositeKey, DoubleField, IntegerField, TextField

from api.database.table import Table


class Alert(Table):
    alert_id = TextField(primary_key=True)
    organisation_id = TextField()
    detector_id = TextField()
    detector_version = IntegerField()
    name = TextField()
    severity = TextField()
    message = TextField(null=True)
    summary = TextField()
    per = TextField()
    subject = TextField()
    agent_id = TextField(null=True)
    run_id = TextField(null=True)
    count = BigIntegerField()
    threshold = BigIntegerField()
    window_seconds = BigIntegerField()
    first_at = TextField()
    last_at = TextField()
    raised_at = TextField()
    evidence = TextField()
    """Audit ids (JSON)."""
    acknowledged_at = TextField(null=True)
    acknowledged_by = TextField(null=True)
    note = TextField(null=True)

    class Meta:
        table_name = "alerts"
        indexes = (
            (("organisation_id", "raised_at", "alert_id"), False),
            (("organisation_id", "agent_id"), False),
            (("last_at",), False),
        )


class Agent(Table):
    """What the log says of an agent, up to where it was read. `facts` is JSON; see `api/alerts/agents.py`."""

    organisation_id = TextField()
    agent_id = TextField()
    first_seen_at = TextField()
    last_seen_at = TextField()
    calls = BigIntegerField()
    facts = TextField()

    class Meta:
        table_name = "agents"
        primary_key = CompositeKey("organisation_id", "agent_id")


class LogPosition(Table):
    """The last record of a chain that was read. Those up to `silent_until` are of before there were
    detectors, and raise no alert."""

    organisation_id = TextField()
    chain = BigIntegerField()
    sequence = BigIntegerField()
    silent_until = BigIntegerField(default=0)

    class Meta:
        table_name = "log_positions"
        primary_key = CompositeKey("organisation_id", "chain")


class LogReader(Table):
    """The one row of whoever reads the log: `version` moves with each step, so of two that read only one
    goes on."""

    reader_no = IntegerField(primary_key=True)
    version = BigIntegerField()
    owner = TextField()
    leased_until = DoubleField()

    class Meta:
        table_name = "log_readers"


class DetectorTally(Table):
    """What a detector has counted of a subject (JSON); of no use after `expires_at`."""

    organisation_id = TextField()
    name = TextField()
    subject = TextField()
    tally = TextField()
    expires_at = DoubleField()

    class Meta:
        table_name = "detector_tallies"
        primary_key = CompositeKey("organisation_id", "name", "subject")
        indexes = ((("expires_at",), False),)
