"""Statements that one database has and the parser does not: of MySQL, MariaDB, Snowflake and PostgreSQL."""

from __future__ import annotations

import pytest

from tests.engine.derived.declared import shown


@pytest.mark.parametrize(
    ("text", "verb", "table"),
    [
        ("ANALYZE DELETE FROM users", "delete", "users"),
        ("select 1; analyze format=json update users set a = 1", "update", "users"),
        ("DELETE LOW_PRIORITY QUICK IGNORE FROM users", "delete", "users"),
        ("UPDATE LOW_PRIORITY users SET a = 1", "update", "users"),
        ("DELETE users.*, logs.* FROM users JOIN logs", "delete", "users"),
        ("DROP TABLE users WAIT 1; SELECT 1", "drop", "users"),
        ("DROP TABLE users NOWAIT", "drop", "users"),
        ("ALTER ONLINE IGNORE TABLE users DROP COLUMN a", "drop", "users"),
        ("CREATE OR REPLACE SCHEMA prod.public", "drop", "prod.public"),
        ("create or replace transient database prod clone old", "drop", "prod"),
        ("SET @s = CONCAT('DROP ', 'TABLE users'); PREPARE p FROM @s; EXECUTE p", "drop", "users"),
        ('SELECT "\\"; DELETE FROM x"; DELETE FROM users', "delete", "users"),
        ("COPY (DELETE FROM users RETURNING *) TO STDOUT", "delete", "users"),
        ("copy (with x as (update users set a = 1 returning 1) select 1) to '/x'", "update", "users"),
        ("DO E'BEGIN DELETE\\x20FROM users; END'", "delete", "users"),
        ("DO $$ BEGIN EXECUTE E'\\104ROP\\tTABLE users'; END $$", "drop", "users"),
    ],
)
def test_the_table_that_a_statement_touches(text: str, verb: str, table: str) -> None:
    entries = shown("sql", {"query": text}, "sql")
    assert any(each["verb"] == verb and table in each["tables"] for each in entries), entries


@pytest.mark.parametrize(
    ("text", "verbs"),
    [
        ("ANALYZE TABLE users", ["analyze"]),
        ("ANALYZE users", ["analyze"]),
        ("CREATE OR REPLACE TABLE users (a int)", ["create"]),
        ("CREATE SCHEMA IF NOT EXISTS a", ["create"]),
        ("SELECT users.* FROM users FOR UPDATE NOWAIT", ["select"]),
        ("ALTER TABLE users ADD COLUMN a int", ["alter"]),
        ("COPY (SELECT 1) TO STDOUT", ["copy"]),
    ],
)
def test_others_stay_what_they_are(text: str, verbs: list[str]) -> None:
    assert [each["verb"] for each in shown("sql", {"query": text}, "sql")] == verbs


@pytest.mark.parametrize(
    ("text", "verb", "where"),
    [
        ("MERGE INTO users USING (VALUES (1)) s(x) ON true WHEN MATCHED THEN DELETE", "delete", False),
        ("MERGE users USING s ON 1 = 1 WHEN NOT MATCHED BY SOURCE THEN DELETE;", "delete", False),
        (
            "WITH x AS (MERGE INTO users USING s ON 1 = 1 WHEN MATCHED THEN UPDATE SET a=1) SELECT 1",
            "update",
            False,
        ),
        ("MERGE INTO users u USING s ON u.id = s.id WHEN MATCHED THEN UPDATE SET a = 1", "update", True),
        ("MERGE INTO users USING s USING (id) WHEN MATCHED THEN DELETE", "delete", True),
        ("MERGE INTO users u USING s ON true WHEN MATCHED AND u.id = 3 THEN DELETE", "delete", True),
        ("DELETE FROM users WHERE 1 XOR 0", "delete", False),
        ("DELETE FROM users WHERE 5 DIV 2", "delete", False),
        ("UPDATE users SET a = 1 WHERE _utf8'1'", "update", False),
        ("DELETE FROM users WHERE id DIV 2 = 7", "delete", True),
        ("DELETE FROM users INDEXED BY by_name WHERE 1", "delete", False),
        ('SELECT "a indexed by "; DELETE FROM users; --"', "delete", False),
    ],
)
def test_rows_that_a_statement_chooses_in_the_words_of_one_database(
    text: str, verb: str, where: bool
) -> None:
    entries = shown("sql", {"query": text}, "sql")
    found = [each for each in entries if each["verb"] == verb]
    assert found and all(each["tables"] == ["users"] and each["where"] is where for each in found), entries


@pytest.mark.parametrize(
    "command",
    [
        'cqlsh -e "DROP TABLE shop.users"',
        'trino --execute "DROP TABLE shop.users"',
        'beeline -u jdbc:x -e "DROP TABLE shop.users"',
        'spark-sql -e "DROP TABLE shop.users"',
        'cockroach sql -e "DROP TABLE shop.users"',
        'clickhouse client -q "DROP TABLE shop.users"',
        'snow sql -q "DROP TABLE shop.users"',
        "litecli a.db -e 'DROP TABLE users'",
        "docker exec db cqlsh -e 'DROP TABLE shop.users'",
    ],
)
def test_the_clients_of_further_databases_run_statements(command: str) -> None:
    (found,) = shown("Bash", {"command": command}, "sql")
    assert (found["verb"], found["object"]) == ("drop", "table")
