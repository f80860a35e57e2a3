"""Clients of databases run commands, and end statements, by words of their own.

Each line was given to psql 15 or sqlite3, with a program `zap` that writes down how it is called, and a table
`users` that was gone afterwards.
"""

from __future__ import annotations

import pytest

from engine.shell.reader import read
from tests.engine.derived.declared import shown

RUN = [
    "psql -c \"\\copy users from program 'zap a b'\"",
    "psql <<< \"\\copy users from program 'zap a b'\"",
    r"psql <<< '\set x `zap a b`'",
    r"psql -c '\echo `zap a b`'",
    "sqlite3 x.db '.import \"|zap a b\" t'",
    "sqlite3 x.db '.read \"|zap a b\"'",
    "sqlite3 x.db '.o |zap a b' 'select 1'",
]
DROPPED = [
    r"psql <<< 'drop table users \g'",
    r"psql <<< 'drop table users \gx'",
    r"psql <<< 'drop table users \g /tmp/o'",
    r"psql <<< 'drop table users \; select 1;'",
    r"psql <<< 'select 1 \; drop table users;'",
]


@pytest.mark.parametrize("line", RUN)
def test_it_is_called(line: str) -> None:
    assert any(each.startswith("zap a b") for each in read([line])), read([line])


@pytest.mark.parametrize("line", DROPPED)
def test_it_is_dropped(line: str) -> None:
    found = shown("bash", {"command": line}, "sql")
    assert ("drop", ["users"]) in [(each["verb"], each["tables"]) for each in found]
