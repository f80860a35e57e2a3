"""Indexes every event pays for: calls are found by a hash of their id, and nothing is found by `audit_id`."""

from api.database.id_index import hash64
from api.database.models import CallTable

MOST_AT_ONCE = 10_000


def up(migrator, db):  # type: ignore[no-untyped-def]
    _drop_index(db, "audit", ["audit_id"])
    if any(column.name == "call_hash" for column in db.get_columns("tool_calls")):
        return
    db.execute_sql("ALTER TABLE tool_calls ADD COLUMN call_hash BIGINT NOT NULL DEFAULT 0")
    last = 0
    while rows := _following(last):
        for call_no, tool_call_id in rows:
            CallTable.update(call_hash=hash64("", tool_call_id)).where(CallTable.call_no == call_no).execute()
        last = rows[-1][0]
    _drop_index(db, "tool_calls", ["run_no", "tool_call_id"])
    db.execute_sql(
        'CREATE UNIQUE INDEX "tool_calls_run_no_call_hash" ON "tool_calls" ("run_no", "call_hash")'
    )


def _drop_index(db, table, columns):  # type: ignore[no-untyped-def]
    for index in db.get_indexes(table):
        if index.columns == columns:
            db.execute_sql(f'DROP INDEX "{index.name}"')


def _following(last):  # type: ignore[no-untyped-def]
    query = CallTable.select(CallTable.call_no, CallTable.tool_call_id).where(CallTable.call_no > last)
    return list(query.order_by(CallTable.call_no).limit(MOST_AT_ONCE).tuples())
