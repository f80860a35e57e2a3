"""Databases on PostgreSQL whose events or audit records are divided otherwise than a new one's."""

from __future__ import annotations

from api.database.connection import Database
from api.database.partitions.catalog import EVENTS, RECORDS, partitions

FIRST, TABLE = EVENTS.first, EVENTS.name


def undivide(store: Database) -> None:
    """Make the table of events what it was before; only the rows of the first partition stay."""
    if store.is_sqlite:
        return
    for statement in (
        f"ALTER SEQUENCE events_event_no_seq OWNED BY {FIRST}.event_no",
        f"ALTER TABLE {TABLE} DETACH PARTITION {FIRST}",
        f"DROP TABLE {TABLE}",
        f"ALTER TABLE {FIRST} RENAME TO {TABLE}",
        "DELETE FROM schema_migration WHERE name = '0021_partitions'",
    ):
        store.rows_changed(statement)


def undivide_records(store: Database) -> None:
    """The same of audit records."""
    if store.is_sqlite:
        return
    for statement in (
        f"ALTER TABLE {RECORDS.name} DETACH PARTITION {RECORDS.first}",
        f"DROP TABLE {RECORDS.name}",
        f"ALTER TABLE {RECORDS.first} RENAME TO {RECORDS.name}",
        "DELETE FROM schema_migration WHERE name = '0023_audit_partitions'",
    ):
        store.rows_changed(statement)


def divide_records_since(store: Database, until: str) -> None:
    """Let the first partition of audit records, which has none, end at another time."""
    first = f"ALTER TABLE {RECORDS.name} {{}} PARTITION {RECORDS.first}"
    store.rows_changed(first.format("DETACH"))
    store.rows_changed(first.format("ATTACH") + f" FOR VALUES FROM (MINVALUE) TO ('{until}')")


def divide_since(store: Database, until: str) -> None:
    """Let the first partition end at another time, and those of days begin there once they are made; those
    that are there already go, with their events."""
    for each in partitions(store):
        if each.name != FIRST:
            store.rows_changed(f'DROP TABLE "{each.name}"')
    store.rows_changed(f"ALTER TABLE {TABLE} DETACH PARTITION {FIRST}")
    store.rows_changed(
        f"ALTER TABLE {TABLE} ATTACH PARTITION {FIRST} FOR VALUES FROM (MINVALUE) TO ('{until}')"
    )


def held(store: Database) -> dict[str, list[str]]:
    """Partition to the ids of its events."""
    found: dict[str, list[str]] = {}
    for name, event_id in store.rows(f"SELECT tableoid::regclass::text, event_id FROM {TABLE} ORDER BY 2"):
        found.setdefault(name, []).append(event_id)
    return found


def loose_ids(store: Database) -> tuple[int, int]:
    """How many ids of neither an event nor a call there are, and how many events without their id."""
    nowhere = (
        f"SELECT COUNT(*) FROM ids WHERE no NOT IN (SELECT event_no FROM {TABLE})"
        " AND no NOT IN (SELECT call_no FROM tool_calls)"
    )
    unknown = (
        f"SELECT COUNT(*) FROM {TABLE} e WHERE NOT EXISTS (SELECT 1 FROM ids WHERE no = e.event_no AND"
        " organisation_id = e.organisation_id AND key = encode(substring(sha256(convert_to('event', 'UTF8')"
        " || '\\x00'::bytea || convert_to(e.organisation_id, 'UTF8') || '\\x00'::bytea"
        " || convert_to(e.event_id, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid)"
    )
    return int(store.rows(nowhere)[0][0]), int(store.rows(unknown)[0][0])
