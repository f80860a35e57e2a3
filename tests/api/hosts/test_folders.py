"""The folder that a host runs a call in: `rm -rf *` is another thing in `/`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.hosts.report import CALL, OTHER, RESULT
from api.hosts.table import host, in_folder
from tests.harness.agent_host import told

HOSTS = ("claude-code", "codex", "gemini-cli", "copilot")
"""Those that tell it beside the arguments; Cursor 3.9.16 has an empty one there."""


@pytest.mark.parametrize("name", HOSTS)
def test_a_command_is_told_with_its_folder(name: str) -> None:
    report = host(name).read(json.loads(told(name, "folder")))
    assert (report.kind, report.payload) == (CALL, {"command": "rm -rf *", "cwd": "/"})


@pytest.mark.parametrize("name", HOSTS)
def test_what_became_of_a_call_is_told_with_the_same_arguments(name: str) -> None:
    call, result = (host(name).read(json.loads(told(name, kind))) for kind in ("call", "result"))
    assert call.payload == result.payload and call.payload["cwd"] == "/home/dev/x"


@pytest.mark.parametrize(
    ("name", "tool"), [("codex", "mcp__x__run"), ("gemini-cli", "mcp_x_run"), ("copilot", "x-run")]
)
def test_a_server_of_mcp_runs_elsewhere(name: str, tool: str) -> None:
    said = json.loads(told(name, "folder"))
    said["toolName" if name == "copilot" else "tool_name"] = tool
    assert host(name).read(said).payload == {"command": "rm -rf *"}


@pytest.mark.parametrize(
    ("payload", "cwd"),
    [
        ({"path": "a.txt"}, "/p"),
        ({"paths": ["/a", "b"]}, "/p"),
        ({"path": "/a.txt"}, None),
        ({"file_path": "~/.ssh/id"}, None),
        ({"paths": ["/a", "C:\\b"]}, None),
        ({"query": "x"}, None),
        ({"command": "/bin/ls", "dir_path": "sub"}, "/p/sub"),
        ({"command": "ls", "dir_path": "/sub"}, "/sub"),
        ({"command": "ls", "cwd": "", "dir_path": ""}, "/p"),
        ({"command": "ls", "workdir": "/elsewhere"}, "/p"),
    ],
)
def test_the_folder_is_added_where_it_matters(payload: dict[str, Any], cwd: str | None) -> None:
    added = {} if cwd is None else {"cwd": cwd}
    assert in_folder(payload, {"cwd": "/p"}, "dir_path") == payload | added


@pytest.mark.parametrize("own", ["sub", "/elsewhere"])
def test_what_an_agent_calls_its_folder_does_not_take_its_place(own: str) -> None:
    """A tool leaves aside what it does not know. It counts beside."""
    payload = {"command": "rm -rf *", "cwd": own}
    assert in_folder(payload, {"cwd": "/"}) == {"command": "rm -rf *", "cwd": "/", "workdir": own}
    payload["workdir"] = "decoy"
    assert in_folder(payload, {"cwd": "/"}) == {**payload, "cwd": "/", "working_directory": own}
    payload |= dict.fromkeys(("working_directory", "working_dir", "base_directory", "base_dir"), "decoy")
    assert in_folder(payload, {"cwd": "/"}) == {**payload, "cwd": "/", "cwd_2": own}


@pytest.mark.parametrize("cwd", [None, "", 5])
def test_without_a_folder_nothing_is_added(cwd: Any) -> None:
    assert in_folder({"command": "ls"}, {"cwd": cwd}) == {"command": "ls"}


def cursor(event: str, **said: Any) -> Any:
    return host("cursor").read({"hook_event_name": event, "conversation_id": "c", **said})


@pytest.mark.parametrize("event", ["preToolUse", "postToolUse"])
def test_the_folder_that_cursor_tells_beside_the_arguments_counts(event: str) -> None:
    call = {"tool_name": "Shell", "tool_input": {"command": "rm -rf lib"}, "cwd": "/var"}
    assert cursor(event, **call).payload == {"command": "rm -rf lib", "cwd": "/var"}
    call["tool_input"] = {"command": "rm -rf lib", "working_directory": "/etc"}
    assert cursor(event, **call).payload["cwd"] == "/etc"
    call |= {"tool_name": "MCP:run", "tool_input": {"command": "x"}}
    assert cursor(event, **call).payload == {"command": "x"}


def test_a_call_that_cursor_denied_is_told_as_none_that_ran() -> None:
    call = {"tool_name": "Shell", "tool_input": {"command": "ls"}, "error_message": "no"}
    assert cursor("postToolUseFailure", **call, failure_type="permission_denied").kind == OTHER
    assert cursor("postToolUseFailure", **call, failure_type="error").kind == RESULT
