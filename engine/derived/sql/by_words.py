"""Statements that the parser refuses, told by their words: a database may know more than the parser does.

SQLite takes a comment without an end, runs what stands before a text that it cannot read, and PostgreSQL has
words for names that begin statements elsewhere. Works on the text. Knows nothing of what policies ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from engine.derived.sql.within import masked, uncommented, whole

BRACKETED: Final = re.compile(r"\[(?>(?:[^\]\['\"`;/-]|-(?!-)|/(?!\*))*)(?:['\"`;]|--|/\*)[^\]]*\]?")
"""A name in brackets, as SQLite and SQL Server have them, in which others see the begin of a text."""
_NAME: Final = r"(?:[\w$]++|\"x*+|`[^`]*`|\[[^\]]*\])"
"""A part of a name, in a text that is masked: of one in quotes the quote is left."""
_NAMES: Final = rf"{_NAME}(?:\s*+\.\s*+{_NAME})*"
_TEXT_AS_NAME: Final = re.compile(
    r"\b((?:from|table|exists|update(?:\s+or\s+\w+)?)\s+(?:\w+\s*\.\s*)?)'(\w+)'", re.IGNORECASE
)
"""`DROP TABLE 'users'`, as SQLite takes it."""
_STATEMENT: Final = re.compile(
    r"(?:\A|(?<=[;(]))\s*+(?:(?P<delete>delete)\s++from|(?P<update>update)(?:\s++or\s++\w++)?"
    r"(?:\s++top\s*+\([^()]*\)(?:\s*+percent)?)?"
    r"|(?P<drop>drop)\s++(?P<thing>table|database|schema|materialized\s++view)(?:\s++if\s++exists)?"
    rf"|(?P<truncate>truncate)(?:\s++table)?)\s++(?:only\s++)?(?P<name>{_NAMES})(?P<rest>[^;]*+)",
    re.IGNORECASE,
)
_GONE: Final = re.compile(
    rf"\A(?>(?:\s*+,\s*+{_NAMES})*)\s*+(?:\Z|\)|(?:cascade|restrict|purge|force|sync|nowait|wait|restart|continue"
    r"|on\s+cluster|no\s+delay|(?:drop|reuse)\s+(?:all\s+)?storage|settings|including)\b|(?:with|partition)\s*\()",
    re.IGNORECASE,
)
_GOES_ON: Final[Mapping[str, re.Pattern[str]]] = {
    "delete": re.compile(
        rf"\s*+(?:\*\s*+)?(?:(?:as\s++)?{_NAME}\s*+)??(?:\Z|\)|(?:where|using|returning|return|output|from|join"
        r"|(?:inner|left|cross|natural)\s+join|order\s+by|limit|(?:not\s+)?indexed|settings|on\s+cluster"
        r"|for\s+portion|in\s+partition|then\s+return|log\s+errors|skip\s+locked)\b"
        r"|(?:option|with|(?:sub)?partition)\s*\()",
        re.IGNORECASE,
    ),
    "update": re.compile(r".*?\bset\b[^=]{0,400}+=", re.IGNORECASE | re.DOTALL),
    "drop": _GONE,
    "truncate": _GONE,
}
"""How a statement goes on behind the name, as a sentence (`delete from the list what is old`) does not."""
_ALIAS: Final = re.compile(
    r"\A\s*+(?:\*\s*+)?(?:as\s++)?(?!(?:as|set|where|using|from|returning|order|limit|indexed|not|cascade"
    r"|restrict)\b)[^\s;.,()]++(?=\s|\Z)",
    re.IGNORECASE,
)
_RETURNING: Final = re.compile(r"\breturning\b.*", re.IGNORECASE | re.DOTALL)
_WHERE: Final = re.compile(r"\bwhere\b", re.IGNORECASE)
_QUOTES: Final = re.compile(r"[\s\"`\[\]]")
MOST_STATEMENTS: Final = 64


class Told(NamedTuple):
    """What the words of a statement say, and the statement in words that the parser may know."""

    verb: str
    table: str
    where: bool
    thing: str
    simpler: str


def by_words(text: str) -> Iterator[Told]:
    """What a text deletes, changes, drops or empties, as far as its words tell."""
    named = BRACKETED.sub(" x ", text)
    readings = {text: None, named: None}
    if "/*" in named:
        readings[uncommented(named, nested=False)] = None
    for reading in readings:
        each = _TEXT_AS_NAME.sub(r'\1"\2"', reading)
        shown = masked(each)
        for number, found in enumerate(_STATEMENT.finditer(shown, 0, whole(each))):
            if number == MOST_STATEMENTS:
                return
            verb = next(name for name in _GOES_ON if found[name])
            if _GOES_ON[verb].match(found["rest"]) is None:
                continue
            rest = _RETURNING.sub("", each[found.start("rest") : found.end("rest")])
            table = _QUOTES.sub("", each[found.start("name") : found.end("name")]).lower()
            said = _WHERE.search(_RETURNING.sub("", found["rest"])) is not None
            thing = " ".join((found["thing"] or ("table" if verb == "truncate" else "")).lower().split())
            simpler = ""
            if verb in ("delete", "update"):
                begin = "DELETE FROM" if verb == "delete" else "UPDATE"
                simpler = f"{begin} {table}{_ALIAS.sub(' ', rest, count=1)}"
            yield Told(verb, table, said, thing, simpler)
