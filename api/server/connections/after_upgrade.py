"""What a parser tells that goes on behind the head of a request which has offered an upgrade."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httptools

_FRAMING = (b"content-length", b"transfer-encoding")


def parser_behind(connection: Any, headers: Iterable[tuple[bytes, bytes]]) -> tuple[Any, bytes]:
    """A parser for what comes behind the head with these headers, and what it must be fed first, once it is
    the connection's."""
    lines = [b"%b: %b\r\n" % header for header in headers if header[0] in _FRAMING]
    parser = httptools.HttpRequestParser(BehindTheHead(connection))
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser, b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)


class BehindTheHead:
    """The callbacks of a connection, from the body of a request on whose head it knows already."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._head_is_known = True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        callback = getattr(self._connection, name)

        def call(*arguments: Any) -> None:
            if not self._head_is_known or name in ("on_body", "on_message_complete"):
                callback(*arguments)
            elif name == "on_headers_complete":
                self._head_is_known = False

        return call
