"""What policies ask of approvals, who has approved so far, and changes that wait for a second admin."""

from api.database.models import HeldChange, make_tables

_COLUMNS = ("terms", "given", "escalated_at", "payload_digest")


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [HeldChange])
    there = {column.name for column in db.get_columns("approvals")}
    for name in _COLUMNS:
        if name not in there:
            db.execute_sql(f"ALTER TABLE approvals ADD COLUMN {name} TEXT")
    db.execute_sql(
        "UPDATE approvals SET payload_digest = (SELECT SUBSTR(c.payload_digest, 1, 64) FROM tool_calls c"
        " WHERE c.call_no = approvals.call_no) WHERE payload_digest IS NULL"
    )
