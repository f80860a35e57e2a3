"""Agents: what the log says of each, who halts them, and what was noticed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values, decode_cursor, page
from api.http.problems import need
from api.http.route import VIEWER, Query, Route, page_query
from api.store import halts
from api.store.alerts import agents, alerts
from api.store.alerts.agents import Position
from api.store.alerts.alerts import OPEN, Chosen

MOST_ALERTS = 20
_Cursor = tuple[
    Annotated[str, Meta(pattern=r"^[0-9][0-9TZ:.-]{9,39}\Z")],
    Annotated[str, Meta(min_length=1, max_length=200)],
]
_DETAILS = ("resolutions", "tools", "callsOfOtherTools", "apiKeys", "models", "clients")


async def list_agents(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/agents"""
    query = values.query
    after = decode_cursor(values, _Cursor)  # type: ignore[arg-type]
    chosen = query["limit"], after, query["order"] == "newest", query.get("search", "")
    items, total, last = await context.reads.read(caller, _listed, caller.organisation_id, *chosen)
    return page(items, total, last, values)


def _listed(
    organisation_id: str, limit: int, after: Position | None, newest: bool, search: str
) -> tuple[list[dict[str, Any]], int, Position | None]:
    items, total, last = agents.list_agents(organisation_id, limit, after, newest=newest, search=search)
    noticed = alerts.open_by_agent(organisation_id, [each["agentId"] for each in items])
    in_force = halts.list_halts(organisation_id)
    shown = [_shape(each, _covering(in_force, each["agentId"]), noticed) for each in items]
    return [_without(each, _DETAILS) for each in shown], total, last


def _covering(in_force: Sequence[dict[str, Any]], agent_id: str) -> list[dict[str, Any]]:
    return [each for each in in_force if each["scope"] == "all" or each.get("agentId") == agent_id]


def _shape(
    agent: dict[str, Any], covering: Sequence[dict[str, Any]], noticed: dict[str, int]
) -> dict[str, Any]:
    models, clients = agent["models"], agent["clients"]
    return agent | {
        "model": models[0]["model"] if models else None,
        "client": clients[0]["client"] if clients else None,
        "halted": bool(covering),
        "openAlerts": noticed.get(agent["agentId"], 0),
    }


def _without(agent: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in agent.items() if name not in names}


async def get_agent(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/agents/:id"""
    agent_id = values.path["id"]
    found = await context.reads.read(caller, _described, caller.organisation_id, agent_id)
    return Reply(need(found, "agent", agent_id))


def _described(organisation_id: str, agent_id: str) -> dict[str, Any] | None:
    agent = agents.find_agent(organisation_id, agent_id)
    if agent is None:
        return None
    covering = _covering(halts.list_halts(organisation_id), agent_id)
    chosen = Chosen(organisation_id, agent_id=agent_id, status=OPEN)
    newest, total, _ = alerts.list_alerts(chosen, MOST_ALERTS, None, ascending=False)
    return _shape(agent, covering, {agent_id: total}) | {"halts": covering, "alerts": newest}


ROUTES = (
    Route(
        "GET",
        "/v1/agents",
        VIEWER,
        list_agents,
        "List the agents that were ever seen",
        "agents",
        reply="agent-summary",
        reply_is_array=True,
        query=(
            Query("search", {"type": "string", "minLength": 1, "maxLength": 200}, "A part of the id."),
            *page_query(100, 1_000),
            Query(
                "order",
                {"type": "string", "enum": ["id", "newest"], "default": "id"},
                "By id, or those first whom nobody knew before.",
            ),
        ),
        description="They are read from the log in the background, and are a second or two behind it.",
    ),
    Route(
        "GET",
        "/v1/agents/:id",
        VIEWER,
        get_agent,
        "Read an agent: its calls, decisions, tools, keys, halts and alerts",
        "agents",
        reply="agent",
    ),
)
