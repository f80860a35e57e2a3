"""The proxy as a client starts it, between client and server of the package `mcp`, in both generations."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.harness.mcp_processes import SECONDS, SERVER, RawProxy, environment, http_server, proxy_words
from tests.harness.places import ROOT
from tests.harness.policy_bodies import on_tool
from tests.harness.running_service import Served

RECORDING = ROOT / "tests" / "cases" / "mcp" / "server-everything-2026.8.31.jsonl"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    policies = [
        on_tool("No crashes", "block", "mcp__fixture__crash"),
        on_tool("Ask first", "require_approval", "mcp__fixture__wire"),
    ]
    with Served(tmp_path_factory.mktemp("service"), policies) as served:
        yield served


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with http_server(*SERVER, "http") as url:
        yield url


def text(result: Any) -> str:
    found: str = result.content[0].text
    return found


class Person:
    """Sits at the client, accepts whatever is asked, and is the reviewer too."""

    def __init__(self, service: Served) -> None:
        self.service = service
        self.asked: list[str] = []

    async def elicited(self, context: Any, params: Any) -> Any:
        self.asked.append(params.message)
        approval_id = params.message.split("(approval ")[1].split(")")[0]
        path = f"/v1/approvals/{approval_id}/approve"
        answer = await asyncio.to_thread(self.service.call, "reviewer", "POST", path)
        assert answer.status_code == 200
        return mcp_types.ElicitResult(action="accept", content={})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_session(mode: str, transport: str, service: Served, endpoint: str, tmp_path: Path) -> None:
    server = ["--url", endpoint] if transport == "http" else ["--", *SERVER]
    words = proxy_words(tmp_path, "--task", "a session", *server)
    parameters = StdioServerParameters(
        command=words[0], args=words[1:], env=environment(service), cwd=str(ROOT)
    )
    person = Person(service)

    async def told() -> None:
        async with Client(parameters, mode=mode, elicitation_callback=person.elicited) as client:
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            assert {each.name for each in (await client.list_tools()).tools} > {"echo", "wire", "crash"}
            assert text(await client.call_tool("echo", {"text": "é\u2028"})) == "é\u2028"
            refused = await client.call_tool("crash", {})
            assert refused.is_error and "refused by policy" in text(refused)
            assert text(await client.call_tool("wire", {"amount": 5})) == "moved 5.0"
            failed = await client.call_tool("fail", {})
            assert failed.is_error
            steps: list[float] = []

            async def progress(done: float, total: float | None, message: str | None) -> None:
                steps.append(done)

            assert text(await client.call_tool("work", {"steps": 3}, progress_callback=progress)) == "done"
            assert steps == [1, 2, 3]
            answers = await asyncio.gather(
                *(client.call_tool("echo", {"text": str(number)}) for number in range(20))
            )
            assert [text(each) for each in answers] == [str(number) for number in range(20)]
            runs = asyncio.Event()

            async def running(done: float, total: float | None, message: str | None) -> None:
                runs.set()

            hanging = asyncio.create_task(client.call_tool("hang", {}, progress_callback=running))
            await asyncio.wait_for(runs.wait(), SECONDS)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"
            if transport == "stdio":
                seen = await client.call_tool("variables", {})
                assert seen.structured_content == {"result": []}, "the server does not see the key"

    asyncio.run(told())
    (asked,) = person.asked
    assert "A reviewer has to decide about `mcp__fixture__wire`" in asked
    run = service.call("admin", "GET", "/v1/runs").json()[0]
    assert (run["task"], run["status"]) == ("a session", "completed")
    calls = service.call("admin", "GET", f"/v1/runs/{run['runId']}").json()["toolCalls"]
    assert {each["toolName"].removeprefix("mcp__fixture__"): each["status"] for each in calls} | {
        "variables": "allowed"
    } == dict.fromkeys(("echo", "wire", "fail", "work", "hang", "variables"), "allowed") | {
        "crash": "blocked"
    }


def test_a_recorded_session_passes_byte_for_byte(service: Served, tmp_path: Path) -> None:
    """Recorded without the proxy: @modelcontextprotocol/sdk 1.32.2 and server-everything 2026.8.31."""
    recording = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
    seen = tmp_path / "seen"
    server = ["python3", str(ROOT / "tests/harness/mcp_recorded_server.py"), str(RECORDING), str(seen)]
    with RawProxy(proxy_words(tmp_path, "--", *server), environment(service)) as proxy:
        for entry in recording:
            line = entry["line"].encode()
            if entry["from"] == "client":
                proxy.say(line)
            else:
                assert proxy.line() == line
        proxy.input.close()
        assert proxy.line() == b""
        assert proxy.code() == 0
    sent = [entry["line"] for entry in recording if entry["from"] == "client"]
    assert seen.read_bytes().decode().split("\n") == [*sent, ""]


@pytest.mark.parametrize(
    ("script", "code"),
    [("import sys; sys.exit(7)", 7), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137)],
)
def test_the_code_of_a_server_that_ends_is_the_proxys(
    script: str, code: int, service: Served, tmp_path: Path
) -> None:
    with RawProxy(proxy_words(tmp_path, "--", "python3", "-c", script), environment(service)) as proxy:
        assert proxy.line() == b""
        assert proxy.code() == code


def test_a_signal_ends_server_and_proxy(service: Served, tmp_path: Path) -> None:
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); print('{}', flush=True)"
    )
    script += '; print(\'{"jsonrpc":"2.0","method":"ready"}\', flush=True); signal.pause()'
    with RawProxy(proxy_words(tmp_path, "--", "python3", "-c", script), environment(service)) as proxy:
        assert b"ready" in proxy.line()
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.code() == 5


def test_what_was_asked_before_the_end_is_answered(service: Served, tmp_path: Path) -> None:
    """As with `printf ... | governance mcp-proxy -- ...`."""
    script = """if True:
        import json, sys
        for line in sys.stdin:
            asked = json.loads(line)
            result = {"tools": [{"name": "echo"}]} if asked["method"] == "tools/list" else {"content": []}
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    """
    with RawProxy(proxy_words(tmp_path, "--", "python3", "-c", script), environment(service)) as proxy:
        proxy.say(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}')
        proxy.input.close()
        assert json.loads(proxy.line()) == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
        assert proxy.code() == 0


async def test_the_key_may_stand_in_a_file(service: Served, tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text(f"{service.api_key}\n", encoding="utf-8")
    words = proxy_words(tmp_path, "--key-file", str(file), "--", *SERVER)
    without = {name: value for name, value in environment(service).items() if name != "GOVERNANCE_API_KEY"}
    parameters = StdioServerParameters(command=words[0], args=words[1:], env=without, cwd=str(ROOT))
    async with Client(parameters) as client:
        assert text(await client.call_tool("echo", {"text": "é"})) == "é"


def test_wrong_usage_starts_nothing(service: Served, tmp_path: Path) -> None:
    for words in (
        [],
        ["--url", "http://127.0.0.1:1/mcp", "--", "true"],
        ["--", "/no/such/program"],
        ["--header", "x: ${NOT_THERE}", "--url", "http://127.0.0.1:1/mcp"],
        ["--server-name", "a/b", "--", "true"],
        ["--key-file", "/no/such/file", "--", "true"],
    ):
        with RawProxy(proxy_words(tmp_path, *words), environment(service)) as proxy:
            assert proxy.code() == 2, words
    with RawProxy(
        proxy_words(tmp_path, "--", "true"), environment(service) | {"GOVERNANCE_API_KEY": ""}
    ) as proxy:
        assert proxy.code() == 2
