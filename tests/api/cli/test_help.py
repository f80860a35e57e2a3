"""Every command has help, and wrong words lead to the right ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import cli
from api.cli import terminal


def commands(parser: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    parser = parser or cli.parser()
    yield words
    for action in parser._actions:
        if hasattr(action, "_parser_class"):
            for name, child in action.choices.items():
                yield from commands(child, (*words, name))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, "--help"])
    assert stopped.value.code == 0
    assert "usage: governance" in capsys.readouterr().out


def test_the_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    output = capsys.readouterr().out
    for code in ("0 ", "1 ", "2 ", "130"):
        assert re.search(rf"^  {code}", output, re.MULTILINE), code


@pytest.mark.parametrize("words", [[], ["nonsense"], ["users"], ["users", "add"], ["users", "add", "a@b.c"]])
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "usage: governance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["serv"], "usage: governance [", "there is no `serv`; did you mean `serve`?"),
        (["frobnicate"], "usage: governance [", "write one of audit, backtest,"),
        (["users", "lst"], "usage: governance users [", "did you mean `list`?"),
        (["users", "role", "a@b.c", "admn"], "usage: governance users role [", "did you mean `admin`?"),
        (["serve", "--prot", "1"], "usage: governance serve [", "did you mean `--port`?"),
        (["serve", "now"], "usage: governance serve [", "`now` is not understood here"),
        (["users", "list", "--dta-dir=x"], "usage: governance users list [", "did you mean `--data-dir`?"),
        (["keys", "revoke", "a", "b"], "usage: governance keys revoke [", "`b` is not understood here"),
    ],
)
def test_wrong_words_lead_to_the_right_ones(
    words: list[str], usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith(usage) and message in error


def test_the_command_line_loads_little_at_first() -> None:
    """Agents call it before each tool call, so that what it imports at once is kept in view."""
    script = "import sys, api.cli; api.cli.parser(); print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for heavy in ("peewee", "starlette", "uvicorn", "rich", "jsonschema", "argon2", "jwt", "lark", "httpx"):
        assert heavy not in output.split(), heavy


def test_the_api_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out)["openapi"].startswith("3.1")


def test_the_program_is_named_as_it_can_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder" / "bin"
    folder.mkdir(parents=True)
    called = folder / "governance"
    called.write_text("#!/bin/sh\n")
    called.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(called)])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert terminal.program() == "'a folder/bin/governance'"
    monkeypatch.chdir(folder.parent)
    assert terminal.program() == "bin/governance"
    monkeypatch.setenv("PATH", str(folder))
    assert terminal.program() == "governance"
    # Another one of this name comes first.
    (tmp_path / "governance").write_text("#!/bin/sh\n")
    (tmp_path / "governance").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{folder}")
    assert terminal.program() == "bin/governance"
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert terminal.program().endswith(("/governance", " -m api.cli"))
