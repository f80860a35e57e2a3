"""Changes by two people: where an organisation asks for that, what one admin wants waits for another.

A request of a route with `second_admin` is rehearsed: its handler runs up to the first write, which says
what it would do and does nothing, so that everything that is wrong with it is answered at once. Then it is
kept. Once another admin has agreed, the same handler runs again in the name of whoever asked.

INVARIANT: what is applied is what was shown, upon what it was shown against: the write itself compares both,
inside its transaction.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

import msgspec

import schemas
from api.caller import Caller
from api.context import Context, Edits
from api.database.models import HeldChange
from api.database.secrets_at_rest import SecretsLocked
from api.database.transaction import Transaction
from api.handlers import (
    detectors,
    halts,
    organisations,
    policies,
    presets,
    settings,
    tool_proposals,
    tools,
    users,
)
from api.http.exchange import Reply, TimeAndId, Values, decode_cursor, page
from api.http.problems import ApiError, as_api_error, need
from api.http.route import ADMIN, Query, Route, page_query
from api.store import accounts
from api.store.review import changes
from api.store.review.changes import NewChange
from engine.canonical_json import canonical_json
from engine.repository import definitions

EXPIRE_HOURS: Final = 72
MASKED: Final = "(not shown)"
_MODULES: Final = (policies, presets, tools, tool_proposals, detectors, settings, users, organisations, halts)
OPERATIONS: Final[Mapping[str, Route]] = {
    f"{route.method} {route.path}": route
    for module in _MODULES
    for route in module.ROUTES
    if route.second_admin
}
"""What may need a second admin."""


class _Rehearsed(Exception):
    """What a request would do, instead of doing it. `state` names that, and what it would do it to."""

    def __init__(self, state: str, edits: list[dict[str, Any]], before: Any = None) -> None:
        super().__init__(state)
        self.state = state
        self.edits = edits
        self.before = before


class _Stale(Exception):
    """What a change was made for is not as it was."""


class _Rehearsal:
    """Stops at the first write."""

    def __init__(self, state: Callable[[], Any]) -> None:
        self._state = state

    def files(self, edits: Edits) -> None:
        raise _Rehearsed(
            _digest_of_files(edits), [_edit(path, *both) for path, both in sorted(edits.items())]
        )

    def rows(self, job: Callable[[Transaction], Any], transaction: Transaction) -> Any:
        before = self._state()
        result = job(transaction)
        if not result:
            return result  # nothing was found, so nothing was changed
        raise _Rehearsed(_digest(before), [], before)


class _Application:
    """Lets pass only what was rehearsed, once."""

    def __init__(self, expected: str, state: Callable[[], Any]) -> None:
        self._expected = expected
        self._state = state
        self._passed = False

    def files(self, edits: Edits) -> None:
        self._compare(_digest_of_files(edits))

    def rows(self, job: Callable[[Transaction], Any], transaction: Transaction) -> Any:
        if not self._passed:
            self._compare(_digest(self._state()))
        return job(transaction)

    def _compare(self, state: str) -> None:
        if self._passed or state != self._expected:
            raise _Stale
        self._passed = True


def _digest(value: Any) -> str:
    return sha256(canonical_json(value)).hexdigest()


def _digest_of_files(edits: Edits) -> str:
    def named(content: bytes | None) -> str | None:
        return None if content is None else sha256(content).hexdigest()

    return _digest([[path, named(before), named(after)] for path, (before, after) in sorted(edits.items())])


def _edit(path: str, before: bytes | None, after: bytes | None) -> dict[str, Any]:
    old, new = ((each or b"").decode(errors="replace").splitlines() for each in (before, after))
    what = "created" if before is None else "deleted" if after is None else "updated"
    lines = list(difflib.unified_diff(old, new, lineterm=""))[2:]  # without the names of files
    return {"path": path, "change": what, "diff": "\n".join(lines)}


# Asking -------------------------------------------------------------------------------------------


async def perform(route: Route, caller: Caller, values: Values, context: Context) -> Reply:
    """Run the handler of any route, or keep what it would change for another admin to agree to."""
    if route.method != "GET" and not route.checks_key:
        context = replace(context, caller=caller)
    if not route.second_admin:
        return await route.handler(caller, values, context)
    asked = await _asked(caller, context)
    if asked.get("approvers", 1) < 2:
        return await route.handler(caller, values, context)
    rehearsal = _Rehearsal(_state(route, caller, values))
    try:
        return await route.handler(caller, values, replace(context, guard=rehearsal))
    except _Rehearsed as found:
        # Its frames hold one another, and with them what was rehearsed, until all of memory is looked over.
        found.__traceback__ = None
        body = _body(values)
        change = NewChange(
            operation=f"{route.method} {route.path}",
            subject=_subject(values, body),
            request=_kept(values),
            shown={"summary": route.summary, "request": _masked(_schema(route), body)}
            | ({"edits": found.edits} if found.edits else {"before": found.before}),
            state=found.state,
            expire_hours=asked.get("expireHours", EXPIRE_HOURS),
        )
    made = await context.write(lambda transaction: changes.add(transaction, caller, change))
    if made is None:
        detail = f"{changes.MOST_PENDING} changes wait for a second admin already; resolve some first"
        raise ApiError("conflict", detail)
    return Reply(made, 202, {"Location": f"/v1/changes/{made['changeId']}"})


async def _asked(caller: Caller, context: Context) -> Mapping[str, Any]:
    """What the organisation says of changes."""
    stored = definitions.stored_settings(await context.newest(), caller.organisation_id)
    found: Mapping[str, Any] = stored.settings.values.get("changes", {})
    return found


def _state(route: Route, caller: Caller, values: Values) -> Callable[[], Any]:
    read = route.state
    return lambda: None if read is None else read(caller, values)


def _body(values: Values) -> Any:
    return msgspec.json.decode(values.body) if isinstance(values.body, bytes) else values.body


def _subject(values: Values, body: Any) -> str:
    """What a change is about, in a word."""
    named: Mapping[str, Any] = body if isinstance(body, dict) else {}
    names = ("policyId", "toolSetId", "email", "name", "haltId", "agentId", "runId")
    found = [*values.path.values(), *(named[name] for name in names if name in named)]
    return str(found[0])[:300] if found else ""


def _schema(route: Route) -> Mapping[str, Any]:
    return {} if route.body is None else schemas.load(f"bodies/{route.body}")


def _masked(shape: Mapping[str, Any], body: Any) -> Any:
    """The body without what nobody may read."""
    if not isinstance(body, dict):
        return body
    known = shape.get("properties", {})
    return {
        name: MASKED if known.get(name, {}).get("writeOnly") else _masked(known.get(name, {}), value)
        for name, value in body.items()
    }


def _kept(values: Values) -> dict[str, Any]:
    raw = values.body.decode() if isinstance(values.body, bytes) else None
    return {
        "path": dict(values.path),
        "query": dict(values.query),
        "body": values.body if raw is None else None,
        "raw": raw,
        "ifMatch": values.headers.get("if-match"),
    }


def _values(kept: dict[str, Any]) -> Values:
    headers = {} if kept["ifMatch"] is None else {"if-match": kept["ifMatch"]}
    body = kept["body"] if kept["raw"] is None else kept["raw"].encode()
    return Values(path=kept["path"], query=kept["query"], body=body, headers=headers)


# Resolving ----------------------------------------------------------------------------------------


async def list_changes(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/changes: newest first."""
    found, total, position = await context.reads.read(
        caller,
        changes.listed,
        caller.organisation_id,
        values.query.get("status"),
        values.query["limit"],
        decode_cursor(values, TimeAndId),
    )
    return page(found, total, position, values)


