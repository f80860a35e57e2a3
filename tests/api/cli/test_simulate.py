"""`simulate` decides about one call without a service."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.command_line import WIRES, Shell


def test_simulate_decides_without_a_service(shell: Shell) -> None:
    call = ("--tool", "wire", "--payload", '{"amount": 500}', "--dir", shell.folder)
    code, output, _ = shell.run("simulate", *call, "--explain", "--verify")
    assert code == 0
    assert output.startswith("awaiting_approval\nheld for approval by `Wires`: ")
    assert "holds: `inputPayload.amount` is 500, greater than 100" in output
    assert "to turn it over: set `inputPayload.amount` to 100" in output
    shape = json.loads(shell.run("simulate", *call, "--format", "json")[1])
    assert shape["resultingAction"] == "require_approval"
    assert [each["policyId"] for each in shape["matchedPolicies"]] == ["wires"]
    assert shell.run("simulate", *call, "--expect", "awaiting_approval")[0] == 0
    assert shell.run("simulate", *call, "--expect", "blocked")[0] == 1


def test_simulate_takes_payloads_from_files_and_witnesses_as_printed(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"amount": 500}')
    place = ("--dir", shell.folder)
    assert "awaiting" in shell.run("simulate", "--tool", "wire", "--payload", f"@{file}", *place)[1]
    witness = '{"toolName": "wire", "inputPayload": {"amount": 101}}'
    assert "awaiting" in shell.run("simulate", "--call", witness, *place)[1]


def test_simulate_with_a_draft(shell: Shell, tmp_path: Path) -> None:
    draft = tmp_path / "draft.yaml"
    draft.write_text(WIRES.replace("require_approval", "block"))
    call = ("--tool", "wire", "--payload", '{"amount": 500}', "--dir", shell.folder)
    assert shell.run("simulate", *call, "--draft", draft)[1].startswith("blocked\n")


def test_simulate_knows_the_organisations_of_the_folder(shell: Shell) -> None:
    shell.write("organisations/acme/policies/wires.yaml", WIRES.replace("require_approval", "block"))
    call = ("--tool", "wire", "--payload", '{"amount": 500}', "--dir", shell.folder)
    assert shell.run("simulate", *call, "--organisation", "acme")[1].startswith("blocked\n")
    code, _, error = shell.run("simulate", *call, "--organisation", "acne")
    assert code == 2 and "there is no organisation `acne` in this folder; did you mean `acme`?" in error


def test_simulate_and_rate_limits(shell: Shell) -> None:
    limited = WIRES.replace("examples:", "rateLimit: {limit: 5, windowSeconds: 60}\nexamples:")
    shell.write("policies/wires.yaml", limited)
    call = ("--tool", "wire", "--payload", '{"amount": 500}', "--dir", shell.folder)
    within = shell.run("simulate", *call)[1]
    assert within.startswith("allowed\n") and "matched, within the rate limit:" in within
    assert shell.run("simulate", *call, "--limits-reached")[1].startswith("awaiting_approval\n")
