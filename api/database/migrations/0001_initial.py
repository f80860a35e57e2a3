"""The tables.

A new database gets them as `models.py` says now. A later migration brings an older database to the same place
and therefore looks first whether there is anything to do: on a new one there is not.
"""

from api.database.models import make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db)
