"""AuthZEN: the OpenID Authorization API 1.0 and its profile for access requests, over the decision on events.

An evaluation is a `tool.called` event in other words (`ingestion/authzen.py`): it is decided, recorded and
answered on the same path. An approval is asked for by the evaluation itself, so an access request that refers
to such a denial only learns the state of what waits, and the approval is bound to tool and payload like any
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from api import clock
from api.caller import Caller
from api.context import Context
from api.handlers.approvals import get_approval
from api.http import bodies
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error
from api.http.route import AGENT, ANYONE, WAIT, Route
from api.ingestion.authzen import (
    Evaluation,
    Place,
    a_day_after,
    agent_of,
    bad_request,
    begins_under_another,
    each_of,
    event_of_evaluation,
    is_of_before,
    is_said,
    payload_of,
    place_of,
    run_of,
    task_of,
    tool_of,
)
from api.ingestion.event import Answer, Incoming, Line
from api.store import recorded_calls
from api.store.call_facts import payload_digest
from api.store.review import reading

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
    body = await _body("access-evaluation", caller, values, context)
    return _reply(await _evaluated(body, caller, values, context), values)


async def evaluate_accesses(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /access/v1/evaluations; without `evaluations` it is a single one."""
    body = await _body("access-evaluations", caller, values, context)
    listed = body.get("evaluations")
    if not listed:
        with bad_request():
            bodies.validate("access-evaluation", body)
        return _reply(await _evaluated(body, caller, values, context), values)
    single = each_of(body)
    stop = _STOPS.get(body.get("options", {}).get("evaluations_semantic"))
    one_by_one = stop is not None or _is_dear(caller, values, context)
    step = 1 if one_by_one or any(map(begins_under_another, single)) else len(single)
    found: list[dict[str, Any]] = []
    for start in range(0, len(single), step):
        part = single[start : start + step]
        found += await _evaluated_together(part, start + 1, caller, values, context)
        if stop is not None and found[-1]["decision"] is stop:
            break
    return _reply({"evaluations": found}, values)


