"""Whether a database is ours, and what one of PostgreSQL lacks: a table, a column, a
schema, or the right to use one.

Such a lack is no fault of the service: somebody emptied the database, put another one in its place, or took
rights away. The driver has it as an error of the statement. INVARIANT: a statement of ours that names what no
model of ours has stays a fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from api.database.errors import DatabaseUnavailable, operator_message
from api.database.models import TABLES

OWN: Final = frozenset({"schema_migration", "counters", "migratehistory"})
"""Tables one of which every database of ours has, of whatever version."""

_UNDEFINED_TABLE: Final = "42P01"
_UNDEFINED_COLUMN: Final = "42703"
_NO_RIGHT: Final = "42501"
_NO_SCHEMA: Final = "3F000"

_TABLES: Final = frozenset(each._meta.table_name for each in TABLES)
_COLUMNS: Final = frozenset(name for each in TABLES for name in each._meta.columns)
_NAME: Final = re.compile(r"\w+")
_COLUMN: Final = re.compile(r'column "?(?:\w+\.)?(\w+)')


def foreign_table(tables: Iterable[str]) -> str | None:
    """The table of another program whose name ours would need. It may have others beside ours."""
    found = set(tables)
    return None if found & OWN else min(found & _TABLES, default=None)


def lacking(error: BaseException, url: str) -> DatabaseUnavailable | None:
    """The error to raise when the database lacks something of ours; else None."""
    what = _lacking(error)
    if what is None:
        return None
    made = DatabaseUnavailable(f"the database {what}")
    made.operator_message = operator_message(made, Exception(f"it {what}"), url)
    return made


def _lacking(error: BaseException) -> str | None:
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    line = str(error).partition("\n")[0]
    if state == _NO_RIGHT:
        return (
            f"refuses the service what it needs ({line}); give the user of the service all rights to its "
            "tables again"
        )
    if state == _NO_SCHEMA:
        return (
            f"has no schema for the tables ({line}); make the one that its `search_path` names, or mend that"
        )
    if state == _UNDEFINED_TABLE:
        name, kind = next((each for each in _NAME.findall(line) if each in _TABLES), None), "table"
    elif state == _UNDEFINED_COLUMN:
        found = _COLUMN.search(line)
        name, kind = found[1] if found and found[1] in _COLUMNS else None, "column"
    else:
        return None
    if name is None:
        return None
    return (
        f"lacks the {kind} `{name}`: it was emptied, or another one was put in its place; restore it, and "
        "start the service again"
    )
