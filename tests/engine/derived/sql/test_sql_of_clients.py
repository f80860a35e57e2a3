"""What clients of databases run of their own variables, of answers, and of files."""

from __future__ import annotations

from time import process_time

import pytest

from engine.shell.reader import read
from tests.engine.derived.declared import is_partial, shown

DROPPED = [
    "psql -v x='drop table users' <<< ':x;'",
    "psql --set=x='drop table users' <<< ':x;'",
    "psql --variable t=users <<< 'drop table :t;'",
    "psql -v t=users <<< 'drop table :\"t\";'",
    "psql <<< \"\\set x 'drop table users'\n:x;\"",
    "psql <<< \"select 'drop table users' \\gexec\"",
    "psql <<< \"select format('drop table %I', 'users') \\gexec\"",
    "echo \"select 'drop table ' || 'users' \\gexec\" | psql",
    "echo 'drop table users;' > f; psql -c '\\i f'",
    "echo 'drop table users;' > f; psql <<< '\\ir f'",
    "echo 'drop table users;' > f; psql <<< '\\include f'",
    "echo 'drop table users;' > f; mysql -e 'source f'",
    "echo 'drop table users;' > f; mysql -e '\\. f'",
    "echo 'drop table users;' > f; sqlite3 x.db '.read f'",
]
ORDINARY = [
    'psql -v n="O\'Brien" <<< "select * from a where b = :\'n\';"',
    "psql -v n=1 -c 'select x::text, :n from a'",
    "psql <<< \"select 'create database x' where not exists (select 1) \\gexec\"",
]


@pytest.mark.parametrize("line", DROPPED)
def test_it_is_dropped(line: str) -> None:
    found = [(each["verb"], each["tables"]) for each in shown("bash", {"command": line}, "sql")]
    assert any(verb == "drop" and tables in (["users"], ["x"]) for verb, tables in found), found


@pytest.mark.parametrize("line", ORDINARY)
def test_nothing_is_dropped(line: str) -> None:
    found = [each["verb"] for each in shown("bash", {"command": line}, "sql")]
    assert "drop" not in found


def test_what_grows_is_read_in_part() -> None:
    line = f"psql -v x='{'a' * 20_000}' <<< '{':x ' * 20_000};'"
    assert is_partial("bash", {"command": line}, "sql")


def test_words_that_no_answer_follows_are_looked_at_once() -> None:
    began = process_time()
    shown("bash", {"command": f"psql <<< '{'select ' * 30_000}'"}, "sql")
    assert process_time() - began < 2


@pytest.mark.parametrize("line", ["echo flushall | redis-cli -h db", "redis-cli -h db <<< flushall"])
def test_redis_runs_the_lines_that_it_reads(line: str) -> None:
    assert any(entry.startswith("redis-cli -h db flushall") for entry in read([line]))


def test_what_a_file_runs_is_read() -> None:
    assert "zap a" in read(["echo '\\! zap a' > f; psql -c '\\i f'"])
