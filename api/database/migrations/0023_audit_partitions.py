"""PostgreSQL divides the audit log by time, as it does the events (0021).

What is there becomes the first partition as it is, which takes reading it once. It takes in what is written
up to the second midnight from now; by then others are there.
"""

import peewee

BEGIN = (
    "ALTER TABLE audit RENAME TO audit_first",
    "CREATE TABLE audit (LIKE audit_first INCLUDING DEFAULTS) PARTITION BY RANGE (at)",
)
ATTACH = "ALTER TABLE audit ATTACH PARTITION audit_first FOR VALUES FROM (MINVALUE) TO (%s)"
END = (
    "CREATE TABLE audit_other PARTITION OF audit DEFAULT",
    "ALTER TABLE audit_other ADD PRIMARY KEY (organisation_id, chain, sequence)",
    "CREATE INDEX audit_other_at ON audit_other (organisation_id, at)",
)
MIDNIGHT = "to_char({}::date + 2, 'YYYY-MM-DD') || 'T00:00:00.000000Z'"
NEXT = "SELECT " + MIDNIGHT.format("(now() AT TIME ZONE 'UTC')")
BEHIND_ALL = "SELECT " + MIDNIGHT.format("substring(max(at) FROM 1 FOR 10)") + " FROM audit_first"


def up(migrator, db):  # type: ignore[no-untyped-def]
    if isinstance(db, peewee.SqliteDatabase) or _one(db, "SELECT to_regclass('audit_other')"):
        return
    for statement in BEGIN:
        db.execute_sql(statement)
    try:
        with db.atomic():
            _attach(db, _one(db, NEXT))
    except peewee.IntegrityError:  # the clock was ahead once
        _attach(db, _one(db, BEHIND_ALL))
    for statement in END:
        db.execute_sql(statement)


def _attach(db, until):  # type: ignore[no-untyped-def]
    db.execute_sql(ATTACH.replace("%s", f"'{until}'"))


def _one(db, statement):  # type: ignore[no-untyped-def]
    return db.execute_sql(statement).fetchone()[0]
