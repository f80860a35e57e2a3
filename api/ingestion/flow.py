"""What an event adds to what is known of its run: labels, steps, and values that it has seen.

Labels are only ever added. What a call adds follows from the policies that matched it, what a report adds
from the policies `on: tool.completed` and from the declaration of the tool. All of it is written with the
decision or the report, in one transaction.

INVARIANT: on PostgreSQL a lane changes no run that others may see (`NeedsAnswer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from api.ingestion.batch import Batch
from api.ingestion.decide import DecidedCall
from api.ingestion.event import Incoming
from api.ingestion.known.runs import KnownRun
from api.ingestion.rows import CallRow, RunValueRow
from api.store import run_values
from api.store.call_facts import OF_THE_CALL, seen_by_decision
from engine.derived.derivation import Derivation
from engine.derived.provenance import origin_of
from engine.flow.belief import UNTRUSTED
from engine.flow.memory import Addition
from engine.flow.steps import steps_of
from engine.matching.ruleset import Ruleset
from engine.matching.sequence import FlowNeeds
from engine.model import Json, Policy, ToolCall

SAID: Final = "custom.user_message"
"""The event that holds what a person wrote to a run, as `message`."""
MOST_SHOWN: Final = 3
"""Values of which a reason says where they were read."""
AROUND: Final = 60
"""Characters of a passage before and after the value."""
MOST_READ: Final = 2**16
"""Characters of an output in which a passage is looked for. INVARIANT: what is done in a commit for one call
is bounded, however much its run has read."""

_encode = msgspec.json.encode
_decode = msgspec.json.decode


# Runs ---------------------------------------------------------------------------------------------


def begun(batch: Batch, event: Incoming, ruleset: Ruleset) -> tuple[KnownRun, list[RunValueRow]]:
    """The run that an event begins, and what it has seen already: see `inherit`."""
    run = batch.new_run(event)
    return run, inherit(batch, run, event, ruleset)


def inherit(batch: Batch, run: KnownRun, event: Incoming, ruleset: Ruleset) -> list[RunValueRow]:
    """A run that says at its beginning that another one has started it, or went before it: it has seen what
    that has seen, and the labels of that one, which `keep_up` adds, count as given now. The task of one that
    was started is nobody's word."""
    if (name := event.parent) is None or run.parent_run_id is not None or name == run.run_id:
        return []
    if event.is_of_sub_run:
        run.parent_run_id = name
    elif not run.new:
        return []
    run.changed()
    parent = batch.runs.get((run.organisation_id, name))
    if parent is None:
        return []
    # Labels make stricter, so another key's count as well; what its run has seen may make looser.
    _mark(run, ruleset.needs, _decode(parent.labels))
    if parent.key_id != run.key_id or not ruleset.needs.values:
        return []
    batch.load_values(parent)
    assert parent.values is not None
    return _added(batch, run, parent.values.handed_on(), 0)


def keep_up(batch: Batch, run: KnownRun, event: Incoming, ruleset: Ruleset) -> None:
    """Labels that the runs which an event names have by now, however often and late it names them: they go on
    side by side, and any may tell the others what it has read."""
    for name in event.named_runs:
        if (other := batch.runs.get((run.organisation_id, name))) is not None:
            labels: list[str] = _decode(other.labels)
            if not set(labels) <= set(_decode(run.labels)):
                batch.need_answer()
                _mark(run, ruleset.needs, add_labels(run, labels))


def add_labels(run: KnownRun, labels: Iterable[str]) -> list[str]:
    """Returns those that are new."""
    known: list[str] = _decode(run.labels)
    fresh = sorted(set(labels) - set(known))
    if fresh:
        run.labels = _encode(sorted([*known, *fresh])).decode()
        run.changed()
    return fresh


def _mark(run: KnownRun, needs: FlowNeeds, labels: Iterable[str], matched: Iterable[Policy] = ()) -> None:
    """What comes `after` labels, or policies, that count for a run at no call of its own."""
    steps = steps_of(run.steps)
    marked = steps.marked(needs.marks("", labels, matched), needs.bounds)
    if marked is not steps:
        run.steps = _encode(marked).decode()
        run.changed()


def _added(batch: Batch, run: KnownRun, addition: Addition, call_no: int) -> list[RunValueRow]:
    """The row of what a run has seen from here on."""
    if not (addition.task or addition.trusted or addition.untrusted):
        return []
    batch.load_values(run)
    assert run.values is not None
    run.values = run.values.with_addition(addition, str(call_no))
    run.changed()
    return [RunValueRow(run.run_no, run.flow, call_no, *run_values.columns_of(addition))]


# Calls --------------------------------------------------------------------------------------------


def follow(batch: Batch, run: KnownRun, outcome: DecidedCall) -> list[str]:
    """What a decided call changes of its run; returns the labels that are new."""
    needs = outcome.evaluated.ruleset.needs
    if not (needs.labels or needs.bounds):
        return []
    covered = () if outcome.cover is None else outcome.cover.left_out
    policies = [match.policy for match in (*outcome.decision.matched, *covered)]
    labels = [label for policy in policies for label in policy.labels]
    before = steps_of(run.steps)
    made = outcome.status != "blocked" or outcome.offline
    name = outcome.evaluated.call.tool_name if made else ""
    steps = before.advanced(needs.marks(name, labels, policies), needs.bounds)
    changes = steps is not before or not set(labels) <= set(_decode(run.labels))
    if changes and not run.new:
        batch.need_answer()
    if steps is not before:
        run.steps = _encode(steps).decode() if steps.marks else None
        run.changed()
    return add_labels(run, labels)


