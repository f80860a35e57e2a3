"""The reference is what the tables in the code say, and everything in the tables is in it."""

from __future__ import annotations

import fnmatch
import re
import tomllib

import pytest

from api.guide.reference import FOLDER, PAGES
from tests.harness.places import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_tables_say(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == PAGES[name](), "run `make guide`"


def test_every_key_of_a_policy_says_what_it_is() -> None:
    assert not re.findall(r"^.*\|  \|$", PAGES["policies"](), re.MULTILINE)


def test_every_page_of_the_reference_is_made() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)


def test_the_whole_guide_is_in_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["api"]
    for path in (ROOT / "api" / "guide").rglob("*"):
        name = path.relative_to(ROOT / "api").as_posix()
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            assert any(fnmatch.fnmatch(name, pattern.replace("**/", "*")) for pattern in patterns), name
