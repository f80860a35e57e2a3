"""A new policies folder for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.policy_folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "policies.d")
