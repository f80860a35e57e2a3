"""Commands that the guide names in passing are there."""

from __future__ import annotations

import re

import pytest

from tests.harness.command_line import run_command
from tests.harness.guide import GUIDE

NAMED = re.compile(r"`governance (users|keys|organisations|audit|changes|approvals|settings) ([a-z-]+)")


def test_each_command_that_a_page_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    named = {
        found for page in GUIDE.rglob("*.md") for found in NAMED.findall(page.read_text(encoding="utf-8"))
    }
    assert ("users", "add") in named
    assert [each for each in sorted(named) if run_command(capsys, *each, "--help")[0] != 0] == []
