"""A host as it is compared, however it is written."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

from engine.derived.recipients import LONGEST_DOMAIN, domain_of
from engine.fields.computed import UNREADABLE
from engine.fields.visible import composed

_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_HOLDING: Final = tuple(IPv6Address(each).packed[:12] for each in ("::", "::ffff:0:0", "64:ff9b::"))
"""How addresses begin that lead to the one of IPv4 at their end."""


def host_of(text: str) -> str:
    """A host as it is compared: lower case, IDNA, no dot at the end; an IP address in its usual spelling.
    What is too long for a host is `UNREADABLE`."""
    return _host(text) if len(text) <= LONGEST_DOMAIN else UNREADABLE


@lru_cache(maxsize=4096)
def _host(text: str) -> str:
    host = composed(unquote(text) if "%" in text and ":" not in text else text).strip().strip("[]").lower()
    if ":" in host:
        try:
            address = IPv6Address(host.partition("%")[0])
        except AddressValueError:
            return host
        begin, end = address.packed[:12], address.packed[12:]
        within = IPv4Address(end) if begin in _HOLDING and int(address) > 1 else address.sixtofour
        return str(within or address)
    named = domain_of(host)
    return _ipv4(host.rstrip(".")) or _ipv4(named) or named


def _ipv4(host: str) -> str | None:
    """`2130706433`, `0x7f.1` and `0177.0.0.1` as `127.0.0.1`; None for a name."""
    parts = host.split(".")
    if len(parts) > 4 or len(host) > 64 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        numbers = [
            int(part[2:] or "0", 16) if part[:2].lower() == "0x" else int(part, 8 if part[0] == "0" else 10)
            for part in parts
        ]
    except ValueError:
        return None
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(parts)):
        return None
    whole = sum(number << 8 * (3 - at) for at, number in enumerate(first)) + last
    return str(IPv4Address(whole))
