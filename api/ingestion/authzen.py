"""AuthZEN evaluations as events: what is said of subject, action, resource and context becomes what policies
see, and an approval a task. All but the API key and a user's token is asserted only.

- `toolName` is the id of a resource of type `tool`, else the name of the action.
- `inputPayload` holds the properties of the action, and those of a `tool`, or the whole `resource`; and what
  else stands in the action or the `tool`.
- `agentId` is that of `context.governance`, else the id of a subject of type `agent`, else the agent of the
  API key, else the id of the subject. `agentContext` holds `subject`, `action` and the rest of `context`.
- The run is the one named, else one for each key and agent; the call is the one named, else the same for the
  same words under the same request id, else a new one.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

import msgspec

from api import clock
from api.caller import Caller
from api.http import bodies
from api.http.problems import ApiError
from api.ingestion.event import MEANT_AS_PAYLOAD
from api.store.call_facts import ASSERTED
from engine.canonical_json import canonical_json
from schemas.suggestion import as_compared

SAME_SECONDS: Final = 60.0
"""For which a request id makes the same words the same call: a PEP may pass on one that others chose."""
MOST_TOOL_NAME: Final = 200
REQUIRED: Final = ("subject", "action", "resource")
SAID: Final = (*REQUIRED, "context")
_OF_ACTION: Final = ("name", "properties")
_OF_TOOL: Final = ("type", "id", "properties")
_MEANT_AS_PROPERTIES: Final = MEANT_AS_PAYLOAD | {"attributes", "property", "props"}
_METADATA: Final = ("parentRunId", "actionHint", "reason", "toolAnnotations", "userToken")
"""Members of `context.governance` that are metadata of the event."""

OWN_RUN: Final = "authzen-"
_OWN_RUN = re.compile(OWN_RUN + "[0-9a-f]{32}")

_STATES: Final = {"rejected": "denied"}
"""Status of an approval to that of a task, where they differ."""

Evaluation = dict[str, Any]
Place = tuple[str, str]
"""Run and tool call."""

_encode = msgspec.json.encode


@contextmanager
def bad_request() -> Iterator[None]:
    """What is wrong with a body is 400 there, as the specification asks."""
    try:
        yield
    except ApiError as error:
        if error.code != "validation_failed":
            raise
        raise ApiError("invalid_request", error.detail, errors=error.errors) from None


def each_of(body: dict[str, Any]) -> list[Evaluation]:
    """The evaluations of a body, each with what it has by default; raises 400 where one lacks something."""
    defaults = {name: body[name] for name in SAID if name in body}
    found = [defaults | each for each in body["evaluations"]]
    for number, evaluation in enumerate(found):
        for name in REQUIRED:
            if name not in evaluation:
                raise _wrong(
                    f"/evaluations/{number}/{name}", f"`{name}` is required, here or for all evaluations"
                )
    return found


def tool_of(evaluation: Evaluation) -> str:
    """The name of the tool."""
    resource = evaluation["resource"]
    if resource["type"] != "tool":
        return str(evaluation["action"]["name"])
    if len(resource["id"]) > MOST_TOOL_NAME:
        raise _wrong("/resource/id", f"the name of a tool has at most {MOST_TOOL_NAME} characters")
    return str(resource["id"])


def payload_of(evaluation: Evaluation) -> dict[str, Any]:
    """INVARIANT: nothing of resource and action that policies could ask about is left out or hidden."""
    action, resource = evaluation["action"], evaluation["resource"]
    parts = [("/resource", {"resource": resource})]
    if resource["type"] == "tool":
        parts = _said("/resource", resource, _OF_TOOL)
    parts += _said("/action", action, _OF_ACTION)
    found: dict[str, Any] = {}
    for place, said in parts:
        for name in sorted(said.keys() & found.keys()):
            raise _wrong(
                f"{place}/{bodies.escape(name[:60])}",
                f"`{name[:60]}` is said twice of this call; one would hide the other: use another name",
            )
        found |= said
    return found


def refuse_misspelt(body: dict[str, Any]) -> None:
    """Raises 400 for names that seem to be meant as one that is looked at: what they hold would go
    ungoverned."""
    listed = enumerate(body.get("evaluations") or ())
    for place, each in (("", body), *((f"/evaluations/{number}", entry) for number, entry in listed)):
        _refuse_meant(place, each, (*SAID, "evaluations", "options"), "action/properties")
        _refuse_meant(f"{place}/action", each.get("action", {}), _OF_ACTION, "properties")
        resource = each.get("resource", {})
        if resource.get("type") == "tool":
            _refuse_meant(f"{place}/resource", resource, _OF_TOOL, "properties")


def _refuse_meant(place: str, said: dict[str, Any], known: Sequence[str], payload: str) -> None:
    spelt = {as_compared(name): name for name in known}
    for name in sorted(said.keys() - set(known)):
        word = as_compared(name[:MOST_TOOL_NAME])
        meant = payload if word in _MEANT_AS_PROPERTIES else spelt.get(word)
        if meant is not None and meant not in said:
            message = f"`{name[:60]}` is not looked at here; did you mean `{meant}`?"
            raise _wrong(f"{place}/{bodies.escape(name[:60])}", message)


def _said(place: str, of: dict[str, Any], known: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The properties of an action or a tool, and whatever else stands there, each with its place."""
    others = {name: value for name, value in of.items() if name not in known}
    return [(f"{place}/properties", of.get("properties", {})), (place, others)]


