"""What parts the words of SQL, and where a text breaks off: no parser takes both as each database does."""

from __future__ import annotations

import random
import sqlite3
from contextlib import suppress

import pytest

from tests.engine.derived.declared import shown
from tests.harness.effort import LONG

BLANKS = (
    *(" ", "\n", "\t", "\r", "\f", "\ufeff ", " \ufeff", "/**/", "/*/**/", "/*'*/", '/*"*/', "/*--*/"),
    *("--x\n", "--'\n", '--"\n', "--`\n", "--[\n", "--/*\n", "-- x\r\n"),
)
NAMES = ("users", '"users"', "`users`", "[users]", "main.users")
BEFORE = ("", ";", "SELECT 1;", "SELECT ';';", "SELECT '/*';", "SELECT 'it''s';", "--it's\n", "/*`*/")
BEHIND = ("", ";", "--", "; SELECT 'x", ';"', ";`", ";/*", " /*", ";[")


@pytest.mark.parametrize(
    ("text", "verb", "table"),
    [
        ("DROP \ufeffTABLE users", "drop", "users"),
        ("\ufeffDROP \ufeffTABLE \ufeff\ufeffusers", "drop", "users"),
        ("DROP\x01TABLE\x1fusers", "drop", "users"),
        ("\x02DELETE\x03FROM\x04users", "delete", "users"),
        ("SELECT 1;\x05TRUNCATE\x06TABLE users", "truncate", "users"),
        ("DROP TABLE/*/**/*/users", "drop", "users"),
        ("DELETE/*/**/*/FROM users", "delete", "users"),
        ("DROP --it's old\nTABLE `users`", "drop", "users"),
        ("DROP TABLE `users` --it's", "drop", "users"),
        ('DELETE FROM --"\n[users]', "delete", "users"),
        ("SELECT 1--1;BEGIN NOT ATOMIC SELECT 1; END;DROP TABLE users", "drop", "users"),
        ("DROP TABLE users; SELECT 'x", "drop", "users"),
        ('DROP TABLE users;"', "drop", "users"),
        ("DELETE FROM `users`; `", "delete", "users"),
        ("DELETE FROM users; /* ", "delete", "users"),
    ],
)
def test_the_table_that_a_statement_touches(text: str, verb: str, table: str) -> None:
    entries = shown("sql", {"query": text}, "sql")
    assert any(each["verb"] == verb and table in each["tables"] for each in entries), entries


def test_whatever_parts_its_words_sqlite_does_nothing_that_is_not_told() -> None:
    for seed in range(4_000 if LONG else 400):
        pick = random.Random(seed).choice
        said = pick((("DROP", "TABLE"), ("DELETE", "FROM")))
        words = (pick(BEFORE), *said, pick(NAMES), pick(BEHIND))
        text = words[0] + pick(BLANKS).join(words[1:3]) + pick(BLANKS) + words[3] + words[4]
        if not _is_emptied(text):
            continue
        entries = shown("sql", {"query": text}, "sql")
        named = [
            name.rpartition(".")[2]
            for each in entries
            if each["verb"] in ("drop", "delete")
            for name in each["tables"]
        ]
        assert "users" in named, (seed, text, entries)


def _is_emptied(script: str) -> bool:
    with sqlite3.connect(":memory:") as connection:
        connection.executescript("CREATE TABLE users (a); INSERT INTO users VALUES (1);")
        with suppress(sqlite3.Error):
            connection.executescript(script)
        try:
            return connection.execute("SELECT COUNT(*) FROM users").fetchone() == (0,)
        except sqlite3.OperationalError:
            return True


def test_a_text_that_breaks_off_in_its_only_statement_is_unknown() -> None:
    assert [each["verb"] for each in shown("sql", {"query": "DROP TABLE users '"}, "sql")] == ["unknown"]
