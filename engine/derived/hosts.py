"""Where a call goes: what `derived.hosts` and `derived.urls` show.

From URLs, from arguments whose keys name a host, and from the words of commands that talk to one. A URL
within the text of a mail or of a file is something to be read there, and no place that the call goes to.
Where readers of a URL differ about its host, both hosts count. Knows nothing of policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

from engine.derived.commands import Command
from engine.derived.payload import DistinctTexts, Leaf
from engine.derived.recipients import LONGEST_DOMAIN, domain_of
from engine.fields.computed import UNREADABLE
from engine.fields.visible import composed
from engine.fields.words import word_set
from engine.model import ToolDeclaration
from engine.shell.wrappers import after_options

_CARRIERS: Final = word_set("mail chat calendar files memory sql tickets crm contacts")
"""Kinds of tools that carry text to people or stores."""

_HOST_WORDS: Final = word_set(
    "host hosts hostname hostnames domain domains server servers endpoint endpoints url urls uri uris "
    "href link site website origin ip address addresses webhook proxy remote registry base baseurl"
)
_NOT_HOSTS: Final = word_set("email mail street postal billing shipping id name path file mac database")

_URL: Final = re.compile(
    r"(?<![A-Za-z0-9+.-])(?:[A-Za-z][A-Za-z0-9+.-]{1,30}:[/\\]{2}|(?<=[\s\"'(=])//|^//)[^\s\"'<>`|{}^]+"
)
_AUTHORITY: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]{0,30}):)?[/\\]*([^/\\?#]*)(.*)", re.DOTALL)
_HOST: Final = re.compile(
    r"(?:[^\s/@:?#\\]+(?::[^\s/@?#\\]*)?@)?(\[[0-9A-Fa-f:.%\w]+\]|[^\s/@:?#\\,;'\"()<>]+\.[^\s/@:?#\\,;'\"()<>]+|localhost)"
    r"(?::\d{1,5})?(?:[/?#].*)?",
    re.DOTALL,
)
_SCP: Final = re.compile(r"(?:([^\s/@:]+)@)?([^\s/@:]+):(?!//)[^\s]*")
_DEVICE: Final = re.compile(r"/dev/(?:tcp|udp)/([^/\s]+)/\S+")
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_NO_HOST: Final = word_set("file data mailto javascript about blob urn jdbc sqlite memory tel sms")

_FETCHERS: Final = word_set(
    "curl wget http https xh aria2c axel lynx w3m links fetch httpie iwr irm invoke-webrequest invoke- "
    "restmethod"
)
_LOGINS: Final = {
    "ssh": "bcDEeFIiJLlmOopQRSWw",
    "sftp": "bcDFiJloPRSs",
    "mosh": "p",
    "telnet": "bln",
    "ftp": "",
    "nc": "iIMmOPpqsTVwXx",
    "ncat": "cegGhiompstw",
    "netcat": "ipqsw",
    "ping": "cIilMmpQsStTWw",
    "dig": "bcfkpqtxy",
    "nslookup": "",
    "host": "cNRtW",
    "whois": "hp",
    "traceroute": "fgimNpqsw",
}
"""Programs whose first operand is a host, and their options that take a value."""
_COPIERS: Final = frozenset(["scp", "rsync", "git"])
_WITH_VALUE: Final = "AbcCdDeEFhHKmoPQrRtTuUwXyYz"


class Places:
    """Hosts and URLs of one call."""

    def __init__(self) -> None:
        self.hosts = DistinctTexts()
        self.urls = DistinctTexts()

    def url(self, text: str) -> None:
        for url, host in _read(text[:4096]):
            if host == UNREADABLE:
                self.urls.add(UNREADABLE)
            elif url:
                self.urls.add(url)
            if host:
                self.hosts.add(host)

    def host(self, text: str) -> None:
        """A host, perhaps with a user, a port or a path."""
        found = _HOST.fullmatch(composed(text[:4096]).strip())
        if found is not None and not found[1].startswith("."):
            self.hosts.add(host_of(found[1]))


def places_of(leaves: Sequence[Leaf], commands: Iterable[Command], tool: ToolDeclaration) -> Places:
    """Where a call goes."""
    places = Places()
    carries = tool.kind in _CARRIERS
    for leaf in leaves:
        text = leaf.value
        if places.hosts.partial or places.urls.partial:
            break
        if not isinstance(text, str):
            continue
        words = leaf.key.split()
        named = not _HOST_WORDS.isdisjoint(words) and _NOT_HOSTS.isdisjoint(words)
        if named or not carries:
            for found in _URL.finditer(text):
                places.url(found[0])
        if named and "://" not in text:
            places.host(text)
    for command in commands:
        _of_command(command, places)
    return places


def _of_command(command: Command, places: Places) -> None:
    name = command.program.lower()
    for _, target in command.redirections:
        if device := _DEVICE.fullmatch(target):
            places.hosts.add(host_of(device[1]))
    for word in command.words:
        for found in _URL.finditer(word):
            places.url(found[0])
    if name in _FETCHERS:
        for word in _operands(command.words, _WITH_VALUE):
            if "://" not in word:
                places.host(word)
    elif name in _LOGINS:
        rest = command.words[after_options(command.words, _LOGINS[name]) :]
        for word in rest[:1]:
            places.hosts.add(host_of(word.rpartition("@")[2].removeprefix("@").partition(":")[0] or word))
    elif name in _COPIERS:
        for word in command.words:
            if (remote := _SCP.fullmatch(word[:4096])) and len(remote[2]) > 1:
                places.hosts.add(host_of(remote[2]))
    elif name in ("openssl", "socat"):
        for word in command.words:
            places.host(word.rpartition(",")[0].partition(":")[2] or word)


def _operands(words: Sequence[str], with_value: str) -> Iterator[str]:
    taken = False
    for word in words:
        if taken:
            taken = False
        elif word.startswith("--"):
            taken = "=" not in word and word in (
                "--output",
                "--data",
                "--header",
                "--user",
                "--request",
                "--form",
            )
        elif word.startswith("-"):
            taken = len(word) > 1 and word[-1] in with_value and len(word) == 2
        else:
            yield word


@lru_cache(maxsize=512)
def _read(text: str) -> tuple[tuple[str, str], ...]:
    """A URL in each way that it may be read: (itself in normal form, the first time; its host)."""
    parts = _AUTHORITY.fullmatch(composed(text).rstrip(".,;:!?)]"))
    if parts is None:
        return ()
    scheme, rest = (parts[1] or "").lower(), parts[3]
    if scheme in _NO_HOST:
        return ()
    found: list[tuple[str, str]] = []
    readings = [parts[2]]
    if "\\" in rest and "@" in rest.partition("/")[0]:
        readings.append(rest.partition("/")[0])  # `http://one\@two`: a browser goes to one, others to two
    for authority in readings:
        user, _, place = authority.rpartition("@")
        bracket = place.rfind("]")
        name, _, port = place[bracket + 1 :].partition(":")
        host = host_of(place[: bracket + 1] + name)
        shown = f"[{host}]" if ":" in host else host
        start = f"{scheme}://" if scheme else "//"
        url = f"{start}{user + '@' if user else ''}{shown}{':' + port if port else ''}{rest}"
        found.append(("" if found else url, host))
    return tuple(found)


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
        return str(address.ipv4_mapped or address)
    return _ipv4(host.rstrip(".")) or domain_of(host)


def _ipv4(host: str) -> str | None:
    """`2130706433`, `0x7f.1` and `0177.0.0.1` as `127.0.0.1`; None for a name."""
    parts = host.split(".")
    if len(parts) > 4 or len(host) > 64 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return None
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(parts)):
        return None
    whole = sum(number << 8 * (3 - at) for at, number in enumerate(first)) + last
    return str(IPv4Address(whole))


def _number(part: str) -> int:
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    return int(part, 8) if part[0] == "0" else int(part)
