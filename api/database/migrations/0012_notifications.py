"""Channels by which people are told, beside the webhooks, and their secrets; who has seen an approval."""

from api.database.models import NotificationSecret, make_tables

_COLUMNS = (
    ("webhooks", "kind", "TEXT NOT NULL DEFAULT 'webhook'"),
    ("webhooks", "name", "TEXT"),
    ("webhooks", "config", "TEXT"),
    ("webhooks", "quiet_until", "DOUBLE PRECISION NOT NULL DEFAULT 0"),
    ("deliveries", "subject", "TEXT"),
    ("approvals", "seen_at", "TEXT"),
    ("approvals", "seen_by", "TEXT"),
)


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [NotificationSecret])
    for table, name, kind in _COLUMNS:
        if not any(column.name == name for column in db.get_columns(table)):
            db.execute_sql(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    db.execute_sql(
        "CREATE INDEX IF NOT EXISTS deliveries_of_approvals ON deliveries (subject) WHERE subject IS NOT NULL"
    )
