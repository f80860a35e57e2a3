"""What is known of a run beside its facts: labels, steps, the run that started it, values that it has seen.

On PostgreSQL `flow` has no default, so that a process of an older version, which knows no labels, cannot
begin a run.
"""

from peewee import SqliteDatabase

from api.database.models import RunValue, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [RunValue])
    if any(column.name == "labels" for column in db.get_columns("runs")):
        return
    db.execute_sql("ALTER TABLE runs ADD COLUMN parent_run_id TEXT")
    db.execute_sql("ALTER TABLE runs ADD COLUMN labels TEXT NOT NULL DEFAULT '[]'")
    db.execute_sql("ALTER TABLE runs ADD COLUMN steps TEXT")
    db.execute_sql("ALTER TABLE runs ADD COLUMN flow BIGINT NOT NULL DEFAULT 0")
    if not isinstance(db, SqliteDatabase):
        db.execute_sql("ALTER TABLE runs ALTER COLUMN flow DROP DEFAULT")
