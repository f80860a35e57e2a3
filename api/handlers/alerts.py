"""Alerts: what detectors found unusual; list, read, acknowledge."""

from __future__ import annotations

from api.caller import Caller
from api.context import Context
from api.handlers.audit import moment_of
from api.http.exchange import Reply, TimeAndId, Values, decode_cursor, page
from api.http.problems import need
from api.http.route import ORDER, REVIEWER, VIEWER, Query, Route, page_query
from api.store.alerts import alerts
from api.store.alerts.alerts import Chosen
from engine.model import SEVERITIES


async def list_alerts(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/alerts"""
    query = values.query
    chosen = Chosen(
        caller.organisation_id,
        query.get("severity"),
        query.get("detectorId"),
        query.get("agentId"),
        query.get("status"),
        moment_of(query.get("since"), "since"),
        moment_of(query.get("until"), "until"),
    )
    items, total, position = await context.reads.read(
        caller,
        alerts.list_alerts,
        chosen,
        query["limit"],
        decode_cursor(values, TimeAndId),
        query["order"] == "asc",
    )
    return page(items, total, position, values)


async def get_alert(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/alerts/:id"""
    alert_id = values.path["id"]
    found = await context.reads.read(caller, alerts.find_alert, caller.organisation_id, alert_id)
    return Reply(need(found, "alert", alert_id))


async def acknowledge_alert(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/alerts/:id/acknowledge"""
    alert_id, note = values.path["id"], (values.body or {}).get("note")
    found = await context.write(
        lambda transaction: alerts.acknowledge(
            transaction, caller.organisation_id, alert_id, caller.actor, note
        )
    )
    return Reply(need(found, "alert", alert_id))


_MOMENT = {"type": "string", "format": "date-time", "maxLength": 64}

ROUTES = (
    Route(
        "GET",
        "/v1/alerts",
        VIEWER,
        list_alerts,
        "List alerts",
        "alerts",
        reply="alert",
        reply_is_array=True,
        query=(
            Query("status", {"type": "string", "enum": [alerts.OPEN, alerts.ACKNOWLEDGED]}, "Only those."),
            Query("severity", {"type": "string", "enum": list(SEVERITIES)}, "Only those."),
            Query("detectorId", {"type": "string", "maxLength": 100}, "Only those of this detector."),
            Query("agentId", {"type": "string", "maxLength": 200}, "Only those about this agent."),
            Query("since", _MOMENT, "Raised then or later (ISO 8601)."),
            Query("until", _MOMENT, "Raised before (ISO 8601)."),
            *page_query(100, 1_000),
            ORDER,
        ),
        description="What detectors found in the log, a second or two after it was committed.",
    ),
    Route(
        "GET",
        "/v1/alerts/:id",
        VIEWER,
        get_alert,
        "Read an alert",
        "alerts",
        reply="alert",
    ),
    Route(
        "POST",
        "/v1/alerts/:id/acknowledge",
        REVIEWER,
        acknowledge_alert,
        "Acknowledge an alert: somebody has looked",
        "alerts",
        body="alert-acknowledge",
        body_optional=True,
        reply="alert",
        description="The first one counts; another one changes nothing and answers the alert as it is. What "
        "goes on counts further in it, and opens it again.",
    ),
)
