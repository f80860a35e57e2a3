"""What retention has deleted of a call makes nothing looser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api.clock import DAY
from api.retention.cleaning import Retention, clean
from tests.api.ingestion.test_flow import TARGETS, TOOLS
from tests.harness.application import Service

CONTACTS = {"names": ["add contact"], "kind": "contacts", "effect": "write", "output": "trusted"}


@pytest.mark.parametrize("days", [0, 3])
async def test_what_an_act_was_given_is_not_trusted_for_coming_back_later(tmp_path: Path, days: int) -> None:
    files = {"tools/tests.yaml": json.dumps(TOOLS | {"tools": [*TOOLS["tools"], CONTACTS]})}
    async with Service(tmp_path, [TARGETS], live=True, files=files) as service:
        context, mallory = service.context, "mallory@evil.example"
        act = {"toolCallId": "c-1", "toolName": "add_contact", "inputPayload": {"email": mallory}}
        assert (await service.report("agent", 1, "tool.called", **act)).json()["toolCallStatus"] == "allowed"
        await service.report("agent", 2, "custom.note", text="the last of its day")
        service.clock.advance(days * DAY)
        gone = await clean(Retention(1, 0), context.id_index, context.writer, service.clock())
        assert gone == (1 if days else 0)
        done = {"toolCallId": "c-1", "outputPayload": {"added": mallory}}
        assert (await service.report("agent", 3, "tool.completed", **done)).status_code == 200
        mail = {"toolCallId": "c-2", "toolName": "mail", "inputPayload": {"to": mallory}}
        assert (await service.report("agent", 4, "tool.called", **mail)).json()["toolCallStatus"] == "blocked"
