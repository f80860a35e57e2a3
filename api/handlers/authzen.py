"""AuthZEN: the OpenID Authorization API 1.0 and its profile for access requests, over the decision on events.

An evaluation is a `tool.called` event in other words (`ingestion/authzen.py`): it is decided, recorded and
answered on the same path. An approval is asked for by the evaluation itself, so an access request that refers
to such a denial only learns the state of what waits, and the approval is bound to tool and payload like any
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import msgspec

from api.caller import Caller
from api.context import Context
from api.handlers.access_query import AccessQuery
from api.handlers.approvals import get_approval
from api.http import bodies
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error
from api.http.route import AGENT, ANYONE, WAIT, Route
from api.ingestion.authzen import (
    Evaluation,
    a_day_after,
    bad_request,
    begins_under_another,
    each_of,
    task_of,
)
from api.ingestion.event import Answer, Incoming, Line

ASK_AGAIN_SECONDS: Final = 5
EVALUATION: Final = "/access/v1/evaluation"
EVALUATIONS: Final = "/access/v1/evaluations"
REQUESTS: Final = "/access/v1/requests"
CAPABILITY: Final = "urn:openid:authzen:capability:access-request"
_STOPS: Final = {"deny_on_first_deny": False, "permit_on_first_permit": True}

_decode = msgspec.json.decode
T = TypeVar("T")
_Asked = tuple[Incoming, asyncio.Future[Answer]]
"""What is asked of the policies, and what they will say."""
_Denied = dict[str, Any]


# The three endpoints that decide ------------------------------------------------------------------


async def evaluate_access(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /access/v1/evaluation"""
    query = AccessQuery(caller, values, context)
    return query.reply(await _evaluated(query, await query.body("access-evaluation")))


