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
    "DROP TABLE IF EXISTS main.'users' /* x",
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
    "DELETE FROM 'users' /* all",
    "UPDATE OR IGNORE /**/'users' SET 'name' = 4 /* all",
    "DELETE FROM users AS [']",
    "DELETE FROM users RETURNING 1 rollback",
    "UPDATE users AS \xa0 SET name = NULL",
    "DELETE FROM users drop",
    "DELETE FROM ONLY public.users values",
    "DELETE FROM users alter WHERE true",
    "UPDATE users lock SET name = NULL",
    "SELECT 1 AS [']; UPDATE OR IGNORE main.users /* /* a */ SET (name) = (3)",
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


PROSE = [
    "Update README and changelog for v2.3",
    "update the list of O'Neil's [open] tickets",
    "Delete from the list every entry that is older than a week",
    "delete from array javascript by index; splice vs filter",
    'Refactor; delete from cache after use; it is "faster"',
    "drop table mysql example",
    "drop schema cascade vs restrict",
]
OTHER_THINGS = [
    "UPDATE STATISTICS dbo.orders WITH FULLSCAN",
    "DROP DATABASE LINK remote",
    "DROP DATABASE ROLE reader",
    "DROP DATABASE SCOPED CREDENTIAL a",
    "DROP TABLE FUNCTION a.b",
    "UPDATE SET a.b = c.d",
]


@pytest.mark.parametrize("text", PROSE + OTHER_THINGS)
def test_words_that_go_on_as_no_statement_does_are_none(text: str) -> None:
    for call in ({"query": text}, {"query": "INSERT INTO a VALUES ($1)", "params": [text]}):
        assert {each["verb"] for each in shown("sql", call, "sql")} <= {"unknown", "insert"}, text


@pytest.mark.parametrize(
    ("text", "table", "where"),
    [
        ('DELETE FROM "orders" o WHERE o."id" = 5 OPTION (MAXDOP 1)', "orders", True),
        ('DELETE FROM "orders" OPTION (MAXDOP 1)', "orders", False),
        ('DELETE FROM public."orders" WHERE CURRENT OF a', "public.orders", True),
        ('UPDATE "sales"."orders" SET "n" = 1 WHERE CURRENT OF a', "sales.orders", True),
        ('DROP TABLE IF EXISTS "a"."b" CASCADE CASCADE CONSTRAINTS', "a.b", False),
        ("DROP TABLE a.b ON CLUSTER c SYNC", "a.b", False),
        ("UPDATE TOP (10) PERCENT orders SET n = 1", "orders", False),
    ],
)
def test_names_in_quotes_end_where_they_do(text: str, table: str, where: bool) -> None:
    told = [each for each in shown("sql", {"query": text}, "sql") if each["verb"] != "unknown"]
    assert [(each["tables"], each["where"]) for each in told] == [([table], where)]


def test_brackets_in_texts_are_no_names_beside_those_in_backticks() -> None:
    for text in ('INSERT INTO `a` (`b`) VALUES (\'["c", "d"]\')', "REPLACE INTO `a` VALUES (1, '[x]')"):
        assert "unknown" not in [each["verb"] for each in shown("sql", {"query": text}, "sql")], text


@pytest.mark.parametrize(
    "part",
    [
        "[",
        "['",
        "[']",
        "DELETE FROM a ",
        "DROP TABLE a.",
        "; (",
        "/*",
        "x'z",
        "UPDATE a set ",
        "DROP TABLE a, ",
    ],
)
def test_it_takes_time_in_proportion(part: str) -> None:
    started = time.process_time()
    shown("sql", {"query": part * (16_000 // len(part))}, "sql")
    assert time.process_time() - started < 2
