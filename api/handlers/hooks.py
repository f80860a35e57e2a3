"""Hooks of agent hosts, each in the host's own shape: a call is decided, waited for, and answered.

A denial is a 200, since hosts let a call through when a hook answers with anything else. What is remembered
of a call that waits is its row: when the model asks again, the host gives the call another name, so it is
found by tool and payload. INVARIANT: an approval's answer is handed out to one call of the host; who takes
it says so in an event of its own, which can be recorded once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from api.caller import Caller
from api.clock import iso, seconds
from api.context import Context
from api.handlers import approvals
from api.handlers.hook_request import HookRequest, done
from api.hosts import wording
from api.hosts.report import CALL, OTHER, PROBE, PROMPT, Host, Report, Unreadable, otherwise, told_otherwise
from api.hosts.table import NAMES, host
from api.http import bodies
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error, not_found
from api.http.route import AGENT, WAIT, Query, Route
from api.ingestion.event import EventRefused, Incoming
from api.ingestion.flow import SAID
from api.ingestion.validation import ASKED_TWICE, HANDED_OUT
from api.store import hook_calls
from api.store.call_facts import payload_digest
from engine.canonical_json import canonical_json

OUTCOME: Final = "Governance-Outcome"
AGENT_HEADER: Final = "Governance-Agent"
ALLOWED, BLOCKED, WAITING, UNDECIDED, RECORDED = "allowed", "blocked", "waiting", "undecided", "recorded"
TWIN: Final = "twin:"
"""How a call is named that is asked of in other words: no other one is its twin."""
TWIN_SECONDS: Final = 120.0
"""In which a host asks the second time of the same call."""
GOOD_SECONDS: Final = 86_400.0
"""For which a yes waits for the call that it is for; after that policies and people are asked again."""


class Verdict(NamedTuple):
    outcome: str
    text: str = ""


async def answer_hook(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/hooks/:host"""
    host_name, size = values.path["host"], len(values.body)
    try:
        report = await done(context, caller, size, partial(_read, host_name, values.body))
    except Unreadable as unreadable:
        return _reply(host(host_name), "", Verdict(UNDECIDED, wording.unreadable(str(unreadable))))
    found = host(host_name)
    if report.kind == OTHER:
        context.reads.count(caller)
        return _reply(found, report.event, Verdict(RECORDED))
    if report.tool == PROBE:
        return _probed(found, report, caller, values.query.get("agentId"))
    name = values.query.get("callId") or context.ids("hook")
    request = HookRequest(
        caller,
        context,
        found,
        report,
        agent_id=values.query.get("agentId") or caller.agent_id or found.name,
        call_id=report.call_id or (TWIN if report.twin else "") + name,
        name=name,
        at=values.query.get("at") or iso(context.clock()),
        offline=values.query["decidedOffline"],
        size=size,
    )
    if report.kind != CALL:
        await (_prompt(request) if report.kind == PROMPT else _outcome_of(request))
        return _reply(found, report.event, Verdict(RECORDED))
    try:
        deadline = asyncio.get_running_loop().time() + values.query["wait"]
        verdict = await (_decide if values.query["handOut"] else _wait)(request, deadline)
    except Exception as error:
        known = as_api_error(error)
        if known is None:
            raise
        await context.refusals.note(caller, known, "POST /v1/hooks/:host")
        verdict = _not_decided(known)
    return _reply(found, report.event, verdict)


def denied(path: Mapping[str, str], query: Mapping[str, str], error: ApiError) -> Reply | None:
    """Instead of an error, to a host that calls the service itself and so names no call: some go ahead on it,
    and an agent chooses what calls hold and how many come at once. What else a host tells needs no answer."""
    known = "callId" not in query and path["host"] in NAMES
    return _reply(host(path["host"]), "", _not_decided(error)) if known else None


def _read(host_name: str, raw: bytes) -> Report:
    """What a body says; raises 400, 422, 404 or Unreadable. INVARIANT: what became of a call is recorded,
    whatever a tool gave: nobody gets around a rule by an output that cannot be read."""
    try:
        return _read_as_sent(host_name, raw)
    except (ApiError, Unreadable):
        for told in told_otherwise(host(host_name), raw) if host_name in NAMES else ():
            with suppress(ApiError, Unreadable):
                return _read_as_sent(host_name, told)
        raise