async def evaluate_accesses(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /access/v1/evaluations; without `evaluations` it is a single one."""
    query = AccessQuery(caller, values, context)
    body = await query.body("access-evaluations")
    listed = body.get("evaluations")
    if not listed:
        with bad_request():
            bodies.validate("access-evaluation", body)
        return query.reply(await _evaluated(query, body))
    single = each_of(body)
    stop = _STOPS.get(body.get("options", {}).get("evaluations_semantic"))
    one_by_one = stop is not None or query.is_dear or any(map(begins_under_another, single))
    step = 1 if one_by_one or await query.may_ask_anew(single) else len(single)
    found: list[dict[str, Any]] = []
    for start in range(0, len(single), step):
        part = single[start : start + step]
        found += await _evaluated_together(query, part, start + 1)
        if stop is not None and found[-1]["decision"] is stop:
            break
    return query.reply({"evaluations": found})


async def request_access(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /access/v1/requests: the state of what an evaluation has asked for already."""
    query = AccessQuery(caller, values, context)
    body = await query.body("access-request")
    approval_id = body["denial"]["evaluation_id"]
    if not await query.is_bound(approval_id, body):
        raise ApiError(
            "conflict",
            "`denial.evaluation_id` is of no denial of this subject, action and resource that waits for a"
            " person; send all of them as they were evaluated",
        )
    asked = Values(path={"id": approval_id}, query={"wait": 0}, headers=values.headers)
    reply = await get_approval(caller, asked, context)
    task = task_of(reply.body, context.settings.public + REQUESTS, context.settings.frontend)
    return query.reply(task, 202, {"Location": task["task"]["status_endpoint"]})


async def get_access_request(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /access/v1/requests/:id; with `wait`, answers when it is no longer pending, or after the wait."""
    reply = await get_approval(caller, values, context)
    task = task_of(reply.body, context.settings.public + REQUESTS, context.settings.frontend)
    pending = task["task"]["status"] == "pending"
    headers = {"Retry-After": str(ASK_AGAIN_SECONDS)} if pending else {}
    return AccessQuery(caller, values, context).reply(task, headers=headers)


async def authzen_configuration(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /.well-known/authzen-configuration"""
    base = context.settings.public
    return Reply(
        {
            "policy_decision_point": base,
            "access_evaluation_endpoint": base + EVALUATION,
            "access_evaluations_endpoint": base + EVALUATIONS,
            "access_request_endpoint": base + REQUESTS,
            "capabilities": [CAPABILITY],
        }
    )


# Answers ------------------------------------------------------------------------------------------


async def _evaluated(query: AccessQuery, evaluation: Evaluation) -> dict[str, Any]:
    return await _answered(query, await _asked(query, evaluation), evaluation)


async def _evaluated_together(
    query: AccessQuery, evaluations: list[Evaluation], first: int
) -> list[dict[str, Any]]:
    """Those of many from the `first`th on. INVARIANT: each is handed over behind those before it, so that
    none is decided without what they have changed, though nobody waits for one before the next."""
    line = Line()
    found: list[_Asked | _Denied] = []
    for number, each in enumerate(evaluations, first):
        found.append(await _or_denied(query, _asked(query, each, number, line)))
    answers: list[dict[str, Any]] = []
    for number, (each, entry) in enumerate(zip(evaluations, found, strict=True), first):
        if isinstance(entry, tuple):
            entry = await _or_denied(query, _answered(query, entry, each, number))
        answers.append(entry)
    return answers


async def _asked(
    query: AccessQuery, evaluation: Evaluation, number: int = 0, line: Line | None = None
) -> _Asked:
    event = await query.event(evaluation, number)
    event.line, event.place = line, number
    await query.context.intake.make_room(query.caller.key_id)
    return event, query.context.intake.handed_over(event)


async def _answered(
    query: AccessQuery, asked: _Asked, evaluation: Evaluation, number: int = 0
) -> dict[str, Any]:
    event, coming = asked
    context = query.context
    said = _decode((await context.intake.answer_of(coming)).content)
    if "toolCallId" in evaluation.get("context", {}).get("governance", {}):
        place = event.body.runId, event.metadata["toolCallId"]
        if not await query.is_asked_again(place, evaluation):
            raise ApiError(
                "tool_call_conflict",
                "the call of this `toolCallId` was asked about with another `subject`, `action` or `context`",
            )
        if said["toolCallStatus"] == "allowed" and await query.is_spent(said):
            raise ApiError(
                "tool_call_conflict",
                "the call of this `toolCallId` was made already, or approved more than a day ago; name"
                " another one for another execution",
            )
    elif await query.is_of_before(said):
        event, coming = await _asked(query.without_headers(), evaluation, number)
        said = _decode((await context.intake.answer_of(coming)).content)
    return await _decision(query, said, event)


async def _or_denied(query: AccessQuery, work: Coroutine[Any, Any, T]) -> T | _Denied:
    """INVARIANT: one of many that fails is a denial, and spoils no other."""
    try:
        return await work
    except Exception as error:
        known = as_api_error(error)
        if known is None:
            raise
        await query.context.refusals.note(query.caller, known, f"POST {EVALUATIONS}")
        shown = {"status": known.status, "code": known.code, "message": known.detail}
        return {"decision": False, "context": {"error": shown}}


async def _decision(query: AccessQuery, said: dict[str, Any], event: Incoming) -> dict[str, Any]:
    allowed, approval_id = said["toolCallStatus"] == "allowed", said.get("approvalId")
    told: dict[str, Any] = {
        "evaluation_id": approval_id or said["auditId"],
        "evaluated_at": said["decidedAt"],
        "toolCallId": event.metadata["toolCallId"],
        **{name: said[name] for name in _TOLD if name in said},
    }
    if allowed and approval_id is not None:
        told["approval"] = {"id": approval_id}
    elif said["toolCallStatus"] == "awaiting_approval":
        approval = await query.approval(said["approvalId"])
        told["access_request"] = {
            "endpoint": query.context.settings.public + REQUESTS,
            "expires_at": (approval and approval["expiresAt"]) or a_day_after(said["decidedAt"]),
        }
    elif approval_id is not None:
        told["next_action"] = "none"
    return {"decision": allowed, "context": told}


_TOLD: Final = (
    *("reason", "agentMessage", "matchedPolicies", "policyRevision", "auditId", "runId", "approvalUrl"),
)


_MAPPED: Final = "The guide says which field becomes what policies see. "

ROUTES = (
    Route(
        "POST",
        EVALUATION,
        AGENT,
        evaluate_access,
        "AuthZEN: may this subject do this?",
        "authzen",
        body="access-evaluation",
        counts=True,
        body_as_sent=True,
        checks_key=True,
        reply="access-decision",
        errors=("invalid_request", "tool_call_conflict", "run_conflict", "conflict"),
        description=_MAPPED + "A denial is 200 with `decision: false`; one that waits for a person has"
        " `context.access_request`.",
    ),
    Route(
        "POST",
        EVALUATIONS,
        AGENT,
        evaluate_accesses,
        "AuthZEN: several questions at once",
        "authzen",
        body="access-evaluations",
        counts=True,
        body_as_sent=True,
        checks_key=True,
        reply="access-decisions",
        errors=("invalid_request", "tool_call_conflict", "run_conflict", "conflict"),
        description=_MAPPED + "What fails is a denial with `context.error`, and spoils no other. Without"
        " `evaluations` it is a single question, and so is the answer.",
    ),
    Route(
        "POST",
        REQUESTS,
        AGENT,
        request_access,
        "AuthZEN: refer to a denial that waits for a person",
        "authzen",
        status=202,
        body="access-request",
        body_as_sent=True,
        reply="access-task",
        errors=("invalid_request", "conflict"),
        description="The evaluation has asked already; this is its state.",
        headers=("Location",),
    ),
    Route(
        "GET",
        f"{REQUESTS}/:id",
        AGENT,
        get_access_request,
        "AuthZEN: what became of it",
        "authzen",
        reply="access-task",
        errors=("conflict",),
        query=(WAIT,),
        description="Once it is approved, evaluate again with `result.approval` as `context.approval`.",
        headers=("Retry-After",),
    ),
    Route(
        "GET",
        "/.well-known/authzen-configuration",
        ANYONE,
        authzen_configuration,
        "AuthZEN: where its endpoints are",
        "authzen",
        reply="authzen-configuration",
    ),
)
