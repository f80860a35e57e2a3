"""The audit log: read, export, verify. Nothing here can change it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta

from api import clock
from api.audit import ocsf, records, verification
from api.audit.installation_key import ALGORITHM
from api.audit.retention.certificate import newest_certificate
from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values, decode_cursor, page
from api.http.problems import invalid, not_found
from api.http.route import ADMIN, VIEWER, Query, Route, cursor

_Number = Annotated[int, Meta(ge=0, le=2**62)]
_Cursor = Annotated[dict[_Number, _Number], Meta(min_length=1)]
MOST_OF_A_CURSOR = 32_768
"""Characters, some 20 for each chain of the organisation."""
MOST_ON_A_PAGE = 1_000
LINES_AT_ONCE = 1_000
NDJSON = "application/x-ndjson"
FORMATS = {"type": "string", "enum": ["json", "jsonl", "ocsf"], "default": "json"}


async def list_audit(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/audit: a page, newest first, or an export, oldest first; see `format`."""
    query = values.query
    chosen = records.Filter(
        caller.organisation_id,
        since=moment_of(query.get("since"), "since"),
        until=moment_of(query.get("until"), "until"),
        agent_id=query.get("agentId"),
        user_id=query.get("userId"),
        run_id=query.get("runId"),
        tool_call_id=query.get("toolCallId"),
        tool_name=query.get("toolName"),
        type=query.get("type"),
        decision=query.get("decision"),
    )
    after = decode_cursor(values, _Cursor)
    if (form := query["format"]) != "json":
        ascending = query.get("order", "asc") == "asc"
        exported = _export(caller, context, chosen, after, ascending, query.get("limit"))
        name = "audit.ocsf.jsonl" if form == "ocsf" else "audit.jsonl"
        return Reply(
            stream=_as_ocsf(exported) if form == "ocsf" else exported,
            media_type=NDJSON,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )
    limit = query.get("limit", 100)
    if limit > MOST_ON_A_PAGE:
        raise invalid(
            "/limit", f"`limit` must be at most {MOST_ON_A_PAGE}; for more, page on or use `format=jsonl`"
        )
    items, total, position = await context.reads.search(
        caller, records.list_records, chosen, limit, after, query.get("order", "desc") == "asc"
    )
    return page(items, total, position or None, values)


async def get_audit_record(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/audit/:id: the record that a receipt names."""
    audit_id = values.path["id"]
    record = await context.reads.search(caller, records.find_record, caller.organisation_id, audit_id)
    if record is None:
        known = await context.reads.search(caller, newest_certificate)
        gone = known is not None and known.written_until(caller.organisation_id)
        raise not_found("audit record", audit_id, f"; {known.told}" if known is not None and gone else "")
    return Reply(record)


async def _export(
    caller: Caller,
    context: Context,
    chosen: records.Filter,
    after: records.Positions | None,
    ascending: bool,
    limit: int | None,
) -> AsyncIterator[bytes]:
    """All records up to the newest one of now, some at a time. A fault, or the end of the credential, breaks
    the connection off, so that a part is never taken for the whole."""
    left = limit
    if ascending:
        chosen = await context.reads.search(caller, records.up_to_now, chosen)
    while True:
        await context.credentials.recheck(caller)
        at_once = LINES_AT_ONCE if left is None else min(left, LINES_AT_ONCE)
        lines, following = await context.reads.search(
            caller, records.export_lines, chosen, at_once, after, ascending
        )
        if lines:
            yield lines
        if left is not None:
            left -= at_once
        if following is None or left == 0:
            return
        after = following


async def _as_ocsf(exported: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for lines in exported:
        yield await asyncio.to_thread(ocsf.lines, lines)


async def verify_audit(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/audit/verify: walks the whole log of the caller's organisation."""
    trusted = (context.audit_key.public,)
    arguments = context.store, caller.organisation_id, trusted
    return Reply(await context.reads.verify(caller, verification.verify, *arguments))


async def get_audit_key(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/audit/key: what the checkpoints are verified with."""
    key = context.audit_key.public
    return Reply({"algorithm": ALGORITHM, "keyId": key.key_id, "publicKey": key.text})


def moment_of(text: str | None, name: str) -> str | None:
    """A time as the records write it."""
    if text is None:
        return None
    try:
        return clock.iso(max(0.0, clock.seconds(text)))  # nothing is older than 1970
    except (ValueError, OverflowError, OSError):
        raise invalid(
            f"/{name}",
            f"`{name}` is `{text[:64]}`; write an ISO 8601 time such as `2026-01-31T09:30:00Z`"
            " (in an address, `+` is written `%2B`)",
        ) from None


ROUTES = (
    Route(
        "GET",
        "/v1/audit",
        ADMIN,
        list_audit,
        "Read or export the audit log",
        "audit",
        reply="audit-record",
        reply_is_array=True,
        query=(
            Query(
                "since",
                {"type": "string", "format": "date-time", "maxLength": 64},
                "ISO 8601; this moment or later.",
            ),
            Query(
                "until",
                {"type": "string", "format": "date-time", "maxLength": 64},
                "ISO 8601; before this moment.",
            ),
            Query("agentId", {"type": "string", "maxLength": 200}, "Only of this agent."),
            Query("userId", {"type": "string", "maxLength": 200}, "Only of this verified end user."),
            Query("runId", {"type": "string", "maxLength": 200}, "Only of this run."),
            Query("toolCallId", {"type": "string", "maxLength": 200}, "Only of calls with this id."),
            Query("toolName", {"type": "string", "maxLength": 200}, "Only of this tool."),
            Query("type", {"type": "string", "maxLength": 100}, "Only of this type, such as `decision`."),
            Query("decision", {"type": "string", "maxLength": 100}, "Only with this decision."),
            Query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": 1_000_000},
                "How many at most; see below.",
            ),
            cursor(MOST_OF_A_CURSOR),
            Query("order", {"type": "string", "enum": ["asc", "desc"]}, "By time; see below."),
            Query("format", FORMATS, "See below."),
        ),
        also_media_types=(NDJSON,),
        description="`json`: a page of `limit` records (default 100, at most 1,000), newest first. `jsonl`: "
        "an export of all that match, or of the first `limit` of them (at most 1,000,000), oldest first, one "
        "record a line exactly as hashed. `ocsf`: the same export as events of OCSF 1.8.0.",
    ),
    Route(
        "GET",
        "/v1/audit/:id",
        ADMIN,
        get_audit_record,
        "Read an audit record",
        "audit",
        reply="audit-record",
        description="Every receipt names the record of its decision as `auditId`.",
    ),
    Route(
        "GET",
        "/v1/audit/verify",
        ADMIN,
        verify_audit,
        "Verify the audit log",
        "audit",
        reply="audit-verification",
        description="Walks the whole hash chain, holds the signed checkpoints against it, and compares "
        "calls, runs, approvals, events, policies, users, keys and webhooks with what the log says of "
        "them. Of records that retention has dropped (`dropped`) a signed checkpoint takes the place.",
    ),
    Route(
        "GET",
        "/v1/audit/key",
        VIEWER,
        get_audit_key,
        "The public key of the checkpoints",
        "audit",
        reply="audit-key",
        description="Note it elsewhere: with it anybody can verify a copy of the log without this service.",
    ),
)
