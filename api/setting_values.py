"""The values of settings: how each kind is written, and what is refused.

It must not know which settings there are.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

LEAST_RECORD_DAYS = 30
_PORT = re.compile(r"[0-9]{1,5}")
_NOT_REPLACED = re.compile(r"\$\(.*\)|\$\{.*\}|\{\{.*\}\}|^\$(?:[A-Z_][A-Z0-9_]*|[a-z_]+)$|^`.+`$", re.DOTALL)
_FOLDER_NOT_REPLACED = re.compile(r"(?:^|/)\$\w")
MAKE_SECRET = "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(48))'"
EVENTS_BEFORE_RECORDS = (
    "no event is kept longer than its record; set GOVERNANCE_EVENT_DAYS too, to no more days than this"
)


class SettingsError(Exception):
    """A setting that the service refuses to start with."""


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise SettingsError(f"write a whole number from {least} to {most}") from None
        if not least <= number <= most:
            raise SettingsError(f"write a whole number from {least} to {most}")
        return number

    return parse


def visible(text: str) -> str:
    """A value as an error shows it."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def days_of_records(value: str) -> int:
    days = whole(0, 36500)(value)
    if 0 < days < LEAST_RECORD_DAYS:
        raise SettingsError(f"write 0, or a whole number from {LEAST_RECORD_DAYS} to 36500")
    return days


def origin_of(address: str) -> str:
    parts = urlsplit(address)
    host = parts.netloc.lower()
    return f"{parts.scheme}://{host.removesuffix({'http': ':80', 'https': ':443'}[parts.scheme])}"


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise SettingsError("write one of " + ", ".join(f"`{word}`" for word in allowed))
        return value

    return parse


def switch(value: str) -> bool:
    return one_of("on", "off")(value) == "on"


def is_text(value: str) -> bool:
    """Whether it can be written in UTF-8, which bytes of another encoding in a word or a variable cannot."""
    return not any("\ud800" <= each <= "\udfff" for each in value)


def text(value: str) -> str:
    """The value unchanged. Raises SettingsError for one that cannot be written in UTF-8."""
    if not is_text(value):
        raise SettingsError("has characters that are not in UTF-8; write it in a file or a terminal of UTF-8")
    return value


def written_out(value: str, unreplaced: re.Pattern[str] = _NOT_REPLACED) -> str:
    """Raises SettingsError for what a shell or a template was to replace, and a file of settings passes on as
    it stands: it would be a secret that everybody knows who knows the template, or the name of another place.
    """
    if unreplaced.search(value):
        raise SettingsError(
            "has a command or the name of a variable in it, such as `$(cat file)`, `${NAME}` or `{{ name }}`,"
            " which only a shell or a template puts in; write out what it stands for"
        )
    return value


def secret_of(value: str) -> str:
    return text(written_out(value))


def plain(value: str) -> str:
    """Raises SettingsError for what a file of settings left behind."""
    return text(_printable(value))


def _printable(value: str) -> str:
    """Raises SettingsError for what a file of settings left behind: it would be the name of another place."""
    if value != value.strip() or any(unicodedata.category(each) in ("Cc", "Cf") for each in value):
        raise SettingsError(
            "has blanks at its ends or characters that cannot be seen, such as the carriage return of a file "
            "from Windows; remove them"
        )
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        raise SettingsError("has quotes around it, which only a shell takes away; remove them")
    return written_out(value)


def _place(value: str) -> str:
    """The same, and for a comment: a start would make a new installation under the name of both."""
    if " # " in value:
        raise SettingsError(
            "has a comment behind it, which only a shell leaves out; give the comment a line of its own"
        )
    return _printable(value)


def path_of(value: str) -> Path:
    try:
        return Path(written_out(_place(value), _FOLDER_NOT_REPLACED)).expanduser()
    except RuntimeError:
        raise SettingsError("begins with `~`, and that user has no home folder here; write it out") from None


def maybe_path(value: str) -> Path | None:
    return path_of(value) if value else None


def address(value: str) -> str:
    value = value.strip()
    if not value:
        return ""
    try:
        parts = urlsplit(written_out(value))
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if sound and any(each in ",;*" or each.isspace() for each in value):
        raise SettingsError("write one address, without `,`, `;`, `*` and blanks: links lead there")
    if not sound or parts.query or parts.fragment or "@" in parts.netloc:
        raise SettingsError(
            "write an http or https address such as `https://governance.example.com`; all are told it, so "
            "it has no user or password"
        )
    return value.rstrip("/")


def database(value: str) -> str:
    if not value:
        return value
    try:
        parts = urlsplit(_place(value))
        sound = parts.scheme in ("postgresql", "postgres") or _names_file(value)
    except ValueError:
        sound = False
    if not sound:
        raise SettingsError(
            "write `sqlite:///path/to/file.sqlite` or `postgresql://user:password@host:5432/name`"
        )
    hosts = parts.netloc.rpartition("@")[2]
    ports = [host.rpartition("]")[2].rpartition(":") for host in hosts.split(",")]
    misread = value.count("@") > parts.netloc.count("@") or parts.netloc.count("@") > 1
    if parts.scheme != "sqlite" and (
        misread or any(colon and not _PORT.fullmatch(port) for _, colon, port in ports)
    ):
        # The driver would take a part of such a password for the host, and errors would show it.
        raise SettingsError(
            "write the port in digits, and `@`, `/`, `:`, `?`, `#` and `%` in the password as %40, %2F, %3A, "
            "%3F, %23 and %25"
        )
    return value


def _names_file(value: str) -> bool:
    path = value.removeprefix("sqlite:///")
    return path not in ("", value, ":memory:") and "?" not in path and "#" not in path


def listening(text: str) -> str:
    """An address to listen on. Two other names for all of IPv4, of which no link can be made, are read as
    such."""
    return "0.0.0.0" if text in ("*", "0") else text


def hosts(value: str) -> frozenset[str]:
    hosts = {part.strip().lower() for part in value.split(",") if part.strip()}
    for host in hosts:
        name, _, port = host.rpartition(":")
        if "/" in name or name.split() != [name] or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            raise SettingsError(f"`{host}` is not `host:port`; put commas between several")
        if "*" in name or "$" in name:
            raise SettingsError(
                f"`{host}` is no receiver's name; write out each, since nothing stands for several"
            )
    return frozenset(hosts)


def networks(value: str) -> tuple[str, ...]:
    found = []
    for part in (part.strip() for part in value.split(",")):
        if not part:
            continue
        try:
            network = ipaddress.ip_network(part, strict=False)
        except ValueError:
            raise SettingsError(f"`{part}` is not an address such as `10.0.0.7` or `10.0.0.0/24`") from None
        if network.prefixlen == 0:
            raise SettingsError(f"`{part}` is everybody, who could then pass for anybody; name the proxies")
        found.append(str(network))
    return tuple(found)


def seconds(value: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in value.split(",") if part.strip())
    except ValueError:
        raise SettingsError("write seconds separated by commas, such as `0,5,300`") from None
    if value and not numbers:
        raise SettingsError("write seconds separated by commas, such as `0,5,300`")
    if any(not 0 <= number <= 10**7 for number in numbers):
        raise SettingsError("every delay must be from 0 to 10000000 seconds")
    return numbers
