"""Wrong usage and folders or outputs that cannot be used: exit code 2 and what to do."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.command_line import Shell, run_command
from tests.harness.places import ROOT

URL = ("--url", "http://127.0.0.1:9", "--token", "t")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lint", "nowhere"], "there is no folder `nowhere`"),
        (["lint", "HEAD:nowhere"], "git knows no folder `nowhere` at `HEAD`"),
        (
            ["diff", "origin/nobody:policies.d", "policies.d"],
            "no revision `origin/nobody` here; where the clone",
        ),
        (["lint", __file__], "is a file; give the folder that holds `policies/`"),
        (["test", str(ROOT / "policies.d" / "policies")], "give the folder that holds `policies/`"),
        (["diff", "", ""], "argument OLD: this argument is empty"),
        (["diff", "policies.d", ""], "argument NEW: this argument is empty"),
        (["lint", ""], "argument DIR: this argument is empty"),
        (["test", ""], "argument DIR: this argument is empty"),
        (["fmt", "--check", ""], "argument FILE: this argument is empty"),
        (["simulate", "--tool", "x", "--dir", ""], "argument --dir: this argument is empty"),
        (["simulate", "--tool", "x", "--url", ""], "argument --url: this argument is empty"),
        (
            ["backtest", "--draft", "x", "--organisation", ""],
            "argument --organisation: this argument is empty",
        ),
        (["test", "--no-mutation", "--min-score", "90"], "--min-score does not go with --no-mutation"),
        (["diff", "nowhere", "nowhere"], "there is no folder `nowhere`"),
        (["fmt", "nowhere"], "there is no file or folder `nowhere`"),
        (["simulate"], "say which call"),
        (["simulate", "--tool", "x", "--payload", "{"], "--payload is not JSON"),
        (["simulate", "--tool", "x", "--payload", "[]"], "--payload must be an object"),
        (["simulate", "--tool", "x", "--payload", "@nowhere"], "`nowhere` cannot be read"),
        (["simulate", "--tool", "x", "--payload", '{"a": 2, "a": 1}'], "--payload: the key `a` stands twice"),
        (["simulate", "--call", '{"toolName": "x", "toolName": "y"}'], "--call: the key `toolName` stands"),
        (["simulate", "--tool", "x", "--user", '{"claims": {"b": 1, "b": 2}}'], "--user: the key `b` stands"),
        (["simulate", "--call", '{"toolName": 1}'], "`toolName` must be text"),
        (["simulate", "--tool", "x", "--url", "127.0.0.1"], "is no address"),
        (["simulate", "--tool", "x", "--url", "http://127.0.0.1:9"], "nobody is logged in here; log in with"),
        (["simulate", "--tool", "x", "--url", "http://127.0.0.1:9", "--token", "t"], "does not answer"),
        (["simulate", "--tool", "x", "--organisation", "defalt"], "did you mean `default`?"),
        (
            ["simulate", "--tool", "x", "--organisation", "nope"],
            "no organisation `nope` in this folder; there",
        ),
        (["simulate", "--tool", "x", *URL, "--organisation", "x"], "--organisation does not go with --url"),
        (["simulate", "--tool", "x", *URL, "--token-file", "f"], "either --token-file or --token"),
        (["simulate", "--tool", "x", "--token-file", "f"], "--token-file is for a service; give --url"),
        (["backtest", "--draft", "x", *URL, "--organisation", "x"], "--organisation does not go with --url"),
        (["backtest", "--draft", "x", *URL, "--data-dir", "x"], "--data-dir does not go with --url"),
        (["backtest", "--old", "x", *URL], "--old does not go with --url"),
        (["backtest", "--draft", "x", "--token", "abc"], "--token is for a service; give --url"),
        (
            [
                "backtest",
                "--draft",
                "x",
                "--since",
                "2026-02-01T00:00:00Z",
                "--until",
                "2026-01-01T00:00:00Z",
            ],
            "is later than --until",
        ),
        (["backtest"], "say what to compare"),
        (["backtest", "--draft", "x", "--since", "yesterday"], "is not an ISO 8601 time"),
        (["backtest", "--draft", "x", "--limit", "0"], "--limit must be at least 1"),
    ],
)
def test_wrong_usage_is_2_and_says_what_to_do(
    words: list[str], says: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code, _, error = shell.run(*words)
    assert code == 2
    assert says in error


@pytest.mark.parametrize("command", ["fmt", "lint"])
def test_a_folder_in_one_that_cannot_be_read_is_2(
    command: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refused)
    code, _, error = shell.run(command, shell.folder)
    assert code == 2 and f"`{shell.folder}` cannot be read: Permission denied" in error


@pytest.mark.parametrize(
    ("where", "says"),
    [(">/dev/full", "the output cannot be written: No space left"), (">&-", "there is no standard output")],
)
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_2(
    where: str, says: str, form: str, unbuffered: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    words = [sys.executable, "-m", "api.cli", "lint", str(shell.folder), "--format", form]
    line = f"{shlex.join(words)} {where}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"governance: {says}") and done.stderr.count("\n") == 1


def test_much_output_that_cannot_be_written_is_2(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    for number in range(200):
        shell.write(f"policies/broken-{number}.yaml", "a: [\n")
    words = [sys.executable, "-m", "api.cli", "lint", str(shell.folder)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_folder_that_cannot_be_read_is_2(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    code, _, error = shell.run("lint", shell.folder)
    assert code == 2 and f"the folder `{shell.folder}` cannot be read: permission denied" in error


@pytest.mark.skipif(os.name == "nt", reason="no such limit")
def test_a_limit_of_open_files_that_is_too_low_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle connections would leave none for the database, and nothing would say so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("resource.getrlimit", lambda which: (64, 4096))
    code, _, error = run_command(capsys, "serve")
    assert code == 2 and "may open 64 files only, and needs 128" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("users", "list"),
        ("backup", "copy.sqlite"),
        ("audit", "verify"),
        ("audit", "rekey"),
        ("secrets", "forget", "--yes"),
        ("serve",),
    ],
)
def test_data_in_a_folder_that_is_closed_is_2(
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `/var/lib/governance` is to everybody but the user of the service."""
    closed, stat = tmp_path / "closed", os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if not isinstance(path, int) and str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setenv("GOVERNANCE_DATA_DIR", str(closed / "data"))
    monkeypatch.setenv("GOVERNANCE_POLICIES_DIR", str(ROOT / "policies.d"))
    monkeypatch.setenv("GOVERNANCE_PORT", "0")
    monkeypatch.setattr(os, "stat", refused)
    code, _, error = run_command(capsys, *words)
    assert code == 2 and error.startswith(f"governance: `{closed / 'data'}")
    assert error.endswith("run this as the user of the service, or let this user into its folder\n")


def test_a_name_that_is_too_long_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run_command(capsys, "users", "list", "--data-dir", "x" * 300)
    assert code == 2 and error.endswith("cannot be used: File name too long\n")
