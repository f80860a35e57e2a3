"""The audit log is made of several chains; what was written before is chain 0.

`chain` has no default on PostgreSQL, so that a process of an older version, which knows one chain, cannot
write. SQLite cannot change a key, and needs not: it has the one chain.
"""

from peewee import SqliteDatabase

from api.database.models import ChainTip, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    if not isinstance(db, SqliteDatabase):
        make_tables(db, [ChainTip])
    if not any(column.name == "chain" for column in db.get_columns("audit")):
        db.execute_sql("ALTER TABLE audit ADD COLUMN chain BIGINT NOT NULL DEFAULT 0")
        if not isinstance(db, SqliteDatabase):
            db.execute_sql("ALTER TABLE audit ALTER COLUMN chain DROP DEFAULT")
            db.execute_sql("ALTER TABLE audit DROP CONSTRAINT audit_pkey")
            db.execute_sql("ALTER TABLE audit ADD PRIMARY KEY (organisation_id, chain, sequence)")
            db.execute_sql(
                "INSERT INTO chains SELECT DISTINCT ON (organisation_id) organisation_id, 0, sequence, hash"
                " FROM audit ORDER BY organisation_id, sequence DESC"
            )
    if not isinstance(db, SqliteDatabase):
        db.execute_sql("CREATE INDEX IF NOT EXISTS audit_at ON audit (organisation_id, at)")
