"""Statements as they are read beside what SQLite does with them: each table that it touches is told."""

from __future__ import annotations

import random
import sqlite3
from contextlib import suppress

import pytest

from tests.engine.derived.declared import is_partial, shown
from tests.harness.effort import LONG

TABLES = ("users", "orders", "logs")
VERBS = {
    sqlite3.SQLITE_DELETE: "delete",
    sqlite3.SQLITE_UPDATE: "update",
    sqlite3.SQLITE_INSERT: "insert",
    sqlite3.SQLITE_READ: "select",
    sqlite3.SQLITE_DROP_TABLE: "drop",
    sqlite3.SQLITE_ALTER_TABLE: "alter",
}


class Statements:
    """Random SQL of one seed."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed).choice

    def blank(self) -> str:
        return self.pick([" ", "\n", "\t", "/**/", " -- it's\n", " /* ; drop table x; */ ", "/*/* */ "])

    def table(self) -> str:
        name = self.pick(TABLES)
        return self.pick([name, f'"{name}"', f"`{name}`", f"[{name}]", f"main.{name}", name.upper()])

    def value(self) -> str:
        texts = [
            "1",
            "'a'",
            "'it''s'",
            "'--'",
            "'/*'",
            "x'00'",
            "';'",
            f"(SELECT max(a) FROM {self.table()})",
        ]
        return self.pick(texts)

    def statement(self) -> str:
        table, blank, value = self.table(), self.blank(), self.value()
        forms = [
            f"SELECT * FROM{blank}{table} WHERE a = {value}",
            f"SELECT 1 FROM {table}{blank}JOIN {self.table()} AS z",
            f"DELETE FROM{blank}{table}",
            f"DELETE{blank}FROM {table} WHERE a IN (SELECT a FROM {self.table()})",
            f"UPDATE{blank}{table} SET a = {value}",
            f"UPDATE OR IGNORE {table}{blank}SET a = {value}",
            f"INSERT INTO{blank}{table} VALUES ({value}, 2)",
            f"REPLACE{blank}INTO {table} VALUES (1, {value})",
            f"WITH c AS{blank}(SELECT a FROM {table}) DELETE FROM logs WHERE a IN (SELECT a FROM c)",
            f"CREATE TABLE made AS{blank}SELECT * FROM {table}",
            f"ALTER{blank}TABLE {table} ADD COLUMN c",
            f"DROP TABLE{blank}{table}",
        ]
        return self.pick(forms)

    def script(self) -> str:
        return ";\n".join(self.statement() for _ in range(self.pick([1, 2, 3])))


def touched(text: str) -> set[tuple[str, str]]:
    """What SQLite does, up to where it stumbles."""
    found: set[tuple[str, str]] = set()

    def note(action: int, one: str | None, two: str | None, database: str | None, by: str | None) -> int:
        name = (two if action == sqlite3.SQLITE_ALTER_TABLE else one) or ""
        if action in VERBS and name in TABLES:
            found.add((VERBS[action], name))
        return sqlite3.SQLITE_OK

    with sqlite3.connect(":memory:") as connection:
        for name in TABLES:
            connection.execute(f"CREATE TABLE {name} (a, b)")
        connection.set_authorizer(note)
        with suppress(sqlite3.Error):
            connection.executescript(text)
        connection.set_authorizer(None)
    return found


def test_each_table_that_sqlite_touches_is_told() -> None:
    for seed in range(3_000 if LONG else 250):
        text = Statements(seed).script()
        entries = shown("sql", {"query": text}, "sql")
        if is_partial("sql", {"query": text}, "sql") or any(each["verb"] == "unknown" for each in entries):
            continue
        told = {(each["verb"], name.rpartition(".")[2]) for each in entries for name in each["tables"]}
        for verb, name in touched(text):
            verbs = {one for one, other in told if other == name}
            same = {verb, "replace"} if verb in ("insert", "delete") else {verb}
            same |= {"drop"} if verb == "delete" else set()
            assert verbs & same or (verb == "select" and verbs), (seed, text, verb, name, entries)


@pytest.mark.parametrize(
    ("text", "verb", "table"),
    [
        ("ALTER TABLE main.users ADD COLUMN c", "alter", "main.users"),
        ("CREATE TABLE made AS SELECT * FROM users", "select", "users"),
        ("REPLACE/*/* */ INTO users VALUES (1, 2)", "replace", "users"),
    ],
)
def test_the_tables_of_a_statement(text: str, verb: str, table: str) -> None:
    assert (verb, [table]) in [
        (each["verb"], each["tables"]) for each in shown("sql", {"query": text}, "sql")
    ]


def test_a_statement_that_is_not_read_hides_behind_no_other() -> None:
    text = "DROP TABLE [users];\nSELECT 1;\nREPLACE/*/* */ INTO logs VALUES (1, 2)"
    assert "unknown" in [each["verb"] for each in shown("sql", {"query": text}, "sql")]
