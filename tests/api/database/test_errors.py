"""Drivers' errors in our words."""

from __future__ import annotations

import sqlite3

import peewee

from api.database.errors import translated


def test_a_failed_write_is_told_with_what_sqlite_calls_it() -> None:
    """It says which of reading, writing and flushing has failed."""
    first = sqlite3.OperationalError("disk I/O error")
    first.sqlite_errorname = "SQLITE_IOERR_WRITE"
    for error in (first, peewee.OperationalError(first, *first.args)):
        told = translated(error, "sqlite:///g.sqlite").operator_message
        assert "cannot be used: disk I/O error (SQLITE_IOERR_WRITE)" in told
