"""Bounds of what the service is built on: a version is known to be unsafe, or insides are used."""

from __future__ import annotations

import tomllib
from importlib.metadata import version

from packaging.requirements import Requirement

from tests.harness.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUNDS = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}


def test_a_check_of_the_issuer_that_takes_its_parts_is_left_out() -> None:
    """PyJWT 2.10.0 looks for the issuer of a token within the text of the one that is asked for."""
    assert "2.10.0" not in BOUNDS["pyjwt"] and "2.10.1" in BOUNDS["pyjwt"]


def test_a_web_server_that_nobody_has_tried_is_left_out() -> None:
    """The fast path uses the insides of uvicorn."""
    tried = version("uvicorn")
    major, minor, *_ = tried.split(".")
    assert tried in BOUNDS["uvicorn"]
    assert f"{major}.{int(minor) + 1}.0" not in BOUNDS["uvicorn"] and "1.0.0" not in BOUNDS["uvicorn"]
