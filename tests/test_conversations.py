"""Thin runner for `cases/conversations`: one test per file and kind of database."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.harness import case_files
from tests.harness.application import Service
from tests.harness.conversation import Conversation
from tests.harness.places import CASES

FILES = sorted((CASES / "conversations").rglob("*.yaml"))
SCHEMA = json.loads((CASES / "conversation.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_conversation(path: Path, tmp_path: Path, database_url: str) -> None:
    case = case_files.read(path)
    jsonschema.Draft202012Validator(SCHEMA).validate(case)

    # Fewer lanes than usual are open sooner, so that most events are theirs.
    async with Service(
        tmp_path,
        case.get("policies", ()),
        live=case.get("live", False),
        files=case.get("files"),
        environment={"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_LANES": "2"},
    ) as service:
        await Conversation(service).play(case["steps"])
