"""What a text of SQL runs besides what it says: what stands in comments that some databases run, what it
explains, prepares or executes, the bodies that it runs at once, and what stands behind other words.

Works on the text, before anything is parsed. Knows nothing of what a statement does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Final

from engine.derived.sql.texts import BEGINS, FIRST

BODY: Final = re.compile(
    r"(?:\A|;)\s*(?:create\s+(?:or\s+replace\s+)?(?:function|procedure)|(do))\b[^;$]*+(\$\w*\$)",
    re.IGNORECASE,
)
"""How begins what PostgreSQL runs later, or with `DO` now; others refuse it."""
_TEXT: Final = r"[NE]?(?:'((?>(?:[^']|'')*))'|\"((?>(?:[^\"]|\"\")*))\")"
"""MySQL takes both kinds of quotes; of a command line one kind is left."""
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|([0-7]{1,3})|([bfnrt]))")
"""A character in a text with `E` before it: by its digits, or one for which a blank will do."""
_EXECUTED: Final = re.compile(
    r"(?:\bexec(?:ute)?\b(?:\s+immediate)?[\s(]*(?:(?:\w+\.){0,3}sp_(?:executesql|msforeach\w{1,9})\s*(?:@\w+\s*=\s*)?"
    r"|(format|concat)\s*\(\s*)?|\bprepare\s+\w+\s+from\s+)" + _TEXT,
    re.IGNORECASE,
)
"""A statement in a text, perhaps with places for names."""
_KEPT: Final = re.compile(
    r"(?:\w\s*+:=|@\w++(?:\s++(?:as\s++)?n?varchar\s*+(?:\([^)']{0,9}\))?)?\s*+\+?=)\s*+(?:(concat)\s*+\(\s*+)?"
    + _TEXT,
    re.IGNORECASE,
)
"""One that is kept under a name ..."""
_RUNS: Final = re.compile(r"\bexec(?:ute)?\b|\bprepare\s+\w+\s+from\b", re.IGNORECASE)
"""... in what runs such texts."""
_ADDED: Final = rf"\s*(?:{_TEXT}|[^\s'\";|+,()][^'\";|+,()]*+(?:\((?:[^()'\"]|\([^()'\"]*\))*\))?)\s*"
_JOINED: Final = re.compile(r"\s*(?:\|\||\+)" + _ADDED)
_LISTED: Final = re.compile(r"\s*," + _ADDED)
"""A further part of a text: as it stands, or worked out."""
_BODY_AS_TEXT: Final = re.compile(r"(?:\A|;)\s*do\s+(?:language\s+\w+\s+)?" + _TEXT, re.IGNORECASE)
_PLACE: Final = re.compile(r"%[\d$]*[ILs]|(?<=table )\?|(?<=from )\?|(?<=update )\?", re.IGNORECASE)
_STEP: Final = re.compile(rf"\b(?:begin|then|else|loop)\s+(?={FIRST})", re.IGNORECASE)
"""Where one begins in a body."""
_BATCH: Final = re.compile(r"^[ \t]*go[ \t]*$", re.IGNORECASE | re.MULTILINE)
"""Where the clients of SQL Server end what they send together."""
_CONDITIONAL: Final = re.compile(r"/\*M?!\d*+((?>(?:[^*]|\*(?!/))*))(?:\*/|\Z)")
_EXPLAINED: Final = re.compile(
    r"(^|;)\s*(?:explain\s++(?=[^;]{0,200}\banaly[sz]e\b)(?:(?:analy[sz]e|verbose|\([^)]{0,200}\))\s*)+"
    r"|analyze\s+(?:format\s*=\s*\w+\s+)?(?=(?:delete|update|insert|replace|with)\b))",
    re.IGNORECASE,
)
"""`EXPLAIN ANALYZE` runs what it explains, and so does MariaDB's `ANALYZE`, ..."""
_PREPARED: Final = re.compile(
    r"(^|;)\s*prepare\s+(?:\w+|\"[^\"]*\")\s*+(?:\([^)]{0,200}\)\s*+)?as\s+", re.IGNORECASE
)
"""... and `PREPARE` names what `EXECUTE` runs."""
_LATER: Final = re.compile(
    r"(?<![\w.$@#])(?<!\bas\s)(?:drop\s+(?:table|database|schema|materialized\s+view)\b|truncate\s+table\b"
    r"|delete\s+(?:from\b|(?!(?:from|on|to|cascade|restrict)\b)[\w.\[\]\"]{1,200}\s*"
    r"(?=;|\Z|\b(?:where|from|output|end|else)\b))"
    r"|update\s+(?!set\b)[\w.\[\]\"]{1,200}(?:\s+(?:as\s+)?\w+)?\s+set\b)",
    re.IGNORECASE,
)
"""Where a statement begins behind others: SQL Server parts them by nothing, blocks have some."""
_MADE: Final = re.compile(
    r"\A\s*explain\b|\b(?:create|alter)\s[^;]{0,200}?\b(?:function|proc(?:edure)?|trigger|event|rule|package|type)\b",
    re.IGNORECASE,
)
"""What follows is run later, or not at all."""
_OF_BATCHES: Final = (
    "if|while|print|delimiter|waitfor|raiserror|throw|dbcc|kill|checkpoint|goto|return|open|close|fetch|save|backup"
    r"|restore|deallocate|reconfigure|revert|deny|(?:en|dis)able\s+trigger|bulk\s+insert"
)
_SQL_FIRST: Final = re.compile(rf"[\s(;]*(?:{FIRST}|(?:{_OF_BATCHES})\b|\w+\s?:\s)", re.IGNORECASE)
"""How SQL begins, and no question in words."""
_ENDS: Final = re.compile(
    r"\b(?:end|else|commit|rollback|exec(?:ute)?|print|begin|if|return|declare|create|alter|insert|use)\b",
    re.IGNORECASE,
)
_BRACKET: Final = re.compile(r"[()]")
_TABLES: Final = re.compile(r"\b(drop\s+(?:temporary\s+)?table)s\b", re.IGNORECASE)
_FORCED: Final = re.compile(
    r"(drop\s+database\s+(?:if\s+exists\s+)?[\w.\"]{1,128})\s+with\s*\(\s*force\s*\)", re.IGNORECASE
)
"""What the parser does not know: PostgreSQL throws out who is connected; ..."""
_WAITING: Final = re.compile(
    r"\s(?:(?:nowait|wait\s+\d+)\s*+(?=;|\Z)|indexed[ \t]+by[ \t]+\w{1,128})", re.IGNORECASE
)
"""... how long MariaDB and Oracle wait for others, and where SQLite looks; ..."""
_IGNORING: Final = re.compile(
    r"\b(?:(delete|update)(?>(?:\s+(?:low_priority|quick|ignore))+)(?=\s)"
    r"|(alter)(?>(?:\s+(?:online|offline|ignore))+)(?=\s+table\b))",
    re.IGNORECASE,
)
"""... how MySQL and MariaDB go about it; ..."""
_DELETED_FROM: Final = re.compile(r"\bdelete\s[^;()']{1,300}?\sfrom\b", re.IGNORECASE)
"""... `DELETE t.*, u.* FROM`, as Access and MySQL have it, ..."""
_ALL_OF: Final = re.compile(r"\.\*(?=[\s,])")
"""... of which only the names are read; ..."""
_REPLACED: Final = re.compile(
    r"\bcreate\s+or\s+replace\s+(?:transient\s+)?(database|schema)\s+([\w.`\"]{1,256})", re.IGNORECASE
)
"""... and that all that is in a database of Snowflake or MariaDB is gone then."""