def _read_as_sent(host_name: str, raw: bytes) -> Report:
    said = bodies.decode_unique(raw)
    bodies.validate("hook-input", said)
    if host_name not in NAMES:
        raise not_found("agent host", host_name)
    report = host(host_name).read(said)
    if report.kind == CALL:
        bodies.check_digits(raw, "")
    return report


def _reply(found: Host, event: str, verdict: Verdict) -> Reply:
    goes_ahead = verdict.outcome in (ALLOWED, RECORDED) and not verdict.text
    body = found.allow(event) if goes_ahead else found.deny(event, verdict.text)
    return Reply(body, headers={OUTCOME: verdict.outcome})


def _probed(found: Host, report: Report, caller: Caller, agent_id: str | None) -> Reply:
    """A probe is denied without a record; it learns whether calls of this agent would be taken."""
    text = wording.PROBED
    if caller.agent_id is not None and agent_id not in (None, caller.agent_id):
        why = f"the API key is bound to the agent `{caller.agent_id}`, and the hook speaks for `{agent_id}`"
        text = wording.not_taken(why)
    reply = _reply(found, report.event, Verdict(BLOCKED, text))
    return replace(reply, headers={**reply.headers, AGENT_HEADER: quote(caller.agent_id or "")})


def _not_decided(error: ApiError) -> Verdict:
    if error.status >= 500 or error.status == 429:
        return Verdict(UNDECIDED, wording.undecided(error.detail))
    return Verdict(BLOCKED, wording.not_taken(error.detail))


# What is told -------------------------------------------------------------------------------------


async def _prompt(request: HookRequest) -> None:
    """What the user wrote: the first is the run's task."""
    report, caller = request.report, request.caller
    if (by := request.host.schedules) and await request.look(hook_calls.has_scheduled, by, report.text):
        return
    has_task = await request.context.reads.read(caller, hook_calls.has_task, caller, report.run_id)
    said = {"message": report.text} if has_task else {"task": report.text, "model": report.model}
    await request.tell(SAID if has_task else "run.started", said)


async def _outcome_of(request: HookRequest) -> None:
    """What became of a call; what it gave plainer where that is not taken, as of a host that writes JSON in a
    text."""
    if (refused := await _refusal(request)) is None:
        return
    report = request.report
    for output in await request.done(otherwise, report.output):
        if (refused := await _refusal(request._replace(report=report._replace(output=output)))) is None:
            return
    raise refused


async def _refusal(request: HookRequest) -> ApiError | None:
    """Why what a call gave is not taken, or nothing once it is recorded."""
    try:
        await _result(request)
    except ApiError as refused:
        if refused.code not in ("invalid_json", "validation_failed"):
            raise
        return refused
    return None


async def _result(request: HookRequest) -> None:
    """What became of a call: the newest of that name, with these arguments if there is one, else the oldest
    one like it whose outcome is not known. Other arguments than were decided, as another hook or a person at
    the host may have given it, are told."""
    report = request.report
    digest = await request.done(payload_digest, report.tool, report.payload)
    names: list[hook_calls.HostCall] = await request.look(hook_calls.calls_named, request.call_id)
    same = [each for each in names if each.digest.startswith(digest)]
    named = next(iter(same or names), None)
    call_id = request.call_id if named is None else named.tool_call_id
    if named is None or named.is_completed:
        alike = await request.look(hook_calls.calls_like, digest)
        going = [each for each in alike if not each.is_completed]
        # Sorting keeps the order; one that was not allowed ran all the same, which is a gap.
        going.sort(key=lambda each: each.status == "allowed")
        call_id = going[-1].tool_call_id if going else call_id
    kind = "tool.failed" if report.failed else "tool.completed"
    said = {"toolCallId": call_id, "toolName": report.tool, "outputPayload": report.output}
    if named is not None and not same and _asked_for(named.payload) != _asked_for(report.payload):
        said["inputPayload"] = report.payload
    await request.tell(kind, said)


def _asked_for(payload: Mapping[str, Any]) -> bytes:
    """The arguments without the folder, which a command may have left."""
    return canonical_json({name: value for name, value in payload.items() if name != "cwd"})


