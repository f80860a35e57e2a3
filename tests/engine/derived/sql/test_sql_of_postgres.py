"""Statements that PostgreSQL's own grammar reads otherwise than their words look."""

from __future__ import annotations

import pytest

from engine.derived.sql.within import uncommented
from tests.engine.derived.declared import shown


@pytest.mark.parametrize(
    ("text", "verb", "table"),
    [
        ("explain/**/analyze delete from users", "delete", "users"),
        ("explain--x\nanalyze update users set a = 1", "update", "users"),
        ("select 1; --;\nexplain analyze delete from users", "delete", "users"),
        ("explain /*/* */'*/ analyze delete from users", "delete", "users"),
        ("select '/*'; explain/**/analyze delete from users -- */'", "delete", "users"),
        ("select $x$/*$x$; explain/**/analyze delete from users", "delete", "users"),
        ("select E'\\'/*'; explain/**/analyze delete from users", "delete", "users"),
        ('prepare "p q" as delete from users', "delete", "users"),
        ("prepare p (int)/*/**/*/as delete from users", "delete", "users"),
        ('truncate U&"\\0075sers"', "truncate", "users"),
        ("drop table U&\"!0075sers\" uescape '!'", "drop", "users"),
        ('alter table U&"\\+000075sers" drop column a', "alter", "users"),
        ("alter table users/**/drop constraint x, add c int", "alter", "users"),
    ],
)
def test_the_table_that_a_statement_touches(text: str, verb: str, table: str) -> None:
    entries = shown("sql", {"query": text}, "sql")
    assert any(each["verb"] == verb and table in each["tables"] for each in entries)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a/* ' */b--c\nd", "a b \nd"),
        ("'--' /*x", "'--'  "),
        ('"/*" $$--$$ /*/**/x*/ y', '"/*" $$--$$   y'),
        ("'\\' --x", "'\\'  "),
    ],
)
def test_comments_are_blanks(text: str, read: str) -> None:
    assert uncommented(text) == read


def test_an_explanation_that_runs_nothing_is_none() -> None:
    entries = shown("sql", {"query": "explain/* analyze */ delete from users"}, "sql")
    assert "delete" not in [each["verb"] for each in entries]


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        ("psql -AtXqc'delete from users'", "delete"),
        ("psql --comm='delete from users'", "delete"),
        ("psql <<'X'\n\\o x \\\\ delete from users;\nX", "delete"),
        ("psql <<X\n\\set x 'delete from users'\n:x;\nX", "unknown"),
        ("psql <<X\nselect 'delete from users' \\gexec\nX", "unknown"),
    ],
)
def test_what_psql_is_told(command: str, verb: str) -> None:
    assert verb in [each["verb"] for each in shown("bash", {"command": command}, "sql")]


def test_settings_of_psql_are_no_statements() -> None:
    text = "psql <<X\n\\set ON_ERROR_STOP on\nselect 1;\nX"
    assert [each["verb"] for each in shown("bash", {"command": text}, "sql")] == ["select"]
