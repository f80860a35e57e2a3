"""Bounds of what the service is built on: a version is known to be unsafe, or insides are used."""

from __future__ import annotations

import tomllib
from importlib.metadata import version

from packaging.requirements import Requirement

from tests.harness.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUNDS = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}


def test_packages_that_were_never_tried_are_left_out() -> None:
    """What is older may be there already where the service is installed, and pip leaves it. PyJWT 2.10.1
    passes over critical headers, sqlglot before 30.22 has other trees, and on uvicorn 0.35 nothing runs."""
    assert [name for name, bounds in BOUNDS.items() if "0.0.1" in bounds] == []
    old = {"pyjwt": "2.10.1", "sqlglot": "30.21.0", "uvicorn": "0.35.0", "httptools": "0.6.4"}
    assert [name for name, too_old in old.items() if too_old in BOUNDS[name]] == []


def test_a_web_server_that_nobody_has_tried_is_left_out() -> None:
    """The fast path uses the insides of uvicorn."""
    tried = version("uvicorn")
    major, minor, *_ = tried.split(".")
    assert tried in BOUNDS["uvicorn"]
    assert f"{major}.{int(minor) + 1}.0" not in BOUNDS["uvicorn"] and "1.0.0" not in BOUNDS["uvicorn"]
