"""Statements that the parser refuses and a database runs all the same are told by their words.

Each text was given to the database that is named, whose table `users` was empty or gone afterwards.
"""

from __future__ import annotations

import time

import pytest

from tests.engine.derived.declared import shown

SQLITE = [
    "DROP TABLE users /* x",
    "DROP TABLE users/*",
    "SELECT 1; DROP TABLE users /* '",
    "DROP TABLE IF EXISTS main.users /* [",
    "DROP TABLE users; SELECT x'zz'",
    "DROP TABLE users; SELECT E'a\\",
    "DROP TABLE users; {# x",
    "SELECT 1 AS [']; DROP TABLE users --]",
    "SELECT 1 AS [']; DROP TABLE users; SELECT 1 AS [']",
    'SELECT 1 AS ["]; DROP TABLE users; SELECT 1 AS ["]',
    "SELECT 1 AS [/*]; DROP TABLE users; SELECT 1 AS [*/]",
    "SELECT 1 AS [']; DROP TABLE users /*",
    "SAVEPOINT [']; DROP TABLE users",
]
EMPTIED = [
    "DELETE FROM users /* all",
    "DELETE FROM users AS [']",
    "DELETE FROM users RETURNING 1 rollback",
    "UPDATE users AS \xa0 SET name = NULL",
    "DELETE FROM users drop",
    "DELETE FROM ONLY public.users values",
    "DELETE FROM users alter WHERE true",
    "UPDATE users lock SET name = NULL",
    "WITH x AS (DELETE FROM users revoke RETURNING 1) SELECT 1",
    "DELETE FROM users RETURNING 1 between",
]


@pytest.mark.parametrize("text", SQLITE)
def test_what_is_dropped(text: str) -> None:
    found = shown("sql", {"query": text}, "sql")
    assert any(each["verb"] == "drop" and "users" in each["tables"][0] for each in found if each["tables"])
    assert "table" in [each["object"] for each in found if each["verb"] == "drop"]


@pytest.mark.parametrize("text", EMPTIED)
def test_what_is_emptied(text: str) -> None:
    found = shown("sql", {"query": text}, "sql")
    assert any(
        each["verb"] in ("delete", "update") and "users" in each["tables"][0] and not each["where"]
        for each in found
        if each["tables"]
    )


@pytest.mark.parametrize("name", ["values", "between", "rollback", "public.drop"])
def test_a_table_may_be_called_as_a_command(name: str) -> None:
    for text in (f"DROP TABLE {name}", f"TRUNCATE {name}"):
        found = shown("sql", {"query": text}, "sql")
        assert name in [table for each in found for table in each["tables"]], text


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM users between WHERE id = 5",
        "DELETE FROM users WHERE id = 5 /* one",
        "SELECT 'DROP TABLE users' AS x /* y",
        "SELECT 1 -- DROP TABLE users\n/* y",
        "SELECT 1 /* DROP TABLE users",
        "SELECT a[1], 'DELETE FROM users' FROM b",
    ],
)
def test_what_is_not_said_is_not_found(text: str) -> None:
    for each in shown("sql", {"query": text}, "sql"):
        assert each["verb"] not in ("drop", "truncate"), text
        assert each["verb"] != "delete" or each["where"], text


@pytest.mark.parametrize("part", ["[", "['", "[']", "DELETE FROM a ", "DROP TABLE a.", "; (", "/*", "x'z"])
def test_it_takes_time_in_proportion(part: str) -> None:
    started = time.process_time()
    shown("sql", {"query": part * (16_000 // len(part))}, "sql")
    assert time.process_time() - started < 2
