"""Tools that agents called and nobody has declared: what policies that go by `tool.kind` do not know."""

from __future__ import annotations

from typing import Any, Final

from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values, page
from api.http.route import VIEWER, Route
from api.store.alerts import agents
from engine.derived.tools import UNDECLARED, Tools
from engine.documents.tool_proposals import pattern_of

MOST_ASKED: Final = 1_000
"""Names that are looked up, the most called ones."""
MOST_TOLD: Final = 200
MOST_AGENTS: Final = 5
"""Of those that called a tool, the ones that are named."""


async def list_undeclared_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/undeclared-tools"""
    await context.newest()
    organisation_id = caller.organisation_id
    tools = context.live.ruleset(organisation_id).tools
    found = await context.reads.read(caller, _undeclared, organisation_id, tools)
    return page(found[:MOST_TOLD], len(found), None, values)


def _undeclared(organisation_id: str, tools: Tools) -> list[dict[str, Any]]:
    called = agents.tools_called(organisation_id)
    totals = {name: sum(by_agent.values()) for name, by_agent in called.items()}
    names = sorted(totals, key=lambda name: (-totals[name], name))[:MOST_ASKED]
    return [
        {
            "toolName": name,
            "pattern": pattern_of(name),
            "calls": totals[name],
            "agents": len(called[name]),
            "agentIds": sorted(called[name], key=lambda each: (-called[name][each], each))[:MOST_AGENTS],
        }
        for name in names
        if tools.declared(name) is UNDECLARED
    ]


ROUTES = (
    Route(
        "GET",
        "/v1/undeclared-tools",
        VIEWER,
        list_undeclared_tools,
        "The tools that agents called and no tool set declares, most called first",
        "tools",
        reply="undeclared-tool",
        reply_is_array=True,
        headers=("X-Total-Count",),
        description="At most 200, of the thousand agents that were seen last. They are read from the log"
        " in the background, and are a second or two behind it.",
    ),
)
