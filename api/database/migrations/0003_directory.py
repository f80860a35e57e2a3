"""Events and calls are found by the directory instead of an index that each of them enters at once.

A column gets another name, so that a process of an older version, which relies on the index, cannot write.
"""

from api.database.models import Directory, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    if any(column.name == "id_hash" for column in db.get_columns("events")):
        return
    make_tables(db, [Directory])
    db.execute_sql("ALTER TABLE events RENAME COLUMN event_hash TO id_hash")
    into = "INSERT INTO directory (owner, hash, no)"
    db.execute_sql(f"{into} SELECT 0, id_hash, event_no FROM events ORDER BY id_hash")
    db.execute_sql(f"{into} SELECT run_no, call_hash, call_no FROM tool_calls ORDER BY run_no, call_hash")
    for table, column in (("events", "id_hash"), ("tool_calls", "call_hash"), ("approvals", "run_no")):
        for index in db.get_indexes(table):
            if column in index.columns:
                db.execute_sql(f'DROP INDEX "{index.name}"')
    for name in ("directory.filed", "directory.sealed"):
        db.execute_sql(
            f"INSERT INTO counters (name, value) SELECT '{name}', COALESCE(MAX(event_no), 0) FROM events"
        )
