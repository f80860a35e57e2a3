"""The hook in the settings of each host: written, written again, changed, removed; the rest of them stays."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from api import cli
from api.hosts.installer import BACKUP, installed
from api.hosts.setup import SetupError, setup
from api.hosts.table import NAMES, host

every_host = pytest.mark.parametrize("name", NAMES)
KEY = "agk_of_a_test"
SWITCHES = {"claude-code": {"onFailure": "block"}, "cursor": {"failClosed": True}}
THEIRS: dict[str, Any] = {"theirs": {"z": 1, "a": [True, None]}, "more": "ünïcode"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "GOVERNANCE_URL",
        "GOVERNANCE_AGENT_ID",
        "XDG_CONFIG_HOME",
        *(host(n).entries.home for n in NAMES),
    ):
        monkeypatch.delenv(name or "GOVERNANCE_URL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GOVERNANCE_API_KEY", KEY)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def run(*words: str) -> int:
    return cli.main(["hook", *words])


def file_of(home: Path, name: str) -> Path:
    return home / host(name).entries.user


@every_host
def test_a_hook_is_installed_for_every_event_with_every_switch(home: Path, name: str) -> None:
    assert run("install", name, "--url", "http://127.0.0.1:8799", "--agent-id", "builder") == 0
    entries = host(name).entries
    found = installed(file_of(home, name))
    assert [event for event, _ in found] == [*entries.decides, *entries.reports]
    for event, entry in found:
        words = shlex.split(entry[entries.command].partition(" || ")[0])
        assert words[words.index("--url") + 1] == "http://127.0.0.1:8799"
        assert words[words.index("--agent-id") + 1] == "builder"
        assert Path(words[0]).is_file()
        assert Path(words[3]).name == "hook.py"
        assert KEY not in entry[entries.command]
        decides = event in entries.decides
        assert entry[entries.timeout] == (300 if decides else 30) * entries.timeout_unit
        assert ("exit 2" in entry[entries.command]) == decides
        for switch, value in SWITCHES.get(name, {}).items():
            assert (entry.get(switch) == value) == decides
    key_file = home / ".config" / "governance" / f"{name}.key"
    assert key_file.read_text() == KEY + "\n"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert KEY not in file_of(home, name).read_text()


@every_host
def test_installing_again_changes_nothing_and_other_options_replace_it(home: Path, name: str) -> None:
    assert run("install", name) == 0
    file = file_of(home, name)
    before, stamp = file.read_text(), file.stat().st_mtime_ns
    assert run("install", name) == 0
    assert (file.read_text(), file.stat().st_mtime_ns) == (before, stamp)
    assert run("install", name, "--timeout", "60", "--fail-mode", "open") == 0
    found = installed(file)
    assert len(found) == len(host(name).entries.decides) + len(host(name).entries.reports)
    assert all("--fail-mode open" in entry[host(name).entries.command] for _, entry in found)
    assert run("install", name) == 0
    assert file.read_text() == before
    assert run("uninstall", name) == 0
    assert not file.exists()


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["unix", "dos"])
@every_host
def test_what_else_stands_there_stays(home: Path, name: str, ends: str) -> None:
    file, entries = file_of(home, name), host(name).entries
    event = next(iter(entries.decides))
    own = {"type": "command", entries.command: "./mine.sh"}
    value = {**THEIRS, "hooks": {event: [{"matcher": "Bash", "hooks": [own]} if entries.nested else own]}}
    if entries.version is not None:
        value["version"] = entries.version
    text = json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8", newline=ends)
    before = file.read_bytes()
    file.chmod(0o640)
    assert run("install", name) == 0
    installed = file.read_bytes()
    assert installed.count(ends.encode()) == installed.count(b"\n")
    changed = json.loads(file.read_text(encoding="utf-8"))
    assert {key: changed[key] for key in THEIRS} == THEIRS
    assert changed["hooks"][event][0] == value["hooks"][event][0]
    assert file.stat().st_mode & 0o777 == 0o640
    assert run("install", name, "--fail-mode", "open") == 0
    assert file.read_bytes() != installed
    assert file.with_name(file.name + BACKUP).read_bytes() == before
    assert run("uninstall", name) == 0
    assert file.with_name(file.name + BACKUP).read_bytes() == before
    assert file.read_bytes() == before
    assert run("uninstall", name) == 0


@every_host
def test_our_entry_in_a_group_of_theirs_goes_alone(home: Path, name: str) -> None:
    entries = host(name).entries
    event = next(iter(entries.decides))
    ours = {"type": "command", entries.command: "governance hook " + name}
    own = {"type": "command", entries.command: "./mine.sh"}
    listed = [{"matcher": "Bash", "hooks": [ours, own]}] if entries.nested else [ours, own]
    file = file_of(home, name)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"hooks": {event: listed}}))
    assert run("uninstall", name) == 0
    left = json.loads(file.read_text())["hooks"][event]
    assert left == ([{"matcher": "Bash", "hooks": [own]}] if entries.nested else [own])


@every_host
@pytest.mark.parametrize(
    "text", ["{", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', "[]", '{"a": 1, "a": 2}', "\ufffe\x00"]
)
def test_a_file_that_is_not_understood_is_left_alone(home: Path, name: str, text: str, capsys: Any) -> None:
    file = file_of(home, name)
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    for action in ("install", "uninstall"):
        assert run(action, name) == 2
        assert "nothing was written" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == text
    assert sorted(each.name for each in file.parent.iterdir()) == [file.name]


def test_a_link_stays_one_and_a_project_has_settings_of_its_own(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}\n")
    link = home / ".claude" / "settings.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    assert run("install", "claude-code") == 0
    assert link.is_symlink()
    assert installed(target)
    assert run("install", "cursor", "--project") == 0
    assert installed(tmp_path / "project" / ".cursor" / "hooks.json")
    assert not file_of(home, "cursor").exists()


def test_a_host_s_own_folder_counts(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    assert run("install", "codex") == 0
    assert installed(tmp_path / "codex" / "hooks.json")


def test_the_host_may_call_the_service_itself(home: Path, capsys: Any) -> None:
    assert run("install", "claude-code", "--http", "--agent-id", "a b") == 0
    event, entry = installed(file_of(home, "claude-code"))[0]
    assert event == "PreToolUse"
    assert entry == {
        "type": "http",
        "onFailure": "block",
        "url": "http://127.0.0.1:8700/v1/hooks/claude-code?wait=240&agentId=a%20b",
        "headers": {"X-API-Key": "$GOVERNANCE_API_KEY"},
        "allowedEnvVars": ["GOVERNANCE_API_KEY"],
        "timeout": 300,
    }
    assert run("install", "codex", "--http") == 2
    assert run("install", "copilot", "--http") == 1
    assert "https" in capsys.readouterr().err
    assert run("install", "copilot", "--http", "--url", "https://governance.example") == 0


def test_a_hook_needs_a_key_and_says_where_it_may_be(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delenv("GOVERNANCE_API_KEY")
    assert run("install", "codex") == 2
    assert "governance keys add" in capsys.readouterr().err
    assert not file_of(home, "codex").exists() or not installed(file_of(home, "codex"))
    own = home.parent / "my-key"
    own.write_text(KEY)
    assert run("install", "codex", "--key-file", str(own)) == 0
    assert own.stat().st_mode & 0o777 == 0o600
    for words in (["--timeout", "5"], ["--url", "127.0.0.1:8700"]):
        assert run("install", "codex", "--key-file", str(own), *words) == 2


@pytest.mark.parametrize("agent", ['"mailer"', "mailer # of invoices", "mailer\r"])
def test_an_agent_as_a_file_of_settings_says_it_is_refused(
    home: Path, agent: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """By the hook, too: a halt of `mailer` would not stop it."""
    monkeypatch.setenv("GOVERNANCE_AGENT_ID", agent)
    assert run("install", "codex") == 2
    assert "which only a shell takes away; remove them" in capsys.readouterr().err
    assert not file_of(home, "codex").exists()
    with pytest.raises(SetupError, match="remove them from --agent-id or GOVERNANCE_AGENT_ID"):
        setup([], {"GOVERNANCE_AGENT_ID": agent, "GOVERNANCE_API_KEY": KEY}, 10)


@pytest.mark.parametrize(
    "url", ["http://", "http://:8700", "https:///x", "http://${HOST}:8700", "http://<host>"]
)
def test_an_address_that_names_no_host_is_refused(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """By the hook, too: in the fail mode `open` the service would be away for ever."""
    monkeypatch.setenv("GOVERNANCE_URL", url)
    assert run("install", "codex", "--fail-mode", "open") == 2
    assert "names no host" in capsys.readouterr().err
    assert not file_of(home, "codex").exists()
    with pytest.raises(SetupError, match="names no host"):
        setup(["--fail-mode", "open"], {"GOVERNANCE_URL": url, "GOVERNANCE_API_KEY": KEY}, 10)
    secret = "http://user:a$1{b}@service:8700"
    assert setup([], {"GOVERNANCE_URL": secret, "GOVERNANCE_API_KEY": KEY}, 10).url == secret


def test_another_key_for_all_projects_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that were installed before speak with it from then on, maybe for another organisation."""
    for _ in range(2):
        assert run("install", "codex") == 0
        assert "another API key" not in capsys.readouterr().err
    monkeypatch.setenv("GOVERNANCE_API_KEY", "agk_of_another_project")
    assert run("install", "codex", "--project") == 0
    assert "it held another API key" in capsys.readouterr().err
