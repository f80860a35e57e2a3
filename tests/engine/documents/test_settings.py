"""What is said of an organisation's settings that do not load."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.documents.settings import load_settings
from engine.errors import DocumentError


@pytest.mark.parametrize(
    "pasted",
    ["https://hooks.chat.example/services/T0/B1/x7k2", "Hunter2 is a password", 12345678, ["x7k2"]],
)
def test_a_secret_in_the_place_of_its_name_is_not_repeated(pasted: Any) -> None:
    """The errors of files stand in `/health`, in the record and in webhooks."""
    channel = {"type": "slack", "secret": pasted, "events": ["approval.requested"]}
    document = {
        "apiVersion": "governance/v1",
        "kind": "OrganisationSettings",
        "organisationId": "default",
        "settings": {"notifications": {"ops": channel}},
    }
    with pytest.raises(DocumentError) as refusal:
        load_settings(json.dumps(document).encode(), "settings/default.yaml")
    (problem,) = refusal.value.problems
    assert problem.pointer == "/settings/notifications/ops/secret" and problem.line == 1
    assert problem.message.startswith("`secret` must be ")
    for part in ("x7k2", "Hunter2", "12345678"):
        assert part not in str(problem)
    if isinstance(pasted, str):
        assert "`POST /v1/notifications/secrets`" in problem.message
