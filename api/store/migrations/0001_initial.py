"""The first set of tables."""

from api.store.models import TABLES


def up(migrator, db):  # type: ignore[no-untyped-def]
    db.create_tables(TABLES)
