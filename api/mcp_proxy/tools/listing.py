"""The tools that a server lists, out of its answers: one page, or all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from api.mcp_proxy.message import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, RpcMessage, near_miss
from api.mcp_proxy.tools.definitions import Definition

_METHOD_NOT_FOUND: Final = -32601
_MOST_PAGES: Final = 1000
MOST_BYTES: Final = 16 << 20
"""Of the answers that list the tools of a server, all pages together."""
MOST_NESTED: Final = 200
"""Levels of what a server says of a tool: all of it is written, read and compared, which goes no deeper."""


_TOO_LARGE: Final = f"the server lists its tools in more than {MOST_BYTES} bytes"


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
    if len(answer.line) > MOST_BYTES:
        raise ListFailed(_TOO_LARGE)
    if _is_deep(tools):
        raise ListFailed(f"the server lists a tool that is nested deeper than {MOST_NESTED} levels")
    return list(tools)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        lists = (each.values() if isinstance(each, dict) else each for each in level)
        level = [inner for each in lists for inner in each if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


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
    size = 0
    for _ in range(_MOST_PAGES):
        params = ({"_meta": meta} if meta else {}) | ({} if cursor is None else {"cursor": cursor})
        answer = await ask("tools/list", params)
        problem = answer.body.get("error")
        if isinstance(problem, dict) and problem.get("code") == _METHOD_NOT_FOUND:
            return found
        found += definitions_of(answer)
        size += len(answer.line)
        if size > MOST_BYTES:
            raise ListFailed(_TOO_LARGE)
        cursor = answer.body["result"].get("nextCursor")
        if cursor is None:
            return found
    raise ListFailed(f"the server lists its tools on more than {_MOST_PAGES} pages")
