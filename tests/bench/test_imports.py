"""Benchmarks are seldom run, so what was renamed would be missed: each of them can be imported."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_INSTALLED = {"fastapi"}
"""What only the rivals' own environments have."""


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.py") if path.stem != "__init__"))
def test_a_benchmark_can_be_imported(name: str) -> None:
    try:
        importlib.import_module(f"tests.bench.{name}")
    except ModuleNotFoundError as missing:
        assert missing.name in NOT_INSTALLED, missing
