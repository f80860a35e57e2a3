"""The shape of an event is the schema's: the struct that reads it agrees, and so does what is derived."""

from __future__ import annotations

import msgspec
import pytest

import schemas
from api.http.problems import ApiError
from api.ingestion import validation
from api.ingestion.event import EventBody, Receipt
from schemas.validation import violations

SCHEMA = schemas.load("bodies/event")


def test_the_struct_of_an_event_has_the_fields_of_its_schema() -> None:
    fields = {field.name: field.required for field in msgspec.structs.fields(EventBody)}
    assert fields == {name: name in SCHEMA["required"] for name in SCHEMA["properties"]}


def test_the_struct_of_an_answer_has_the_fields_of_its_schema() -> None:
    assert set(Receipt.__struct_fields__) == set(schemas.load("bodies/event-answer")["properties"])


def test_what_is_derived_from_the_schema() -> None:
    assert (
        *("run.started", "run.completed", "run.failed"),
        *("tool.called", "tool.completed", "tool.failed"),
    ) == validation.EVENT_TYPES
    assert validation._MOST_OF_ID == 200
    assert set(validation._KINDS) == set(SCHEMA["properties"]["metadata"]["properties"]) - {"outputPayload"}
    assert {name for name, kind in validation._KINDS.items() if kind is not str} == {
        *("inputPayload", "agentContext", "cancelApprovals", "toolAnnotations", "decidedOffline")
    }


LIMITS = {"eventId": (1, 200), "runId": (1, 200), "agentId": (1, 200), "organisationId": (1, 200)}
LIMITS |= {"timestamp": (0, 64), "status": (0, 64)}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("letter", ["x", "é", "🙂"])
def test_a_text_may_be_as_long_as_the_schema_says_and_no_longer(name: str, letter: str) -> None:
    least, most = LIMITS[name]
    event = dict.fromkeys(("eventId", "runId", "agentId", "timestamp", "eventType"), "x")
    for length in (least, most):
        msgspec.json.decode(msgspec.json.encode({**event, name: letter * length}), type=EventBody)
    for length in {most + 1, least - 1} - {-1}:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode({**event, name: letter * length}), type=EventBody)


def test_a_value_of_the_wrong_type_is_told_once() -> None:
    """The schema says what any event may have, and again what a call must."""
    event = dict.fromkeys(("eventId", "runId", "agentId"), "x") | {"eventType": "tool.called"}
    event["timestamp"] = "2026-01-31T09:30:00Z"
    sent = event | {"metadata": {"toolCallId": "c", "toolName": 7, "inputPayload": "text"}}
    assert [(each.pointer, each.message) for each in violations("bodies/event", sent)] == [
        ("/metadata/toolName", "`toolName` must be text; it is the number 7"),
        ("/metadata/inputPayload", "`inputPayload` must be an object; it is the text `text`"),
    ]


@pytest.mark.parametrize("worded", [False, True])
@pytest.mark.parametrize(("names", "most"), [(20, 20), (2_000, 0)])
def test_of_very_many_names_none_is_compared(
    monkeypatch: pytest.MonkeyPatch, names: int, most: int, worded: bool
) -> None:
    """Each takes a tenth of a millisecond of the event loop, and an event of usual size has a thousand."""
    compared: list[str] = []
    monkeypatch.setattr(validation, "closest", lambda name, known: compared.append(name))
    event = dict.fromkeys(("eventId", "runId", "agentId"), "x") | {"timestamp": "2026-01-31T09:30:00Z"}
    metadata = {"toolCallId": "c", "toolName": "t"} | {f"load{number}": 1 for number in range(names)}
    raw = msgspec.json.encode(event | {"eventType": "tool.called", "metadata": metadata})
    with pytest.raises(ApiError):
        validation.read_event(raw, worded=worded)
    assert len(compared) <= most * worded
