"""What a handler sees of HTTP: the values of a request, and the reply it gives.

Handlers are plain functions `async (caller, values, context) -> Reply`; they know nothing of the web server.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from api.http.problems import invalid

TimeAndId: Any = tuple[
    Annotated[str, Meta(pattern=r"^[0-9][0-9TZ:.-]{9,39}\Z")],
    Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,100}\Z")],
]
"""The position in a list by time."""
MOST_POSITION: Final = 2**62
"""A forged cursor must not be a number that no database can hold."""


@dataclass(frozen=True, slots=True)
class Values:
    """The checked values of one request. `query` holds parsed values, defaults filled in."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    client: str = ""
    """The address of the caller."""
    request_id: str = ""
    url: str = ""
    """Path and query as asked, for `Link` headers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is JSON unless `media_type` says otherwise (then bytes, or an async iterator of bytes)."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    stream: AsyncIterator[bytes] | None = None


def encode_cursor(position: Any) -> str:
    """An opaque cursor for a list position (JSON values)."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(values: Values, shape: type) -> Any:
    """The position that the `cursor` of a request names, of the given type; a foreign or damaged one is a
    422."""
    text = values.query.get("cursor")
    if text is None:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if b"\\u0000" in raw:
            raise ValueError("NUL")
        return msgspec.json.decode(raw, type=shape)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        message = "this cursor is not one the service gave; take it from the `Link` header of the page before"
        raise invalid("/cursor", message) from None


def number_before(values: Values) -> int | None:
    """The same where records are numbered, newest first."""
    number = decode_cursor(values, int)
    return None if number is None else min(max(number, 0), MOST_POSITION)


def page(items: list[Any] | bytes, total: int, position: Any, values: Values) -> Reply:
    """A list reply: the array (bytes: as written), `X-Total-Count`, `Link` (RFC 8288) to the page behind a
    position; None: this is the last one."""
    headers = {"X-Total-Count": str(total)}
    if position is not None:
        from urllib.parse import parse_qsl, urlencode, urlsplit

        parts = urlsplit(values.url)
        pairs = [(name, value) for name, value in parse_qsl(parts.query) if name != "cursor"]
        query = urlencode([*pairs, ("cursor", encode_cursor(position))])
        headers["Link"] = f'<{parts.path}?{query}>; rel="next"'
    return Reply(items, headers=headers)