# What is decided ----------------------------------------------------------------------------------


async def _decide(request: HookRequest, deadline: float) -> Verdict:
    request.need_room()
    raw = await request.done(_called, request, request.call_id, request.report.payload)
    event = await request.context.intake.event(request.caller, raw)
    if request.offline:
        receipt = await _taken(request, event)
        return Verdict(RECORDED, _final(receipt["toolCallStatus"], receipt).text)
    if request.report.twin and (twin := await _twin(request)) is not None:
        return await _outcome(request, twin, deadline)
    alike: list[hook_calls.HostCall] = await request.look(hook_calls.same_calls, event.digest)
    for call in alike:
        if call.approval_id is None or call.is_completed:
            continue  # what ran has spent its approval, also for whoever took it
        verdict = await _approval(request, call.approval_id, deadline)
        if verdict is not None:
            return verdict
    if any(
        call.tool_call_id == request.call_id and (call.approval_id or call.is_completed) for call in alike
    ):
        # The approval of this very call went to another one like it, or it was made: that one is spent.
        event = await _anew(request)
    receipt = await _taken(request, event)
    if receipt["toolCallStatus"] == "allowed" and ("approvalId" in receipt or "completion" in receipt):
        # So it is where it was decided before all those like it that are looked at.
        receipt = await request.take(await _anew(request))
    if receipt["toolCallStatus"] == "awaiting_approval":
        verdict = await _approval(request, receipt["approvalId"], deadline)
        return verdict or Verdict(UNDECIDED, wording.undecided("another call took the approval of this one"))
    return _final(receipt["toolCallStatus"], receipt)


async def _taken(request: HookRequest, event: Incoming) -> dict[str, Any]:
    """The receipt of a call, under another name where its own is that of one with other arguments."""
    try:
        return await request.take(event)
    except EventRefused as refused:
        if refused.code != "tool_call_conflict":
            raise
        return await request.take(await _anew(request))


async def _anew(request: HookRequest) -> Incoming:
    """The call under a name that no other one has, by which its outcome finds it."""
    name = hook_calls.another_name(request.call_id, request.context.ids("hook"))
    raw = await request.done(_called, request, name, request.report.payload)
    return await request.context.intake.event(request.caller, raw)


async def _wait(request: HookRequest, deadline: float) -> Verdict:
    """Until there is news of a call like it that waits; the outcome is for who asks next."""
    request.context.reads.count(request.caller)
    digest = await request.done(payload_digest, request.report.tool, request.report.payload)
    alike: list[hook_calls.HostCall] = await request.look(hook_calls.calls_like, digest)
    for call in alike:
        if call.status == "awaiting_approval" and call.approval_id is not None:
            await _awaited(request, call.approval_id, deadline)
            break
    return Verdict(WAITING, wording.WAITED)


def _called(request: HookRequest, call_id: str, payload: Mapping[str, Any]) -> bytes:
    metadata = {"toolCallId": call_id, "toolName": request.report.tool, "inputPayload": payload}
    return request.event("tool.called", request.context.ids("hook"), request.at, metadata)


def _final(status: str, said: Mapping[str, Any]) -> Verdict:
    if status == "allowed":
        return Verdict(ALLOWED)
    return Verdict(BLOCKED, said.get("agentMessage") or said.get("reason") or "refused")


async def _awaited(request: HookRequest, approval_id: str, deadline: float) -> dict[str, Any]:
    """An approval, as soon as it is resolved or the deadline is over."""
    left = max(0, int(deadline - asyncio.get_running_loop().time()))
    values = Values(path={"id": approval_id}, query={"wait": left})
    found: dict[str, Any] = (await approvals.get_approval(request.caller, values, request.context)).body
    return found


async def _approval(request: HookRequest, approval_id: str, deadline: float) -> Verdict | None:
    """What an approval comes to until the deadline; None when its answer went to another call, or was given
    too long ago."""
    said = await _awaited(request, approval_id, deadline)
    if said["status"] == "pending":
        return Verdict(WAITING, wording.waiting(approval_id, said.get("agentMessage", "")))
    if said["status"] == "approved" and request.context.clock() - seconds(said["resolvedAt"]) > GOOD_SECONDS:
        return None
    if "halted" not in said:
        metadata = {"approvalId": approval_id}
        if not await request.is_first(HANDED_OUT, approval_id, said["resolvedAt"], metadata):
            return None
        said = await _awaited(request, approval_id, 0)  # a halt may have been recorded before that
    return _final("allowed" if said["status"] == "approved" else "blocked", said)


