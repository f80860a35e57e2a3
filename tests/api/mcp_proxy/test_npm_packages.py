"""The proxy between the client and the server of npm: @modelcontextprotocol/sdk and server-everything."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.mcp_processes import (
    PINNED,
    SECONDS,
    SERVER,
    environment,
    node_package,
    proxy_words,
)
from tests.harness.nodes import CLEAN
from tests.harness.places import ROOT
from tests.harness.policy_bodies import policy_body, where
from tests.harness.running_service import Served

CLIENT = ROOT / "tests" / "harness" / "mcp_client.mjs"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    def policy(name: str, action: str, value: str) -> dict[str, Any]:
        return policy_body(name, action, where("toolName", "in", [f"mcp__fixture__{value}"]))

    policies = [policy("No environment", "block", "get-env"), policy("Ask first", "require_approval", "wire")]
    policies.append(policy("Ask for sums", "require_approval", "get-sum"))
    with Served(tmp_path_factory.mktemp("service"), policies) as served:
        yield served


class NodeClient:
    """The client of npm behind a proxy; elicitations are reviewed as they come."""

    def __init__(self, service: Served, words: list[str]) -> None:
        self.service = service
        command = ["node", str(CLIENT), str(node_package("sdk")), *words]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(service),
        )

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(SECONDS) == 0
        finally:
            self.process.kill()
            self.process.stdout.close()

    def ask(self, what: dict[str, Any]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        while True:
            found = json.loads(self.process.stdout.readline())
            if "asked" not in found:
                return found
            approval = re.search(r"approval (apr_\w+)", found["asked"])
            assert approval is not None
            self.service.answered("reviewer", "POST", f"/v1/approvals/{approval[1]}/approve")

    def text(self, tool: str, **arguments: Any) -> str:
        found: str = self.ask({"name": tool, "arguments": arguments})["content"][0]["text"]
        return found


@contextlib.contextmanager
def everything_over_http(folder: Path) -> Iterator[str]:
    """It takes no port of ours that is open, so it is given a free one, and another where that was taken."""
    script = str(node_package("server-everything") / "dist" / "index.js")
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["node", script, "streamableHttp"], env=CLEAN | {"PORT": str(port)}, stdout=log, stderr=log
            )
        url = f"http://127.0.0.1:{port}/mcp"
        try:
            if answers(process, url):
                yield url
                return
        finally:
            process.kill()
            process.wait(SECONDS)
    pytest.fail((folder / "log").read_text(encoding="utf-8"))


def answers(process: subprocess.Popen[bytes], url: str) -> bool:
    """Whether the server listens, once it does or has ended."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(url, trust_env=False)
            return True
        time.sleep(0.05)
    return False


def test_the_versions_are_those_that_were_read() -> None:
    for name, version in PINNED.items():
        found = json.loads((node_package(name) / "package.json").read_text(encoding="utf-8"))
        assert found["version"] == version


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_server_of_npm(transport: str, service: Served, tmp_path: Path) -> None:
    with contextlib.ExitStack() as running:
        if transport == "http":
            server = ["--url", running.enter_context(everything_over_http(tmp_path))]
        else:
            server = ["--", "node", str(node_package("server-everything") / "dist" / "index.js")]
        client = running.enter_context(NodeClient(service, proxy_words(tmp_path, *server)))
        assert {"echo", "get-env", "get-sum"} < set(client.ask({"list": True}))
        assert client.text("echo", message="\u00e9 \u2028") == "Echo: \u00e9 \u2028"
        assert '"mcp__fixture__get-env" was refused by policy' in client.text("get-env")
        assert client.text("get-sum", a=1, b=2) == "The sum of 1 and 2 is 3."


def test_the_client_of_npm_with_a_server_of_pypi(service: Served, tmp_path: Path) -> None:
    with NodeClient(service, proxy_words(tmp_path, "--", *SERVER)) as client:
        assert client.text("wire", amount=5) == "moved 5.0"
        assert client.ask({"name": "fail", "arguments": {}})["isError"] is True
