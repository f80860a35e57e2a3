"""The wheel, built from the sdist: the whole service, among nothing but the packages that it declares."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.harness.nodes import CLEAN, KEY, Process, called
from tests.harness.places import ROOT

pytestmark = pytest.mark.slow

EMPTY = {name: value for name, value in CLEAN.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sdist and wheel of what git has or would have, as a commit of its own."""
    tree, made = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    listed = _git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in filter(lambda name: (ROOT / name).is_file() and not name.startswith("tests/"), listed):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    noted = tree / "policies.d/.governance/installation.json"  # as where a service has run
    noted.parent.mkdir()
    noted.write_text('{"installation": "0123456789abcdef", "host": "builder"}', encoding="utf-8")
    (noted.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "what is built"]):
        _git(tree, "-c", "user.name=Ann", "-c", "user.email=ann@example.com", *words)
    (made / "revision").write_text(_git(tree, "rev-parse", "HEAD").strip(), encoding="utf-8")
    _done([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(tree)])
    return made


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and links to the packages that it needs by its own words."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    _done(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(place),
            "install",
            "--no-deps",
            "--no-index",
            str(wheel),
        ]
    )
    (own,) = packages.glob("agent_governance_service-*.dist-info")
    for each in _needed(Distribution.at(own)):
        for top in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(each.locate_file(top))))
    return place


@pytest.fixture
def service(environment: Path, tmp_path: Path) -> Iterator[Process]:
    """In an empty folder, told no more than a port and a key."""
    process = Installed(environment, tmp_path / "empty")
    yield process.ready()
    process.stop()
    process.http.close()


class Installed(Process):
    """`governance serve` of an environment, which the checkout cannot help."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self._environment = environment
        super().__init__(folder, GOVERNANCE_API_KEY=KEY)

    def _start(self) -> subprocess.Popen[bytes]:
        self.folder.mkdir()
        command = [str(self._environment / "bin" / "governance"), "serve", "--port", "0"]
        with (self.folder / "output").open("ab") as output, (self.folder / "errors").open("ab") as errors:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=EMPTY | self._settings,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )


def test_the_wheel_is_a_whole_service(built: Path, service: Process) -> None:
    http = service.http
    assert http.get("/health").json()["policies"]["count"] > 5, "the shipped policies were laid out"
    dangerous = called(1, "Bash", command="rm -rf /")
    answer = http.post("/v1/events", json=dangerous, headers={"X-API-Key": KEY}).json()
    assert answer["toolCallStatus"] == "blocked", answer
    for path in ("/overview", "/console/app.js", "/docs", "/docs/tutorial", "/docs/pictures/approvals.png"):
        assert http.get(path).status_code == 200, path
    for path in ("/api/docs", "/api/openapi.json", "/docs/search.json", "/docs/look/guide.css"):
        assert http.get(path).status_code == 200, path
    revision = (built / "revision").read_text(encoding="utf-8")
    assert f'revision="{revision}"' in http.get("/metrics").text
    assert service.stop() == 0
    assert "Traceback" not in service.errors and "another installation" not in service.errors


def test_the_commands_work_without_the_checkout(environment: Path, tmp_path: Path) -> None:
    governance = str(environment / "bin" / "governance")
    (packages,) = environment.glob("lib/python*/site-packages")
    shutil.copytree(packages / "api" / "policies.d", tmp_path / "policies.d")
    for words in (["lint"], ["test"], ["openapi"], ["simulate", "--tool", "Bash"]):
        done = subprocess.run([governance, *words], cwd=tmp_path, env=EMPTY, capture_output=True, text=True)
        assert "Traceback" not in done.stderr and done.returncode in (0, 1), (words, done.stdout, done.stderr)
    code = "import governance_client, sys; print(governance_client.__file__)"
    where = _done([str(environment / "bin" / "python"), "-c", code], cwd=tmp_path, env=EMPTY)
    assert str(environment) in where, "the client comes with it"


def test_the_wheel_holds_what_is_not_code_and_nothing_of_the_machine(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        texts = "".join(archive.read(name).decode("utf-8", "replace") for name in names if "METADATA" in name)
    for part in (
        "grammar/",
        "schemas/bodies/",
        "api/policies.d/presets/",
        "api/console/",
        "api/guide/how-to/",
    ):
        assert any(name.startswith(part) for name in names), part
    assert not any(name.startswith(("tests/", ".ci", "data/")) or "/." in name for name in names)
    assert not re.search(r"file://|/home/|/work/", texts)


def _needed(of: Distribution) -> list[Distribution]:
    """What it needs, and what that needs, as far as it is for this machine."""
    found: dict[str, Distribution] = {}
    waiting = [(of, "")]
    while waiting:
        each, extra = waiting.pop()
        for line in each.requires or ():
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            try:
                needed = distribution(requirement.name)
            except PackageNotFoundError:
                pytest.fail(f"`{requirement}` is needed and not installed here")
            first = requirement.name not in found
            found[requirement.name] = needed
            waiting += [(needed, extra) for extra in requirement.extras]
            if first:
                waiting.append((needed, ""))
    return list(found.values())


def _git(folder: Path, *words: str) -> str:
    return _done(["git", *words], cwd=folder)


def _done(words: list[str], **options: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_everything_that_is_imported_is_declared(environment: Path) -> None:
    """Each module of ours can be imported there, so nothing leans on a package of the developers'."""
    (packages,) = environment.glob("lib/python*/site-packages")
    modules = sorted(
        ".".join(path.relative_to(packages).with_suffix("").parts)
        for room in ("engine", "api", "grammar", "schemas")
        for path in (packages / room).rglob("*.py")
        if "migrations" not in path.parts
    )
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    _done([str(environment / "bin" / "python"), "-c", code, *modules], env=EMPTY)
