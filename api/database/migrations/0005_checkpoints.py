"""Signed checkpoints of the audit log."""

from api.database.models import AuditCheckpoint, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [AuditCheckpoint])
