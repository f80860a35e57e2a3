"""Bounded grants, the calls decided by them, and which policies, in which version, asked for an approval."""

from api.database.models import Grant, GrantUse, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [Grant, GrantUse])
    if not any(column.name == "asked_by" for column in db.get_columns("approvals")):
        db.execute_sql("ALTER TABLE approvals ADD COLUMN asked_by TEXT")
