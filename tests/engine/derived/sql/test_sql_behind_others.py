"""Statements that stand behind other words, and those in texts that are put together and run."""

from __future__ import annotations

import pytest

from tests.engine.derived.declared import shown

DROPS = [
    "IF OBJECT_ID('dbo.users', 'U') IS NOT NULL DROP TABLE dbo.users",
    "IF EXISTS (SELECT 1 FROM sys.tables) BEGIN DROP TABLE dbo.users; END",
    "SET NOCOUNT ON\nDROP TABLE [dbo].[users]",
    "USE shop DROP TABLE dbo.users",
    "BEGIN TRAN DROP TABLE dbo.users COMMIT",
    "BEGIN TRY\n  DROP TABLE dbo.users;\nEND TRY\nBEGIN CATCH\nEND CATCH",
    "INSERT INTO a VALUES (1) DROP TABLE dbo.users",
    "DISABLE TRIGGER g ON DATABASE DROP TABLE dbo.users",
    "EXEC sp_rename 'a', 'b'\nDROP TABLE dbo.users",
    "/* x */ IF 1 = 1 DROP/* y */TABLE dbo.users -- z",
    "WAITFOR DELAY '00:00:01' DROP TABLE dbo.users",
    "DROP TABLES dbo.users",
    "DO 'BEGIN DROP TABLE dbo.users; END'",
    "DO $$BEGIN EXECUTE 'DROP TABLE IF EXISTS ' || 'dbo.' || 'users' || ' CASCADE'; END$$",
    "DO $$BEGIN EXECUTE concat('DROP TABLE ', 'dbo.users'); END$$",
    "EXEC sp_executesql @stmt = N'DROP TABLE dbo.users'",
    "EXEC master.dbo.sp_executesql N'DROP TABLE dbo.users'",
    "DECLARE @s nvarchar(99) = 'DROP TABLE dbo' + '.users' EXEC(@s)",
    "SET @s = 'DROP TABLE dbo.users'; PREPARE p FROM @s; EXECUTE p",
    "PREPARE p FROM 'DROP TABLE dbo.users'; EXECUTE p",
]


@pytest.mark.parametrize("text", DROPS)
def test_what_is_dropped_behind_other_words(text: str) -> None:
    for tool, payload in (("sql", {"query": text}), ("Bash", {"command": f"sqlcmd -Q {quoted(text)}"})):
        found = shown(tool, payload, "sql")
        assert any(each["verb"] == "drop" and "dbo.users" in each["tables"] for each in found), tool


def quoted(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"


def test_names_that_are_worked_out_are_tables_all_the_same() -> None:
    body = (
        "DO $$DECLARE r record; BEGIN FOR r IN (SELECT tablename FROM pg_tables) LOOP "
        "EXECUTE 'DROP TABLE IF EXISTS ' || quote_ident(r.tablename) || ' CASCADE'; END LOOP; END$$"
    )
    for text in (
        body,
        "EXEC sp_MSforeachtable 'DROP TABLE ?'",
        "DECLARE @s varchar(9) = 'DROP TABLE ' + @t EXEC(@s)",
    ):
        assert "drop" in [each["verb"] for each in shown("sql", {"query": text}, "sql")]


@pytest.mark.parametrize(
    ("text", "limited"),
    [
        ("BEGIN\n  DELETE FROM users;\nEND", False),
        ("DECLARE @id INT = 5\nDELETE FROM users WHERE id = @id IF @@ROWCOUNT = 0 PRINT 'x'", True),
        ("IF EXISTS (SELECT 1 FROM u) UPDATE users SET a = 1 ELSE INSERT INTO u VALUES (1)", False),
        ("BEGIN TRAN UPDATE users SET a = 1 WHERE id = 5 COMMIT", True),
        ("EXEC('DELETE FROM ' + @t + ' WHERE id = 5')", True),
        ("DO $$BEGIN EXECUTE 'DELETE FROM ' || quote_ident(t) || ' WHERE id = ' || x; END$$", True),
        ("EXEC sp_msforeachtable 'DELETE FROM ?'", False),
        ("SELECT 1 DELETE FROM users", False),
        ("SELECT 1 FROM a UNION SELECT 2 DELETE FROM users", False),
        ("SET NOCOUNT ON DELETE users", False),
        ("USE shop\nDELETE dbo.users WHERE id = 5", True),
        ("IF 1 = 1 BEGIN DELETE users END", False),
        ("DISABLE TRIGGER ALL ON users; DELETE FROM users; ENABLE TRIGGER ALL ON users", False),
        ("DISABLE TRIGGER g ON users DELETE FROM users", False),
    ],
)
def test_whether_a_condition_limits_it(text: str, limited: bool) -> None:
    found = [each for each in shown("sql", {"query": text}, "sql") if each["verb"] in ("update", "delete")]
    assert found
    assert all(each["where"] is limited for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER PROCEDURE p AS DELETE FROM staging",
        "CREATE TRIGGER g AFTER DELETE ON a FOR EACH ROW BEGIN UPDATE b SET n = n - 1; END",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t",
        "EXPLAIN DELETE FROM t",
        "EXEC log_action 'DROP TABLE users'",
        "SELECT delete FROM permissions",
        "SELECT a AS delete FROM permissions",
        "USE shop; SELECT a, delete, b FROM permissions",
        "GRANT INSERT, DELETE ON t TO x",
        "EXEC a; ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u ON DELETE CASCADE",
        "SET x = 1; REVOKE DELETE ON ALL TABLES IN SCHEMA public FROM x",
        "SET x = 'DROP TABLE users' -- DROP TABLE users",
        "GRANT DELETE ON t TO x",
        "MERGE INTO t USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT VALUES (1)",
        "Please drop table users if it exists",
    ],
)
def test_what_is_no_statement_yet(text: str) -> None:
    verbs = {each["verb"] for each in shown("sql", {"query": text}, "sql")}
    assert verbs.isdisjoint({"drop", "delete", "update", "truncate"})


def test_a_temporary_table_stays_one() -> None:
    text = "IF OBJECT_ID('tempdb..#x') IS NOT NULL DROP TABLE #x"
    drops = [each for each in shown("sql", {"query": text}, "sql") if each["verb"] == "drop"]
    assert [each["temporary"] for each in drops] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1; -- rows are indexed by\nDROP TABLE dbo.users",
        "SELECT 1; -- indexed by\rDROP TABLE dbo.users",
        "-- c\nindexed by x; DROP TABLE dbo.users",
        "SELECT 1 - indexed by x-1; DROP TABLE dbo.users",
        "SELECT 1 -- c\nnowait; DROP TABLE dbo.users",
        "SELECT 1 -- delete\nignore ; DROP TABLE dbo.users",
        "SELECT count( -- drop database a with (\nforce) FROM q; DROP TABLE dbo.users",
        "SELECT 1 FROM -- create or replace\nschema x; DROP TABLE dbo.users",
        "SELECT 1 /* delete x.*/ from q; DROP TABLE dbo.users",
        "SELECT 1; -- ; prepare x as\nDROP TABLE dbo.users",
    ],
)
def test_a_comment_does_not_grow_over_what_follows_it(text: str) -> None:
    found = shown("sql", {"query": text}, "sql")
    assert any(each["verb"] == "drop" and "dbo.users" in each["tables"] for each in found)


def test_what_is_analysed_behind_a_comment() -> None:
    found = shown("sql", {"query": "SELECT 1; -- ; analyze\nDELETE FROM users"}, "sql")
    assert [each["tables"] for each in found if each["verb"] == "delete"] == [["users"]]
