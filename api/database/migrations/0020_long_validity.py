"""PostgreSQL keeps the second from which a person's tokens count beyond the year 2038."""

from peewee import SqliteDatabase


def up(migrator, db):  # type: ignore[no-untyped-def]
    if not isinstance(db, SqliteDatabase):
        db.execute_sql("ALTER TABLE users ALTER COLUMN tokens_valid_from TYPE BIGINT")
