"""The SQL of a call: what `derived.sql` shows, one entry a statement.

Read by sqlglot, first as PostgreSQL, and where the text has what other databases read otherwise, as MySQL
and as SQL Server too: what one of them would run counts. A statement within another (`WITH x AS (DELETE
...)`) is an entry of its own. What cannot be parsed is one entry with the verb `unknown`.

sqlglot is loaded when the first text is read, since that takes long, or beforehand by who serves. Its parser
may try one thing after another, so its steps are counted: a text beyond a bound is read only in part. Knows
nothing of policies.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final

from engine.derived.commands import Command
from engine.derived.payload import MOST_FOUND, Leaf
from engine.derived.tools import UNDECLARED
from engine.fields.words import word_set
from engine.model import Json, ToolDeclaration

_POSTGRES, _MYSQL, _SQL_SERVER = "postgres", "mysql", "tsql"

MOST_SQL: Final = 16_384
"""Characters of SQL that are read of one call."""

STEPS: Final = 30_000
"""Tokens that the parser may go through for one call, back and forth, ..."""
STEPS_A_CHARACTER: Final = 3
"""... and so many more for each character."""
STEPS_A_TEXT: Final = 30
"""Steps that it costs to begin with a text, or with a statement that is read alone."""

UNKNOWN: Final = "unknown"

_SQL_KEYS: Final = word_set("sql ddl dml")
_KEYS: Final = _SQL_KEYS | word_set("query queries statement statements script migration")
_GAP: Final = r"[\s(;\ufeff]"
_FIRST: Final = (
    r"(?:select|insert|update|delete|drop|create|alter|truncate|with|merge|grant|revoke|replace|call|exec|execute"
    r"|do|set|begin|explain|copy|load|vacuum|rename|declare|use|values|lock|commit|rollback|reindex|pragma|attach"
    r"|handler|xa|prepare|table\s+[\w.\"]+\s*(?=;|\Z))(?!\w)"
)
_BEGINS: Final = re.compile(
    rf"(?:\A{_GAP}*+|(?<!{_GAP})(?=[\s(\ufeff]*;){_GAP}++|(?:\*/|/\*M?!\d*+){_GAP}*+){_FIRST}", re.IGNORECASE
)
"""A statement at the beginning, behind a semicolon or behind a comment. No gap is gone through twice."""
_BEGINS_A_LINE: Final = re.compile(rf"(?<!{_GAP})(?=[\s(;\ufeff]*[\n\r]){_GAP}++{_FIRST}", re.IGNORECASE)
_LINE_COMMENT: Final = re.compile(r"--|#")
_HIDDEN: Final = re.compile(r"\$\w*\$|/\*(?>(?:[^*/]|\*(?!/)|/(?!\*))*)/\*")
"""`$x$` is a name to some databases, and a comment within another ends at some with the first `*/`."""
_OTHERWISE: Final = re.compile(rf"[\\`#]|--(?!\s)|/\*M?!|\btemporary\b|{_HIDDEN.pattern}", re.IGNORECASE)
_BODY: Final = re.compile(
    r"(?:\A|;)\s*(?:create\s+(?:or\s+replace\s+)?(?:function|procedure)|(do))\b[^;$]*+(\$\w*\$)",
    re.IGNORECASE,
)
"""How begins what PostgreSQL runs later, or with `DO` now; others refuse it."""
_EXECUTED: Final = re.compile(
    r"\bexec(?:ute)?\b(?:\s+immediate)?[\s(]*(?:(?:sys\.)?sp_executesql\s*|format\s*\(\s*)?N?'((?>(?:[^']|'')*))'",
    re.IGNORECASE,
)
"""A statement in a text, perhaps with places for names."""
_PLACE: Final = re.compile(r"%[\d$]*[ILs]")
_STEP: Final = re.compile(rf"\b(?:begin|then|else|loop)\s+(?={_FIRST})", re.IGNORECASE)
"""Where one begins in a body."""
_BATCH: Final = re.compile(r"^[ \t]*go[ \t]*$", re.IGNORECASE | re.MULTILINE)
"""Where the clients of SQL Server end what they send together."""
_BRACKETED: Final = re.compile(r"\[[A-Za-z_]|(?<![\w$])#[A-Za-z_#]")
_CONDITIONAL: Final = re.compile(r"/\*M?!\d*+((?>(?:[^*]|\*(?!/))*))(?:\*/|\Z)")
_CLIENTS: Final = word_set(
    "psql mysql mariadb sqlite3 sqlite sqlcmd bq duckdb clickhouse-client snowsql usql pgcli mycli wrangler "
    "turso"
)
_WITHIN: Final = word_set("docker podman nerdctl kubectl oc docker-compose")
"""Programs that start a client elsewhere."""
_META: Final = re.compile(r"^[ \t]*[\\.]\w[^\\;\n]*$", re.MULTILINE)
"""A line for the client itself, such as `\\c other` and `.mode csv`."""
_CLIENT_OPTIONS: Final = re.compile(r"(?:--command|--execute|--query|-[ceqQ])=?(.*)", re.DOTALL)
_EXPLAINED: Final = re.compile(
    r"(^|;)\s*explain\s++(?=[^;]{0,200}\banaly[sz]e\b)(?:(?:analy[sz]e|verbose|\([^)]{0,200}\))\s*)+",
    re.IGNORECASE,
)
"""`EXPLAIN ANALYZE` runs what it explains, ..."""
_PREPARED: Final = re.compile(r"(^|;)\s*prepare\s+[\w\"]+\s*+(?:\([^)]{0,200}\)\s*+)?as\s+", re.IGNORECASE)
"""... and `PREPARE` names what `EXECUTE` runs."""
_FORCED: Final = re.compile(
    r"(drop\s+database\s+(?:if\s+exists\s+)?[\w.\"]{1,128})\s+with\s*\(\s*force\s*\)", re.IGNORECASE
)
"""What the parser does not know: PostgreSQL throws out who is connected."""
_TEMPORARY_NAMES: Final = re.compile(r"#|pg_temp\.", re.IGNORECASE)


class _Beyond(Exception):
    """A bound was reached."""


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
            found += _of_client(command.words, command.inputs)
        elif command.program in _WITHIN:
            at = next((at for at, word in enumerate(command.words) if word in _CLIENTS), None)
            if at is not None:
                found += _of_client(command.words[at + 1 :], command.inputs)
    return found


def _reads_as_sql(text: str) -> bool:
    """Whether one of its statements begins as SQL does."""
    return _BEGINS.search(text) is not None or (
        _LINE_COMMENT.search(text) is not None and _BEGINS_A_LINE.search(text) is not None
    )


def _of_client(words: Sequence[str], inputs: Sequence[str]) -> Iterator[str]:
    """What a client of a database is told to run, and what it reads."""
    for text in inputs:
        text = _META.sub("", text)
        if _reads_as_sql(text) or _BEGINS_A_LINE.search(text):
            yield text
    given = False
    for word in words:
        option = _CLIENT_OPTIONS.fullmatch(word)
        text = option[1] if option else word
        if text and (given or _reads_as_sql(text)):
            yield text
        given = option is not None and not option[1]


def statements_of(texts: Iterable[str]) -> tuple[list[Json], bool]:
    """The entries, each once, and whether there may be more."""
    found: dict[str, dict[str, Json]] = {}
    room = MOST_SQL
    steps = [STEPS]
    for text in texts:
        text = _BATCH.sub(";", _FORCED.sub(r"\1", text.removeprefix("\ufeff")))
        room -= len(text)
        steps[0] += STEPS_A_CHARACTER * len(text)
        if room < 0:
            return list(found.values()), True
        try:
            # what stands in /*! */ is run by MySQL, in /*M! */ by MariaDB, and by some versions alone
            for read in dict.fromkeys(_CONDITIONAL.sub(kept, text) for kept in (r" \1 ", " ")):
                for entry in _entries(_PREPARED.sub(r"\1 ", _EXPLAINED.sub(r"\1 ", read)), steps):
                    found[repr(entry)] = entry
            for body in _run_within(text):
                for entry in _entries(body, steps):
                    if entry["tables"] or entry["verb"] == "drop":  # what else a body has is no statement
                        found[repr(entry)] = entry
        except (_Beyond, RecursionError):
            return list(found.values()), True
        if len(found) > MOST_FOUND:
            return list(found.values())[:MOST_FOUND], True
    return list(found.values()), False


def _run_within(text: str) -> Iterator[str]:
    """The SQL in the texts and bodies that a text of SQL runs."""
    end = 0
    while (found := _BODY.search(text, end)) and (end := text.find(found[2], found.end())) >= 0:
        if found[1]:
            yield _STEP.sub("; ", text[found.end() : end])
    for found in _EXECUTED.finditer(text):
        if _BEGINS.search(found[1]):
            yield _PLACE.sub("x", found[1].replace("''", "'"))


def entry(
    verb: str, tables: Sequence[str] = (), where: bool = False, temporary: bool = False, thing: str = ""
) -> dict[str, Json]:
    """An entry of `derived.sql`."""
    return {"verb": verb, "tables": list(tables), "where": where, "temporary": temporary, "object": thing}


def _entries(text: str, steps: list[int]) -> Iterator[dict[str, Json]]:
    bracketed = _BRACKETED.search(text) is not None
    readings = [_parsed(text, _POSTGRES, steps)]
    if _OTHERWISE.search(text) is not None:
        readings.append(_parsed(text, _MYSQL, steps))
        if readings[1] is None and _HIDDEN.search(text) is not None and _BODY.search(text) is None:
            readings += [_parsed(each, _MYSQL, steps) for each in _apart(text, _MYSQL)]
    if bracketed:
        readings.append(_parsed(text, _SQL_SERVER, steps))
    if readings[0] is None and not (any(readings) and (bracketed or "`" in text)):
        several = _apart(text)
        if len(several) > 1:
            for each in several:
                yield from _entries(each, steps)
            return
        yield entry(UNKNOWN)
    for reading in readings:
        temporary: set[str] = set()
        for tree in reading or ():
            yield from _of_tree(tree, temporary)


def _of_tree(tree: Any, temporary: set[str]) -> Iterator[dict[str, Json]]:
    from sqlglot import exp

    changing = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into)
    yield _of_statement(tree, temporary)
    if isinstance(tree, (exp.Drop, exp.Alter)):
        temporary.difference_update(_names(tree))
    elif not isinstance(tree, (exp.Query, exp.DML, exp.Create, exp.TruncateTable, exp.Transaction)):
        temporary.clear()  # the end of a transaction may take the tables away, and so may DISCARD
    for node in tree.walk():
        if isinstance(node, exp.Drop) and isinstance(tree, exp.Alter):
            yield entry("drop", _names(tree), thing=str(node.args.get("kind") or "").lower())
        elif node is not tree and isinstance(node, changing):
            if isinstance(node, exp.Into):
                yield entry("create", _names(node), temporary=bool(node.args.get("temporary")), thing="table")
            elif not isinstance(node.parent, exp.When):
                yield _of_statement(node, temporary)


def _of_statement(node: Any, temporary: set[str]) -> dict[str, Json]:
    from sqlglot import exp

    verb = _VERBS.get(node.key, node.key)
    if isinstance(node, exp.Command):
        words = f"{node.this} {node.args.get('expression') or ''}".lower().split()
        if words[0] == "rename":
            renamed = [word.strip("`'\"") for word, following in pairwise(words) if following == "to"]
            return entry("rename", renamed, thing=words[1].strip("'") if words[1:] else "")
        return entry(words[0], thing=words[1] if words[1:] and words[1].isalpha() else "")
    if isinstance(node, (exp.Condition, exp.Alias)) and not isinstance(node, exp.Query):
        return entry(UNKNOWN)
    if isinstance(node, (exp.Create, exp.Drop, exp.Alter, exp.TruncateTable)):
        made = node.this if isinstance(node, exp.Create) else node
        names = list(dict.fromkeys(_names(made))) if made is not None else []
        thing = str(node.args.get("kind") or ("table" if verb == "truncate" else "")).lower()
        properties = node.args.get("properties")
        marked = bool(node.args.get("temporary")) or (
            properties is not None and properties.find(exp.TemporaryProperty) is not None
        )
        if thing == "table" and verb == "create":
            passes = marked and _is_surely_made(node)
            (temporary.update if passes else temporary.difference_update)(names)
        passing = marked or _all_pass(names, temporary if thing == "table" else ())
        return entry(verb, names, temporary=passing, thing=thing)
    names = list(dict.fromkeys(_names(node)))
    return entry(verb, names, _is_limited(node), _all_pass(names, temporary))


def _is_surely_made(created: Any) -> bool:
    """Whether nothing is seen for which a database would refuse a table, and go on with what follows."""
    from sqlglot import exp

    columns = [column.name.lower() for column in created.find_all(exp.ColumnDef)]
    types = created.find_all(exp.DataType)
    return len(columns) == len(set(columns)) and all(
        each.this != exp.DataType.Type.USERDEFINED for each in types
    )


def _all_pass(names: Sequence[str], temporary: Collection[str]) -> bool:
    """Whether all that is named are temporary tables."""
    return bool(names) and all(_TEMPORARY_NAMES.match(name) or name in temporary for name in names)


_VERBS: Final = {
    "truncatetable": "truncate",
    "transaction": "begin",
    "union": "select",
    "except": "select",
    "intersect": "select",
    "subquery": "select",
    "values": "select",
    "setitem": "set",
}


def _names(node: Any) -> list[str]:
    """The tables in a node, in lower case, with their schemas."""
    from sqlglot import exp

    found, common = list[str](), {each.alias.lower() for each in node.find_all(exp.CTE)}
    for table in node.find_all(exp.Table):
        name = ".".join(part.name for part in table.parts).lower()
        if name and name not in common:
            passing = any(part.args.get("temporary") for part in table.parts)
            found.append(f"#{name}" if passing else name)
    return found


def _is_limited(node: Any) -> bool:
    """Whether a condition that reads a column says which rows; `WHERE 1 = 1` says none."""
    return (where := node.args.get("where")) is not None and _limits(where.this)


def _limits(condition: Any, negated: bool = False) -> bool:
    """Whether some rows may not meet a condition; of one that is `a OR b` both have to limit it. To compare
    a thing with itself limits nothing, nor does a query within it that reads nothing outside."""
    from sqlglot import exp

    if isinstance(condition, (exp.Paren, exp.Not)):
        return _limits(condition.this, negated ^ isinstance(condition, exp.Not))
    if isinstance(condition, (exp.And, exp.Or)):
        either = any if isinstance(condition, exp.And) is not negated else all
        return either(_limits(part, negated) for part in condition.flatten(unnest=False))
    if isinstance(condition, exp.Binary) and _is_same(condition.left, condition.right):
        return False
    within: list[Any] = []
    for node in condition.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(node, exp.Column):
            return True
        if isinstance(node, exp.Query):
            within.append(node)
    tables = {table.alias_or_name.lower() for query in within for table in query.find_all(exp.Table)}
    columns = (column for query in within for column in query.find_all(exp.Column))
    return any(column.table and column.table.lower() not in tables for column in columns)


def _is_same(one: Any, other: Any) -> bool:
    from sqlglot import exp

    if isinstance(one, exp.Column) and isinstance(other, exp.Column) and not (one.table and other.table):
        return bool(one.name.lower() == other.name.lower())
    return bool(one == other)


def _apart(text: str, dialect: str = _POSTGRES) -> list[str]:
    """The statements of a text, so that one which cannot be read hides no other; none if even the words
    cannot be told apart."""
    from sqlglot.errors import SqlglotError

    try:
        tokens = _reader(dialect)[0].tokenize(text)
    except (SqlglotError, ValueError):
        return []
    ends = [token.start for token in tokens if token.token_type.name == "SEMICOLON"]
    pieces = [text[start:end].strip(" ;\n\t\r") for start, end in pairwise([0, *ends, len(text)])]
    return [piece for piece in pieces if piece]


def _parsed(text: str, dialect: str, steps: list[int]) -> list[Any] | None:
    """The trees of the statements; None when one of them cannot be parsed."""
    from sqlglot.errors import ErrorLevel, SqlglotError

    language, parser = _reader(dialect)
    steps[0] -= STEPS_A_TEXT
    if steps[0] < 0:
        raise _Beyond
    try:
        made = parser(error_level=ErrorLevel.IMMEDIATE, dialect=language)
        made.left = steps
        return [
            tree
            for tree in made.parse(language.tokenize(text), text)
            if tree is not None and tree.key != "semicolon"
        ]
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        return None  # what its parser stumbles on is as little understood as what it refuses


def load_readers() -> None:
    """Load now what texts are read with, see the module."""
    for dialect in (_POSTGRES, _MYSQL, _SQL_SERVER):
        _reader(dialect)


@cache
def _reader(dialect: str) -> tuple[Any, Any]:
    """A dialect, and its parser with its steps counted."""
    from sqlglot.dialects.dialect import Dialect

    # What it says quotes the text of the call. Not `disabled`: to configure logging later would undo that.
    logging.getLogger("sqlglot").addFilter(lambda record: False)
    language: Any = Dialect.get_or_raise(dialect)
    language.INDEX_OFFSET = 0  # with another, each `[1]` has the types of all before it worked out again
    base: Any = language.parser_class

    class Counted(base):  # type: ignore[misc, unused-ignore]
        left: list[int]

        def _advance(self, times: int = 1) -> None:
            self.left[0] -= 1
            if self.left[0] < 0:
                raise _Beyond
            super()._advance(times)

    return language, Counted
