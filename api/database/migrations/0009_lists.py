"""PostgreSQL lists runs by when they began: the numbers of several lanes are in no order of time."""

from peewee import SqliteDatabase


def up(migrator, db):  # type: ignore[no-untyped-def]
    if not isinstance(db, SqliteDatabase):
        db.execute_sql(
            "CREATE INDEX IF NOT EXISTS runs_by_time ON runs (organisation_id, started_at, run_no)"
        )
