"""Variables that a command is given beside it are read as if it had set them itself."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.engine.derived.declared import is_partial, shown


@pytest.mark.parametrize(
    "payload",
    [
        {"command": "rm -rf $D", "env": {"D": "/"}},
        {"command": 'rm -rf "$D"', "environment": {"D": "/"}},
        {"env": {"D": "/", "n": 1}, "cmd": "rm -rf ${D}"},
        {"command": "rm -rf $D", "env_vars": ["A=b c", "D=/"]},
        {"command": "rm -rf $D", "environmentVariables": [{"name": "D", "value": "/"}]},
        {"command": "rm -rf $D", "env": '{"D": "/"}'},
        {"command": ["sh", "-c", "rm -rf $D"], "env": {"D": "/"}},
        {"command": "sh", "args": ["-c", "rm -rf $D"], "env": {"D": "/"}},
        {"command": 'eval "$X"', "environment": ["X=rm -rf /"]},
        {"command": "$P -rf /", "env": {"P": "rm"}},
        {"steps": [{"run": "rm -rf $D", "env": {"D": "/"}}]},
    ],
)
def test_what_a_variable_holds_is_read(payload: Any) -> None:
    assert "/" in shown("bash", payload, "deletes")


@pytest.mark.parametrize(
    ("payload", "deletes"),
    [
        ({"command": "rm -rf build", "env": {"D": "/"}}, ["build"]),
        ({"command": "rm -rf $D", "env": {"D": "it's"}}, ["$D", 'it"s']),
        ({"command": "ls", "env": {"X": None, "a b": "/", "D": {"x": 1}}}, []),
    ],
)
def test_and_nothing_else(payload: Any, deletes: list[str]) -> None:
    assert sorted(shown("bash", payload, "deletes")) == sorted(deletes)


@pytest.mark.parametrize("command", ["rm -rf $HOME", "rm -rf $D/x $HOME", "sh -c 'rm -rf $HOME'"])
@pytest.mark.parametrize("key", ["command", "script", "z"])
def test_a_variable_that_the_tool_may_not_take_hides_nothing(command: str, key: str) -> None:
    environment = {"HOME": "build", "D": "build"}
    for payload in ({key: command, "env": environment}, {"env": environment, key: shlex.split(command)}):
        assert "~" in shown("bash", payload, "deletes")
    steps = [{"run": "echo $HOME", "env": {"HOME": "build"}}, {key: command, "env": {"X": "$X"}}]
    assert "~" in shown("bash", {"steps": steps}, "deletes")


@pytest.mark.parametrize("environment", [{"A": "1"}, {"A": "1", "PATH": "/x:$PATH"}])
def test_a_long_command_beside_variables_is_known_whole(environment: dict[str, str]) -> None:
    long = "print(1)\n" * 10_000
    assert not is_partial("bash", {"command": ["python", "-c", long], "env": environment}, "commands")


def test_a_variable_in_escaped_json_is_read() -> None:
    payload = '{"command": "rm -rf \\u0024D", "env": {"D": "/"}}'
    assert "/" in shown("bash", {"x": payload}, "deletes")


def test_very_many_variables_beside_very_many_commands_are_known_in_part() -> None:
    environment = {f"V{number}": "x" * 100 for number in range(1_000)}
    payload = {"env": environment, **{f"c{number}": "echo $V1" for number in range(100)}}
    assert is_partial("bash", payload, "commands")
