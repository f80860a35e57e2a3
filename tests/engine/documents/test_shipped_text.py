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


def test_each_shipped_example_says_why_and_each_condition_what_it_finds() -> None:
    bare = []
    for path in sorted([*SHIPPED.glob("presets/*/*.yaml"), *SHIPPED.glob("policies/*.yaml")]):
        text = path.read_text(encoding="utf-8")
        document = yaml.safe_load(text)
        if document["kind"] == "PolicyTest":
            continue
        lines = text.splitlines()
        bare += [path.name for each in document["examples"] if not each.get("about")]
        told = (lines[at - 1].strip() for at, line in enumerate(lines) if line.startswith("  - {field: "))
        bare += [path.name for line in told if not line.startswith("#")]
        expressions = [each["expression"] for each in document["matchConditions"] if "expression" in each]
        bare += [
            path.name for each in expressions if len(each) > 200 and "// " not in each and "  # " not in text
        ]
        bare += [path.name for key in ("description", "message") if not document.get(key)]
    assert bare == []
