"""Is the service well: `/health` for people, `/health/live` and `/health/ready` for machines, `/metrics`.

Open to anyone who can reach the service, but for the metrics where they have a token. Policy files that do
not load are reported under `policies` but are no reason to be unwell: the last good set is in force and
decides.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from api import metrics
from api.auth.credentials import unauthenticated
from api.caller import NOBODY, Caller
from api.clock import iso
from api.context import Context
from api.database.errors import DatabaseUnavailable
from api.health.exposition import exposition
from api.health.stored import stored
from api.http.exchange import Reply, Values
from api.http.route import ANYONE, Route
from api.policies.warnings import warnings
from api.store import accounts
from api.version import VERSION
from engine.errors import Problem
from engine.live import LivePolicies, described

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds that the database has to answer."""


async def health(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /health: 200 when the service can decide and record, else 503."""
    why = await _why_not(context)
    body = {
        "status": "ok" if why is None else "unavailable",
        "uptime": round(_uptime(context), 3),
        "version": VERSION,
        "database": "connected" if why is None else "disconnected",
        "policies": await _policies(context),
        "audit": {
            "signing": context.checkpointer.signs,
            "signedAt": context.checkpointer.signed_at,
            "lagging": context.checkpointer.lags,
            "complete": context.checkpointer.complete,
        },
    }
    made = [each.until for each in context.partitions if each.until is not None]
    if until := min(made, default=None):
        body["partitions"] = {"until": until, "late": iso(context.clock()) >= until}
    if (clocks := context.heartbeat.clocks) is not None:
        body["clock"] = {"aheadSeconds": round(clocks.ahead, 1), "apart": clocks.is_apart}
    return _reply(body, why)


async def live(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /health/live: the process answers."""
    return Reply({"status": "ok"})


async def ready(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /health/ready: 200 when the service should get requests, else 503."""
    why = await _why_not(context)
    return _reply({"status": "ok" if why is None else "unavailable"}, why)


async def prometheus(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /metrics, with the token of the settings when there is one. INVARIANT: however many ask, they cost
    others little: it is written beside the event loop, once for all who ask meanwhile."""
    _check_token(context.settings.metrics_token, values.headers.get("authorization", ""))
    return Reply(await _for_all(context, _written), media_type=metrics.MEDIA_TYPE)


async def _written(context: Context) -> bytes:
    read = context.store.read
    found = await _answered(read(stored, context.store, context.clock()))
    unindexed = await _answered(read(_unindexed, context.live))
    state = context.live.health(), _uptime(context), found
    return await context.reads.people.run(NOBODY.holder, partial(exposition, *state, unindexed=unindexed))


def _check_token(token: str, sent: str) -> None:
    if token and not hmac.compare_digest(f"bearer {token}".encode(), _bearer(sent).encode()):
        raise unauthenticated("send `Authorization: Bearer <GOVERNANCE_METRICS_TOKEN>`")


def _bearer(sent: str) -> str:
    """With the scheme as we write it, which is read in any case."""
    scheme, _, token = sent.partition(" ")
    return f"{scheme.lower()} {token.strip()}"


def _reply(body: dict[str, Any], why: str | None) -> Reply:
    if why is None:
        return Reply(body)
    return Reply(body | {"reason": why}, 503, headers={"Retry-After": "5"})


async def _why_not(context: Context) -> str | None:
    """Why nothing can be decided and recorded now, in words; None when it can."""
    answers = await _for_all(context, _database_answers)
    return context.readiness.why_not() or (None if answers else "the database does not answer")


async def _database_answers(context: Context) -> bool:
    store = context.store
    return bool(await _answered(store.read_first(store.rows, "SELECT 1")))


async def _for_all(context: Context, look: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
    """What a look finds, once for all who ask meanwhile. INVARIANT: however many ask, who logs in or halts
    does not stand behind them, and they are not told that the database is away because they are many."""
    with context.looks.together(look, partial(look, context)) as found:
        await asyncio.wait([found])
    return found.result()


async def _answered(asked: Awaitable[T]) -> T | None:
    """What needs the database; None when it does not answer."""
    try:
        return await asyncio.wait_for(asked, PATIENCE)
    except (DatabaseUnavailable, TimeoutError):
        return None


def _unindexed(live: LivePolicies) -> int:
    """How many policies of all organisations no index narrows."""
    organisations = [each["organisationId"] for each in accounts.list_organisations()]
    return sum(len(live.ruleset(name).stats()["unindexed"]) for name in organisations)


def _uptime(context: Context) -> float:
    return context.steady() - context.started_at


async def _warnings(context: Context) -> list[Problem]:
    return await _answered(context.store.read_first(warnings, context.live)) or []


async def _policies(context: Context) -> dict[str, Any]:
    found = context.live.health()
    others = await _for_all(context, _warnings)
    return found | {"warnings": [*found["warnings"], *map(described, others)]}


ROUTES = (
    Route(
        "GET",
        "/health",
        ANYONE,
        health,
        "Whether the service can decide and record",
        "service",
        reply="health",
        also_statuses=(503,),
    ),
    Route(
        "GET", "/health/live", ANYONE, live, "Whether the process answers", "service", reply="health-status"
    ),
    Route(
        "GET",
        "/health/ready",
        ANYONE,
        ready,
        "Whether requests should be sent here",
        "service",
        reply="health-status",
        also_statuses=(503,),
    ),
    Route(
        "GET",
        "/metrics",
        ANYONE,
        prometheus,
        "Prometheus metrics",
        "service",
        media_type=metrics.MEDIA_TYPE,
        errors=("unauthenticated",),
        description="Asks for `GOVERNANCE_METRICS_TOKEN` as a bearer token where that is set; else 401.",
    ),
)
