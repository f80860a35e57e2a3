"""On PostgreSQL several connections write side by side: lanes, and ids that are unique by an index."""

from peewee import SqliteDatabase

from api.database.models import Id, LaneRow, make_tables

GUARD = """
CREATE OR REPLACE FUNCTION governance_guard(holds boolean, state text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF holds THEN RETURN true; END IF;
    RAISE EXCEPTION 'a guard does not hold' USING ERRCODE = state;
END $$
"""
KEY = "encode(substring(sha256({}) FROM 1 FOR 16), 'hex')::uuid"


def up(migrator, db):  # type: ignore[no-untyped-def]
    if isinstance(db, SqliteDatabase):
        return
    make_tables(db, [Id, LaneRow])
    db.execute_sql("ALTER TABLE lanes SET (fillfactor = 20)")
    db.execute_sql(GUARD)
    db.execute_sql("CREATE INDEX IF NOT EXISTS tool_calls_run_no ON tool_calls (run_no)")
    if "directory" in db.get_tables():
        event = _key("'event'", "e.organisation_id", "e.event_id")
        call = _key("'call'", "c.organisation_id", "r.run_id", "c.tool_call_id")
        into = "INSERT INTO ids (organisation_id, key, no)"
        db.execute_sql(f"{into} SELECT e.organisation_id, {event}, e.event_no FROM events e")
        db.execute_sql(
            f"{into} SELECT c.organisation_id, {call}, c.call_no FROM tool_calls c"
            " JOIN runs r ON r.run_no = c.run_no"
        )
        db.execute_sql("DROP TABLE directory")


def _key(*parts):  # type: ignore[no-untyped-def]
    """What `lanes/keys.py` computes."""
    return KEY.format(r" || '\x00'::bytea || ".join(f"convert_to({part}, 'UTF8')" for part in parts))
