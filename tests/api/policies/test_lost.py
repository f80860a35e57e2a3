"""What an edit of files takes out of force that the API had made is told, with how it comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

POSTS = {"names": ["post letter"], "kind": "mail", "effect": "send"}
TOOLS = {"toolSetId": "ours", "name": "Ours", "tools": [POSTS | {"effect": "read"}]}
DETECTOR = {"detectorId": "many", "name": "Many", "severity": "low", "on": "tool.called", "per": "agentId"}
LIMIT = {"settings": {"paymentLimit": 10_000}}
Request = tuple[str, str, Any]
CASES: dict[str, tuple[str, Request, Request, str]] = {
    "the tool set `ours`": (
        "tools/ours.yaml",
        ("POST", "/v1/tools", TOOLS),
        ("PATCH", "/v1/tools/ours", {"tools": [POSTS]}),
        "`GET /v1/tools/ours/versions`, and `PUT /v1/tools/ours`",
    ),
    "the detector `many`": (
        "detectors/many.yaml",
        ("POST", "/v1/detectors", DETECTOR | {"windowSeconds": 60, "threshold": 30}),
        ("PATCH", "/v1/detectors/many", {"threshold": 3}),
        "`GET /v1/detectors/many/versions`, and `PATCH /v1/detectors/many`",
    ),
    "the settings of `default`": (
        "settings/default.yaml",
        ("PUT", "/v1/organisation/settings", LIMIT),
        ("PUT", "/v1/organisation/settings", {"settings": {"paymentLimit": 100}}),
        "`GET /v1/organisation/settings/versions`, and `PUT /v1/organisation/settings`",
    ),
}
"""By what it is called: its file, what makes and changes it, and how the change comes back."""


@pytest.mark.parametrize("what", CASES)
async def test_what_a_reset_takes_back_is_told_with_how_it_comes_back(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As by `git reset --hard`: what a tool does, when an alert is raised and how much may be paid is as it
    was before. Who edits what is in force is told nothing."""
    path, make, change, back = CASES[what]
    async with Service(tmp_path, [on_tool("Hold payments", "require_approval", "pay")], live=True) as service:
        file = service.settings.policies_dir / path
        assert (await service.call("admin", *make)).is_success
        before = file.read_bytes()
        assert (await service.call("admin", *change)).is_success

        def told() -> list[str]:
            return [each for each in caplog.messages if "is not in force any more" in each]

        for content, lines in ((file.read_bytes() + b"# edited\n", 0), (before, 0)):
            file.write_bytes(content)
            service.context.live.reload()
            assert len(told()) == lines, "an edit takes back nothing that the API had made"
        assert (await service.call("admin", *change)).is_success
        file.write_bytes(before)
        service.context.live.reload()
        (line,) = told()
        assert f"version 5 of {what} is not in force any more, since its file `{path}` says again" in line
        assert f"what version 4 said; it stays in {back} brings it back" in line
