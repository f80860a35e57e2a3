"""MCP: a client session that asks before each `tools/call`.

    async with governance.run(task="pay the invoices"), Client("https://bank.example/mcp") as client:
        govern(client.session)

The session stays what it is; `client.call_tool`, a session group, and whatever else uses the session are
governed with it. What was refused is a tool error whose text says why. A call that the server answers by
asking for input (`input_required`) is one call, however many rounds it takes. What the server lists of a
tool goes along, and is asked for if nobody has: its annotations, which the service takes as a hint that can
only make a decision stricter, and its schema: defaults of arguments that are left out are asked about, and
what does not fit it is refused.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

from mcp import ClientSession, MCPError
from mcp.types import CallToolResult, InputRequiredResult, PaginatedRequestParams, TextContent

from governance_client.adapters.mcp_results import failure, problem
from governance_client.decision import ToolDecision
from governance_client.guard import CallDetails
from governance_client.run_core import NoCurrentRun, RunCore, current_run

MOST_PAGES: Final = 100
"""Of a server's list of tools."""


def govern(session: ClientSession, *, run: RunCore | None = None, prefix: str = "") -> ClientSession:
    """The same session, governed from now on: in this run, or in whichever is current when a tool is called.
    `prefix` goes before the names of tools, as policies know them: `mcp__bank__`."""
    governed = _Calls(session, run, prefix)
    for name in ("call_tool", "list_tools"):
        setattr(session, name, getattr(governed, name))
    return session


class _Calls:
    """What a governed session does in place of its own methods."""

    def __init__(self, session: ClientSession, run: RunCore | None, prefix: str) -> None:
        self._call_tool, self._list_tools = session.call_tool, session.list_tools
        self._given, self._prefix = run, prefix
        self._listed: dict[str, CallDetails] = {}
        """What is known of tools, by their names."""
        self._begun: dict[str, list[tuple[RunCore, str]]] = {}
        """Ids of calls that the server has answered with a question: the call with the answer is the same,
        and is asked about once more, as it may have been halted meanwhile."""

    async def list_tools(self, *given: Any, **named: Any) -> Any:
        result = await self._list_tools(*given, **named)
        for tool in result.tools:
            listed: CallDetails = {"input_schema": tool.input_schema}
            if tool.annotations is not None:
                listed["annotations"] = tool.annotations.model_dump(by_alias=True, exclude_none=True)
            self._listed[tool.name] = listed
        return result

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *given: Any, **named: Any
    ) -> Any:
        state, answers = named.get("request_state"), named.get("input_responses")
        begun = None if state is answers is None else self._taken_up(_round(name, arguments, state))
        run, decision = await self._decision(name, arguments, begun)
        if not decision.allowed:
            return CallToolResult(
                content=[TextContent(type="text", text=decision.agent_message)], is_error=True
            )
        try:
            result = await self._call_tool(name, arguments, *given, **named)
        except MCPError as error:
            told = error.error.model_dump(mode="json", exclude_none=True)
            run.failed(decision, f"{type(error).__name__}: {problem(told)}")
            raise
        except BaseException as error:
            run.failed(decision, error)
            raise
        if isinstance(result, InputRequiredResult):
            run.postponed(decision)
            waiting = self._begun.setdefault(_round(name, arguments, result.request_state), [])
            waiting.append((run, decision.tool_call_id))
        elif isinstance(result, CallToolResult) and result.is_error:
            run.failed(decision, failure(result.model_dump(mode="json", by_alias=True, exclude_none=True)))
        else:
            run.completed(decision, _output(result))
        return result

    def _taken_up(self, round_: str) -> tuple[RunCore, str] | None:
        """One of the calls that wait for this answer: the same one may be made twice at once."""
        first, *others = self._begun.pop(round_, None) or (None,)
        if others:
            self._begun[round_] = others
        return first

    async def _decision(
        self, name: str, arguments: dict[str, Any] | None, begun: tuple[RunCore, str] | None
    ) -> tuple[RunCore, ToolDecision]:
        run, tool_call_id = begun or (self._given or current_run(), None)
        if run is None:
            raise NoCurrentRun
        if name not in self._listed:
            await self._learn(name)
        details: CallDetails = {**self._listed[name], "tool_call_id": tool_call_id}
        asking = run.asking(self._prefix + name, arguments or {}, details)
        return run, await run.driver.run_async(asking)

    async def _learn(self, name: str) -> None:
        """What the server lists of a tool, and of those before it; of one that it does not list, nothing.
        INVARIANT: nothing is called whose list fails, so that no default passes a rule meanwhile; the session
        asks for it after a call itself, and would lose the result."""
        params: PaginatedRequestParams | None = None
        for _ in range(MOST_PAGES):
            page = await self.list_tools(params=params)
            if name in self._listed or page.next_cursor is None:
                break
            params = PaginatedRequestParams(cursor=page.next_cursor)
        self._listed.setdefault(name, {})


def _round(name: str, arguments: dict[str, Any] | None, state: str | None) -> str:
    """What a call and the state that its server wants to see again are known by."""
    return json.dumps([name, arguments, state], sort_keys=True, default=repr)


def _output(result: Any) -> Any:
    """The structured content, where its blocks say nothing else: a host may show either to its model."""
    if not isinstance(result, CallToolResult):
        return result
    structured, blocks = result.structured_content, _blocks(result)
    if structured is None:
        return blocks
    if all(_says(part, structured) for part in result.content):
        return structured
    return {"content": blocks, "structuredContent": structured}


def _blocks(result: CallToolResult) -> list[Any]:
    return [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]


def _says(part: Any, structured: Any) -> bool:
    """Whether a block is the text of the structured content, or of the one value in it, as servers add it."""
    if not isinstance(part, TextContent):
        return False
    known = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        known.append(structured["result"])
    with contextlib.suppress(ValueError, RecursionError):
        if json.loads(part.text) in known:
            return True
    return part.text in known
