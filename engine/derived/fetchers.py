"""Programs that fetch from URLs, and which of their operands are hosts. Knows nothing of calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.fields.words import word_set

FETCHERS: Final = word_set(
    "curl wget http https xh xhs aria2c axel lynx w3m links fetch httpie iwr irm invoke-webrequest "
    "invoke-restmethod"
)
_REQUESTS: Final = frozenset(["http", "https", "xh", "xhs", "httpie"])
"""Programs told a method, a URL, and what to send."""
_METHODS: Final = word_set("get post put patch delete head options trace")

_BARE: Final = re.compile(r"[A-Za-z0-9_][\w-]*")


def bare_hosts(name: str, operands: Sequence[str]) -> Iterator[str]:
    """The operands that can be nothing but a host, though they have neither dot nor port: `curl intranet`."""
    if name in ("curl", "wget"):
        yield from filter(_BARE.fullmatch, operands)
    elif name in _REQUESTS:
        found = [word for word in operands if word.lower() not in _METHODS]
        yield from filter(_BARE.fullmatch, found[:1])
