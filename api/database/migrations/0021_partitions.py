"""PostgreSQL divides the events by the time they came in, so that old ones go in one piece.

What is there becomes the first partition as it is, which takes reading it once. It takes in what comes up to
the second midnight from now; by then others are there.
"""

import peewee

BEGIN = (
    "ALTER TABLE events RENAME TO events_first",
    "CREATE TABLE events (LIKE events_first INCLUDING DEFAULTS) PARTITION BY RANGE (received_at)",
    "ALTER SEQUENCE {sequence} OWNED BY events.event_no",
)
ATTACH = "ALTER TABLE events ATTACH PARTITION events_first FOR VALUES FROM (MINVALUE) TO (%s)"
END = (
    "CREATE TABLE events_other PARTITION OF events DEFAULT",
    "ALTER TABLE events_other ADD PRIMARY KEY (event_no)",
)
MIDNIGHT = "to_char({}::date + 2, 'YYYY-MM-DD') || 'T00:00:00.000000Z'"
NEXT = "SELECT " + MIDNIGHT.format("(now() AT TIME ZONE 'UTC')")
BEHIND_ALL = "SELECT " + MIDNIGHT.format("substring(max(received_at) FROM 1 FOR 10)") + " FROM events_first"


def up(migrator, db):  # type: ignore[no-untyped-def]
    if isinstance(db, peewee.SqliteDatabase) or _one(db, "SELECT to_regclass('events_other')"):
        return
    sequence = _one(db, "SELECT pg_get_serial_sequence('events', 'event_no')")
    for statement in BEGIN:
        db.execute_sql(statement.format(sequence=sequence))
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
