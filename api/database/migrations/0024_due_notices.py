"""Notices of approvals are found before all others that are due, however many those are."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    db.execute_sql(
        "CREATE INDEX IF NOT EXISTS deliveries_due_of_approvals ON deliveries (status, webhook_id,"
        " next_attempt_at) WHERE subject IS NOT NULL"
    )
