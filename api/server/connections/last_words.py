"""What is written of an error where there is no request to answer."""

from __future__ import annotations

from secrets import token_hex

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from api.http.problems import ApiError


def last_words(error: ApiError) -> bytes:
    """An answer of the connection, which is closed behind it."""
    content = msgspec.json.encode(error.body(f"req_{token_hex(16)}"))
    return (
        b"%bcontent-type: application/problem+json\r\n"
        b"content-length: %d\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n"
        b"connection: close\r\n\r\n%b" % (STATUS_LINE[error.status], len(content), content)
    )
