"""What records of the audit log said that are not kept any more."""

from api.database.models import AuditCarried, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [AuditCarried])
