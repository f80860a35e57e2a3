"""What a parser tells that goes on behind the head of a request which has offered an upgrade."""

from __future__ import annotations

from typing import Any


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