def agent_of(evaluation: Evaluation, caller: Caller) -> str:
    """The id of the agent."""
    subject = evaluation["subject"]
    named = _governance(evaluation).get("agentId")
    if named is None and subject["type"] != "agent":
        named = caller.agent_id
    return str(named or subject["id"])


def place_of(
    evaluation: Evaluation, number: int, caller: Caller, request_id: str | None, new_id: str
) -> Place:
    """Run and tool call of the `number`th of many evaluations (0: of a single one)."""
    run_id = run_of(evaluation, caller)
    if (given := _governance(evaluation).get("toolCallId")) is not None:
        return run_id, f"{given}-{number}" if number else str(given)
    if request_id is None:
        return run_id, new_id
    words = canonical_json([caller.key_id, request_id, number, *(evaluation.get(name) for name in SAID)])
    return run_id, "authzen-" + sha256(words).hexdigest()[:40]


def run_of(evaluation: Evaluation, caller: Caller) -> str:
    """The run that it names, or that of its key and agent."""
    named = _governance(evaluation).get("runId")
    return str(named or own_run(caller.key_id, agent_of(evaluation, caller)))


def own_run(key_id: str, agent_id: str) -> str:
    """The run of the evaluations of a key for an agent that name none."""
    return OWN_RUN + sha256(_encode([key_id, agent_id])).hexdigest()[:32]


def is_anothers_run(run_id: str, key_id: str, agent_id: str) -> bool:
    """Whether a run has the name that this key and agent would not be given: whoever knows a key's id could
    begin its runs before it does, and it could not evaluate any more."""
    named = run_id.startswith(OWN_RUN) and _OWN_RUN.fullmatch(run_id) is not None
    return named and run_id != own_run(key_id, agent_id)


def event_of_evaluation(
    evaluation: Evaluation, place: Place, caller: Caller, event_id: str, timestamp: str
) -> bytes:
    """The body of its event."""
    governance = _governance(evaluation)
    run_id, tool_call_id = place
    metadata: dict[str, Any] = {
        **{name: governance[name] for name in _METADATA if name in governance},
        "toolCallId": tool_call_id,
        "toolName": tool_of(evaluation),
        "inputPayload": payload_of(evaluation),
        "agentContext": asserted_of(evaluation),
    }
    return _encode(
        {
            "eventId": event_id,
            "runId": run_id,
            "agentId": agent_of(evaluation, caller),
            "timestamp": timestamp,
            "eventType": "tool.called",
            "metadata": metadata,
        }
    )


def begins_under_another(evaluation: Evaluation) -> bool:
    """Whether its run may begin with what another one has come to."""
    return "parentRunId" in _governance(evaluation)


def asserted_of(evaluation: Evaluation) -> dict[str, Any]:
    """The `agentContext` of its event."""
    subject = evaluation["subject"]
    others = evaluation.get("context", {}).items()
    rest = {name: value for name, value in others if name not in ("governance", "approval")}
    user = {"userId": subject["id"]} if subject["type"] == "user" else {}
    return {**user, "subject": subject, "action": evaluation["action"]["name"], "context": rest}


def is_said(asserted: dict[str, Any], evaluation: Evaluation, read: Container[str] = ()) -> bool:
    """Whether a call of which this was asserted was asked about for the same subject and action, and, of the
    roots that are `read`, with the same said there: what policies decide on is no other call's."""
    before, said = asserted.get("agentContext", {}), asserted_of(evaluation)
    same = all(name in before and _equal(before[name], said[name]) for name in ("subject", "action"))
    told = {**_governance(evaluation), "agentContext": said}
    return same and all(_equal(asserted.get(each), told.get(each)) for each in ASSERTED if each in read)


def _equal(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)


def _governance(evaluation: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = evaluation.get("context", {}).get("governance", {})
    return found


def _wrong(pointer: str, message: str) -> ApiError:
    return ApiError("invalid_request", message, errors=[{"pointer": pointer, "message": message}])


# Answers ------------------------------------------------------------------------------------------


def task_of(approval: dict[str, Any], requests: str, frontend: str) -> dict[str, Any]:
    """The task handle of an approval, and its result once it is approved; `requests` is the address of those
    of access."""
    approval_id, status = approval["approvalId"], approval["status"]
    task = {
        "id": approval_id,
        "status": _STATES.get(status, status),
        "status_endpoint": f"{requests}/{approval_id}",
        "links": {"review": f"{frontend}/approvals?approvalId={approval_id}"},
    }
    if approval["expiresAt"] is not None:
        task["expires_at"] = approval["expiresAt"]
    if status != "approved":
        return {"task": task}
    resolved = approval["resolvedAt"]
    found = {"id": approval_id, "approved_at": resolved, "approved_until": a_day_after(resolved)}
    return {"task": task, "result": {"mode": "reevaluate", "approval": found}}


def a_day_after(moment: str) -> str:
    return clock.iso(clock.seconds(moment) + clock.DAY)
