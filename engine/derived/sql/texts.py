"""Which texts of a call are SQL: by their keys, by how they begin, and what a client of a database is given.

Knows nothing of what a statement does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.payload import Leaf
from engine.derived.tools import UNDECLARED
from engine.fields.words import word_set
from engine.model import ToolDeclaration
from engine.shell.options import Given, given, values_of

_SQL_KEYS: Final = word_set("sql ddl dml")
_KEYS: Final = _SQL_KEYS | word_set("query queries statement statements script migration")
_BLANK: Final = r"\s\ufeff\x00-\x1f"
"""What parts words, to SQLite and SQL Server too."""
_GAP: Final = rf"[{_BLANK}(;]"
FIRST: Final = (
    r"(?:select|insert|update|delete|drop|create|alter|truncate|with|merge|grant|revoke|replace|call|exec|execute"
    r"|do|set|begin|explain|copy|load|vacuum|rename|declare|use|values|lock|commit|rollback|reindex|pragma|attach"
    r"|handler|xa|prepare|if\s+(?:not\s+)?(?:exists|object_id)|table\s+[\w.\"]+\s*(?=;|\Z))(?!\w)"
)
BEGINS: Final = re.compile(
    rf"(?:\A{_GAP}*+|(?<!{_GAP})(?=[{_BLANK}(]*;){_GAP}++|(?:\*/|/\*M?!\d*+){_GAP}*+){FIRST}", re.IGNORECASE
)
"""A statement at the beginning, behind a semicolon or behind a comment. No gap is gone through twice."""
_BEGINS_A_LINE: Final = re.compile(rf"(?<!{_GAP})(?={_GAP}*[\n\r]){_GAP}++{FIRST}", re.IGNORECASE)
_LINE_COMMENT: Final = re.compile(r"--|#")
_CLIENTS: Final = word_set(
    "psql ysqlsh pgcli cockroach mysql mysqlsh mariadb mycli sqlite3 sqlite litecli duckdb turso wrangler "
    "sqlcmd usql bq snowsql snow clickhouse clickhouse-client clickhouse-local cqlsh trino presto beeline "
    "hive impala-shell spark-sql"
)
_WITHIN: Final = word_set("docker podman nerdctl kubectl oc docker-compose")
"""Programs that start a client elsewhere."""
_META: Final = re.compile(r"^[ \t]*[\\.]\w[^\\;\n]*$", re.MULTILINE)
"""A line for the client itself, such as `\\c other` and `.mode csv`."""
_KEPT: Final = re.compile(r"\\set[ \t]++\w++[ \t][^\n'`\"]*+['`\"][^\n]*+|\\g(?:exec|set)\b")
"""SQL that psql keeps under a name, or takes from an answer."""
_OF_POSTGRES: Final = frozenset({"psql", "ysqlsh", "cockroach"})
_SENT: Final = re.compile(r"\\;|\\g(?:x|desc)?(?![a-z])[^\n\\]*+")
"""What ends a statement for psql."""
_CLIENT_OPTIONS: Final = re.compile(r"(?:--command|--execute|--query|-[ceqQ])=?(.*)", re.DOTALL)


def sql_texts(leaves: Sequence[Leaf], commands: Iterable[Command], tool: ToolDeclaration) -> list[str]:
    """The texts of a call that are SQL: by their keys, or by how their statements begin where the key may
    mean another thing or the tool is for SQL, and what commands give to a client of a database."""
    found: list[str] = []
    by_key = tool is UNDECLARED or tool.kind in ("sql", "code", "cloud", "other")
    for leaf in leaves:
        text = leaf.value
        if not isinstance(text, str) or not text.strip():
            continue
        words = leaf.key.split()
        named = by_key and not _KEYS.isdisjoint(words)
        certain = named and (tool.kind == "sql" or not _SQL_KEYS.isdisjoint(words))
        if certain or ((named or tool.kind == "sql") and _reads_as_sql(text)):
            found.append(text)
    for command in commands:
        if command.program in _CLIENTS:
            found += _of_client(command.program, command.words, command.inputs)
        elif command.program in _WITHIN:
            at = next((at for at, word in enumerate(command.words) if word in _CLIENTS), None)
            if at is not None:
                found += _of_client(command.words[at], command.words[at + 1 :], command.inputs)
    return found


def _reads_as_sql(text: str) -> bool:
    """Whether one of its statements begins as SQL does."""
    return BEGINS.search(text) is not None or (
        _LINE_COMMENT.search(text) is not None and _BEGINS_A_LINE.search(text) is not None
    )


def _of_client(program: str, words: Sequence[str], inputs: Sequence[str]) -> Iterator[str]:
    """What a client of a database is told to run, and what it reads."""
    items = list(given(program, words))
    told = [each.value for each in items if each.name in ("command", "execute")]
    if program in _OF_POSTGRES:
        yield from _of_psql(items, inputs)
        words, told, inputs = ([_SENT.sub(";", text) for text in texts] for texts in (words, told, inputs))
    yield from told
    for text in inputs:
        if found := _KEPT.search(text):
            yield found[0]  # what it holds is run later, and is no statement here
        text = _META.sub("", text.replace("\\\\", "\n"))
        if _reads_as_sql(text) or _BEGINS_A_LINE.search(text):
            yield text
    is_value = False
    for word in words:
        option = _CLIENT_OPTIONS.fullmatch(word)
        text = option[1] if option else word
        if text and (is_value or _reads_as_sql(text)):
            yield text
        is_value = option is not None and not option[1]


MOST_FILLED: Final = 32_768
_SAID: Final = re.compile(r"(?<![:\w]):(?:(\w+)|'(\w+)'|\"(\w+)\")")
"""A variable of psql; `::` is a type."""
_SET: Final = re.compile(r"\\set[ \t]++(\w++)[ \t]++'([^'\n]*+)'")
_SENT_TO_RUN: Final = re.compile(r"([^;\\]++)(\\gexec\b)?", re.IGNORECASE)
_ANSWERED: Final = re.compile(r"(?<!\w)select\b(.*)", re.IGNORECASE | re.DOTALL)


def _of_psql(items: Sequence[Given], inputs: Sequence[str]) -> Iterator[str]:
    """What psql runs of its variables, and of what the database answers where that is told."""
    texts = [*values_of(items, "command"), *inputs]
    known = {found[1]: found[2] for text in texts for found in _SET.finditer(text)}
    variables = (each.value.partition("=") for each in items if each.name in ("set", "variable"))
    known.update((name, value) for name, _, value in variables)
    for text in texts:
        filled = _filled(text, known) if known else text
        if filled != text:
            yield _META.sub("", _SENT.sub(";", filled))
        for sent in _SENT_TO_RUN.finditer(filled):
            if sent[2] and (answered := _ANSWERED.search(sent[1])):
                yield f"execute {answered[1]}"


def _filled(text: str, known: dict[str, str]) -> str:
    """A text with the values of variables, as far as `MOST_FILLED`."""
    room = [MOST_FILLED]

    def value(found: re.Match[str]) -> str:
        name = next(filter(None, found.groups()))
        said = known.get(name)
        room[0] -= len(said or "")
        if said is None or room[0] < 0:
            return found[0]
        mark = found[0][1] if found[1] is None else ""
        return mark + (said.replace(mark, mark * 2) if mark else said) + mark

    return _SAID.sub(value, text)
