"""What a server of the table is, and how one is installed and started.

Each is installed in an environment of its own below a folder that is given. What goes wrong on the way is an
`Unavailable` whose text says why in one line.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from tests.bench import load
from tests.bench.load import Measured
from tests.bench.rules import Call, Rule
from tests.bench.served import SERVER_CORE, Server

INSTALLING = 1_200
_ADDRESS = re.compile(r"https?://\S+|/(?:\w[\w.-]*/)+\S*")


class Unavailable(Exception):
    """A rival cannot be installed or started here; the text says why."""


class Contender(ABC):
    """One server of the table. The texts are for people; `path` and `headers` go with every request."""

    name: ClassVar[str]
    registry: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    started: ClassVar[str]
    request: ClassVar[str]
    keeps: ClassVar[str]
    durable: ClassVar[str]
    always: ClassVar[bool] = False
    """It has no rules: everything waits for a person."""
    path: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.place = folder / re.sub(r"[^a-z0-9]+", "-", self.name.lower())
        self.headers: Mapping[str, str] = {}

    @property
    def version(self) -> str:
        if not self.packages:
            return "this folder"
        return f"{self.registry} " + ", ".join(f"`{package}`" for package in self.packages)

    @property
    def records(self) -> str:
        return f"{self.keeps}, durable" if self.durable == "durable" else self.keeps

    @abstractmethod
    def install(self) -> None:
        """Get the packages. A folder where that was done before is taken as it is."""

    @abstractmethod
    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        """A running server with these rules, its data in the empty folder `place`."""

    @abstractmethod
    def body(self, call: Call, number: int) -> dict[str, Any]:
        """The call as this server wants it."""

    @abstractmethod
    def held(self, answer: dict[str, Any]) -> bool:
        """Whether the answer says that the call must not run (yet)."""

    def stop(self, server: Server) -> None:
        server.stop()

    def load(self, server: Server, folder: Path, calls: Sequence[Call], **how: Any) -> Measured:
        """Load it with the calls, again and again; `how` as in `load.repeat`."""
        bodies = written(folder / "bodies", (json.dumps(self.body(call, 0)) for call in calls))
        return load.repeat(folder, server.port, self.path, self.headers, bodies, **how)


def written(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


# ---- getting and starting --------------------------------------------------------------------------


def run(command: Sequence[str | Path], seconds: float, what: str) -> str:
    """What a command prints. What went wrong is told in one line."""
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        raise Unavailable(f"`{command[0]}` is not here") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} took longer than {seconds:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"{what} failed: {last_line(done.stderr or done.stdout)}")
    return done.stdout


def last_line(text: str) -> str:
    """The line of a program's output that says most: the last error, else the last line; no addresses."""
    lines = [_ADDRESS.sub("...", line.strip()) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and "log of this run" not in line]
    return (errors or lines or ["it said nothing"])[-1][:200]


def from_pypi(place: Path, packages: Sequence[str], python: str = sys.executable) -> Path:
    """The interpreter of a virtual environment with these packages."""
    program = place / "bin" / "python"
    if not (place / "installed").exists():
        run([python, "-m", "venv", "--clear", str(place)], 120, "making a virtual environment")
        command = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        run(command, INSTALLING, "pip install")
        (place / "installed").touch()
    return program


def from_npm(place: Path, packages: Sequence[str]) -> Path:
    """The folder of programs that came with the packages."""
    if not (place / "installed").exists():
        place.mkdir(parents=True, exist_ok=True)
        run(
            ["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", *packages],
            INSTALLING,
            "npm install",
        )
        (place / "installed").touch()
    return place / "node_modules" / ".bin"


def python_from(minor: int) -> str:
    """An interpreter of at least Python 3.`minor`."""
    for name in (sys.executable, *(f"python3.{each}" for each in range(minor, minor + 4))):
        check = [name, "-c", f"import sys; sys.exit(sys.version_info < (3, {minor}))"]
        if shutil.which(name) and subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return name
    raise Unavailable(f"needs Python 3.{minor} or newer; none is on the path")


def serve(place: Path, command: Sequence[str | Path], environment: Mapping[str, str], ready: str) -> Server:
    """Start a rival on the server's core. It finds nothing of ours on its import path."""
    (port,) = (int(value) for name, value in environment.items() if name.endswith("PORT"))
    alone = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1", "HOME": str(place)}
    try:
        server = Server([str(part) for part in command], port, alone | dict(environment), SERVER_CORE)
        return server.wait(ready, 90)
    except RuntimeError as error:
        raise Unavailable(f"did not start: {last_line(str(error))}") from None


def ask(send: Callable[..., httpx.Response], *what: Any, **how: Any) -> Any:
    """One request of setting a rival up."""
    answer = send(*what, **how)
    if answer.is_error:
        raise Unavailable(f"setting it up failed: {answer.status_code} {answer.text[:150]}")
    return answer
