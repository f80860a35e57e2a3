"""No settings and logins of whoever runs the tests, and shells beside policies and beside data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from api import bootstrap
from api.settings import load
from tests.harness.command_line import TESTS, WIRES, DataShell, Shell


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("GOVERNANCE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A folder with one policy and one test."""
    made = Shell(tmp_path / "pd", capsys)
    made.write("policies/wires.yaml", WIRES)
    made.write("policies/wires_test.yaml", TESTS)
    return made


@pytest.fixture
def data_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> DataShell:
    """The data folder of a service that has started once."""
    bootstrap.prepare(load({}, data_dir=str(tmp_path / "data")))
    return DataShell(tmp_path / "data", capsys)
