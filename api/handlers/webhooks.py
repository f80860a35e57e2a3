"""Webhooks: register, list, read, change, delete, rotate, test; their deliveries, and sending one again.

Checks what a schema cannot say: the address of the receiver and the names of events. Whether the receiver's
name leads to an address that may be dialled is checked each time it is dialled, not here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from api.caller import Caller
from api.context import Context
from api.database.transaction import Transaction
from api.http.exchange import Reply, Values, decode_cursor, number_before, page
from api.http.problems import ApiError, all_of, need, not_found
from api.http.route import ADMIN, Route, page_query
from api.store.webhooks import deliveries, webhooks
from api.webhooks import address, signing
from schemas.suggestion import suggestion


def _check(body: Mapping[str, Any], context: Context) -> None:
    """The address and the event names, if they are there; raises 422 with everything that is wrong."""
    errors = []
    if "url" in body:
        problem = address.problem_with(body["url"], address.places(context.settings.webhook_allow))
        if problem is not None:
            errors.append({"pointer": "/url", "message": problem})
    for index, event in enumerate(body.get("events", ())):
        if event not in webhooks.EVENTS:
            known = ", ".join(f"`{name}`" for name in webhooks.EVENTS)
            near = suggestion(event, webhooks.EVENTS) or f"; known are {known}"
            message = f"`{event}` is not an event{near}"
            errors.append({"pointer": f"/events/{index}", "message": message})
    if errors:
        raise all_of(errors)


def _new_secret() -> str:
    return signing.secret_of(secrets.token_bytes(signing.SECRET_BYTES))


async def register_webhook(caller: Caller, values: Values, context: Context) -> Reply:
    body = values.body
    _check(body, context)
    events: Sequence[str] = body["events"]

    def job(transaction: Transaction) -> dict[str, Any]:
        return webhooks.add(
            transaction,
            caller.organisation_id,
            body["url"],
            events,
            _new_secret(),
            caller.actor,
            enabled=body.get("enabled", True),
            description=body.get("description"),
        )

    record = await context.write(job)
    return Reply(record, 201, headers={"Location": f"/v1/webhooks/{record['webhookId']}"})


async def list_webhooks(caller: Caller, values: Values, context: Context) -> Reply:
    after = decode_cursor(values, str)
    after = None if after is None else after.replace("\0", "")
    records, total, following = await context.reads.read(
        caller, webhooks.listed, caller.organisation_id, values.query["limit"], after
    )
    return page(records, total, following, values)


async def get_webhook(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id = values.path["id"]
    record = await context.reads.read(caller, webhooks.find, caller.organisation_id, webhook_id)
    return Reply(need(record, "webhook", webhook_id))


async def update_webhook(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id, body = values.path["id"], values.body
    _check(body, context)
    record = await context.write(
        lambda transaction: webhooks.change(
            transaction, caller.organisation_id, webhook_id, body, caller.actor
        )
    )
    return Reply(need(record, "webhook", webhook_id))


async def delete_webhook(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id = values.path["id"]
    gone = await context.write(
        lambda transaction: webhooks.remove(transaction, caller.organisation_id, webhook_id, caller.actor)
    )
    if not gone:
        raise not_found("webhook", webhook_id)
    return Reply(status=204)


async def rotate_webhook_secret(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id = values.path["id"]
    record = await context.write(
        lambda transaction: webhooks.rotate(
            transaction,
            caller.organisation_id,
            webhook_id,
            _new_secret(),
            signing.OLD_SECRET_SECONDS,
            caller.actor,
        )
    )
    return Reply(need(record, "webhook", webhook_id))


def _must_be_enabled(organisation_id: str, webhook_id: str) -> None:
    """Inside a job: nothing is sent to a webhook that is switched off."""
    record = need(webhooks.find(organisation_id, webhook_id), "webhook", webhook_id)
    if not record["enabled"]:
        raise ApiError("conflict", f"the webhook `{webhook_id}` is disabled; enable it first")


async def test_webhook(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id = values.path["id"]

    def job(transaction: Transaction) -> dict[str, Any]:
        _must_be_enabled(caller.organisation_id, webhook_id)
        return deliveries.test(transaction, caller.organisation_id, webhook_id)

    return Reply(await context.write(job), 202)


async def list_deliveries(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id, limit, before = values.path["id"], values.query["limit"], number_before(values)
    found = await context.reads.read(
        caller, deliveries.listed, caller.organisation_id, webhook_id, limit, before
    )
    records, total, following = need(found, "webhook", webhook_id)
    return page(records, total, following, values)


async def redeliver(caller: Caller, values: Values, context: Context) -> Reply:
    webhook_id, delivery_id = values.path["id"], values.path["deliveryId"]

    def job(transaction: Transaction) -> dict[str, Any]:
        _must_be_enabled(caller.organisation_id, webhook_id)
        record = deliveries.redeliver(transaction, caller.organisation_id, webhook_id, delivery_id)
        return need(record, "delivery", delivery_id)

    return Reply(await context.write(job), 202)


ROUTES = (
    Route(
        "POST",
        "/v1/webhooks",
        ADMIN,
        register_webhook,
        "Register a webhook",
        "webhooks",
        status=201,
        body="webhook-create",
        reply="webhook-created",
        headers=("Location",),
        errors=("conflict",),
        description="`secret` is shown here and on rotation only. An organisation has at most"
        f" {webhooks.MOST_REGISTERED} webhooks.",
    ),
    Route(
        "GET",
        "/v1/webhooks",
        ADMIN,
        list_webhooks,
        "The webhooks",
        "webhooks",
        reply="webhook",
        reply_is_array=True,
        query=page_query(100, 1000),
    ),
    Route("GET", "/v1/webhooks/:id", ADMIN, get_webhook, "A webhook", "webhooks", reply="webhook"),
    Route(
        "PATCH",
        "/v1/webhooks/:id",
        ADMIN,
        update_webhook,
        "Change a webhook",
        "webhooks",
        body="webhook-update",
        reply="webhook",
        errors=("conflict",),
    ),
    Route("DELETE", "/v1/webhooks/:id", ADMIN, delete_webhook, "Delete a webhook", "webhooks", status=204),
    Route(
        "POST",
        "/v1/webhooks/:id/rotate",
        ADMIN,
        rotate_webhook_secret,
        "A new signing secret",
        "webhooks",
        reply="webhook-created",
        description="The old secret signs along for 24 hours.",
    ),
    Route(
        "POST",
        "/v1/webhooks/:id/test",
        ADMIN,
        test_webhook,
        "Send a test event",
        "webhooks",
        status=202,
        reply="delivery",
        errors=("conflict",),
        description="409 when the webhook is disabled.",
    ),
    Route(
        "GET",
        "/v1/webhooks/:id/deliveries",
        ADMIN,
        list_deliveries,
        "Deliveries of a webhook, newest first",
        "webhooks",
        reply="delivery",
        reply_is_array=True,
        query=page_query(50, 500),
    ),
    Route(
        "POST",
        "/v1/webhooks/:id/deliveries/:deliveryId/redeliver",
        ADMIN,
        redeliver,
        "Deliver again",
        "webhooks",
        status=202,
        reply="delivery",
        errors=("conflict",),
        description="409 when the webhook is disabled.",
    ),
)
