"""What a text of SQL runs besides what it says: what stands in comments that some databases run, what it
explains, prepares or executes, and the bodies that it runs at once.

Works on the text, before anything is parsed. Knows nothing of what a statement does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engine.derived.sql.texts import BEGINS, FIRST

BODY: Final = re.compile(
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
_STEP: Final = re.compile(rf"\b(?:begin|then|else|loop)\s+(?={FIRST})", re.IGNORECASE)
"""Where one begins in a body."""
_BATCH: Final = re.compile(r"^[ \t]*go[ \t]*$", re.IGNORECASE | re.MULTILINE)
"""Where the clients of SQL Server end what they send together."""
_CONDITIONAL: Final = re.compile(r"/\*M?!\d*+((?>(?:[^*]|\*(?!/))*))(?:\*/|\Z)")
_EXPLAINED: Final = re.compile(
    r"(^|;)\s*explain\s++(?=[^;]{0,200}\banaly[sz]e\b)(?:(?:analy[sz]e|verbose|\([^)]{0,200}\))\s*)+",
    re.IGNORECASE,
)
"""`EXPLAIN ANALYZE` runs what it explains, ..."""
_PREPARED: Final = re.compile(
    r"(^|;)\s*prepare\s+(?:\w+|\"[^\"]*\")\s*+(?:\([^)]{0,200}\)\s*+)?as\s+", re.IGNORECASE
)
"""... and `PREPARE` names what `EXECUTE` runs."""
_FORCED: Final = re.compile(
    r"(drop\s+database\s+(?:if\s+exists\s+)?[\w.\"]{1,128})\s+with\s*\(\s*force\s*\)", re.IGNORECASE
)
"""What the parser does not know: PostgreSQL throws out who is connected."""


_COMMENT: Final = re.compile(r"/\*|--")
_PIECE: Final = re.compile(
    r"(?<!\w)[eE]'(?>[^'\\]|''|\\.)*+'?|'[^']*+'?|\"[^\"]*+\"?|(?<![\w$])\$(?:[^\W\d]\w*+)?\$|--[^\n\r]*+|/\*",
    re.DOTALL,
)
_BORDER: Final = re.compile(r"/\*|\*/")
_WORDS_COUNT: Final = re.compile(r"\b(?:explain|prepare|alter|truncate|create|declare|lock)\b", re.IGNORECASE)
"""What is read word by word, so that a comment among the words hides what they are."""
_ESCAPED_NAME: Final = re.compile(
    r"(?<!\w)u&\"((?>[^\"]|\"\")*+)\"(?:\s*+uescape\s*+'([^'])')?", re.IGNORECASE
)


def plain(text: str) -> str:
    """A text in words that the parser knows."""
    text = _BATCH.sub(";", _FORCED.sub(r"\1", text.removeprefix("\ufeff")))
    return _ESCAPED_NAME.sub(_spelled, text) if '&"' in text else text


def _spelled(name: re.Match[str]) -> str:
    """`U&"\\0061b"` as `"ab"`, as PostgreSQL reads it."""
    mark = re.escape(name[2] or "\\")
    code = re.compile(rf"{mark}(?:({mark})|\+([0-9A-Fa-f]{{6}})|([0-9A-Fa-f]{{4}}))")
    return '"' + code.sub(lambda each: each[1] or _character(int(each[2] or each[3], 16)), name[1]) + '"'


def _character(code: int) -> str:
    return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else "?"


def uncommented(text: str) -> str:
    """A text with a blank for each comment, as PostgreSQL takes them: one may lie within another."""
    kept: list[str] = []
    at = 0
    while (found := _PIECE.search(text, at)) is not None:
        end = found.end()
        if found[0][0] == "$":
            close = text.find(found[0], end)
            end = len(text) if close < 0 else close + len(found[0])
        elif found[0] == "/*":
            depth = 1
            while depth and (border := _BORDER.search(text, end)) is not None:
                depth += 1 if border[0] == "/*" else -1
                end = border.end()
            end = len(text) if depth else end
        is_comment = found[0].startswith(("--", "/*"))
        kept.append(text[at : found.start()] + " " if is_comment else text[at:end])
        at = end
    return "".join(kept) + text[at:]


def readings(text: str) -> Iterator[str]:
    """A plain text as databases take it, with what it explains or prepares as statements."""
    # what stands in /*! */ is run by MySQL, in /*M! */ by MariaDB, and by some versions alone
    found = [_CONDITIONAL.sub(kept, text) for kept in (r" \1 ", " ")]
    if _COMMENT.search(text) is not None and _WORDS_COUNT.search(text) is not None:
        found.append(uncommented(text))
    yield from dict.fromkeys(_PREPARED.sub(r"\1 ", _EXPLAINED.sub(r"\1 ", each)) for each in found)


def run_within(text: str) -> Iterator[str]:
    """The SQL in the texts and bodies that a plain text runs."""
    end = 0
    while (found := BODY.search(text, end)) and (end := text.find(found[2], found.end())) >= 0:
        if found[1]:
            yield _STEP.sub("; ", text[found.end() : end])
    for found in _EXECUTED.finditer(text):
        if BEGINS.search(found[1]):
            yield _PLACE.sub("x", found[1].replace("''", "'"))
