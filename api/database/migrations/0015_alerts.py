"""Alerts, agents, and how far the log was read for them. What is on record already is read, and raises no
alert."""

from api.database.models import Agent, Alert, DetectorTally, LogPosition, LogReader, make_tables

_BEFORE = (
    "INSERT INTO log_positions (organisation_id, chain, sequence, silent_until)"
    " SELECT organisation_id, chain, 0, MAX(sequence) FROM audit GROUP BY organisation_id, chain"
)
_READER = "INSERT INTO log_readers (reader_no, version, owner, leased_until) VALUES (1, 0, '', 0)"


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [Alert, Agent, LogPosition, LogReader, DetectorTally])
    if not LogReader.select().exists():
        db.execute_sql(_BEFORE)
        db.execute_sql(_READER)