_BLANK: Final = re.compile(r"[\x00-\x08\x0e-\x1f\ufeff]")
"""What is a part of a word to the parser, and parts two for SQLite (U+FEFF) or SQL Server."""
_COMMENT: Final = re.compile(r"/\*|--")
_PIECE: Final = re.compile(
    r"(?<!\w)[eE]'(?>(?:[^'\\]|''|\\.)*)'?|'[^']*+'?|\"[^\"]*+\"?|(?<![\w$])\$(?:[^\W\d]\w*+)?\$|--[^\n\r]*+|/\*",
    re.DOTALL,
)
_BORDER: Final = re.compile(r"/\*|\*/")
_END: Final = re.compile(r"\*/")
_MISREAD: Final = re.compile(r"[`\[]|/\*(?>(?:[^*/]|\*(?!/)|/(?!\*))*)/\*")
"""What no dialect of the parser has beside all comments: names as SQLite takes them, behind `--x`, and
PostgreSQL's comments within one another."""
_WORDS_COUNT: Final = re.compile(r"\b(?:explain|prepare|alter|truncate|create|declare|lock)\b", re.IGNORECASE)
"""What is read word by word, so that a comment among the words hides what they are."""
_ESCAPED_NAME: Final = re.compile(
    r"(?<!\w)u&\"((?>(?:[^\"]|\"\")*))\"(?:\s*+uescape\s*+'([^'])')?", re.IGNORECASE
)


