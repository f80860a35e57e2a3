"""Proxies, servers and clients of MCP as processes, and the packages of npm where they are installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.harness.nodes import CLEAN
from tests.harness.places import ROOT
from tests.harness.running_service import Served

SERVER = (sys.executable, "-m", "tests.harness.mcp_server")
NPM = Path(sys.prefix) / "mcp" / "node_modules" / "@modelcontextprotocol"
"""Where `make mcp-packages` installs."""
PINNED = {"sdk": "1.32.2", "server-everything": "2026.8.31"}
"""Packages of npm, and the versions that the tests were written for."""
SECONDS = 60


def environment(service: Served) -> dict[str, str]:
    return {
        **CLEAN,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "api" / "client"))),
        "GOVERNANCE_URL": f"http://127.0.0.1:{service.port}",
        "GOVERNANCE_API_KEY": service.api_key,
    }


def proxy_words(folder: Path, *words: str) -> list[str]:
    """The command line of a proxy that calls its server `fixture`."""
    own = ["--server-name", "fixture", "--pins", str(folder / "pins")]
    return [sys.executable, "-m", "api.cli", "mcp-proxy", *own, *words]


def node_package(name: str) -> Path:
    """The folder of an npm package; skips where it is missing, which CI must not."""
    folder = NPM / name
    if shutil.which("node") and (folder / "package.json").exists():
        return folder
    why = f"there is no @modelcontextprotocol/{name}; `make mcp-packages` installs it (needs npm)"
    if os.environ.get("CI_REQUIRE_ALL"):
        pytest.fail(why)
    pytest.skip(why)


@contextlib.contextmanager
def http_server(*command: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """An MCP server over HTTP that prints its port; its address."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
    finally:
        process.kill()
        process.wait(SECONDS)


class RawProxy:
    """A proxy spoken to in bytes."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input: IO[bytes] = self.process.stdin
        self.output: IO[bytes] = self.process.stdout

    def __enter__(self) -> RawProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        self.input.close()
        self.output.close()

    def say(self, line: bytes) -> None:
        self.input.write(line + b"\n")
        self.input.flush()

    def line(self) -> bytes:
        return self.output.readline().removesuffix(b"\n")

    def code(self) -> int:
        return self.process.wait(SECONDS)
