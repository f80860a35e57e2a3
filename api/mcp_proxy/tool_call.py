"""One `tools/call` as it is governed: name, arguments, and what a continued call brings with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from api.http.exact_numbers import InexactNumber, exact_number
from api.mcp_proxy.message import (
    CLIENT_CAPABILITIES,
    INVALID_PARAMS,
    RpcMessage,
    UnreadableMessage,
    made,
    near_miss,
)

_MEMBERS: Final = frozenset({"name", "arguments", "requestState", "inputResponses", "task"})
APPROVAL: Final = "governance-approval"
"""The key of the proxy's own request among the `inputRequests` of a result."""


@dataclass(frozen=True, slots=True)
class ProxiedCall:
    """A call that a client wants made."""

    message: RpcMessage
    name: str
    arguments: dict[str, Any]
    digest: str
    """Of name and arguments: two calls are the same where it is."""

    @classmethod
    def of(cls, message: RpcMessage) -> ProxiedCall:
        """UnreadableMessage where a server might read another call out of it than the service would be asked
        about."""
        params = message.body.get("params")
        if not isinstance(params, dict):
            raise UnreadableMessage("`params` of a tool call is an object", INVALID_PARAMS, message.id)
        if near := near_miss(params, _MEMBERS | {"_meta"}):
            text = f"`{near[0]}` is not a parameter of a tool call; write `{near[1]}`"
            raise UnreadableMessage(text, INVALID_PARAMS, message.id)
        name = params.get("name")
        arguments = params.get("arguments")
        if not isinstance(name, str) or not name:
            raise UnreadableMessage("`name` of a tool call is a text", INVALID_PARAMS, message.id)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise UnreadableMessage("`arguments` of a tool call is an object", INVALID_PARAMS, message.id)
        try:
            json.loads(message.line, parse_float=exact_number)
        except InexactNumber as inexact:
            raise UnreadableMessage(str(inexact), INVALID_PARAMS, message.id) from None
        text = json.dumps([name, arguments], sort_keys=True, separators=(",", ":"))
        return cls(message, name, arguments, hashlib.sha256(text.encode()).hexdigest())

    @property
    def modern(self) -> bool:
        return self.message.modern_version is not None

    @property
    def request_state(self) -> str | None:
        found = self.message.params.get("requestState")
        return found if isinstance(found, str) else None

    @property
    def continues(self) -> bool:
        """Whether it answers something that was asked of an earlier one."""
        params = self.message.params
        return params.get("requestState") is not None or bool(params.get("inputResponses"))

    @property
    def action(self) -> str | None:
        """What the person at the client said to the proxy's own request: `accept`, `decline` or `cancel`."""
        responses = self.message.params.get("inputResponses")
        answer = responses.get(APPROVAL) if isinstance(responses, dict) else None
        action = answer.get("action") if isinstance(answer, dict) else None
        return action if isinstance(action, str) else None

    @property
    def progress_token(self) -> str | int | None:
        found = self.message.meta.get("progressToken")
        return found if isinstance(found, str | int) and not isinstance(found, bool) else None

    @property
    def modern_elicitation(self) -> dict[str, Any] | None:
        """What a client of 2026-07-28 says in this request of its ways to ask a person."""
        found = self.message.meta.get(CLIENT_CAPABILITIES)
        elicitation = found.get("elicitation") if isinstance(found, dict) else None
        return elicitation if isinstance(elicitation, dict) else None

    def for_server(self, *, without_state: bool) -> RpcMessage:
        """The message that is passed on: as it came, unless it carries what was only for the proxy."""
        if not without_state:
            return self.message
        params = {
            key: value
            for key, value in self.message.params.items()
            if key not in ("requestState", "inputResponses")
        }
        return made({**self.message.body, "params": params})
