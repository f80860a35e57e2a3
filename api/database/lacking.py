"""Whether a database is ours, and whole; what it lacks - a table, a key, a column, a schema, the right to use
one (PostgreSQL); and what others have added to it that refuses what is written: a trigger, a rule, a column
that must have a value.

Such a thing is no fault of the service: somebody emptied the database, put another one in its place, took
rights away, or changed tables by hand. The driver has it as an error of the statement. INVARIANT: a statement
of ours that names what no model of ours has, or breaks what a model of ours says, stays a fault.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import peewee

from api.database.errors import DatabaseUnavailable, operator_message, said_of, sqlstate
from api.database.models import TABLES

log = logging.getLogger("governance")

OWN: Final = frozenset({"schema_migration", "counters", "migratehistory"})
"""Tables one of which every database of ours has, of whatever version."""

_UNDEFINED_TABLE: Final = "42P01"
_UNDEFINED_COLUMN: Final = "42703"
_NO_RIGHT: Final = "42501"
_OF_ROWS: Final = frozenset({"check_enable_rls", "ExecWithCheckOptions"})
"""Where the server finds that rows are hidden from a user, or not taken, by policies of a table."""
_READ_ONLY: Final = "25006"
_NO_SCHEMA: Final = "3F000"
_NO_KEY: Final = "42P10"
"""No unique index for an `ON CONFLICT`."""
_NOT_SUPPORTED: Final = "0A000"
_PLANNED_BEFORE: Final = "RevalidateCachedQuery"
"""Where the server finds that what a statement was planned by is of another type now."""
_NOT_PREPARED: Final = "26000"

_RAISED: Final = frozenset({"P0001", "SQLITE_CONSTRAINT_TRIGGER"})
"""By a trigger. Those of ours have states of their own."""
_RULE: Final = frozenset({"23514", "SQLITE_CONSTRAINT_CHECK"})
"""No table of ours has one."""
_MISSING: Final = frozenset({"23502", "SQLITE_CONSTRAINT_NOTNULL"})
_NARROW: Final = frozenset({"22001", "22P02", "42804"})
"""Too long for a column, or not of its type; all of ours are as wide as what is written."""
_KEYS_OF_PARTITIONS: Final = {"events": "event_no", "audit": "organisation_id, chain, sequence"}

_UNIQUE: Final = (
    "SELECT t.relname, COALESCE(p.relname, t.relname), array_to_string(ARRAY("
    "SELECT string_agg(a.attname, ' ') FROM pg_index i"
    " JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])"
    " WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid"
    " AND i.indpred IS NULL AND i.indexprs IS NULL"
    " GROUP BY i.indexrelid), ',')"
    " FROM pg_class t JOIN pg_namespace s ON s.oid = t.relnamespace"
    " LEFT JOIN pg_inherits h ON h.inhrelid = t.oid AND t.relispartition"
    " LEFT JOIN pg_class p ON p.oid = h.inhparent"
    " WHERE t.relkind = 'r' AND s.nspname = current_schema() ORDER BY 1"
)
"""Each table, and each partition beside the table that it is of, with the columns of its unique indexes: with
blanks between them, and commas between the indexes."""
_NUMBERED: Final = (("schema_migration", "id"), ("deliveries", "delivery_no"), ("rate_hits", "hit_no"))
"""Tables whose rows are numbered by a sequence of the server; all others are by whoever writes them."""
_COUNT_ON: Final = (
    "SELECT setval(s.name, t.last) FROM"
    " (SELECT pg_get_serial_sequence('{table}', '{column}')::regclass AS name) s,"
    " (SELECT MAX({column}) AS last FROM {table}) t"
    " WHERE t.last > COALESCE(pg_sequence_last_value(s.name), 0)"
)
_GUARD: Final = "SELECT to_regproc('governance_guard') IS NOT NULL"

_TABLES: Final = frozenset(each._meta.table_name for each in TABLES)
_COLUMNS: Final = frozenset(name for each in TABLES for name in each._meta.columns)
_NAME: Final = re.compile(r"\w+")
_COLUMN: Final = re.compile(r'["»«„“]\s?(\w+)\s?["»«“”]|\b\w+\.(\w+)')
"""A name as a message shows it in whatever language (`lc_messages`): in quotes, or behind that of a table."""


def refuse_foreign(database: peewee.PostgresqlDatabase) -> None:
    """A database that cannot be ours: agents' names are in any script, and a table of another program may
    have a name that ours would need. Raises DatabaseUnavailable."""
    encoding = database.execute_sql("SHOW server_encoding").fetchone()[0]
    if encoding != "UTF8":
        raise DatabaseUnavailable(
            f"the PostgreSQL database has the encoding {encoding}, which cannot hold all that agents write; "
            "make another one, with `createdb --encoding UTF8 --template template0 NAME`, and name that"
        )
    found = set(database.get_tables())
    if not found & OWN and (name := min(found & _TABLES, default=None)):
        raise DatabaseUnavailable(
            f"the PostgreSQL database is that of another program, which has a table `{name}` of its own; "
            "name another one"
        )


def tables_of(database: peewee.Database) -> set[str]:
    """What tables are there, in the schema where new ones would be made. Raises DatabaseUnavailable."""
    if isinstance(database, peewee.PostgresqlDatabase):
        refuse_shadowed(database)
    return set(database.get_tables())


def refuse_shadowed(database: peewee.PostgresqlDatabase) -> None:
    """Tables of ours that are found, while new ones would be made in a schema before theirs, such as one that
    is called as the user is: these would be found then, here and by every service that runs, and be empty.
    Raises DatabaseUnavailable."""
    found = database.execute_sql(
        "SELECT n.nspname, current_schema(), current_user FROM unnest(%s::text[]) AS own(name)"
        " JOIN pg_class c ON c.oid = to_regclass(own.name) JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname <> current_schema() ORDER BY 1 LIMIT 1",
        (sorted(OWN),),
    ).fetchone()
    if found is not None:
        theirs, before, user = found
        raise DatabaseUnavailable(
            f"the service's tables are in the schema `{theirs}` of the PostgreSQL database, but `{before}`"
            " stands before it in the `search_path`, so that empty ones would be made there; name the former "
            f'alone, with `ALTER ROLE "{user}" SET search_path = "{theirs}"`'
        )


def refuse_unkeyed(database: peewee.Database) -> None:
    """Tables without what keeps their rows apart: whoever restored them was told so, and went on. The same
    call could be decided twice then. Fewer columns will do: those of `audit` in SQLite are two where it was
    made before there were chains. Raises DatabaseUnavailable."""
    if isinstance(database, peewee.PostgresqlDatabase):
        refuse_unkeyed_server(lambda statement, _: database.execute_sql(statement).fetchall())
        return
    _refuse(
        _lost_key(
            (name, name, [{*database.get_primary_keys(name)}, *_unique(database, name)])
            for name in database.get_tables()
        )
    )


def refuse_unkeyed_server(ask: Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]) -> None:
    """The same of a PostgreSQL database, by whoever asks it."""
    there = ask(_UNIQUE, ())
    lost = _lost_key(
        (name, table, [set(each.split()) for each in keys.split(",")]) for name, table, keys in there
    )
    ((has_guard,),) = ask(_GUARD, ())
    if not (there or has_guard):
        raise DatabaseUnavailable(
            "the PostgreSQL database has no tables where the `search_path` of the service's user leads: that"
            " was changed, the database was emptied, or another one was put in its place; mend that, or"
            " restore it, and the service goes on by itself"
        )
    _refuse(lost or (None if has_guard else "the function `governance_guard`"))


def _lost_key(there: Iterable[tuple[str, str, Iterable[set[str]]]]) -> str | None:
    """Of tables, each with the one that it is a partition of, or itself, and what is unique there."""
    own = {each._meta.table_name: _keys(each) for each in TABLES}
    for name, table, found in there:
        unique = [each for each in found if each]
        for key in own.get(table, ()):
            if not any(each <= set(key) for each in unique):
                return f"the unique index of `{name}` on {', '.join(f'`{each}`' for each in key)}"
    return None


def _unique(database: peewee.Database, table: str) -> Iterator[set[str]]:
    return (set(each.columns) for each in database.get_indexes(table) if each.unique)


def _refuse(lost: str | None) -> None:
    if lost is not None:
        raise DatabaseUnavailable(
            f"the database lacks {lost}, so it was not restored as a whole, or somebody has taken that away; "
            "restore it anew into an empty database, while no service runs, until no error is told"
        )


def count_on(database: peewee.PostgresqlDatabase) -> None:
    """See `count_on_server`; of tables that are there."""
    count_on_server(
        lambda statement, _: database.execute_sql(statement).fetchall(), set(database.get_tables())
    )


def count_on_server(
    ask: Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]], here: Collection[str] = _TABLES
) -> None:
    """Sequences that are behind their tables go on behind them: a logical replica has the rows alone, and so
    has what was restored by tables. Otherwise what is numbered by them fails for as long as they lag."""
    for table, column in _NUMBERED:
        if table in here and (found := ask(_COUNT_ON.format(table=table, column=column), ())):
            log.warning(
                "the sequence of `%s`.`%s` was behind the table, as in a replica or a restore that left "
                "sequences out; it goes on behind %s",
                table,
                column,
                found[0][0],
            )


def _keys(table: type[peewee.Model]) -> list[tuple[str, ...]]:
    """Columns that are unique together."""
    meta = table._meta
    together = [each[0] for each in meta.indexes if isinstance(each, tuple) and each[1]]
    if isinstance(meta.primary_key, peewee.CompositeKey):
        together.append(meta.primary_key.field_names)
    alone = [each.column_name for each in meta.sorted_fields if each.unique or each.primary_key]
    return [
        *((each,) for each in alone),
        *(tuple(meta.fields[each].column_name for each in fields) for fields in together),
    ]


def lacking(error: BaseException, url: str) -> DatabaseUnavailable | None:
    """The error to raise when the database lacks something of ours, or refuses it; else None."""
    what = _lacking(error) or _refusing(error)
    if what is None:
        return None
    made = DatabaseUnavailable(f"the database {what}")
    made.operator_message = operator_message(made, Exception(f"it {what}"), url)
    return made


def _lacking(error: BaseException) -> str | None:
    state = sqlstate(error)
    line = str(error).partition("\n")[0]
    if state == _NO_RIGHT and said_of(error, "source_function") in _OF_ROWS:
        return (
            f"hides rows from the service ({line}); take that from the table, with `ALTER TABLE ... DISABLE"
            " ROW LEVEL SECURITY`, and a service that runs goes on by itself"
        )
    if state == _NO_RIGHT:
        return (
            f"refuses the service what it needs ({line}); give its user all rights to the tables again, or"
            " make it their owner, as `pg_restore --no-owner` by that user does"
        )
    if state == _READ_ONLY:
        return (
            f"takes no writes ({line}): it is a standby, or somebody, such as a provider whose disk is full,"
            " has made it read-only (`default_transaction_read_only`); name the one that takes writes (of"
            " several hosts in the address `target_session_attrs=read-write` finds it), or let this one take"
            " them, and a service that runs goes on by itself"
        )
    if state == _NO_SCHEMA:
        return (
            f"has no schema for the tables ({line}); make the one that its `search_path` names, or mend that"
        )
    if state == _NO_KEY:
        return (
            f"lacks a unique index ({line}): it was not restored as a whole, or somebody has taken that "
            "away; start the service again, which says which one it is"
        )
    if state == _NOT_SUPPORTED and said_of(error, "source_function") == _PLANNED_BEFORE:
        return (
            f"was changed under the service ({line}): somebody gave a column another type; on a new "
            "connection, which is made now, the service goes on"
        )
    if state == _NOT_PREPARED:
        return (
            f"forgets what a session has prepared ({line}): a pooler before it, which was set otherwise while"
            " the service runs, gives sessions to others after each transaction; let it keep a session's"
            " connection (PgBouncer: `pool_mode = session`), and the service goes on by itself"
        )
    if state == _UNDEFINED_TABLE:
        name, kind = next((each for each in _NAME.findall(line) if each in _TABLES), None), "table"
    elif state == _UNDEFINED_COLUMN:
        found = _column(line)
        name, kind = found if found in _COLUMNS else None, "column"
    else:
        return None
    if name is None:
        return None
    return (
        f"lacks the {kind} `{name}`: it was emptied, or another one was put in its place; restore it, and "
        "start the service again"
    )


def _column(line: str) -> str:
    """The column that a message names; some languages name its table before it."""
    names = (quoted or behind for quoted, behind in _COLUMN.findall(line))
    return next((each for each in names if each in _COLUMNS or each not in _TABLES), "")


def _refusing(error: BaseException) -> str | None:
    origin = getattr(error, "orig", error)
    state = getattr(origin, "sqlstate", None) or getattr(origin, "sqlite_errorname", None)
    line = str(error).partition("\n")[0]
    name = said_of(error, "table_name")
    if state in _RULE and not said_of(error, "constraint_name") and (key := _KEYS_OF_PARTITIONS.get(name)):
        return (
            f"lacks the part of `{name}` for what comes now: somebody has dropped it; make another one, with "
            f"`CREATE TABLE {name}_other PARTITION OF {name} DEFAULT; "
            f"CREATE UNIQUE INDEX ON {name}_other ({key})`, and the service goes on by itself"
        )
    if state in _NARROW:
        return (
            f"refuses what is written ({line}): somebody gave a column another type; give it back its own, "
            "and the service goes on by itself"
        )
    if state in _MISSING:
        found = said_of(error, "column_name") or _column(line)
        if not found or found in _COLUMNS:
            return None
    elif state not in _RAISED | _RULE:
        return None
    return (
        f"refuses what is written ({line}): somebody has added a trigger, a rule or a column to its tables; "
        "take that away, and the service goes on by itself"
    )
