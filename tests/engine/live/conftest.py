"""A policies folder with one policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.policy_folder import Folder, document


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "policies.d")
    made.write("policies/a.yaml", document("a"))
    return made
