"""Policies in the folder of an organisation that is not there."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.nodes import serve
from tests.harness.places import ROOT


def test_policies_that_govern_nobody_are_told_of(tmp_path: Path) -> None:
    folder = tmp_path / "policies.d" / "organisations" / "defualt"
    folder.mkdir(parents=True)
    (folder / "k1.yaml").write_text(
        "apiVersion: governance/v1\nkind: Policy\npolicyId: k1\nname: K\naction: block\nenabled: true\n"
        "matchConditions:\n  - {field: toolName, operator: equals, value: launch}\n"
    )
    watched = tmp_path / "policies.d" / "organisations" / "acem" / "detectors" / "busy.yaml"
    watched.parent.mkdir(parents=True)
    shipped = ROOT / "policies.d" / "detectors" / "unknown-agent.yaml"
    watched.write_text(
        shipped.read_text(encoding="utf-8").replace("detectorId: unknown-agent", "detectorId: busy")
    )
    left = tmp_path / "policies.d" / ".governance" / "base.json.1.tmp"
    left.parent.mkdir(exist_ok=True)
    left.touch()
    os.utime(left, (0, 0))
    with serve(tmp_path) as service:
        service.ready()
        health = service.http.get("/health")
        assert health.status_code == 200 and health.json()["policies"]["stale"] is False
        of_detectors, warning = health.json()["policies"]["warnings"]
        assert of_detectors["file"] == "organisations/acem"
        assert warning["file"] == "organisations/defualt" and "did you mean `default`?" in warning["message"]
        assert "`organisations/defualt/` govern nobody" in service.errors
        assert "did you mean `default`?" in service.errors
        assert not left.exists(), "what a process that died has left"
