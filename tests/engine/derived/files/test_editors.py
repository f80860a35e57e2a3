"""Editors write the files that they are told to, else those that they edit."""

from __future__ import annotations

import pytest

from tests.engine.derived.declared import shown

WRITTEN = [
    "vim -c 'w f' g",
    "vim -es -c 'saveas! f' g",
    "vim +'w! f' g",
    "vim -es -c '%s/a/b/ | wq' f",
    "ex -sc '%s/a/b/|x' f",
    "ex -s f <<< 'x'",
    "ed g <<< 'w f'",
    "printf '1d\\nw\\nq\\n' | ed -s f",
    "script f",
    "script -c 'ls' f",
    "shuf -o f g",
]
NOT_WRITTEN = ["vim f", "vim -c q f", "vim +5 f", "vim -c 'w !cat' f", "ed f", "shuf -n 3 f", "script -c f x"]


@pytest.mark.parametrize("line", WRITTEN)
def test_it_is_written(line: str) -> None:
    assert "f" in shown("bash", {"command": line}, "writes")


@pytest.mark.parametrize("line", NOT_WRITTEN)
def test_it_is_not_written(line: str) -> None:
    assert "f" not in shown("bash", {"command": line}, "writes")


def test_what_is_edited_is_read() -> None:
    assert shown("bash", {"command": "vim -c 'w f' g"}, "reads") == ["g"]
