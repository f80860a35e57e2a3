"""What comes with the service is in the wheel, and is laid out at the very first start."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import setuptools
from setuptools.command.build_py import build_py

from api import settings
from api.cli.serving import shipped
from tests.harness.places import ROOT, SHIPPED


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def documents(folder: Path) -> dict[str, bytes]:
    """Without what a service, git and editors have left there."""
    return {name: content for name, content in files(folder).items() if "/." not in f"/{name}"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One in which a service has run, and where the policies are a clone of their own."""
    folder = tmp_path / "checkout"
    shutil.copytree(SHIPPED, folder / "policies.d", ignore=shutil.ignore_patterns(".*"))
    for name in (".governance/base.json", ".governance/installation.json", ".git/HEAD", "policies/.swp"):
        left = folder / "policies.d" / name
        left.parent.mkdir(exist_ok=True)
        left.write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture
def wheel(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages as the build of a wheel leaves them, without those of Python."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    monkeypatch.setattr(build_py, "run", lambda _: None)
    monkeypatch.chdir(checkout)
    names: dict[str, Any] = {}
    exec(compile((ROOT / "setup.py").read_text("utf-8"), "setup.py", "exec"), names)
    build = names["Build"].__new__(names["Build"])
    build.build_lib, build.editable_mode = str(tmp_path / "lib"), False
    build.run()
    return tmp_path / "lib"


def test_the_wheel_holds_all_that_is_shipped(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files(wheel / "api/policies.d") == documents(SHIPPED)
    assert shipped.shipped() == SHIPPED
    monkeypatch.setattr(shipped, "PACKAGE", wheel / "api")
    assert shipped.shipped() == wheel / "api/policies.d"


def test_the_first_start_in_an_empty_folder_lays_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = settings.load({})
    assert shipped.lay_out(given) and files(tmp_path / "policies.d") == documents(SHIPPED)
    assert [each.name for each in tmp_path.iterdir()] == ["policies.d"]
    (tmp_path / "policies.d/policies/hold-payments.yaml").unlink()
    assert not shipped.lay_out(given), "what is there is left alone"


def test_what_a_service_noted_in_the_checkout_is_not_laid_out(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it a first start would take the folder for that of another installation."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(shipped, "PACKAGE", checkout / "api")
    assert shipped.lay_out(settings.load({}))
    assert files(tmp_path / "empty/policies.d") == documents(SHIPPED)


@pytest.mark.parametrize(
    ("named", "database"),
    [
        ({"GOVERNANCE_POLICIES_DIR": "elsewhere"}, False),
        ({}, True),
        ({"GOVERNANCE_DATABASE_URL": "postgresql://ada:secret@127.0.0.1:5432/none"}, False),
    ],
)
def test_nothing_is_made_up_where_something_was_or_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, str], database: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    given = settings.load(named)
    if database:
        given.data_dir.mkdir()
        Path(given.database.removeprefix("sqlite:///")).touch()
    assert not shipped.lay_out(given) and not (tmp_path / "policies.d").exists()


def test_a_start_that_is_cut_off_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="full"):
        shipped.lay_out(settings.load({}))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_needs_no_look_at_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may belong to another user; the start says so, and not that the policies cannot be made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies.d").mkdir()
    exists = Path.exists

    def refused(path: Path) -> bool:
        if path.name == "governance.sqlite":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", refused)
    assert not shipped.lay_out(settings.load({}))
