"""Ids of documents, which are also the names of their files.

Decides what an id may be beyond its form in the schemas, and which one a name gives.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

RESERVED_STEMS: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))}
)
"""Names that some file systems cannot store; a checkout must work everywhere."""


def slug(name: str) -> str:
    """A policy id made from a name: lower-case letters (without accents), digits and `-`; `policy` when
    nothing is left."""
    plain = (each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    text = re.sub(r"[^a-z0-9]+", "-", "".join(plain).casefold())[:80].strip("-")
    text = re.sub(r"_test$", "-test", text)
    return f"policy-{text}" if text in RESERVED_STEMS else text or "policy"


def refuse_id(policy_id: str, kind: str = "policyId") -> str | None:
    """Why an id cannot name a file, or None."""
    if policy_id.endswith("_test"):
        return f"`{kind}` must not end in `_test`, which names files of tests"
    if policy_id.split(".")[0] in RESERVED_STEMS:
        return f"`{policy_id}` is a name that some systems cannot store; choose another"
    return None
