"""Hosts and URLs of one call, each once: what `derived.hosts` and `derived.urls` show."""

from __future__ import annotations

import re
from typing import Final

from engine.derived.payload import DistinctTexts
from engine.derived.places.hosts import host_of
from engine.derived.places.urls import LONGEST_URL, read
from engine.derived.recipients import LONGEST_DOMAIN
from engine.fields.computed import UNREADABLE
from engine.fields.visible import Composing, composed

_URL: Final = re.compile(
    r"(?<![A-Za-z0-9+.-])(?:[A-Za-z][A-Za-z0-9+.-]{1,30}:[/\\]{2}|(?<=[\s\"'(=])//|^//)[^\s\"'<>`|{}^]+"
)
_WHOLE: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]{1,30}:)?[/\\]{2}|(?:https?|wss?|ftps?):(?!\d+$)", re.IGNORECASE
)
"""How a value begins that is one URL to its end; browsers need no slashes."""
_SEVERAL: Final = re.compile(r"(?<=[\s,;])(?=[A-Za-z][A-Za-z0-9+.-]{1,30}:[/\\]{2})")
_IGNORED: Final = re.compile(r"[\t\n\r]+")
"""What browsers leave out of a URL, wherever it stands."""
_DOUBTFUL: Final = re.compile(r"[/\\]*[^/\\?#]*?[\s\"'<>`|{}^]")
_HOST: Final = re.compile(
    r"(?:[^\s/@:?#\\]++(?::[^\s/@?#\\]*+)?@)?"
    r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s/@:?#\\,;'\"()<>.]++(?>(?:\.++[^\s/@:?#\\,;'\"()<>.]++)+)\.*+|localhost)"
    r"(?::\d{1,5})?(?:[/?#].*)?",
    re.DOTALL,
)
_ENDS_HOST: Final = re.compile(r"[\s/?#]")
_PROXY: Final = re.compile(
    r"\b(?:(?:https?|ftp|all|rsync|socks)_proxy|PGHOST(?:ADDR)?|MYSQL_HOST|DOCKER_HOST)\s*=\s*([^\s;&|]+)",
    re.IGNORECASE,
)
"""A variable that sends what a program fetches elsewhere, or names its server."""
_QUOTING: Final = re.compile(r"[\"'\\`]")
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

    def word(self, text: str) -> None:
        """A text that may be a URL to its end, or hold some."""
        if not self.whole(text):
            self.within(text)

    def _url(self, text: str) -> None:
        if self._is_enough(text):
            return
        for url, host in read(text[: LONGEST_URL + 1]):
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
        for _, host in read(f"//{text[:LONGEST_URL]}"):
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
