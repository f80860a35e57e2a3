"""The SQL of a call: what `derived.sql` shows, one entry a statement.

Read by sqlglot, first as PostgreSQL, and where the text has what other databases read otherwise, as MySQL
and as SQL Server too: what one of them would run counts. A statement within another (`WITH x AS (DELETE
...)`) is an entry of its own. What cannot be parsed is one entry with the verb `unknown`. What goes beyond a
bound is read only in part. Knows nothing of policies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from engine.derived.payload import MOST_FOUND
from engine.derived.sql.by_words import BRACKETED, by_words
from engine.derived.sql.parser import (
    MYSQL,
    POSTGRES,
    SQL_SERVER,
    STEPS,
    STEPS_A_CHARACTER,
    Beyond,
    apart,
    parsed,
)
from engine.derived.sql.within import BODY, later, masked, plain, readings, run_within
from engine.model import Json

MOST_SQL: Final = 16_384
"""Characters of SQL that are read of one call."""

UNKNOWN: Final = "unknown"

_HIDDEN: Final = re.compile(r"\$\w*\$|--(?!\s)|/\*(?>(?:[^*/]|\*(?!/)|/(?!\*))*)/\*")
"""`$x$` is a name to some databases, `--1` a number, and a comment within another ends at some with the first
`*/`."""
_OTHERWISE: Final = re.compile(rf"[\\`#]|/\*M?!|\btemporary\b|{_HIDDEN.pattern}", re.IGNORECASE)
_NAMED: Final = re.compile(
    r"\b(?:table|into|from|join)\s(?:if\s(?:not\s)?exists\s|only\s|/\*[^*]*+\*/\s?)*([^\s(),;.]+(?:\s?\.\s?[^\s(),;]+)?)"
)
"""A table in a statement that is read as words alone."""
_CHANGING: Final = frozenset({"alter", "replace", "truncate"})
_PUNCTUATION: Final = re.compile(r"[\s\"'`\[\]]")
_BRACKETED: Final = re.compile(r"\[[A-Za-z_]|(?<![\w$])#[A-Za-z_#]")
_TEMPORARY_NAMES: Final = re.compile(r"#|pg_temp\.", re.IGNORECASE)


def statements_of(texts: Iterable[str]) -> tuple[list[Json], bool]:
    """The entries, each once, and whether there may be more."""
    found: dict[str, dict[str, Json]] = {}
    room = MOST_SQL
    steps = [STEPS]
    for text in texts:
        room -= len(text)
        if room < 0:
            return list(found.values()), True
        text = plain(text)
        steps[0] += STEPS_A_CHARACTER * len(text)
        try:
            for read in readings(text):
                for entry in _entries(read, steps):
                    found[repr(entry)] = entry
            for body in run_within(text):
                for entry in _entries(body, steps):
                    if entry["tables"] or entry["verb"] == "drop":  # what else a body has is no statement
                        found[repr(entry)] = entry
        except (Beyond, RecursionError):
            return list(found.values()), True
        if len(found) > MOST_FOUND:
            return list(found.values())[:MOST_FOUND], True
    return list(found.values()), False


def _entry(
    verb: str, tables: Sequence[str] = (), where: bool = False, temporary: bool = False, thing: str = ""
) -> dict[str, Json]:
    """An entry of `derived.sql`."""
    return {"verb": verb, "tables": list(tables), "where": where, "temporary": temporary, "object": thing}


def _entries(text: str, steps: list[int], alone: bool = False) -> Iterator[dict[str, Json]]:
    bracketed = _BRACKETED.search(text) is not None or BRACKETED.search(text) is not None
    read = [parsed(text, POSTGRES, steps)]
    if read[0] is None or _OTHERWISE.search(text) is not None:
        read.append(parsed(text, MYSQL, steps))
        if read[1] is None and _HIDDEN.search(text) is not None and BODY.search(text) is None:
            pieces = [parsed(each, MYSQL, steps) for each in apart(text, MYSQL)]
            read += pieces
            if read[0] is None and None in pieces:
                yield _entry(UNKNOWN)
                yield from () if any(pieces) else _told(text, steps)
    if bracketed:
        read.append(parsed(text, SQL_SERVER, steps))
    # What has names in brackets or in backticks, but not in both, is read whole by one that knows them.
    ticked = "`" in text
    both = bracketed and ticked and "[" in masked(text)
    if read[0] is None and (both or not (any(read) and (bracketed or ticked))):
        several = apart(text)
        if len(several) > 1:
            for each in several:
                yield from _entries(each, steps)
            alone = True  # what is behind others was read with them
        else:
            yield _entry(UNKNOWN)
            yield from () if any(read) else _told(text, steps)
    if not alone and not _is_understood(read[0]):
        for whole, cut in later(text):
            yield from _behind(whole, cut, steps)
    for reading in read:
        temporary: set[str] = set()
        for tree in reading or ():
            yield from _of_tree(tree, temporary)


def _told(text: str, steps: list[int]) -> Iterator[dict[str, Json]]:
    """What cannot be parsed, as far as its words tell."""
    for told in by_words(text):
        trees = parsed(told.simpler, POSTGRES, steps) if told.simpler else None
        if trees:
            yield from (_of_statement(tree, set()) for tree in trees)
        else:
            passing = _all_pass([told.table], ())
            yield _entry(told.verb, [told.table], told.where, passing, told.thing)


def _is_understood(trees: Sequence[Any] | None) -> bool:
    """Whether nothing else may stand in the statements than what was read."""
    from sqlglot import exp

    known = (
        exp.Query,
        exp.DML,
        exp.Create,
        exp.Drop,
        exp.Alter,
        exp.TruncateTable,
        exp.Transaction,
        exp.Commit,
    )
    return trees is not None and all(
        isinstance(tree, known)
        # SQL Server takes `SELECT 1 DELETE FROM a` for two, others for a column of that name
        and not any(
            isinstance(each.parent, (exp.Alias, exp.TableAlias))
            and each.name.lower() in ("delete", "truncate")
            and not each.quoted
            for each in tree.find_all(exp.Identifier)
        )
        for tree in trees
    )


def _behind(whole: str, cut: str, steps: list[int]) -> Iterator[dict[str, Json]]:
    """A statement behind other words, as far as it can be read."""
    for text in dict.fromkeys((whole, cut)):
        found = [
            each for each in _entries(text, steps, alone=True) if each["verb"] != UNKNOWN and each["tables"]
        ]
        yield from found
        if found:
            return


def _of_tree(tree: Any, temporary: set[str]) -> Iterator[dict[str, Json]]:
    from sqlglot import exp

    changing = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into)
    yield _of_statement(tree, temporary)
    if isinstance(tree, exp.Create) and isinstance(tree.expression, exp.Query):
        yield _of_statement(tree.expression, temporary)
    if isinstance(tree, (exp.Drop, exp.Alter)):
        temporary.difference_update(_names(tree))
    elif not isinstance(tree, (exp.Query, exp.DML, exp.Create, exp.TruncateTable, exp.Transaction)):
        temporary.clear()  # the end of a transaction may take the tables away, and so may DISCARD
    for node in tree.walk():
        if isinstance(node, exp.Drop) and isinstance(tree, exp.Alter):
            yield _entry("drop", _names(tree), thing=str(node.args.get("kind") or "").lower())
        elif node is not tree and isinstance(node, changing):
            if isinstance(node, exp.Into):
                yield _entry(
                    "create", _names(node), temporary=bool(node.args.get("temporary")), thing="table"
                )
            elif not isinstance(node.parent, exp.When):
                yield _of_statement(node, temporary)
        if isinstance(node, exp.Merge):
            yield from _within_merge(node, temporary)


def _within_merge(merge: Any, temporary: set[str]) -> Iterator[dict[str, Json]]:
    """What it does to rows that are there, each as the statement that would do so."""
    from sqlglot import exp

    names = _names(merge.this)
    for when in merge.find_all(exp.When):
        then, conditions = when.args["then"], (merge.args.get("on"), when.args.get("condition"))
        verb = then.name.lower() if isinstance(then, exp.Var) else then.key
        if verb in ("update", "delete"):
            where = any(_limits(each) for each in conditions if isinstance(each, exp.Expression))
            shared = bool(merge.args.get("using_cond"))  # columns, as `USING (id)` says
            yield _entry(verb, names, where or shared, _all_pass(names, temporary))


def _of_statement(node: Any, temporary: set[str]) -> dict[str, Json]:
    from sqlglot import exp

    verb = _VERBS.get(node.key, node.key)
    if isinstance(node, exp.Command):
        words = f"{node.this} {node.args.get('expression') or ''}".lower().split()
        if words[0] == "rename":
            renamed = [word.strip("`'\"") for word, following in pairwise(words) if following == "to"]
            return _entry("rename", renamed, thing=words[1].strip("'") if words[1:] else "")
        found = _NAMED.finditer(" ".join(words)) if words[0] in _CHANGING else ()
        names = [_PUNCTUATION.sub("", each[1]) for each in found]
        return _entry(words[0], names, thing=words[1] if words[1:] and words[1].isalpha() else "")
    if isinstance(node, (exp.Condition, exp.Alias)) and not isinstance(node, exp.Query):
        return _entry(UNKNOWN)
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
        return _entry(verb, names, temporary=passing, thing=thing)
    names = list(dict.fromkeys(_names(node)))
    return _entry(verb, names, _is_limited(node), _all_pass(names, temporary))


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
