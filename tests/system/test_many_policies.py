"""Ten thousand policies on the command line, in the time of a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.documents.edit import dump
from engine.documents.policy import policy_as_json
from tests.bench.workload import Company
from tests.harness.places import ROOT


@pytest.mark.slow
def test_lint_and_test_ten_thousand_policies_within_their_time(tmp_path: Path) -> None:
    """30 seconds of a core each; the clock on the wall says nothing on a busy machine."""
    folder = tmp_path / "pd" / "policies"
    folder.mkdir(parents=True)
    for sample in Company(10_000).samples:
        shape = policy_as_json(sample.policy)
        payload = {"amount": 1, **sample.payload}
        tool = sample.tool or "some_tool"
        shape["examples"] = [
            {"match": True, "toolName": tool, "inputPayload": payload},
            {"match": False, "toolName": tool, "inputPayload": {}},
        ]
        document = {"apiVersion": "governance/v1", "kind": "Policy", **shape}
        (folder / f"{sample.policy.policy_id}.yaml").write_text(dump(document))
    for command in (["lint", "--level", "error"], ["test", "--show", "10"]):
        before = os.times()
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "api.cli", command[0], str(tmp_path / "pd"), *command[1:]],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=600,
        )
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        print(f"{command[0]}: {spent:.1f} s of CPU, {time.monotonic() - begun:.1f} s on the wall")
        assert done.returncode in (0, 1), done.stderr
        assert "10,000" in done.stdout or command[0] == "test"
        assert spent < 30, command
        assert done.stderr == "", "no progress bar where there is no terminal"