async def _twin(request: HookRequest) -> hook_calls.HostCall | None:
    """The call that the host asks of a second time: the newest of its tool with the same member, asked by its
    own name a moment ago, without an outcome yet, and not asked of twice before."""
    report, context = request.report, request.context
    recent: list[hook_calls.HostCall] = await request.look(hook_calls.calls_of_tool, report.tool)
    for call in await request.done(_same, report, recent):
        if call.tool_call_id.startswith(TWIN) or call.is_completed:
            continue
        if context.clock() - seconds(call.decided_at) > TWIN_SECONDS:
            continue
        what = f"{report.run_id}:{call.tool_call_id}"
        if await request.is_first(ASKED_TWICE, what, call.decided_at, {"askedFor": call.tool_call_id}):
            return call
    return None


def _same(report: Report, calls: list[hook_calls.HostCall]) -> list[hook_calls.HostCall]:
    told = _told_apart_by(report.twin, report.payload)
    there = [call for call in calls if _is_in_folder(call.payload, report.payload)]
    return [call for call in there if _told_apart_by(report.twin, call.payload) == told]


def _is_in_folder(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both may run in the same one: a host may tell it of one alone."""
    first, second = one.get("cwd"), other.get("cwd")
    return not first or not second or first == second


def _told_apart_by(member: str, payload: Mapping[str, Any]) -> bytes:
    """What says which call it is, in words: Python takes `1` and `true` for the same."""
    return canonical_json(payload if member == "*" else payload.get(member))


async def _outcome(request: HookRequest, call: hook_calls.HostCall, deadline: float) -> Verdict:
    """What was decided of a call that is asked of a second time, unless a halt outweighs it now. Its approval
    was handed out to the first."""
    if call.status == "allowed":
        raw = await request.done(_called, request, call.tool_call_id, call.payload)
        receipt = await request.take(await request.context.intake.event(request.caller, raw))
        return _final(receipt["toolCallStatus"], receipt)
    if call.status == "awaiting_approval" and call.approval_id is not None:
        verdict = await _approval(request, call.approval_id, deadline)
        if verdict is not None:
            return verdict
    return Verdict(BLOCKED, wording.undecided("the same call was refused a moment ago"))


ROUTES = (
    Route(
        "POST",
        "/v1/hooks/:host",
        AGENT,
        answer_hook,
        "Answer the hook of an agent host",
        "events",
        body="hook-input",
        counts=True,
        body_as_sent=True,
        reply="hook-answer",
        instead=denied,
        description="`host` is `claude-code`, `codex`, `cursor`, `gemini-cli` or `copilot`; body and answer"
        " are what that host sends its hooks and expects of them. A denial is a 200, also when nothing could"
        " be decided: the header `Governance-Outcome` tells them apart. A call that waits for a person is"
        " found again by its run, tool and payload until its outcome was handed out once, a yes for a"
        " day.",
        headers=(OUTCOME, AGENT_HEADER),
        errors=("event_id_conflict", "tool_call_conflict", "run_conflict"),
        query=(
            WAIT,
            Query(
                "agentId",
                {"type": "string", "minLength": 1, "maxLength": 200},
                "Else that of the key, or the host's name.",
            ),
            Query(
                "callId",
                {"type": "string", "minLength": 1, "maxLength": 200},
                "A new name for what is told, which names the call where the host does not, the same when"
                " the request is repeated. Without it an error is told as a denial, in the host's words.",
            ),
            Query(
                "handOut",
                {"type": "boolean", "default": True},
                "`false`: only wait for news, and take no outcome; ask again without it. So nothing is lost"
                " when nobody is there any more to hear the answer.",
            ),
            Query("at", {"type": "string", "maxLength": 64}, "When it happened, if not just now (ISO 8601)."),
            Query("decidedOffline", {"type": "boolean", "default": False}, "It went ahead unasked."),
        ),
    ),
)
