"""Where a call goes: what `derived.hosts` and `derived.urls` show.

From URLs, from arguments whose keys name a host, and from the words of commands that talk to one. A URL
within the text of a mail or of a file is something to be read there, and no place that the call goes to.
Where readers of a URL differ about its host, both hosts count. Knows nothing of policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

from engine.derived.commands.commands import Command
from engine.derived.payload import DistinctTexts, Leaf
from engine.derived.programs.fetching import configured, fetched
from engine.derived.recipients import LONGEST_DOMAIN, domain_of
from engine.fields.computed import UNREADABLE
from engine.fields.visible import Composing, composed
from engine.fields.words import word_set
from engine.model import ToolDeclaration
from engine.shell.options import TABLE, Given, given

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
_WHOLE: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]{1,30}:)?[/\\]{2}|(?:https?|wss?|ftps?):(?!\d+$)", re.IGNORECASE
)
"""How a value begins that is one URL to its end; browsers need no slashes."""
_GIVEN: Final = re.compile(r"\A-{0,2}[\w.-]+=(?=[A-Za-z][A-Za-z0-9+.-]{1,30}:)|\A-[A-Za-z](?=https?:)")
"""What stands before the URL in a word, such as `--url=`."""
_SEVERAL: Final = re.compile(r"(?<=[\s,;])(?=[A-Za-z][A-Za-z0-9+.-]{1,30}:[/\\]{2})")
_IGNORED: Final = re.compile(r"[\t\n\r]+")
"""What browsers leave out of a URL, wherever it stands."""
_DOUBTFUL: Final = re.compile(r"[/\\]*[^/\\?#]*?[\s\"'<>`|{}^]")
_CHOICE: Final = re.compile(r"([^{}]*)\{([^{}]*)\}([^{}]*)")
_AUTHORITY: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]{0,30}):)?[/\\]*([^/\\?#]*)(.*)", re.DOTALL)
_HOST: Final = re.compile(
    r"(?:[^\s/@:?#\\]++(?::[^\s/@?#\\]*+)?@)?"
    r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s/@:?#\\,;'\"()<>.]++(?>(?:\.++[^\s/@:?#\\,;'\"()<>.]++)+)\.*+|localhost)"
    r"(?::\d{1,5})?(?:[/?#].*)?",
    re.DOTALL,
)
_ENDS_HOST: Final = re.compile(r"[\s/?#]")
_SCP: Final = re.compile(r"(?:([^\s/@:]+)@)?([^\s/@:]+):(?!//)[^\s]*")
_DEVICE: Final = re.compile(r"/dev/(?:tcp|udp)/([^/\s]+)/\S+")
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_HOLDING: Final = tuple(IPv6Address(each).packed[:12] for each in ("::", "::ffff:0:0", "64:ff9b::"))
"""How addresses begin that lead to the one of IPv4 at their end."""
_UNRESERVED: Final = re.compile(r"%(?:2[DE]|3\d|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
"""Characters that mean the same whether they are encoded or not."""
_NO_HOST: Final = word_set("file data mailto javascript about blob urn jdbc sqlite memory tel sms")

_PROXY: Final = re.compile(
    r"\b(?:(?:https?|ftp|all|rsync|socks)_proxy|PGHOST(?:ADDR)?|MYSQL_HOST|DOCKER_HOST)\s*=\s*([^\s;&|]+)",
    re.IGNORECASE,
)
"""A variable that sends what a program fetches elsewhere, or names its server."""
_CONNECTION: Final = re.compile(r"""(?:^|\s)host(?:addr)?\s*+=\s*["']?([^\s"']+)""")
"""A server in the words that psql connects by."""
_QUOTING: Final = re.compile(r"[\"'\\`]")
_QUOTING_PROGRAMS: Final = word_set("echo printf grep egrep fgrep rg ag sed awk")
"""Programs whose words are text: a URL in them is no place that they go to."""
_FETCHERS: Final = word_set(
    "curl wget http https xh xhs aria2c axel lynx w3m links fetch httpie iwr irm invoke-webrequest "
    "invoke-restmethod"
)
_SECURE: Final = frozenset(["ssh", "sftp", "scp", "pscp", "psftp"])
_LOGINS: Final = word_set("ssh sftp mosh telnet ftp ping host whois lftp traceroute")
"""Programs whose first operand is a host."""
_ASKING: Final = word_set("nc ncat netcat socket dig drill nslookup kdig")
"""Programs any of whose operands may be one."""
_RECORDS: Final = word_set("a aaaa any caa ch cname ds in mx ns ptr soa srv txt")
_COPIERS: Final = frozenset(["scp", "pscp", "rsync", "git"])
_IMAGES: Final = frozenset(["docker", "podman", "nerdctl"])
_IMAGE_VERBS: Final = frozenset(["pull", "push", "login", "run", "create"])
_RELAY: Final = re.compile(
    r"(?:tcp|udp|sctp|ssl|openssl|proxy|socks)[\w-]*:"
    r"(\[[^\]]*\]|[^:,\[]*[^:,\[\d][^:,\[]*|[\d.]+(?=:)).*",
    re.IGNORECASE | re.DOTALL,
)
"""An address of socat; one that listens has only a port."""


LONGEST_URL: Final = 4096
"""Of a longer URL the beginning is read."""
MOST_FOREIGN: Final = 2**17
"""Characters of the hosts of one call that are spelled in others than ASCII, which take long to be read."""
OF_A_HOST: Final = 16
"""So many more does each count for."""


class Places:
    """Hosts and URLs of one call."""

    def __init__(self) -> None:
        self.hosts = DistinctTexts()
        self.urls = DistinctTexts()
        self._foreign = 0
        self._composing = Composing()

    def _is_enough(self, text: str) -> bool:
        """Whether this text is not read any more, and places are known in part."""
        if not text.isascii():
            self._composing.of(text[:LONGEST_URL])
        authority = (text.partition("://")[2] or text).lstrip("/\\").partition("/")[0]
        if not authority.isascii() or "%" in authority:
            self._foreign += min(len(authority), LONGEST_DOMAIN) + OF_A_HOST
        if self._foreign <= MOST_FOREIGN and self._composing.room >= 0:
            return False
        self.hosts.partial = self.urls.partial = True
        return True

    def within(self, text: str) -> None:
        """The URLs in a text."""
        for found in _URL.finditer(text):
            self._url(found[0])

    def named(self, text: str) -> None:
        """A text that is meant as a URL, as several, or as a host."""
        for each in _SEVERAL.split(text):
            if not self.whole(each):
                self.within(each)
                if "://" not in each:
                    self.host(each)

    def whole(self, text: str) -> bool:
        """A text that is a URL to its end, whatever it holds; False if it begins otherwise. Where a reader
        might end sooner, both count."""
        url = _IGNORED.sub("", text).strip(" ,;")
        if not (begin := _WHOLE.match(url)):
            return False
        self._url(url)
        if url != text.strip(" ,;\t\n\r") or _DOUBTFUL.match(url, begin.end()):
            self.within(text)
        return True

    def _url(self, text: str) -> None:
        if self._is_enough(text):
            return
        for url, host in _read(text[: LONGEST_URL + 1]):
            if host == UNREADABLE:
                self.urls.add(UNREADABLE)
            elif url:
                self.urls.add(url)
            if host:
                self.hosts.add(host)

    def named_host(self, text: str) -> None:
        """What can be nothing but a host, so that it needs no dot: perhaps with a user and a port."""
        if "://" in text or text.startswith(("-", "/")):
            return
        begin = _ENDS_HOST.split(text, maxsplit=1)[0]
        if begin.count(":") > 1 and not text.startswith("[") and "@" not in text:
            self.only_host(text)
            return
        if self._is_enough(text):
            return
        for _, host in _read(f"//{text[:LONGEST_URL]}"):
            if host:
                self.hosts.add(host)

    def proxies(self, text: str) -> None:
        """The proxies that a text of a shell sets."""
        for found in _PROXY.finditer(text):
            value = found[1].strip("\"'")
            if _QUOTING.search(value):
                self.hosts.add(UNREADABLE)
            self.named_host(value)

    def host(self, text: str) -> None:
        """A host, perhaps with a user, a port or a path."""
        if self._is_enough(text):
            return
        if len(text) > LONGEST_URL and not _ENDS_HOST.search(text, 0, LONGEST_URL):
            self.hosts.add(UNREADABLE)
        found = _HOST.fullmatch(composed(text[:LONGEST_URL]).strip())
        if found is not None and not found[1].startswith("."):
            self.hosts.add(host_of(found[1]))

    def only_host(self, text: str) -> None:
        """A host with nothing beside it."""
        if not self._is_enough(text):
            self.hosts.add(host_of(text))


def places_of(leaves: Sequence[Leaf], commands: Iterable[Command], tool: ToolDeclaration) -> Places:
    """Where a call goes."""
    places = Places()
    carries = tool.kind in _CARRIERS
    commands = list(commands)
    quotes = tool.kind == "shell" and any(_only_quotes(each.program, each.words) for each in commands)
    for leaf in leaves:
        text = leaf.value
        if places.hosts.partial or places.urls.partial:
            break
        if not isinstance(text, str):
            continue
        words = leaf.key.split()
        named = not _HOST_WORDS.isdisjoint(words) and _NOT_HOSTS.isdisjoint(words)
        if named:
            places.named(text)
        elif not carries and not quotes:
            places.within(text)
    for command in commands:
        _of_command(command, places)
        for text in command.inputs:
            places.within(text)
    if commands:
        for leaf in leaves:
            if isinstance(leaf.value, str):
                places.proxies(leaf.value)
    return places


def _of_command(command: Command, places: Places) -> None:
    name = command.program.lower()
    for _, target in command.redirections:
        if device := _DEVICE.fullmatch(target):
            places.only_host(device[1])
    for word in () if _only_quotes(name, command.words) else command.words:
        if word.startswith("\\") or not places.whole(_GIVEN.sub("", word, count=1)):
            places.within(word)
        places.proxies(word)
    most = 2 if name in _SECURE else None
    items = list(given("curl" if name in _FETCHERS and name not in TABLE else name, command.words, most))
    items += (extra := list(configured(name, items, command.inputs)))
    for item in extra:
        if not places.whole(item.value):
            places.within(item.value)
    for item in items:
        _of_option(name, item, places)
    found = [item.value for item in items if not item.name]
    if name in _FETCHERS:
        for place in fetched(name, items):
            if not places.whole(place):
                places.named_host(place)
        for word in found:
            if "://" not in word:
                places.host(word)
    elif name in _LOGINS:
        for word in found[:1]:
            if "://" not in word:
                places.only_host(word.rpartition("@")[2].partition(":")[0] or word)
    elif name in _ASKING:
        for word in found:
            if word[:1] != "+" and not re.fullmatch(r"[\d-]+", word) and word.lower() not in _RECORDS:
                places.named_host(word.removeprefix("@"))
    elif name in ("psql", "pg_dump", "pg_restore"):
        for item in items:
            for server in _CONNECTION.findall(item.value):
                places.named_host(server)
    elif name in _COPIERS:
        for word in command.words:
            if (remote := _SCP.fullmatch(word[:4096])) and len(remote[2]) > 1:
                places.only_host(remote[2])
    elif name in ("openssl", "socat"):
        for word in command.words:
            places.host(word.rpartition(",")[0].partition(":")[2] or word)
            if relay := _RELAY.fullmatch(word[:LONGEST_URL]):
                places.named_host(relay[1])
    elif name in _IMAGES and not _IMAGE_VERBS.isdisjoint(command.words):
        for word in command.words:
            if "/" in word or "login" in command.words:
                places.host(word)


def _only_quotes(name: str, words: Sequence[str]) -> bool:
    return name in _QUOTING_PROGRAMS or (name == "git" and not {"commit", "tag", "grep"}.isdisjoint(words))


def _of_option(name: str, item: Given, places: Places) -> None:
    """The hosts that an option sends a program to, whatever its operands say."""
    option, value = item.name, item.value
    if "~" in item.marks:
        for host in value.split(",") if name in _SECURE else (value,):
            places.named_host(host)
    elif option in ("connect-to", "resolve"):
        for each in value.split(":", 2)[2:]:
            for host in each.split(","):
                places.named_host(host)
    elif option == "o" and name in _SECURE:
        setting, _, value = value.replace("=", " ", 1).strip().partition(" ")
        if setting.lower() in ("hostname", "proxyjump"):
            _of_option(name, Given("J", value.strip(), "~"), places)
        elif setting.lower() == "proxycommand":
            for word in value.split():
                places.host(word)
    elif option == "rsh" or (option == "ssh" and name == "mosh"):
        for inner in given("ssh", value.split()[1:]):
            _of_option("ssh", inner, places)


@lru_cache(maxsize=512)
def _read(text: str) -> tuple[tuple[str, str], ...]:
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