def first_read(batch: Batch, outcome: DecidedCall) -> str:
    """For the reason of a call that is stopped: its values that were read in untrusted outputs, each with the
    passage where it was read first. Empty where policies have not asked for that."""
    memory, ruleset = outcome.evaluated.memory, outcome.evaluated.ruleset
    if outcome.status == "allowed" or memory is None or memory.loaded is None:
        return ""
    asking = [rule.policy.policy_id for rule in ruleset.rules_that_ask()]
    if not any(match.policy.policy_id in asking for match in outcome.decision.matched):
        return ""
    found: list[str] = []
    outputs: dict[str, tuple[str, str, str] | None] = {}
    for target in Derivation(outcome.evaluated.call.document, ruleset.tools).targets:
        origin = origin_of(target.value, memory.loaded) if target.source == UNTRUSTED else None
        if origin is None or len(found) == MOST_SHOWN:
            continue
        batch.need_answer()
        value, call_no = origin
        if call_no not in outputs:
            outputs[call_no] = run_values.output_of(batch.store, call_no, MOST_READ)
        if (output := outputs[call_no]) is not None:
            tool_call_id, tool_name, text = output
            shown = _encode(value).decode()
            place = f"{shown} was first read in the output of `{tool_name}` (`{tool_call_id}`)"
            found.append(place + _passage(text, str(value)))
    return "".join(f"; {each}" for each in dict.fromkeys(found))


def _passage(output: str, value: str) -> str:
    text = " ".join(output.split())
    at = text.casefold().find(value.casefold())
    if at < 0:
        return ""
    start, end = max(0, at - AROUND), at + len(value) + AROUND
    return f": {'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


# Reports ------------------------------------------------------------------------------------------


def said(batch: Batch, run: KnownRun, event: Incoming, ruleset: Ruleset) -> None:
    """What a person wrote to the run counts as its task does."""
    message = event.metadata.get("message")
    if isinstance(message, str) and ruleset.needs.values and run.parent_run_id is None:
        batch.need_answer()
        batch.load_values(run)
        assert run.values is not None
        batch.value_rows += _added(batch, run, run.values.said(message), 0)


def reported(
    batch: Batch, run: KnownRun, event: Incoming, call: CallRow | None, ruleset: Ruleset, *, believed: bool
) -> dict[str, Any]:
    """What an outcome changes of its run, for the record. `believed`: it is the first outcome of a call that
    was allowed, and nothing speaks against it."""
    needs, output = ruleset.needs, event.metadata.get("outputPayload")
    sees = needs.values and output is not None
    if not (needs.reports or sees):
        return {}
    batch.need_answer()
    name = str(event.metadata.get("toolName", "")) if call is None else call.tool_name
    facts: dict[str, Any] = {}
    payload: Json = None  # also of a call whose event retention has removed
    if call is not None:
        batch.flush_events()
        facts, payload = seen_by_decision(batch.store, call.call_no)
    told: dict[str, Any] = {}
    if sees:
        batch.load_values(run)
        assert run.values is not None
        # What an act was given is not known once its event is gone, and anything of it may come back.
        believed = believed and payload is not None
        addition = run.values.outcome(output, ruleset.tools.declared(name), payload, believed=believed)
        batch.value_rows += _added(batch, run, addition, 0 if call is None else call.call_no)
        if addition.full:
            told["valuesBeyondBound"] = True
    if needs.reports:
        report = _report(event, run, name, payload or {}, facts)
        matches = ruleset.evaluate(report).matches
        matched = [match.policy for match in matches]
        labels = [label for policy in matched for label in policy.labels]
        _mark(run, needs, labels, matched)
        if fresh := add_labels(run, labels):
            told["labelsAdded"] = fresh
        if matched:
            told["policyIds"] = [policy.policy_id for policy in matched[:50]]
        warnings = [match for match in matches if match.policy.action == "warn"]
        if warnings:
            data = {"runId": run.run_id, "toolCallId": event.metadata["toolCallId"], "toolName": name}
            data |= {"agentId": run.agent_id, "policyName": warnings[0].policy.name}
            data["reason"] = "; ".join(match.reason for match in warnings)
            batch.transaction.notify(run.organisation_id, "tool.warned", data, run.key_id)
    return told


def _report(
    event: Incoming, run: KnownRun, tool_name: str, payload: Json, facts: Mapping[str, Any]
) -> ToolCall:
    """The outcome as policies see it: the call as its decision saw it, but for its run, of which more may be
    known now; with `outputPayload`, null where none was reported."""
    document: dict[str, Any] = {
        "toolName": tool_name,
        "inputPayload": payload,
        "agentId": run.agent_id,
        "runId": run.run_id,
        "toolCallId": event.metadata["toolCallId"],
        "key": {"id": event.caller.key_id, "scopes": list(event.caller.scopes)},
        **event.facts,
        **{root: value for root, value in facts.items() if root in OF_THE_CALL},
        "outputPayload": event.metadata.get("outputPayload"),
    }
    if (of_run := run.facts()) is not None:
        document["run"] = of_run
    return ToolCall({**document, "before": run.memory()})
