"""The threat model names, for each attempt, tests that are there; and what to do with a weakness."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.guide import GUIDE
from tests.harness.places import ROOT

PAGE = GUIDE / "explanation" / "threats.md"
PROOF = re.compile(r"`(tests/[^`]+)`")


def attempts() -> list[list[str]]:
    """The rows of the tables whose last column says what proves them."""
    found: list[list[str]] = []
    rows = [
        line.strip("|").split(" | ")
        for line in PAGE.read_text(encoding="utf-8").split("\n")
        if line[:1] == "|"
    ]
    for row in rows:
        if row[0].strip() in ("Attempt", "What"):
            proved = row[-1].strip() == "Proved by"
        elif proved and not set(row[0]) <= {"-", "|"}:
            found.append([cell.strip() for cell in row])
    return found


def test_every_attempt_is_proved_by_a_test_that_is_there() -> None:
    rows = attempts()
    assert len(rows) > 50
    for row in rows:
        assert len(row) == 3, row
        names = PROOF.findall(row[2])
        assert names and ", ".join(f"`{name}`" for name in names) == row[2], row
    missing = {name for row in rows for name in PROOF.findall(row[2]) if not (ROOT / name).is_file()}
    assert not missing


def test_every_adversary_has_what_is_not_defended() -> None:
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    defended = [part for part in parts if "| Proved by |" in part]
    assert len(defended) >= 7
    for part in defended:
        assert "\nNot defended: " in part, part.split("\n")[0]


@pytest.mark.parametrize("page", [PAGE, ROOT / "SECURITY.md"], ids=lambda page: page.name)
def test_a_weakness_is_reported_in_private(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "*Report a\nvulnerability*" in text and "do not open a public issue" in text


def test_security_says_where_the_threat_model_is() -> None:
    link = re.search(r"\]\((api/guide/[^)#]+)#([^)]+)\)", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert link is not None and ROOT / link[1] == PAGE
    assert f"## {link[2].replace('-', ' ').capitalize()}" in PAGE.read_text(encoding="utf-8")
