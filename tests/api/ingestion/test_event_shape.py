"""The shape of an event is the schema's: the struct that reads it agrees, and so does what is derived."""

from __future__ import annotations

import msgspec

import schemas
from api.ingestion import validation
from api.ingestion.event import EventBody, Receipt

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
    limits = validation._MOST_OF_ID, validation._MOST_OF_STATUS, validation._MOST_OF_TIMESTAMP
    assert limits == (200, 64, 64)
    assert set(validation._KINDS) == set(SCHEMA["properties"]["metadata"]["properties"]) - {"outputPayload"}
    assert {name for name, kind in validation._KINDS.items() if kind is not str} == {
        *("inputPayload", "agentContext", "cancelApprovals")
    }
