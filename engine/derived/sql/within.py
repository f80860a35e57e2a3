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
_PREPARED: Final = re.compile(r"(^|;)\s*prepare\s+[\w\"]+\s*+(?:\([^)]{0,200}\)\s*+)?as\s+", re.IGNORECASE)
"""... and `PREPARE` names what `EXECUTE` runs."""
_FORCED: Final = re.compile(
    r"(drop\s+database\s+(?:if\s+exists\s+)?[\w.\"]{1,128})\s+with\s*\(\s*force\s*\)", re.IGNORECASE
)
"""What the parser does not know: PostgreSQL throws out who is connected."""


def plain(text: str) -> str:
    """A text in words that the parser knows."""
    return _BATCH.sub(";", _FORCED.sub(r"\1", text.removeprefix("\ufeff")))


def readings(text: str) -> Iterator[str]:
    """A plain text as databases take it, with what it explains or prepares as statements."""
    # what stands in /*! */ is run by MySQL, in /*M! */ by MariaDB, and by some versions alone
    for read in dict.fromkeys(_CONDITIONAL.sub(kept, text) for kept in (r" \1 ", " ")):
        yield _PREPARED.sub(r"\1 ", _EXPLAINED.sub(r"\1 ", read))


def run_within(text: str) -> Iterator[str]:
    """The SQL in the texts and bodies that a plain text runs."""
    end = 0
    while (found := BODY.search(text, end)) and (end := text.find(found[2], found.end())) >= 0:
        if found[1]:
            yield _STEP.sub("; ", text[found.end() : end])
    for found in _EXECUTED.finditer(text):
        if BEGINS.search(found[1]):
            yield _PLACE.sub("x", found[1].replace("''", "'"))
