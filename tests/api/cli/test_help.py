"""Every command has help, and wrong words lead to the right ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from api import cli
from api.bootstrap import FirstStart
from api.cli import command_line, terminal
from api.cli.commands.serve import banner, proxies, start_members
from api.settings import load
from tests.harness.places import ROOT


def commands(parser: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    parser = parser or command_line.parser()
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
        (["frobnicate"], "usage: governance [", "audit, backtest,"),
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


LIBRARIES = {
    "argon2", "asyncio", "attr", "cryptography", "httpcore", "httpx", "jsonschema", "jwt", "lark", "msgspec",
    "peewee", "prometheus_client", "psycopg", "re2", "rich", "starlette", "uvicorn", "watchfiles", "yaml",
}  # fmt: skip


def imported_by(*words: str) -> set[str]:
    """The modules that `governance` has loaded at the end of this call."""
    script = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from api.cli import main
sys.exit(main({list(words)!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "api.cli" in done.stderr, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["users", "add", "--help"], ["nonsense"]])
def test_the_command_line_loads_little_at_first(words: list[str]) -> None:
    """Agents call it before each tool call, so that what it imports at once is kept in view."""
    found = imported_by(*words)
    assert not found & LIBRARIES
    assert not [name for name in found if name.startswith(("engine", "api.handlers", "api.store"))]


@pytest.mark.parametrize(("first", "loaded"), [("users", {"api.cli.commands.users"}), ("--version", set())])
def test_a_command_loads_no_other_command(first: str, loaded: set[str]) -> None:
    found = {name for name in imported_by(first, "--help") if name.startswith("api.cli.commands.")}
    assert found == loaded


def test_accounts_are_kept_without_the_engine_and_the_server(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    found = imported_by("organisations", "list", "--database-url", f"sqlite:///{path}")
    assert "api.store.accounts" in found
    assert not found & {"engine.live", "engine.matching", "lark", "re2", "starlette", "uvicorn", "watchfiles"}


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert capsys.readouterr().out == f"governance {package['version']}\n"


@pytest.mark.parametrize("group", ["users", "keys", "organisations", "audit", "secrets", "backup"])
def test_what_works_on_the_store_takes_its_place(group: str) -> None:
    """Whoever runs the service with --data-dir or --database-url finds their data with the same flags."""
    groups = [words for words in commands() if words[:1] == (group,)]
    actions = [words for words in groups if len(words) == 2] or groups
    for words in actions:
        parser: Any = command_line.parser()
        for word in words:
            parser = next(a for a in parser._actions if hasattr(a, "_parser_class")).choices[word]
        assert {"--data-dir", "--database-url"} <= parser._option_string_actions.keys(), " ".join(words)


def test_the_api_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out)["openapi"].startswith("3.1")


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, ""),
        ({"data_dir": "else where"}, " --data-dir 'else where'"),
        ({"database_url": "sqlite:///a b.sqlite"}, " --database-url 'sqlite:///a b.sqlite'"),
        ({"database_url": "postgresql://me:unsaid@db/x", "data_dir": "else"}, " --database-url URL"),
    ],
)
def test_the_start_says_how_other_commands_find_its_data(settings: dict[str, str], flags: str) -> None:
    said = banner(load({}, **settings), FirstStart())
    assert re.search(rf"governance users password EMAIL{re.escape(flags)}$", said, re.MULTILINE)
    assert "unsaid" not in said


@pytest.mark.parametrize(
    ("client", "found"),
    [
        ("10.1.2.3", "192.0.2.7"),
        ("::ffff:10.1.2.3", "192.0.2.7"),
        ("::1", "192.0.2.7"),
        ("::ffff:10.2.0.1", "::ffff:10.2.0.1"),
        ("::2", "::2"),
    ],
)
def test_a_proxy_is_known_on_a_listener_of_both_families(client: str, found: str) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    trusted = proxies(load({"GOVERNANCE_TRUSTED_PROXIES": "10.1.0.0/16, ::1"}).trusted_proxies)
    scope: Any = {"type": "http", "client": (client, 1), "headers": [(b"x-forwarded-for", b"192.0.2.7")]}
    nobody: Any = None
    asyncio.run(ProxyHeadersMiddleware(app, trusted)({**scope, "scheme": "http"}, nobody, nobody))
    assert seen == [found]


def test_the_start_says_the_same_to_programs() -> None:
    settings = load({}, host="0.0.0.0", log_format="json")
    made = FirstStart(
        "ann@example.com", "a word that nobody guesses", "agk_of_the_first_start", made_key=True
    )
    said, members = banner(settings, made), start_members(settings, made)
    for name in ("service", "console", "guide", "apiDocs", "policies", "data", "admin", "password", "apiKey"):
        assert str(members[name]) in said, name
    assert all(note in said for note in members["notes"])
    later = start_members(settings, FirstStart())
    assert later.keys().isdisjoint(("admin", "password", "apiKey"))


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
