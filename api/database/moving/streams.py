"""What a copy from SQLite to PostgreSQL is made of: streams of rows, one for each table of the models.

A new table is copied as soon as it has a model. What only SQLite needs stays behind; the ids, which only
PostgreSQL has, are made from the events and calls. Reading and writing is the business of the modules beside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from api.database.lanes import keys
from api.database.models import OF_LANES, OF_SQLITE, TABLES, CallTable, Event, Id, Run
from api.database.table import Table

Row = tuple[Any, ...]


class CopyError(Exception):
    """The copy is refused or has stopped; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows of the source in the order of a number that grows, as rows of one table of the target."""

    name: str
    table: str
    columns: Sequence[str]
    number: str
    """Of a row of the source; unique."""
    read: Sequence[str]
    """What is read of a row."""
    source: str
    """Where from, as SQL."""
    made: Callable[[Row], Row] = field(repr=False)
    """A row of the target from what was read."""

    @property
    def rows_after(self) -> str:
        """The statement: rows behind a number, each with its number before it."""
        read = ", ".join([self.number, *self.read])
        return f"SELECT {read} FROM {self.source} WHERE {self.number} > ? ORDER BY {self.number}"

    @property
    def count(self) -> str:
        return f"SELECT COUNT(*) FROM {self.source}"


def _binary(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _truth(value: Any) -> Any:
    return None if value is None else bool(value)


_MENDED: Final[dict[str, Callable[[Any], Any]]] = {"BLOB": _binary, "BOOL": _truth}
"""Kinds of columns that SQLite does not tell apart from others."""


def _of_table(table: type[Table]) -> Stream:
    name = table._meta.table_name
    fields = table._meta.sorted_fields
    columns = [each.column_name for each in fields]
    mended = [(place, _MENDED[f.field_type]) for place, f in enumerate(fields) if f.field_type in _MENDED]

    def made(row: Row) -> Row:
        values = list(row)
        for place, mend in mended:
            values[place] = mend(values[place])
        return tuple(values)

    return Stream(name, name, columns, "rowid", [f'"{each}"' for each in columns], f'"{name}"', made)


def _ids() -> list[Stream]:
    events, calls, runs, ids = (each._meta.table_name for each in (Event, CallTable, Run, Id))
    return [
        Stream(
            "ids of events",
            ids,
            keys.COLUMNS,
            "event_no",
            ["organisation_id", "event_id", "event_no"],
            events,
            lambda row: (row[0], keys.event_key(row[0], row[1]), row[2]),
        ),
        Stream(
            "ids of calls",
            ids,
            keys.COLUMNS,
            "c.call_no",
            ["c.organisation_id", "r.run_id", "c.tool_call_id", "c.call_no"],
            # CROSS JOIN: SQLite reads the calls in their order, and looks for the run of each.
            f"{calls} c CROSS JOIN {runs} r ON r.run_no = c.run_no",
            lambda row: (row[0], keys.call_key(row[0], row[1], row[2]), row[3]),
        ),
    ]


STREAMS: Final = (
    *(_of_table(each) for each in TABLES if each not in OF_LANES + OF_SQLITE),
    *_ids(),
)
