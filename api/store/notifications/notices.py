"""Notices: what channels are to tell, as deliveries of the outbox; and whom an approval has reached.

A notice is a delivery of a channel, with the approval that it is about as `subject`. Its text is made when it
is sent, from the approval as it is then. Record: `{noticeId, channel, event, status, attempts, nextAttemptAt,
createdAt, approvalId}`; `status` is that of a delivery, or `dropped` when there was nothing left to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from api.clock import iso
from api.database.connection import marks
from api.database.models import Delivery
from api.database.transaction import Transaction
from api.store.notifications import channels
from api.store.webhooks import outbox
from api.store.webhooks.delivery_order import newest_of, next_attempt

MOST_AT_ONCE: Final = 500
"""Notices that go out in one message."""

_OUTDATED: Final = (
    "SELECT d.delivery_no FROM deliveries d JOIN approvals a ON a.approval_id = d.subject"
    " WHERE d.delivery_no IN ({}) AND (a.status <> 'pending' OR (d.event = ? AND a.seen_at IS NOT NULL))"
)
_DROP: Final = (
    "UPDATE deliveries SET status = 'dropped', next_attempt_at = NULL, leased_until = 0"
    " WHERE delivery_no IN ({})"
)
_ABOUT: Final = (
    "SELECT approval_id, reason, requested_at, expires_at, key_id FROM approvals WHERE approval_id IN ({})"
)


def drop_outdated(transaction: Transaction, numbers: Sequence[int]) -> set[int]:
    """Drop those of these notices that are no news any more: of approvals that have ended, and that one is
    unseen which somebody has seen since; returns which."""
    if not numbers:
        return set()
    store = transaction.store
    found = [row[0] for row in store.rows(_OUTDATED.format(marks(numbers)), (*numbers, outbox.UNSEEN))]
    if found:
        store.rows_changed(_DROP.format(marks(found)), found)
    return set(found)


def rest(transaction: Transaction, channel_id: str, until: float) -> None:
    """Send the channel no further message before this time."""
    transaction.store.rows_changed(
        "UPDATE webhooks SET quiet_until = ? WHERE webhook_id = ?", (until, channel_id)
    )


def rest_less(transaction: Transaction, channel_id: str, until: float) -> None:
    """Shorten that pause, never lengthen it: after a failure it is not as long as after a message."""
    transaction.store.rows_changed(
        "UPDATE webhooks SET quiet_until = ? WHERE webhook_id = ? AND quiet_until > ?",
        (until, channel_id, until),
    )


def completed(store: Any, payloads: Sequence[tuple[str, str | None]]) -> list[str]:
    """Payloads, each with its subject; those of approvals get what the approval says."""
    subjects = sorted({subject for _, subject in payloads if subject is not None})
    about = (
        {row[0]: row[1:] for row in store.rows(_ABOUT.format(marks(subjects)), subjects)} if subjects else {}
    )
    found = []
    for payload, subject in payloads:
        if subject in about:
            reason, requested_at, expires_at, key_id = about[subject]
            content = msgspec.json.decode(payload)
            content["data"] |= {"reason": reason, "requestedAt": requested_at, "expiresAt": expires_at}
            content["data"]["keyId"] = key_id
            payload = msgspec.json.encode(content).decode()
        found.append(payload)
    return found


def _shape(row: Delivery, channel: str) -> dict[str, Any]:
    return {
        "noticeId": row.delivery_id,
        "channel": channel,
        "event": row.event,
        "status": row.status,
        "attempts": msgspec.json.decode(row.attempts),
        "nextAttemptAt": next_attempt(row),
        "createdAt": row.created_at,
    } | ({} if row.subject is None else {"approvalId": row.subject})


def listed(
    organisation_id: str, name: str, limit: int, before: int | None
) -> tuple[list[dict[str, Any]], int, int | None] | None:
    """A page, newest first: records, how many in all, where the next page starts. None: no such channel."""
    channel = channels.own(organisation_id, name)
    if channel is None:
        return None
    rows, total, following = newest_of(channel.webhook_id, limit, before)
    return [_shape(row, name) for row in rows], total, following


def test(transaction: Transaction, organisation_id: str, name: str) -> dict[str, Any] | None:
    """Enqueue a test notice, to go out at once; returns it. None: no such channel."""
    channel = channels.own(organisation_id, name)
    if channel is None:
        return None
    data = {"channel": name}
    row = enqueue_now(transaction, channel.webhook_id, organisation_id, channels.TEST, data)
    rest(transaction, channel.webhook_id, 0.0)
    return _shape(row, name)


def enqueue_now(
    transaction: Transaction, receiver_id: str, organisation_id: str, event: str, data: dict[str, str]
) -> Delivery:
    """What goes out at once to a webhook or channel, as it will be kept."""
    now, payload = transaction.now, outbox.payload_of(event, data, transaction.now)
    row = outbox.delivery_row(receiver_id, transaction.ids("dlv"), organisation_id, event, payload, now, now)
    transaction.enqueue_delivery(row)
    return Delivery(**dict(zip(outbox.COLUMNS, row, strict=True)))


def rests_behind(payloads: Sequence[str], *, is_backlog: bool) -> bool:
    """Whether nothing follows a message of these for a while. A test delays nothing, and a backlog is not
    spread over many such times, unless it is of blocked calls: an agent makes as many as it likes."""
    events = [msgspec.json.decode(each)["event"] for each in payloads]
    if not is_backlog:
        return any(event != channels.TEST for event in events)
    return 2 * events.count("tool.blocked") > len(events)


_NOTIFIED: Final = (
    "SELECT d.subject, w.name, d.event, d.status, d.attempts, d.next_attempt_at, d.created_at"
    " FROM deliveries d JOIN webhooks w ON w.webhook_id = d.webhook_id WHERE d.subject IN ({})"
    " ORDER BY d.delivery_no"
)


def notified(store: Any, approval_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """By approval: by which channels its people were told, or are to be. For a reading thread."""
    wanted = list(approval_ids)
    found: dict[str, list[dict[str, Any]]] = {}
    if not wanted:
        return found
    for subject, channel, event, state, attempts, due, created_at in store.rows(
        _NOTIFIED.format(marks(wanted)), wanted
    ):
        tried = msgspec.json.decode(attempts)
        at = max(iso(due), created_at) if due is not None else tried[-1]["at"] if tried else created_at
        found.setdefault(subject, []).append(
            {"channel": channel, "event": event, "state": state, "at": at, "attempts": len(tried)}
        )
    return found


_UNREACHED: Final = (
    "SELECT COUNT(*) FROM organisations o JOIN approvals a ON a.organisation_id = o.organisation_id"
    " AND a.status = 'pending' WHERE a.seen_at IS NULL AND NOT EXISTS (SELECT 1 FROM deliveries d"
    " WHERE d.subject = a.approval_id AND d.status = 'delivered')"
)


def count_unreached(store: Any) -> int:
    """Approvals, over all organisations, that wait and have reached nobody: no channel has delivered a notice
    of them, and no reviewer has opened them. For a reading thread."""
    return int(store.rows(_UNREACHED)[0][0])
