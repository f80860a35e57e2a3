"""Notifications: the channels of an organisation, what was sent by them, a test of each, and their secrets.

Which channels there are is said in the organisation's settings; nothing here changes that.
"""

from __future__ import annotations

from typing import Any

from api.caller import Caller
from api.context import Context
from api.database.transaction import Transaction
from api.http.exchange import Reply, Values, number_before, page
from api.http.problems import need, not_found
from api.http.route import ADMIN, Route, page_query
from api.notifications.notifier import problem_of
from api.store.notifications import channels, notices
from api.webhooks.address import places


async def list_channels(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/notifications/channels"""
    allowed = places(context.settings.webhook_allow)
    found = await context.reads.read(caller, channels.listed, caller.organisation_id)
    shown = []
    for record, channel in found:
        problem = problem_of(channel, allowed)
        shown.append(record if problem is None else record | {"problem": problem})
    return Reply(shown)


async def list_notices(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/notifications/channels/:name/notices"""
    name = values.path["name"]
    found = await context.reads.read(
        caller, notices.listed, caller.organisation_id, name, values.query["limit"], number_before(values)
    )
    records, total, following = need(found, "channel", name)
    return page(records, total, following, values)


async def test_channel(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/notifications/channels/:name/test"""
    name = values.path["name"]
    record = await context.write(lambda transaction: notices.test(transaction, caller.organisation_id, name))
    return Reply(need(record, "channel", name), 202)


async def list_secrets(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/notifications/secrets"""
    return Reply(await context.reads.read(caller, channels.secrets, caller.organisation_id))


async def set_secret(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/notifications/secrets"""
    body = values.body

    def job(transaction: Transaction) -> dict[str, Any]:
        return channels.set_secret(
            transaction, caller.organisation_id, body["name"], body["value"], caller.actor
        )

    return Reply(await context.write(job))


async def delete_secret(caller: Caller, values: Values, context: Context) -> Reply:
    """DELETE /v1/notifications/secrets/:name"""
    name = values.path["name"]
    gone = await context.write(
        lambda transaction: channels.delete_secret(transaction, caller.organisation_id, name, caller.actor)
    )
    if not gone:
        raise not_found("secret", name)
    return Reply(status=204)


ROUTES = (
    Route(
        "GET",
        "/v1/notifications/channels",
        ADMIN,
        list_channels,
        "The channels by which people are told",
        "notifications",
        reply="channel",
        reply_is_array=True,
        description="They are set as `notifications` of the organisation's settings. `problem` says why "
        "nothing can be sent.",
    ),
    Route(
        "GET",
        "/v1/notifications/channels/:name/notices",
        ADMIN,
        list_notices,
        "What was sent by a channel, newest first",
        "notifications",
        reply="notice",
        reply_is_array=True,
        query=page_query(50, 500),
    ),
    Route(
        "POST",
        "/v1/notifications/channels/:name/test",
        ADMIN,
        test_channel,
        "Send a test notice",
        "notifications",
        status=202,
        reply="notice",
        description="What became of it is in the list of notices.",
    ),
    Route(
        "GET",
        "/v1/notifications/secrets",
        ADMIN,
        list_secrets,
        "The secrets of channels, without their values",
        "notifications",
        reply="notification-secret",
        reply_is_array=True,
    ),
    Route(
        "POST",
        "/v1/notifications/secrets",
        ADMIN,
        set_secret,
        "Keep a secret for channels, in place of one of that name",
        "notifications",
        body="notification-secret-set",
        reply="notification-secret",
        description="The address of a chat's webhook, or the password of mail. It is encrypted in the "
        "database and shown to nobody.",
    ),
    Route(
        "DELETE",
        "/v1/notifications/secrets/:name",
        ADMIN,
        delete_secret,
        "Forget a secret",
        "notifications",
        status=204,
    ),
)