async def get_change(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/changes/:id, with what it would do."""
    return Reply(_shown(await _found(caller, values, context), caller))


async def resolve_change(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/changes/:id/resolve: reject it, or agree to it and have it applied."""
    change_id, decision = values.path["id"], values.body["decision"]
    row = await _found(caller, values, context)
    if decision == "approved" and row.requested_by_id == caller.user_id:
        raise ApiError("forbidden", "you asked for this change; another admin must agree", kind="approver")
    decided = await context.write(
        lambda transaction: changes.decide(transaction, caller, row, decision, values.body.get("reason"))
    )
    if not decided:
        detail = f"the change `{change_id}` is {row.status} already; nothing was changed"
        raise ApiError("conflict", detail, extra={"change": _shown(row, caller)})
    if decision == "approved":
        status, problem = await _apply(row, context)
        # What came of it goes on record, whatever became of the admin meanwhile.
        row = await context.writer.write(
            lambda transaction: changes.finish(transaction, row, status, problem)
        )
        if row.status != "applied":
            detail = f"the change is {row.status} and was not applied: {row.problem}"
            raise ApiError("conflict", detail, extra={"change": _shown(row, caller)})
    return Reply(_shown(row, caller))


async def _found(caller: Caller, values: Values, context: Context) -> HeldChange:
    row = await context.reads.read(caller, changes.find, caller.organisation_id, values.path["id"])
    return need(row, "change", values.path["id"])


async def _apply(row: HeldChange, context: Context) -> tuple[str, str | None]:
    """Run the request again, as whoever asked for it; how that ended, and why not."""
    user = await context.store.read(accounts.own_user, row.organisation_id, row.requested_by_id)
    if user is None or not user["enabled"] or user["role"] != "admin":
        return "failed", f"`{row.requested_by}`, who asked for it, is no admin any more"
    try:
        values = _values(changes.request_of(row))
    except SecretsLocked as error:
        return "failed", str(error)
    asked = context.credentials.person(user)
    route = OPERATIONS[row.operation]
    guard = _Application(row.state, _state(route, asked, values))
    try:
        await route.handler(asked, values, replace(context, caller=asked, guard=guard))
    except _Stale:
        return "stale", "what it was made for has changed since; ask for it again"
    except Exception as error:
        known = as_api_error(error)
        if known is None or known.status >= 500:
            raise
        gone = known.code in ("not_found", "precondition_failed", "policy_exists")
        return "stale" if gone else "failed", known.detail
    return "applied", None


def _shown(row: HeldChange, caller: Caller) -> dict[str, Any]:
    shape = changes.shape(row, whole=True)
    if row.status == "pending" and row.requested_by_id == caller.user_id:
        shape["mayNotApprove"] = "you asked for this change; another admin must agree"
    return shape


ROUTES = (
    Route(
        "GET",
        "/v1/changes",
        ADMIN,
        list_changes,
        "Changes that waited or wait for a second admin",
        "changes",
        reply="change",
        reply_is_array=True,
        query=(
            Query("status", {"type": "string", "enum": list(changes.STATUSES)}, "Only those."),
            *page_query(100, 1_000),
        ),
        description="Newest first.",
    ),
    Route(
        "GET",
        "/v1/changes/:id",
        ADMIN,
        get_change,
        "A change, with what it would do",
        "changes",
        reply="change",
        description="`edits` are the differences of files, `before` is what the database has; `request` is "
        "what was asked, without secrets.",
    ),
    Route(
        "POST",
        "/v1/changes/:id/resolve",
        ADMIN,
        resolve_change,
        "Agree to a change, or reject it",
        "changes",
        body="change-resolve",
        reply="change",
        errors=("conflict", "forbidden"),
        description="`approved` by another admin than the one who asked applies exactly what was shown; when "
        "what it was made for has changed meanwhile it is `stale` (409). Whoever asked may reject it.",
    ),
)
