"""What an event is refused with once it is known what is there already, in the words of its answer."""

from __future__ import annotations

from api.ingestion.event import EventRefused, Incoming
from api.ingestion.known_runs import KnownRun


def unbound_key() -> EventRefused:
    return EventRefused(
        "forbidden",
        "the API key is bound to no agent, which this service asks for; ask an admin for one that is, made"
        " with `governance keys add NAME --agent ID`",
        "unbound_key",
    )


def another_keys(run: KnownRun) -> EventRefused:
    return EventRefused(
        "run_conflict",
        f"the run `{run.run_id}` was made with another API key; a run belongs to the key that made it: use"
        " another `runId`",
        "run_of_another_key",
    )


def another_agents(run: KnownRun) -> EventRefused:
    return EventRefused(
        "run_conflict",
        f"the run `{run.run_id}` belongs to another agent; a run has one agent: use another `runId`",
        "run_of_another_agent",
    )


def another_event(event: Incoming) -> EventRefused:
    return EventRefused(
        "event_id_conflict",
        f"the event `{event.body.eventId}` was sent before with another body, or for another user; use a new"
        " `eventId`",
    )


def another_call(event: Incoming) -> EventRefused:
    return EventRefused(
        "tool_call_conflict",
        f"the tool call `{event.metadata['toolCallId']}` of this run was reported with another"
        " tool or payload, or for another user; a changed call needs a new `toolCallId`",
    )