def plain(text: str) -> str:
    """A text in words that the parser knows."""
    text = _BLANK.sub(" ", text)
    text = _BATCH.sub(";", _FORCED.sub(_begun, _TABLES.sub(r"\1", text)))
    text = _IGNORING.sub(_begun, _WAITING.sub(_begun, text))
    text = _REPLACED.sub(lambda found: found.expand(r"drop \1 \2; create \1 \2") + _line_end(found), text)
    text = _DELETED_FROM.sub(lambda found: _ALL_OF.sub("", found[0]), text)
    return _ESCAPED_NAME.sub(_spelled, text) if '&"' in text else text


def _begun(found: re.Match[str]) -> str:
    """What is kept of something: its group."""
    return (found[found.lastindex] if found.lastindex else "") + _line_end(found)


def _line_end(found: re.Match[str]) -> str:
    """What stands for what is left out. INVARIANT: a line's end where that had one, or a comment before it
    would go on."""
    return "\n" if "\n" in found[0] or "\r" in found[0] else " "


def _spelled(name: re.Match[str]) -> str:
    """`U&"\\0061b"` as `"ab"`, as PostgreSQL reads it."""
    mark = re.escape(name[2] or "\\")
    code = re.compile(rf"{mark}(?:({mark})|\+([0-9A-Fa-f]{{6}})|([0-9A-Fa-f]{{4}}))")
    return '"' + code.sub(lambda each: each[1] or _character(int(each[2] or each[3], 16)), name[1]) + '"'


def _character(code: int) -> str:
    return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else "?"


def _pieces(text: str, *, nested: bool = True) -> Iterator[tuple[int, int, str]]:
    """Where begins and ends what is quoted or a comment, as PostgreSQL takes it, and how it begins; with
    `nested` False the first `*/` ends a comment."""
    at = 0
    while (found := _PIECE.search(text, at)) is not None:
        at = found.end()
        if found[0][0] == "$":
            close = text.find(found[0], at)
            at = len(text) if close < 0 else close + len(found[0])
        elif found[0] == "/*":
            depth, border_of = 1, (_BORDER if nested else _END)
            while depth and (border := border_of.search(text, at)) is not None:
                depth += 1 if border[0] == "/*" else -1
                at = border.end()
            at = len(text) if depth else at
        yield found.start(), at, found[0]


def uncommented(text: str, *, nested: bool = True) -> str:
    """A text with a blank for each comment: one may lie within another where they are `nested`."""
    kept: list[str] = []
    at = 0
    for start, end, piece in _pieces(text, nested=nested):
        is_comment = piece.startswith(("--", "/*"))
        kept.append(text[at:start] + " " if is_comment else text[at:end])
        at = end
    return "".join(kept) + text[at:]


