"""E-mails as names of users: which are accepted, and when two are the same."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from engine.fields.visible import invisible

LONGEST: Final = 254
_SHAPE = re.compile(r"[^\s@<>()\[\]\\,;:\"'`]{1,64}@[^\s@<>()\[\]\\,;:\"'`]{1,189}\Z")


def same_email(email: str) -> str:
    """The form of an e-mail that identifies a user, whatever its case and Unicode spelling."""
    return unicodedata.normalize("NFKC", email.strip()).casefold()


def same_names(*names: str | None) -> frozenset[str]:
    """The forms of the names that somebody has, an id and an e-mail; None and empty ones are none."""
    return frozenset(same_email(name) for name in names if name)


def problem_with(email: str) -> str | None:
    """Why this cannot name a user, or None.

    E-mails stand in records, git commits and terminals, so no character that could end a line or hide there
    is accepted; a domain without a dot (`admin@localhost`) is.
    """
    address = same_email(email)
    if not _SHAPE.match(address):
        return "this is not an e-mail address; write one such as `ada@example.com`"
    if any(unicodedata.category(each)[0] in "CZ" or ord(each) in invisible() for each in address):
        return "an e-mail address must not contain invisible characters"
    return None
