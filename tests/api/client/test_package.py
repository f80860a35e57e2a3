"""The client as a project of its own: it builds, installs and works without the server's packages."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from governance_client import VERSION

from tests.harness.nodes import CLEAN
from tests.harness.places import ROOT

PROJECT = ROOT / "api" / "client"
MODULES = {path.relative_to(PROJECT).as_posix() for path in (PROJECT / "governance_client").rglob("*.py")} | {
    "governance_client/py.typed"
}

ALONE = """
import sys
import governance_client.governance
print(governance_client.__file__)
print(sorted({each.partition(".")[0] for each in sys.modules} & {"httpx", "starlette", "engine", "api"}))
for name in ("starlette", "peewee", "lark", "engine"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} is installed")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since setuptools leaves its own files behind."""
    place = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "README.md", *sorted(MODULES)):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes((PROJECT / name).read_bytes())
    pip("wheel", "--no-deps", "--wheel-dir", str(place / "dist"), str(place))
    (made,) = (place / "dist").glob("*.whl")
    return made


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode and "No matching distribution" in done.stderr and not os.environ.get("CI_REQUIRE_ALL"):
        pytest.skip("pip reaches no registry; `pip download setuptools httpx` must work")
    assert done.returncode == 0, done.stderr


def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = archive.read(metadata).decode()
    assert names == MODULES
    assert f"\nVersion: {VERSION}\n" in told
    needed = [
        line for line in told.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert needed == ["Requires-Dist: httpx>=0.28"]


def test_it_installs_and_works_without_the_server(wheel: Path, tmp_path: Path) -> None:
    """With what its own metadata asks for, and no other package in reach."""
    pip("install", "--target", str(tmp_path), str(wheel))
    done = subprocess.run(
        [sys.executable, "-S", "-c", ALONE],
        cwd=tmp_path,
        env=CLEAN | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "governance_client" / "__init__.py"), "['httpx']"]


def test_the_repositorys_package_holds_it_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = project["tool"]["setuptools"]
    assert "api/client" in found["packages"]["find"]["where"]
    assert "governance_client*" in found["packages"]["find"]["include"]
    assert found["package-data"]["governance_client"] == ["py.typed"]
    own = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert own["version"] == VERSION == project["project"]["version"]
    assert set(own["dependencies"]) <= set(project["project"]["dependencies"])
