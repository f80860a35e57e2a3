"""Where deliveries may go: which addresses of receivers are accepted, and which IP addresses are dialled.

Two checks: `problem_with` looks at the text of a webhook's `url` when it is registered; `refusal` looks at an
IP address at the moment it is dialled, because a name may lead anywhere, and elsewhere a second later.
INVARIANT: what is dialled is exactly what `refusal` has accepted. Pure: resolves nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

MOST_URL_CHARACTERS: Final = 2048

_NETWORKS: Final = tuple(
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "of this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "of a carrier's network"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local, where cloud metadata lives"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("168.63.129.16/32", "cloud metadata"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "an IPv4 address in disguise"),
        ("::/96", "an IPv4 address in disguise"),
        ("64:ff9b::/96", "translated (NAT64)"),
        ("64:ff9b:1::/48", "translated (NAT64)"),
        ("100::/64", "reserved"),
        ("2001::/32", "a Teredo tunnel"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "a 6to4 tunnel"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
)
_PUBLIC_V6: Final = ipaddress.ip_network("2000::/3")

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}\Z")
_PRINTABLE: Final = re.compile(r"[!-~]+\Z")
_LOCAL_NAMES: Final = ("localhost", ".localhost", ".local", ".internal", ".home.arpa")


def refusal(address: str) -> str | None:
    """Why this IP address must not be dialled, or None when it may."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return f"`{address}` is not an IP address"
    for network, kind in _NETWORKS:
        if ip.version == network.version and ip in network:
            return f"`{address}` is {kind}"
    if ip.version == 6 and ip not in _PUBLIC_V6:
        return f"`{address}` is reserved"
    return None


def place(host: str, port: int) -> str:
    """`host:port` as `GOVERNANCE_WEBHOOK_ALLOW` lists it: small letters, no brackets, no final dot."""
    return f"{host.strip('[]').rstrip('.').lower()}:{port}"


def places(allow: Collection[str]) -> frozenset[str]:
    """The entries of the setting in the form of `place`."""
    pairs = (entry.rpartition(":") for entry in allow)
    return frozenset(place(host, int(port)) for host, _, port in pairs)


def problem_with(url: str, allowed: Collection[str]) -> str | None:
    """What is wrong with a receiver's address, or None; `allowed` comes from `places`."""
    if len(url) > MOST_URL_CHARACTERS:
        return f"the address is longer than {MOST_URL_CHARACTERS} characters"
    if not _PRINTABLE.match(url) or "\\" in url:
        return "write the address in ASCII without spaces; encode other characters (`%20`, punycode)"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"`{url}` is not an address; write one such as `https://example.com/hook`"
    if parts.scheme not in ("http", "https") or not host:
        return f"`{url}` is not an https address; write one such as `https://example.com/hook`"
    if port == 0:
        return "port 0 cannot be reached"
    if "@" in parts.netloc:
        return "the address must not carry a user name or password; deliveries are signed instead"
    if "#" in url:
        return "the address must not have a fragment (`#`); it is never sent"
    listed = place(host, port or (443 if parts.scheme == "https" else 80)) in allowed
    if parts.scheme == "http" and not listed:
        return "the address must be https; plain http is only for what `GOVERNANCE_WEBHOOK_ALLOW` lists"
    return None if listed else _host_problem(host)


def _host_problem(host: str) -> str | None:
    if ":" in host or host.replace(".", "").isdigit():
        why = refusal(host)
        return f"the address cannot be used: {why}" if why else None
    if not _HOST.match(host) or ".." in host or host.startswith((".", "-")):
        return f"`{host}` is not a host name"
    name = "." + host.rstrip(".").lower()
    if any(name.endswith(local if local.startswith(".") else f".{local}") for local in _LOCAL_NAMES):
        return f"`{host}` is a local name; receivers must be reachable from the internet"
    return None
