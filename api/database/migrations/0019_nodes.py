"""Which processes serve the database, and what the last seconds of each were like."""

from api.database.models import Node, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    # Nobody wrote the table of before.
    db.execute_sql("DROP TABLE IF EXISTS nodes")
    make_tables(db, [Node])
