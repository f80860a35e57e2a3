"""What one JSON-RPC message is, read so strictly that client, proxy and server cannot read it differently.

A message passes as the bytes it came in, so whatever another reader could take for something else is refused:
a key that stands twice, a member that differs from the protocol's only by case, `NaN`, a carriage return at
which some servers end a line. Knows the protocol's envelope, and nothing of tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from api.http.unique_keys import unique_keys

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
"""Members of `params._meta` in every request of 2026-07-28, which has no handshake (mcp 2.3.0,
`mcp_types`)."""

_ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_GOVERNED: Final = frozenset({"tools/call"})
"""Methods that no other spelling may stand for."""


class UnreadableMessage(Exception):
    """The line is passed to nobody; the text says why, `code` is the JSON-RPC error for who sent it."""

    def __init__(self, text: str, code: int = INVALID_REQUEST, id: str | int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.id = id


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """One message and the bytes that it was read from, without the end of the line."""

    line: bytes
    body: dict[str, Any]

    @property
    def method(self) -> str | None:
        return self.body.get("method")

    @property
    def id(self) -> str | int | None:
        return self.body.get("id")

    @property
    def key(self) -> str:
        """The id as any reader would match it: some take `1`, `1.0` and `"1"` for the same."""
        return key_of(self.body.get("id"))

    @property
    def is_request(self) -> bool:
        return "method" in self.body and "id" in self.body

    @property
    def is_response(self) -> bool:
        return "method" not in self.body

    @property
    def params(self) -> dict[str, Any]:
        found = self.body.get("params")
        return found if isinstance(found, dict) else {}

    @property
    def meta(self) -> dict[str, Any]:
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def client_name(self) -> str | None:
        """What the client calls itself: at its handshake, or in each request of 2026-07-28 and later."""
        found = self.meta.get(CLIENT_INFO)
        if found is None and self.method == "initialize":
            found = self.params.get("clientInfo")
        name = found.get("name") if isinstance(found, dict) else None
        return name.encode(errors="replace").decode() if isinstance(name, str) and name else None

    @property
    def modern_version(self) -> str | None:
        """The revision a request names for itself, as those of 2026-07-28 and later do."""
        found = self.meta.get(PROTOCOL_VERSION)
        return found if isinstance(found, str) else None


def read(line: bytes) -> RpcMessage:
    """The message of a line; UnreadableMessage when it is none, or one that could be read in two ways."""
    line = line.rstrip(b"\r\n")
    if b"\r" in line or b"\n" in line:
        raise UnreadableMessage("the end of a line stands within the message; write it on one", PARSE_ERROR)
    try:
        body = json.loads(line.decode("utf-8"), object_pairs_hook=unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableMessage(f"the message is not JSON: {error}", PARSE_ERROR) from None
    if isinstance(body, list):
        raise UnreadableMessage("batches are not passed on; send each message on a line of its own")
    if not isinstance(body, dict):
        raise UnreadableMessage("a message is an object")
    return _checked(line, body)


def _checked(line: bytes, body: dict[str, Any]) -> RpcMessage:
    id = body.get("id")
    named = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    if near := near_miss(body, _ENVELOPE):
        raise UnreadableMessage(f"`{near[0]}` is not a member of a message; write `{near[1]}`", id=named)
    answers = sum(each in body for each in ("result", "error"))
    if "method" in body:
        if not isinstance(body["method"], str) or answers:
            raise UnreadableMessage(
                "a request has a `method`, a text, and neither `result` nor `error`", id=named
            )
        if (meant := body["method"].strip().casefold()) in _GOVERNED and meant != body["method"]:
            raise UnreadableMessage(f"`{body['method']}` is no method; write `{meant}`", id=named)
        if "id" in body and named is None:
            raise UnreadableMessage("the `id` of a request is a text or a whole number")
    elif answers != 1 or "id" not in body:
        raise UnreadableMessage(
            "a message has a `method`, or an `id` and either `result` or `error`", id=named
        )
    return RpcMessage(line, body)


def near_miss(found: Iterable[str], known: frozenset[str]) -> tuple[str, str] | None:
    """A key that only readers who do not mind case would take for a known one, and that one."""
    folded = {name.casefold(): name for name in known}
    unknown = (key for key in found if key not in known)
    return next(((key, folded[key.casefold()]) for key in unknown if key.casefold() in folded), None)


def encode(body: dict[str, Any]) -> bytes:
    """One line without its end."""
    return json.dumps(body, separators=(",", ":")).encode()


def made(body: dict[str, Any]) -> RpcMessage:
    """A message of the proxy's own."""
    whole = {"jsonrpc": "2.0", **body}
    return RpcMessage(encode(whole), whole)


def result(id: str | int | None, found: dict[str, Any]) -> bytes:
    return made({"id": id, "result": found}).line


def error(id: str | int | None, code: int, text: str) -> bytes:
    return made({"id": id, "error": {"code": code, "message": text}}).line


def key_of(id: Any) -> str:
    """As `RpcMessage.key`."""
    if isinstance(id, float) and id.is_integer():
        id = int(id)
    return str(id)


def _no_constant(word: str) -> Any:
    raise ValueError(f"`{word}` is no JSON value")
