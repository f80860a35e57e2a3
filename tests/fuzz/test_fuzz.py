"""The short form of the fuzzing: what once broke each target, and some hundred seeded inputs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import __main__ as long_form
from tests.fuzz.mutation import inputs
from tests.fuzz.table import TARGETS
from tests.fuzz.target import Target

SEED = 20_261
FOUND = [(name, path) for name, target in TARGETS.items() for path in target.found()]


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_that_is_sent_breaks_it(name: str) -> None:
    target = TARGETS[name]
    for data in islice(inputs(target, SEED), target.rounds):
        target.try_out(data)


def test_what_breaks_is_kept_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(data: bytes) -> None:
        assert b"x" not in data

    monkeypatch.setattr(long_form, "FOUND", tmp_path)
    target = Target("one", check, lambda: [b"abc"], (b"x",), rounds=1)
    with pytest.raises(AssertionError):
        long_form.by_chance(target, 600, 1)
    (kept,) = (tmp_path / "one").iterdir()
    assert b"x" in kept.read_bytes()


@pytest.mark.parametrize(("name", "path"), FOUND, ids=[f"{name}-{path.name}" for name, path in FOUND])
def test_what_once_broke_it_does_so_no_more(name: str, path: Path) -> None:
    TARGETS[name].try_out(path.read_bytes())
