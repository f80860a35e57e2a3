"""`diff` proves what changes between two sets of policies."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.command_line import WIRES, Shell


def test_diff_of_equals(shell: Shell) -> None:
    assert shell.run("diff", shell.folder, shell.folder) == (0, "both say the same\n", "")


def test_diff_proves_a_moved_threshold(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "new" / "policies"
    new.mkdir(parents=True)
    (new / "wires.yaml").write_text(WIRES.split("examples:")[0].replace("value: 100}", "value: 1000}"))
    code, output, _ = shell.run("diff", shell.folder, tmp_path / "new")
    assert code == 1
    assert (
        "condition changed: `inputPayload.amount greater_than 100` -> `inputPayload.amount greater_than 1000`"
        in output
    )
    assert 'awaiting_approval -> allowed: {"toolName": "wire", "inputPayload": {"amount": 101}}' in output
    shape = json.loads(shell.run("diff", shell.folder, tmp_path / "new", "--format", "json")[1])
    (difference,) = shape["differences"]
    assert difference["kind"] == "changed"
    proof = difference["proof"]
    assert (proof["oldAction"], proof["newAction"]) == ("require_approval", "allow")
    for folder, expected in ((shell.folder, "awaiting_approval"), (tmp_path / "new", "allowed")):
        call = json.dumps(proof["call"])
        assert shell.run("simulate", "--call", call, "--dir", folder, "--expect", expected)[0] == 0
    assert shell.run("diff", shell.folder, tmp_path / "new", "--format", "github")[1].startswith("::notice ")


def test_diff_groups_what_repeats(shell: Shell, tmp_path: Path) -> None:
    for folder, mode in ((tmp_path / "old", "enforce"), (tmp_path / "new", "shadow")):
        (folder / "policies").mkdir(parents=True)
        for number in range(6):
            text = WIRES.replace("policyId: wires", f"policyId: wires-{number}").replace(
                "value: wire", f"value: wire{number}"
            )
            (folder / "policies" / f"wires-{number}.yaml").write_text(
                text.split("examples:")[0] + f"mode: {mode}\n"
            )
    code, output, _ = shell.run("diff", tmp_path / "old", tmp_path / "new")
    assert code == 1 and output.count("~ changed") == 3
    assert "the same of 3 more: `wires-3`, `wires-4`, `wires-5`\n" in output
    assert (
        len(
            json.loads(shell.run("diff", tmp_path / "old", tmp_path / "new", "--format", "json")[1])[
                "differences"
            ]
        )
        == 6
    )


def test_diff_proves_what_a_failure_policy_lets_through(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "new" / "policies"
    new.mkdir(parents=True)
    (new / "wires.yaml").write_text(WIRES.split("examples:")[0] + "failurePolicy: ignore\n")
    code, output, _ = shell.run("diff", shell.folder, tmp_path / "new", "--format", "json")
    assert code == 1
    (difference,) = json.loads(output)["differences"]
    proof = difference["proof"]
    assert (proof["oldAction"], proof["newAction"]) == ("require_approval", "allow")
    for folder, expected in ((shell.folder, "awaiting_approval"), (tmp_path / "new", "allowed")):
        call = json.dumps(proof["call"])
        assert shell.run("simulate", "--call", call, "--dir", folder, "--expect", expected)[0] == 0


def test_diff_tells_added_removed_and_newly_shadowed(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "new" / "policies"
    new.mkdir(parents=True)
    every = WIRES.split("examples:")[0].replace("policyId: wires", "policyId: every")
    every = every.replace("name: Wires", "name: Every wire").replace("require_approval", "block")
    every = "\n".join(line for line in every.splitlines() if "amount" not in line) + "\n"
    (new / "wires.yaml").write_text(WIRES)
    (new / "every.yaml").write_text(every)
    code, output, _ = shell.run("diff", shell.folder, tmp_path / "new")
    assert code == 1 and "+ added `every` (Every wire)" in output
    assert "allowed -> blocked: " in output or "awaiting_approval -> blocked: " in output
    assert "now shadowed: `wires`: `Every wire` (every) already blocks" in output
    back = shell.run("diff", tmp_path / "new", shell.folder)[1]
    assert "- removed `every`" in back and "blocked -> " in back and "shadowed" not in back


def test_diff_says_when_only_other_policies_match(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "new" / "policies"
    new.mkdir(parents=True)
    (new / "wires.yaml").write_text(WIRES)
    (new / "again.yaml").write_text(WIRES.replace("policyId: wires", "policyId: again"))
    output = shell.run("diff", shell.folder, tmp_path / "new")[1]
    assert "the outcome stays `awaiting_approval`, other policies match" in output
    assert "now duplicate" in output


@pytest.fixture
def repository(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The shell's folder, committed to git as `pd`."""
    root = shell.folder.parent
    monkeypatch.chdir(root)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y.example"]
    for words in (["init", "-q"], ["add", "pd"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    return shell


def test_diff_against_git(repository: Shell) -> None:
    repository.write("policies/wires.yaml", WIRES.replace("enabled: true", "enabled: false"))
    code, output, _ = repository.run("diff", "HEAD:pd", "pd")
    assert code == 1 and "enabled yes -> no" in output and "awaiting_approval -> allowed" in output
    assert repository.run("diff", "HEAD:pd", "HEAD:./pd")[0] == 0
    assert repository.run("lint", "HEAD:pd", "--level", "error")[0] == 0
    assert repository.run("diff", "--output=x:pd", "pd")[0] == 2
    assert repository.run("diff", "HEAD:elsewhere", "pd")[0] == 2


def test_a_submodule_that_is_not_checked_out_is_no_folder_without_policies(repository: Shell) -> None:
    modules = '[submodule "team"]\n\tpath = pd/policies/team\n\turl = ../team.git\n'
    (repository.folder.parent / ".gitmodules").write_text(modules)
    (repository.folder / "policies/team").mkdir()
    code, output, _ = repository.run("lint", "pd")
    assert code == 1 and "pd/policies/team: error: the submodule `policies/team` is not checked out" in output
    assert repository.run("diff", "HEAD:pd", "pd")[0] == repository.run("test", "pd")[0] == 2
    (repository.folder / "policies/team").rmdir()
    assert repository.run("lint", "pd")[0] == 0
