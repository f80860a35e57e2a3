"""Shipped files can be read: no endless line, no description that sends its reader elsewhere."""

from __future__ import annotations

import yaml

from tests.harness.places import SHIPPED

LONGEST = 160


def test_shipped_files_can_be_read() -> None:
    wrong = []
    for path in sorted(SHIPPED.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        description = str(yaml.safe_load(text).get("description", ""))
        if max(map(len, text.splitlines())) > LONGEST or description.startswith("The same as"):
            wrong.append(path.name)
    assert wrong == []
