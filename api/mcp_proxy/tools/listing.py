"""The tools that a server lists, out of its answers: one page, or all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from api.mcp_proxy.message import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, RpcMessage, near_miss
from api.mcp_proxy.tools.definitions import Definition

_METHOD_NOT_FOUND: Final = -32601
_MOST_PAGES: Final = 1000


class ListFailed(Exception):
    """The server did not say what its tools are, or not in a way that can be read in one way alone."""


def definitions_of(answer: RpcMessage) -> list[Definition]:
    """The tools in an answer to `tools/list`; ListFailed when it holds none."""
    body = answer.body.get("result")
    tools = body.get("tools") if isinstance(body, dict) else None
    if (
        not isinstance(body, dict)
        or not isinstance(tools, list)
        or near_miss(body, frozenset({"tools", "nextCursor"}))
    ):
        raise ListFailed("the server does not list its tools as the protocol has it")
    if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in tools):
        raise ListFailed("the server lists a tool that has no name")
    return list(tools)


async def whole_list(
    ask: Callable[[str, dict[str, Any]], Awaitable[RpcMessage]], call: RpcMessage
) -> list[Definition]:
    """Every page, asked for as the client asks in this call; a server without tools has none."""
    meta = {
        key: call.meta[key]
        for key in (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES)
        if key in call.meta
    }
    found: list[Definition] = []
    cursor: Any = None
    for _ in range(_MOST_PAGES):
        params = ({"_meta": meta} if meta else {}) | ({} if cursor is None else {"cursor": cursor})
        answer = await ask("tools/list", params)
        problem = answer.body.get("error")
        if isinstance(problem, dict) and problem.get("code") == _METHOD_NOT_FOUND:
            return found
        found += definitions_of(answer)
        cursor = answer.body["result"].get("nextCursor")
        if cursor is None:
            return found
    raise ListFailed(f"the server lists its tools on more than {_MOST_PAGES} pages")
