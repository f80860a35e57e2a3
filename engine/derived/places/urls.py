"""A URL in each way that its readers may take it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from engine.derived.places.hosts import host_of
from engine.fields.computed import UNREADABLE
from engine.fields.visible import composed
from engine.fields.words import word_set

LONGEST_URL: Final = 4096
"""Of a longer URL the beginning is read."""

_AUTHORITY: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]{0,30}):)?[/\\]*([^/\\?#]*)(.*)", re.DOTALL)
_CHOICE: Final = re.compile(r"([^{}]*)\{([^{}]*)\}([^{}]*)")
_UNRESERVED: Final = re.compile(r"%(?:2[DE]|3\d|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
"""Characters that mean the same whether they are encoded or not."""
_NO_HOST: Final = word_set("file data mailto javascript about blob urn jdbc sqlite memory tel sms")


@lru_cache(maxsize=512)
def read(text: str) -> tuple[tuple[str, str], ...]:
    """A URL in each way that it may be read: (itself in normal form, the first time; its host)."""
    parts = _AUTHORITY.fullmatch(composed(text).rstrip(".,;:!?)" if "[" in text else ".,;:!?)]"))
    if parts is None:
        return ()
    scheme, rest = (parts[1] or "").lower(), parts[3]
    if scheme in _NO_HOST:
        return ()
    if len(text) > LONGEST_URL and (not parts[2] or not rest or (rest[0] == "\\" and "/" not in rest)):
        return ((UNREADABLE, UNREADABLE),)
    if not parts[2] + rest:
        return ()
    plain = _UNRESERVED.sub(lambda encoded: unquote(encoded[0]), rest)
    found: list[tuple[str, str]] = []
    readings = _choices(parts[2])
    if "\\" in rest and "@" in rest.partition("/")[0]:
        readings.append(rest.partition("/")[0])  # `http://one\@two`: a browser goes to one, others to two
    if not text.isascii() and (written := _AUTHORITY.fullmatch(text)) and composed(written[2]) != parts[2]:
        readings.append(written[2])  # `one／@two`, where nobody else takes `／` for the end of the host
    for authority in readings:
        user, _, place = authority.rpartition("@")
        place = (place.split() or [""])[0].rstrip(",;")
        bracket = place.rfind("]")
        name, _, port = place[bracket + 1 :].partition(":")
        host = host_of(place[: bracket + 1] + name)
        shown = f"[{host}]" if ":" in host else host
        start = f"{scheme}://" if scheme else "//"
        url = f"{start}{user + '@' if user else ''}{shown}{':' + port if port else ''}{plain}"
        found.append(("" if found else url, host))
    return tuple(found)


def _choices(authority: str) -> list[str]:
    """`{a,b}.example` as curl reads it. A name in braces may also be meant as it stands."""
    if "{" not in authority and "}" not in authority:
        return [authority]
    if choice := _CHOICE.fullmatch(authority):
        return [f"{choice[1]}{each}{choice[3]}" for each in choice[2].split(",", 100)]
    bare = authority.replace("{", "").replace("}", "")
    return [bare, UNREADABLE] if "," in bare else [bare]
