"""An answer that follows from its call's row is not kept a second time, and approvals enter two indexes less.

A column gets another name, so that a process of an older version, which would send what is not kept, cannot
read it.
"""

from api.database.models import Approval


def up(migrator, db):  # type: ignore[no-untyped-def]
    if any(column.name == "receipt" for column in db.get_columns("events")):
        return
    db.execute_sql("ALTER TABLE events RENAME COLUMN answer TO receipt")
    for index in db.get_indexes("approvals"):
        if index.columns in (["organisation_id", "requested_at"], ["expires_at"]):
            db.execute_sql(f'DROP INDEX "{index.name}"')
    Approval.create_table()  # which is there; its indexes are made
