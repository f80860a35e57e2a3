"""The rows that events leave are those of the tables: every column is there, with its type."""

from __future__ import annotations

import typing

import pytest

from api.database.models import TABLES
from api.ingestion import rows
from api.ingestion.rows import ROWS, TableRow

TYPES = {"TEXT": str, "BIGINT": int, "BIGAUTO": int, "BLOB": bytes, "DOUBLE": float}
OMITTED = {"rate_hits": {"hit_no"}, "tool_calls": {"completion", "output"}}
"""Given by the database, or written later."""
FIRST_NULL = {
    "approvals": {
        *("resolved_at", "resolved_by", "actor", "decision_reason", "seen_at", "seen_by"),
        *("given", "escalated_at"),
    },
}
NEW_ROWS_HAVE = {"about", "asked_by", "key_id", "payload_digest"}
"""Null in rows of before only."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.table)
def test_a_row_has_the_columns_of_its_table(row: type[TableRow]) -> None:
    fields = next(each for each in TABLES if each._meta.table_name == row.table)._meta.columns
    left_out = OMITTED.get(row.table, set()) | FIRST_NULL.get(row.table, set())
    assert [name for name in fields if name not in left_out] == list(row.__struct_fields__)
    hints = typing.get_type_hints(row, vars(rows))
    for name in row.__struct_fields__:
        kind = TYPES[fields[name].field_type]
        may_be_null = fields[name].null and name not in NEW_ROWS_HAVE
        assert hints[name] == (kind | None if may_be_null else kind), name
    assert all(fields[name].null or name == "hit_no" for name in left_out)
