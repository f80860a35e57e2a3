"""Where programs connect to, by what is known of common ones: from their words, options and redirections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.places.fetching import configured, fetched
from engine.derived.places.places import Places
from engine.derived.places.urls import LONGEST_URL
from engine.fields.words import word_set
from engine.shell.options import TABLE, Given, given

_SCP: Final = re.compile(r"(?:([^\s/@:]+)@)?([^\s/@:]+):(?!//)[^\s]*")
_LONGEST_SCP: Final = 4096
_DEVICE: Final = re.compile(r"/dev/(?:tcp|udp)/([^/\s]+)/\S+")
_GIVEN: Final = re.compile(r"\A-{0,2}[\w.-]+=(?=[A-Za-z][A-Za-z0-9+.-]{1,30}:)|\A-[A-Za-z](?=https?:)")
"""What stands before the URL in a word, such as `--url=`."""
_CONNECTION: Final = re.compile(r"""(?:^|\s)host(?:addr)?\s*+=\s*["']?([^\s"']+)""")
"""A server in the words that psql connects by."""
_RELAY: Final = re.compile(
    r"(?:tcp|udp|sctp|ssl|openssl|proxy|socks)[\w-]*:"
    r"(\[[^\]]*\]|[^:,\[]*[^:,\[\d][^:,\[]*|[\d.]+(?=:)).*",
    re.IGNORECASE | re.DOTALL,
)
"""An address of socat; one that listens has only a port."""
_NO_NAME: Final = re.compile(r"[\d-]+")

_QUOTING: Final = word_set("echo printf grep egrep fgrep rg ag sed awk")
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


def only_quotes(command: Command) -> bool:
    """Whether the words of a command are text alone."""
    if command.program == "git":
        return not {"commit", "tag", "grep"}.isdisjoint(command.words)
    return command.program in _QUOTING


def connect(command: Command, places: Places) -> None:
    """Add where a command connects to."""
    name, words = command.program, command.words
    for _, target in command.redirections:
        if device := _DEVICE.fullmatch(target):
            places.only_host(device[1])
    for word in () if only_quotes(command) else words:
        if word.startswith("\\") or not places.whole(_GIVEN.sub("", word, count=1)):
            places.within(word)
        places.proxies(word)
    most = 2 if name in _SECURE else None
    items = list(given("curl" if name in _FETCHERS and name not in TABLE else name, words, most))
    items += (extra := list(configured(name, items, command.inputs)))
    for item in extra:
        places.word(item.value)
    for item in items:
        _option(name, item, places)
    if read := _PROGRAMS.get(name):
        read(name, words, items, places)
    for text in command.inputs:
        places.within(text)


def _option(name: str, item: Given, places: Places) -> None:
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
            _option(name, Given("J", value.strip(), "~"), places)
        elif setting.lower() == "proxycommand":
            for word in value.split():
                places.host(word)
    elif option == "rsh" or (option == "ssh" and name == "mosh"):
        for inner in given("ssh", value.split()[1:]):
            _option("ssh", inner, places)


def _operands(items: Sequence[Given]) -> list[str]:
    return [item.value for item in items if not item.name]


def _fetch(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for place in fetched(name, items):
        if not places.whole(place):
            places.named_host(place)
    for word in _operands(items):
        if "://" not in word:
            places.host(word)


def _log_in(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for word in _operands(items)[:1]:
        if "://" not in word:
            places.only_host(word.rpartition("@")[2].partition(":")[0] or word)


def _ask(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for word in _operands(items):
        if word[:1] != "+" and not _NO_NAME.fullmatch(word) and word.lower() not in _RECORDS:
            places.named_host(word.removeprefix("@"))


def _query(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for item in items:
        for server in _CONNECTION.findall(item.value):
            places.named_host(server)


def _copy(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for word in words:
        if (remote := _SCP.fullmatch(word[:_LONGEST_SCP])) and len(remote[2]) > 1:
            places.only_host(remote[2])


def _relay(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for word in words:
        places.host(word.rpartition(",")[0].partition(":")[2] or word)
        if relay := _RELAY.fullmatch(word[:LONGEST_URL]):
            places.named_host(relay[1])


def _pull(name: str, words: Sequence[str], items: Sequence[Given], places: Places) -> None:
    for word in () if _IMAGE_VERBS.isdisjoint(words) else words:
        if "/" in word or "login" in words:
            places.host(word)


_PROGRAMS: Final[Mapping[str, Callable[[str, Sequence[str], Sequence[Given], Places], None]]] = {
    **dict.fromkeys(_FETCHERS, _fetch),
    **dict.fromkeys(_LOGINS, _log_in),
    **dict.fromkeys(_ASKING, _ask),
    **dict.fromkeys(("psql", "pg_dump", "pg_restore"), _query),
    **dict.fromkeys(_COPIERS, _copy),
    **dict.fromkeys(("openssl", "socat"), _relay),
    **dict.fromkeys(_IMAGES, _pull),
}
