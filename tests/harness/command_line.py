"""The command line as a person or CI runs it, in the process of the test or in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api import cli
from tests.harness.places import ROOT

WIRES = """\
apiVersion: governance/v1
kind: Policy
policyId: wires
name: Wires
action: require_approval
enabled: true
matchConditions:
  - {field: toolName, operator: equals, value: wire}
  - {field: inputPayload.amount, operator: greater_than, value: 100}
examples:
  - {match: true, toolName: wire, inputPayload: {amount: 101}}
  - {match: false, toolName: wire, inputPayload: {amount: 100}}
  - {match: false, toolName: mail, inputPayload: {amount: 500}}
"""
TESTS = """\
apiVersion: governance/v1
kind: PolicyTest
about: wires
tests:
  - about: a large one waits
    call: {toolName: wire, inputPayload: {amount: 500}}
    expect: {status: awaiting_approval, matched: [wires]}
"""

DETECTOR = """\
apiVersion: governance/v1
kind: Detector
detectorId: many
name: Many calls
severity: low
on: tool.called
per: agentId
windowSeconds: 60
threshold: 3
"""


def run_command(capture: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code, output and error text of a command."""
    capture.readouterr()
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    output = capture.readouterr()
    assert "Traceback" not in output.err
    return code, output.out, output.err


class Shell:
    """Commands beside a folder of policies."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capture = capture

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        return run_command(self.capture, *words)

    def process(self, *words: str | Path) -> tuple[int, str, str]:
        """The same in a process of its own, beside a running service."""
        done = subprocess.run(
            [sys.executable, "-m", "api.cli", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


class DataShell:
    """Commands on the data folder of a service."""

    def __init__(self, data: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.data = data
        self.capture = capture

    def run(self, *words: str) -> tuple[int, str, str]:
        return run_command(self.capture, *words, "--data-dir", self.data)

    def json(self, *words: str) -> Any:
        code, output, error = self.run(*words, "--format", "json")
        assert code == 0, error
        return json.loads(output)

    def refused(self, *words: str, code: int = 1) -> str:
        got, output, error = self.run(*words)
        assert got == code, output + error
        return error
