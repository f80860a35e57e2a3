"""Where curl and wget are sent besides what their words spell out: curl's globs, what they read their options
and URLs from, and words that can be nothing but hosts.

Knows nothing of how URLs and hosts are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.fields.computed import UNREADABLE
from engine.fields.words import word_set
from engine.shell.embedded_code import INPUTS
from engine.shell.options import Given, given

_GLOB: Final = re.compile(r"\{([^{}]*)\}|\[(?:(\d{1,9})-(\d{1,9})|([A-Za-z])-([A-Za-z]))(?::(\d{1,9}))?\]")
_WITH_HOST: Final = re.compile(
    r"(?:[A-Za-z][\w+.-]*:[/\\]++|[/\\]*+(?![A-Za-z][\w+.-]*:[/\\]))[^/\\?#]+[/\\?#]"
)
"""What has a host to its end, so that no glob behind it changes where it leads."""
MOST_GLOBBED: Final = 300
LONGEST_GLOBBED: Final = 4_096
_LINE: Final = re.compile(
    r"\s*(-{0,2})([A-Za-z0-9#:][\w.-]*)\s*[=:]?\s*(?:\"((?:[^\"\\]|\\.)*)\"?|(\S*))", re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
MOST_LINES: Final = 200

_REQUESTS: Final = frozenset(["http", "https", "xh", "xhs", "httpie"])
"""Programs told a method, a URL, and what to send."""
_METHODS: Final = word_set("get post put patch delete head options trace")
_BARE: Final = re.compile(r"[A-Za-z0-9_][\w-]*")
_UNDOTTED: Final = re.compile(
    r"0[xX][0-9a-fA-F]{1,8}|[0-9]{5,10}|[A-Za-z0-9_-]+(?::[0-9]{1,5}(?:/.*)?|/.*)", re.DOTALL
)
"""What a program that fetches takes for a host, though it has no dot."""


def configured(name: str, items: Sequence[Given], inputs: Iterable[str]) -> Iterator[Given]:
    """The options and URLs that stand in what a command reads; one that nobody knows is `UNREADABLE`."""
    for item in items:
        if name == "curl" and item.name == "config":
            for text in inputs:
                yield from given("curl", list(_configuration(text)))
        elif name == "wget" and item.name == "input-file":
            yield from (Given("", line.strip()) for text in inputs for line in text.split("\n", MOST_LINES))
        elif name == "wget" and item.name == "execute":
            setting, _, value = item.value.partition("=")
            if setting.strip().lower() == "base":
                yield Given("base", value.strip(), "~")
            elif setting.strip().lower() != "input":
                continue
        else:
            continue
        if item.value not in INPUTS or not any(inputs):
            yield Given("", UNREADABLE)


def _configuration(text: str) -> Iterator[str]:
    """The words that a file of curl's options stands for."""
    lines = text.split("\n", MOST_LINES)
    for line in lines[:MOST_LINES]:
        if (found := _LINE.match(line)) and not line.lstrip().startswith("#"):
            yield f"{found[1] or '--'}{found[2]}"
            value = found[4] if found[3] is None else _ESCAPED.sub(r"\1", found[3])
            if value:
                yield value
    if len(lines) > MOST_LINES:
        yield UNREADABLE


def fetched(name: str, items: Sequence[Given]) -> Iterator[str]:
    """What can be nothing but a URL or a host, though it may have neither dot nor port: `curl intranet`."""
    operands = [each.value for each in items if not each.name]
    if name == "curl":
        for item in items:
            if item.name in ("", "url"):
                yield from globbed(item.value)
    elif name == "wget":
        for word in operands:
            yield word
            if "://" not in word:
                yield word.partition(":")[0]  # `host:path` is FTP, and `host:x@y` too
    elif name in _REQUESTS:
        yield from filter(_BARE.fullmatch, [word for word in operands if word.lower() not in _METHODS][:1])
    yield from filter(_UNDOTTED.fullmatch, operands)


def globbed(text: str) -> Iterator[str]:
    """`a[1-2].{x,y}` as curl reads it, as far as it changes the host."""
    found: list[tuple[str, str]] = [("", text)]
    for count in range(MOST_GLOBBED):
        if not found:
            return
        done, rest = found.pop()
        glob = None if _WITH_HOST.match(done) else _GLOB.search(rest[:LONGEST_GLOBBED])
        if glob is None or _WITH_HOST.match(done + rest[: glob.start()]):
            yield done + rest
            continue
        choices = _choices(glob)
        if len(choices) + len(found) + count > MOST_GLOBBED:
            break
        found += [(done + rest[: glob.start()] + each, rest[glob.end() :]) for each in choices]
    yield UNREADABLE


def _choices(glob: re.Match[str]) -> list[str]:
    if glob[1] is not None:
        return glob[1].split(",", MOST_GLOBBED)
    step = max(1, int(glob[6] or "1"))
    if glob[4]:
        return [chr(code) for code in range(ord(glob[4]), ord(glob[5]) + 1, step)]
    numbers = range(int(glob[2]), int(glob[3]) + 1, step)
    return [str(number).zfill(len(glob[2])) for number in numbers[: MOST_GLOBBED + 1]]
