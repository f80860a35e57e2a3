"""`make` runs what stands in its own folder, also where that was moved or copied with its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def checkout(folder: Path, made_in: Path | None = None) -> Path:
    """A folder with a virtual environment that was made there, or in another one."""
    binaries = folder / ".venv/bin"
    binaries.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").touch()
    os.utime(folder / "pyproject.toml", (1, 1))
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "governance").touch()
    text = f"home = /usr/bin\ncommand = /usr/bin/python3 -m venv {made_in or folder}/.venv\n"
    (folder / ".venv/pyvenv.cfg").write_text(text)
    return folder


def made_anew(folder: Path) -> bool:
    done = subprocess.run(
        ["make", "--dry-run", "serve"], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert ("it is made anew" in done.stdout) is ("-m venv" in done.stdout)
    return "-m venv" in done.stdout


@pytest.mark.parametrize("name", ["one", "with a blank", "(odd) $name's"])
def test_an_environment_that_was_made_here_stays(tmp_path: Path, name: str) -> None:
    assert not made_anew(checkout(tmp_path / name))


def test_one_that_was_moved_or_copied_is_made_anew(tmp_path: Path) -> None:
    """The scripts of a copy begin the Python of the original, and `pip` installs the copy there."""
    folder = checkout(tmp_path / "copy", made_in=tmp_path / "original")
    (folder / ".venv/mcp").mkdir()
    assert made_anew(folder)
    assert not (folder / ".venv/bin").exists() and (folder / ".venv/mcp").exists()


def test_one_whose_python_is_gone_is_made_anew(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "one")
    (folder / ".venv/bin/python").unlink()
    (folder / ".venv/bin/python").symlink_to(tmp_path / "gone")
    assert made_anew(folder)


def test_one_that_is_a_link_or_was_made_by_another_program_is_nobodys_business(tmp_path: Path) -> None:
    original, linked = checkout(tmp_path / "original"), checkout(tmp_path / "linked")
    shutil.rmtree(linked / ".venv")
    (linked / ".venv").symlink_to(original / ".venv")
    assert not made_anew(linked)
    (original / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9\n")
    assert not made_anew(original) and (original / ".venv/bin/governance").exists()
