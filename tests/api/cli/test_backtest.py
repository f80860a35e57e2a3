"""`backtest` over recorded calls, from a database and from a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import bootstrap
from api.settings import load
from tests.harness.application import NO_LAUNCHES, event
from tests.harness.command_line import WIRES, Shell
from tests.harness.running_service import Served


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, [NO_LAUNCHES], live=True) as service:
        yield service


def record(service: Served, count: int) -> None:
    for number in range(count):
        fields = {"toolCallId": f"t{number}", "toolName": "wire", "inputPayload": {"amount": 100 * number}}
        called = event(number, "tool.called", "2026-01-01T00:00:00Z", fields)
        answer = service.http.post("/v1/events", json=called, headers=service.credentials["agent"])
        assert answer.status_code == 200, answer.text


def test_backtest_and_simulate_over_a_database_and_a_service(
    service: Served, shell: Shell, tmp_path: Path
) -> None:
    record(service, 5)
    draft = tmp_path / "draft.yaml"
    draft.write_text(WIRES)
    place = ("--data-dir", service.settings.data_dir, "--dir", service.settings.policies_dir)
    code, output, error = shell.process("backtest", "--draft", draft, *place)
    assert code == 1, error
    assert output.count("allowed -> awaiting_approval") == 2, "the first, and the count"
    assert "    the same of 2 more calls of this tool\n" in output
    assert output.endswith("5 recorded calls, 3 decided differently\n")
    locally = json.loads(shell.process("backtest", "--draft", draft, *place, "--format", "json")[1])
    assert [each["inputPayload"] for each in locally["changes"]] == [{"amount": n} for n in (200, 300, 400)]
    later = shell.process("backtest", "--draft", draft, *place, "--until", "2000-01-01T00:00:00Z")
    assert later[0] == 0 and later[1] == "0 recorded calls, 0 decided differently\n"
    assert shell.process("backtest", "--old", service.settings.policies_dir, *place)[0] == 0
    github = shell.process("backtest", "--draft", draft, *place, "--format", "github")[1]
    assert github.startswith("::warning file=") and "3 of 5 recorded calls" in github

    token = tmp_path / "token"
    token.write_text(service.credentials["reviewer"]["Authorization"].removeprefix("Bearer "))
    remote = ("--url", str(service.http.base_url), "--token-file", token)
    code, output, error = shell.run("backtest", "--draft", draft, *remote, "--format", "json")
    assert code == 1, error
    assert json.loads(output) == locally
    call = ("--tool", "wire", "--payload", '{"amount": 500}')
    code, output, error = shell.run("simulate", *call, *remote, "--draft", draft, "--policy", "wires")
    assert code == 0, error
    assert output.startswith("awaiting_approval\n") and "to turn it over" in output
    token.write_text("nonsense")
    code, _, error = shell.run("simulate", *call, *remote)
    assert code == 2 and "the service refuses (401)" in error


def test_backtest_and_diff_use_the_same_words(service: Served, shell: Shell, tmp_path: Path) -> None:
    record(service, 5)
    for folder, action in (("old", "block"), ("new", "warn")):
        text = WIRES.split("examples:")[0].replace("require_approval", action)
        (tmp_path / folder / "policies").mkdir(parents=True)
        (tmp_path / folder / "policies" / "wires.yaml").write_text(text)
    old, new = tmp_path / "old", tmp_path / "new"
    backtest = shell.process("backtest", "--old", old, "--dir", new, "--data-dir", service.settings.data_dir)[
        1
    ]
    diff = shell.run("diff", old, new)[1]
    for output in (backtest, diff):
        assert "blocked -> allowed with a warning" in output
        assert "before: blocked by `" in output and "after: allowed with a warning from `" in output


def test_what_an_agent_has_written_does_not_steer_the_terminal(
    service: Served, shell: Shell, tmp_path: Path
) -> None:
    call = {"toolCallId": "c\x1b[2K\u202e", "toolName": "wire", "inputPayload": {"amount": 500}}
    event = {
        "eventId": "e",
        "runId": "r\x1b[1A\x9b2J",
        "agentId": "a",
        "timestamp": "2026-01-01T00:00:00Z",
        "eventType": "tool.called",
        "metadata": call,
    }
    answer = service.http.post("/v1/events", json=event, headers=service.credentials["agent"])
    assert answer.status_code == 200, answer.text
    draft = tmp_path / "draft.yaml"
    draft.write_text(WIRES)
    place = ("--data-dir", service.settings.data_dir, "--dir", service.settings.policies_dir)
    code, output, error = shell.process("backtest", "--draft", draft, *place)
    assert code == 1, error
    assert "r\\u001b[1A\\u009b2J/c\\u001b[2K\\u202e" in output
    assert all(line.isprintable() for line in output.splitlines())


def test_backtest_of_an_unknown_organisation_is_2(shell: Shell, tmp_path: Path) -> None:
    bootstrap.prepare(load({}, data_dir=str(tmp_path / "data")))
    draft = tmp_path / "draft.yaml"
    draft.write_text(WIRES)
    place = ("--data-dir", tmp_path / "data", "--dir", shell.folder)
    assert shell.run("backtest", "--draft", draft, *place)[0] == 0
    code, _, error = shell.run("backtest", "--draft", draft, *place, "--organisation", "nope")
    assert code == 2 and "there is no organisation `nope`" in error


def test_backtest_needs_a_database(shell: Shell, tmp_path: Path) -> None:
    draft = tmp_path / "draft.yaml"
    draft.write_text(WIRES)
    place = ("--data-dir", tmp_path / "none", "--dir", shell.folder)
    code, _, error = shell.run("backtest", "--draft", draft, *place)
    assert code == 2 and "there is no database" in error