async def request_access(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /access/v1/requests: the state of what an evaluation has asked for already."""
    body = await _body("access-request", caller, values, context)
    approval_id = body["denial"]["evaluation_id"]
    if not await _is_bound(approval_id, body, caller, values, context):
        raise ApiError(
            "conflict",
            "`denial.evaluation_id` is of no denial of this subject, action and resource that waits for a"
            " person; send all of them as they were evaluated",
        )
    asked = Values(path={"id": approval_id}, query={"wait": 0}, headers=values.headers)
    reply = await get_approval(caller, asked, context)
    task = task_of(reply.body, context.settings.public + REQUESTS, context.settings.frontend)
    return _reply(task, values, 202, {"Location": task["task"]["status_endpoint"]})


async def get_access_request(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /access/v1/requests/:id; with `wait`, answers when it is no longer pending, or after the wait."""
    reply = await get_approval(caller, values, context)
    task = task_of(reply.body, context.settings.public + REQUESTS, context.settings.frontend)
    pending = task["task"]["status"] == "pending"
    return _reply(task, values, headers={"Retry-After": str(ASK_AGAIN_SECONDS)} if pending else {})


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


# Bodies -------------------------------------------------------------------------------------------


def _is_dear(caller: Caller, values: Values, context: Context) -> bool:
    """Whether the work for a request is done in turns, and one after the other: what a body says for all of
    its evaluations is part of each."""
    return context.intake.is_dear(caller.key_id, len(values.body))


async def _done(work: Callable[[], T], caller: Caller, values: Values, context: Context) -> T:
    return await context.intake.done(caller.key_id, len(values.body), work)


async def _body(schema: str, caller: Caller, values: Values, context: Context) -> dict[str, Any]:
    return await _done(partial(_checked, schema, values.body), caller, values, context)


def _checked(schema: str, raw: bytes) -> dict[str, Any]:
    with bad_request():
        value: dict[str, Any] = bodies.decode_unique(raw)
        bodies.validate(schema, value)
        bodies.check_digits(raw, "")
    return value


async def _event(
    evaluation: Evaluation, number: int, caller: Caller, values: Values, context: Context
) -> Incoming:
    """The event of the `number`th of many evaluations (0: of a single one); of the call of an approval, if it
    refers to one."""
    approved = await _approved(evaluation, caller, values, context)
    sent = values.headers.get("x-request-id")
    call_id, event_id, at = context.ids("call"), context.ids("evl"), clock.iso(context.clock())

    def made() -> bytes:
        place = approved or place_of(evaluation, number, caller, sent, call_id)
        return event_of_evaluation(evaluation, place, caller, event_id, at)

    with bad_request():
        return await context.intake.event(caller, await _done(made, caller, values, context))


async def _approved(evaluation: Evaluation, caller: Caller, values: Values, context: Context) -> Place | None:
    """Run and tool call of the approval that an evaluation refers to; None when it is not of this call and
    run or was given too long ago, and then nothing follows from it."""
    approval_id = evaluation.get("context", {}).get("approval", {}).get("id")
    if approval_id is None or not await _is_bound(approval_id, evaluation, caller, values, context):
        return None
    found = await context.reads.read(caller, reading.find_approval, caller, approval_id)
    said = agent_of(evaluation, caller), run_of(evaluation, caller)
    if found is None or (found["agentId"], found["runId"]) != said:
        return None
    if found["resolvedAt"] is not None and a_day_after(found["resolvedAt"]) < clock.iso(context.clock()):
        return None
    place = found["runId"], found["toolCallId"]
    return place if await _is_asked_again(place, evaluation, caller, values, context) else None


async def _is_asked_again(
    place: Place, evaluation: Evaluation, caller: Caller, values: Values, context: Context
) -> bool:
    """Whether a call was asked about for the same subject and action, and the same where policies look."""
    of_call, owner = recorded_calls.asserted_of_call, caller.organisation_id
    asserted = await context.reads.read(caller, of_call, context.id_index, owner, *place)

    def is_same() -> bool:
        return asserted is not None and is_said(asserted, evaluation, context.live.ruleset(owner).roots)

    return await _done(is_same, caller, values, context)


async def _is_bound(
    approval_id: str, evaluation: Evaluation, caller: Caller, values: Values, context: Context
) -> bool:
    """Whether an approval was asked for this subject, tool, payload and action."""
    bound = await context.reads.read(caller, recorded_calls.bound_to, caller.organisation_id, approval_id)
    if bound is None:
        return False
    digest, asserted = bound

    def is_same() -> bool:
        asked = payload_digest(tool_of(evaluation), payload_of(evaluation))
        return digest.partition(":")[0] == asked and is_said(asserted, evaluation)

    return await _done(is_same, caller, values, context)


# Answers ------------------------------------------------------------------------------------------


async def _evaluated(
    evaluation: Evaluation, caller: Caller, values: Values, context: Context
) -> dict[str, Any]:
    asked = await _asked(evaluation, caller, values, context)
    return await _answered(asked, evaluation, caller, values, context)


async def _evaluated_together(
    evaluations: list[Evaluation], first: int, caller: Caller, values: Values, context: Context
) -> list[dict[str, Any]]:
    """Those of many from the `first`th on. INVARIANT: each is handed over behind those before it, so that
    none is decided without what they have changed, though nobody waits for one before the next."""
    line = Line()
    found: list[_Asked | _Denied] = []
    for number, each in enumerate(evaluations, first):
        found.append(await _or_denied(_asked(each, caller, values, context, number, line), caller, context))
    answers: list[dict[str, Any]] = []
    for number, (each, entry) in enumerate(zip(evaluations, found, strict=True), first):
        if isinstance(entry, tuple):
            answered = _answered(entry, each, caller, values, context, number)
            entry = await _or_denied(answered, caller, context)
        answers.append(entry)
    return answers


async def _asked(
    evaluation: Evaluation,
    caller: Caller,
    values: Values,
    context: Context,
    number: int = 0,
    line: Line | None = None,
) -> _Asked:
    event = await _event(evaluation, number, caller, values, context)
    event.line, event.place = line, number
    await context.intake.make_room(caller.key_id)
    return event, context.intake.handed_over(event)


async def _answered(
    asked: _Asked, evaluation: Evaluation, caller: Caller, values: Values, context: Context, number: int = 0
) -> dict[str, Any]:
    event, coming = asked
    said = _decode((await context.intake.answer_of(coming)).content)
    if "toolCallId" in evaluation.get("context", {}).get("governance", {}):
        place = event.body.runId, event.metadata["toolCallId"]
        if not await _is_asked_again(place, evaluation, caller, values, context):
            raise ApiError(
                "tool_call_conflict",
                "the call of this `toolCallId` was asked about with another `subject`, `action` or `context`",
            )
    elif is_of_before(said, context.clock()):
        event, coming = await _asked(evaluation, caller, replace(values, headers={}), context, number)
        said = _decode((await context.intake.answer_of(coming)).content)
    return await _decision(said, event, caller, context)


async def _or_denied(work: Coroutine[Any, Any, T], caller: Caller, context: Context) -> T | _Denied:
    """INVARIANT: one of many that fails is a denial, and spoils no other."""
    try:
        return await work
    except Exception as error:
        known = as_api_error(error)
        if known is None:
            raise
        await context.refusals.note(caller, known, f"POST {EVALUATIONS}")
        shown = {"status": known.status, "code": known.code, "message": known.detail}
        return {"decision": False, "context": {"error": shown}}


async def _decision(
    said: dict[str, Any], event: Incoming, caller: Caller, context: Context
) -> dict[str, Any]:
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
        approval = await context.reads.read(caller, reading.find_approval, caller, approval_id)
        told["access_request"] = {
            "endpoint": context.settings.public + REQUESTS,
            "expires_at": (approval and approval["expiresAt"]) or a_day_after(said["decidedAt"]),
        }
    elif approval_id is not None:
        told["next_action"] = "none"
    return {"decision": allowed, "context": told}


_TOLD: Final = (
    *("reason", "agentMessage", "matchedPolicies", "policyRevision", "auditId", "runId", "approvalUrl"),
)


def _reply(
    body: dict[str, Any], values: Values, status: int = 200, headers: dict[str, str] | None = None
) -> Reply:
    """With the caller's own `X-Request-Id`, whatever characters it is of."""
    sent = values.headers.get("x-request-id", "")
    echoed = {"X-Request-Id": sent} if sent and sent.isascii() and sent.isprintable() else {}
    return Reply(body, status, {**(headers or {}), **echoed})


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
