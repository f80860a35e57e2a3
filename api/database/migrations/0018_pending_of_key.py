"""Pending approvals are counted by API key, so that no agent has more of them than may be."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    if not any(column.name == "key_id" for column in db.get_columns("approvals")):
        db.execute_sql("ALTER TABLE approvals ADD COLUMN key_id TEXT")
        db.execute_sql(
            "UPDATE approvals SET key_id = (SELECT key_id FROM runs WHERE runs.run_no = approvals.run_no)"
            " WHERE status = 'pending'"
        )
    db.execute_sql(
        "CREATE INDEX IF NOT EXISTS approvals_pending_of_key ON approvals (key_id) WHERE status = 'pending'"
    )