def whole(text: str) -> int:
    """Up to where a text has whole statements: up to the one in which a quoted text or name does not end."""
    start, end, piece = 0, 0, ""
    for start, end, piece in _pieces(text):  # noqa: B007
        pass
    last = text[start:end]
    is_open = end == len(text) and (
        (piece[:1] == "$" and (last == piece or not last.endswith(piece)))
        or (piece[:1] in ("'", '"', "e", "E") and (last[-1] != piece.lstrip("eE")[0] or len(last) == 1))
    )
    return text.rfind(";", 0, start) + 1 if is_open else len(text)


def masked(text: str) -> str:
    """A text of the same length without what stands in comments, quoted texts and quoted names."""
    kept: list[str] = []
    at = 0
    for start, end, piece in _pieces(text):
        length = end - start
        kept += text[at:start], '"'.ljust(length, "x") if piece[0] == '"' else " " * length
        at = end
    return "".join(kept) + text[at:]


def later(text: str) -> Iterator[tuple[str, str]]:
    """The statements of a text that stand behind other words: to the next one, and to what may end it."""
    shown = masked(text)
    if _SQL_FIRST.match(shown) is None:
        return
    made = _MADE.search(shown)
    starts = [found.start() for found in _LATER.finditer(shown, 0, made.start() if made else len(shown))]
    for start, following in pairwise([*starts, len(text)]):
        end = shown.find(";", start, following)
        end = _outside(shown, start, following if end < 0 else end)
        sooner = _ENDS.search(shown, start + 1, end)
        if start:
            yield text[start:end], text[start : sooner.start() if sooner else end]


def _outside(shown: str, start: int, end: int) -> int:
    """Where ends what begins at `start`: at `end`, or with brackets around it (`COPY (DELETE ...)`)."""
    depth = 0
    for found in _BRACKET.finditer(shown, start, end):
        depth += 1 if found[0] == "(" else -1
        if depth < 0:
            return found.start()
    return end


def readings(text: str) -> Iterator[str]:
    """A plain text as databases take it, with what it explains or prepares as statements."""
    # what stands in /*! */ is run by MySQL, in /*M! */ by MariaDB, and by some versions alone
    found = [_CONDITIONAL.sub(kept, text) for kept in (r" \1 ", " ")]
    if _COMMENT.search(text) is not None:
        is_misread = _MISREAD.search(text) is not None
        if is_misread or _WORDS_COUNT.search(text) is not None:
            found.append(uncommented(text))
        if is_misread:
            found.append(uncommented(text, nested=False))
    yield from dict.fromkeys(_PREPARED.sub(_begun, _EXPLAINED.sub(_begun, each)) for each in found)


def run_within(text: str) -> Iterator[str]:
    """The SQL in the texts and bodies that a plain text runs."""
    end = 0
    while (found := BODY.search(text, end)) and (end := text.find(found[2], found.end())) >= 0:
        if found[1]:
            yield _STEP.sub("; ", text[found.end() : end])
    for found in _BODY_AS_TEXT.finditer(text):
        yield _STEP.sub("; ", _said(found, 1))
    if _RUNS.search(text) is None:
        return
    for found in chain(_EXECUTED.finditer(text), _KEPT.finditer(text)):
        said = _put_together(found, text)
        if BEGINS.search(said):
            yield _PLACE.sub("x", said)


def _put_together(found: re.Match[str], text: str) -> str:
    """A text that is run, with its further parts; `x` stands for what is worked out."""
    how, said = (found[1] or "").lower(), _said(found, 2)
    end = found.end()
    further = _LISTED.match if how == "concat" else _JOINED.match
    while how != "format" and (part := further(text, end)) is not None:
        said += "x" if part[1] is part[2] is None else _said(part, 1)
        end = part.end()
    return f"{said}x" if said[-1:].isspace() else said


def _said(found: re.Match[str], group: int) -> str:
    """A quoted text as it is meant."""
    if found[group] is None:
        return found[group + 1].replace('""', '"')
    text = found[group].replace("''", "'")
    quote = found.start(group) - 1
    return _ESCAPE.sub(_escaped, text) if found.string[quote - 1 : quote] in ("e", "E") else text


def _escaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    return " " if found[4] else _character(int(digits, 16) if digits else int(found[3], 8))
