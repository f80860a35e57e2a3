"""The key that secrets in the database are encrypted with; those that are there already are, at the start."""

from api.database.models import DataKey, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [DataKey])
