"""The nodes of the installation and their last hour: for the people of the organisation `default`."""

from __future__ import annotations

from api.caller import Caller
from api.context import Context
from api.health.heartbeat import INSTALLATION
from api.health.history import EVERY_SECONDS
from api.http.exchange import Reply, Values
from api.http.problems import ApiError
from api.http.route import VIEWER, Route


async def list_nodes(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/nodes"""
    _refuse_others(caller)
    return Reply(await context.heartbeat.listed())


async def health_history(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/health/history"""
    _refuse_others(caller)
    return Reply({"seconds": EVERY_SECONDS, "points": context.heartbeat.history.told()})


def _refuse_others(caller: Caller) -> None:
    if caller.organisation_id != INSTALLATION:
        raise ApiError(
            "forbidden",
            f"this tells of the whole installation, so it is for people of the organisation `{INSTALLATION}`;"
            " `GET /health` tells anybody whether it is well",
        )


ROUTES = (
    Route(
        "GET",
        "/v1/nodes",
        VIEWER,
        list_nodes,
        "The processes that serve the database",
        "service",
        reply="node",
        reply_is_array=True,
        errors=("forbidden",),
        description="For people of the organisation `default`. One that was killed is listed for an hour, as "
        "`silent`.",
    ),
    Route(
        "GET",
        "/v1/health/history",
        VIEWER,
        health_history,
        "The last hour: rates, latency and queues",
        "service",
        reply="health-history",
        errors=("forbidden",),
        description="For people of the organisation `default`. All nodes together, as far back as the one "
        "that answers has run.",
    ),
)
