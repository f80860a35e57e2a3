"""Completion scripts, asked by the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.command_line import run_command

BASH = """\
source {script}
complete -p governance > /dev/null || exit 9
COMP_WORDS=({words}) COMP_CWORD={at}
"$(complete -p governance | sed 's/.*-F \\([^ ]*\\).*/\\1/')" governance "${{COMP_WORDS[COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def script(shell: str, folder: Path, capture: pytest.CaptureFixture[str]) -> Path:
    code, text, error = run_command(capture, "completion", shell)
    assert code == 0, error
    file = folder / ("_governance" if shell == "zsh" else f"governance.{shell}")
    file.write_text(text)
    return file


def needed(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        if os.environ.get("CI_REQUIRE_ALL") == "1":
            pytest.fail(f"there is no {shell}; `apt-get install {shell}` lets its completion be tested")
        pytest.skip(f"there is no {shell}; `apt-get install {shell}` lets its completion be tested")
    return found


def asked(*command: str, folder: Path) -> set[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TERM": "dumb",
        "XDG_CONFIG_HOME": str(folder),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split("\n"))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("governance ha", {"halt", "halts"}),
        ("governance approvals ", {"list", "show", "approve", "reject", "watch"}),
        ("governance halt --ag", {"--agent"}),
        ("governance approvals list --status pend", {"pending"}),
        ("governance completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(
    typed: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bash = needed("bash")
    words = typed.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    text = BASH.format(script=script("bash", tmp_path, capsys), words=quoted, at=len(words) - 1)
    found = asked(bash, "--noprofile", "--norc", "-c", text, folder=tmp_path)
    assert offered <= found, found


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("governance ha", {"halt", "halts"}),
        ("governance approvals ", {"approve", "watch"}),
        ("governance halt --ag", {"--agent"}),
        ("governance completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_fish_completes(
    typed: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fish = needed("fish")
    file = script("fish", tmp_path, capsys)
    found = asked(fish, "--no-config", "-c", f"source {file}; complete -C '{typed}'", folder=tmp_path)
    assert offered <= {line.split("\t")[0] for line in found}, found


def test_zsh_takes_the_script_as_the_completion_of_governance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zsh = needed("zsh")
    file = script("zsh", tmp_path, capsys)
    text = f"fpath=({file.parent} $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[governance]"
    assert "_governance" in asked(zsh, "-f", "-c", text, folder=tmp_path)
    assert asked(zsh, "-f", "-n", str(file), folder=tmp_path) == {""}
    for word in ("halts:", "approvals:", "--agent"):
        assert word in file.read_text()


def test_files_are_completed_where_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy-one.yaml").touch()
    bash = needed("bash")
    text = BASH.format(
        script=script("bash", tmp_path, capsys), words="governance policies apply policy-", at=3
    )
    assert "policy-one.yaml" in asked(bash, "--noprofile", "--norc", "-c", text, folder=tmp_path)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run_command(capsys, "completion", "csh")
    assert code == 2 and "there is no `csh`; write one of bash, zsh, fish" in error
