"""`governance doctor`: what it finds when all is well, and with each thing that is not."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from api import cli
from api.cli.commands import doctor
from api.hosts import codex
from api.hosts.table import NAMES, host
from tests.harness.receiver import Certificate, Receiver
from tests.harness.running_service import Served


@pytest.fixture
def home(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GOVERNANCE_AGENT_ID", "XDG_CONFIG_HOME", *(host(n).entries.home for n in NAMES)):
        monkeypatch.delenv(name or "GOVERNANCE_AGENT_ID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GOVERNANCE_URL", f"http://127.0.0.1:{service.port}")
    monkeypatch.setenv("GOVERNANCE_API_KEY", service.api_key)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def found(capsys: Any, *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    capsys.readouterr()
    code = cli.main(["doctor", "--format", "json", *words])
    rows = json.loads(capsys.readouterr().out)
    return code, {row["what"]: (row["verdict"], row["text"]) for row in rows}


def test_all_is_well(home: Path, service: Served, capsys: Any) -> None:
    for name in NAMES:
        assert cli.main(["hook", "install", name]) == 0
    code, rows = found(capsys)
    assert code == 0, rows
    assert {what: verdict for what, (verdict, _) in rows.items()} == {
        "service": "ok",
        "policies": "ok",
        "clock": "ok",
        "API key": "note",
        **dict.fromkeys(NAMES, "ok"),
        "codex": "note",
    }
    assert "bound to no agent" in rows["API key"][1]
    assert all("the gate is live" in rows[name][1] for name in NAMES if name != "codex")
    assert cli.main(["doctor", "cursor"]) == 0
    assert "the gate is live" in capsys.readouterr().out
    assert service.call("agent", "GET", "/v1/runs/governance-doctor").status_code == 404


def test_a_hook_that_codex_was_not_told_to_trust_is_not_called_live(home: Path, capsys: Any) -> None:
    assert cli.main(["hook", "install", "codex"]) == 0
    verdict, text = found(capsys, "codex")[1]["codex"]
    assert verdict == "note" and "skips it" in text and "/hooks" in text
    file = home / ".codex" / "hooks.json"
    group = json.loads(file.read_text())["hooks"]["PreToolUse"][0]
    entry = group["hooks"][0]
    digest = codex._digest(group, entry)
    trusted = f'[hooks.state."{file}:pre_tool_use:0:0"]\ntrusted_hash = "{digest}"\n'
    (home / ".codex" / "config.toml").write_text(trusted)
    assert found(capsys, "codex")[1]["codex"][0] == "ok"
    (home / ".codex" / "config.toml").write_text(f"{trusted}enabled = false\n")
    assert found(capsys, "codex")[1]["codex"][0] == "note"
    (home / ".codex" / "config.toml").write_text(trusted)
    assert cli.main(["hook", "install", "codex", "--timeout", "200"]) == 0
    assert found(capsys, "codex")[1]["codex"][0] == "note", "the entry is another one than was trusted"


@pytest.mark.parametrize("name", ["codex", "gemini-cli", "copilot"])
def test_hooks_of_a_project_need_a_trusted_folder(home: Path, capsys: Any, name: str) -> None:
    assert cli.main(["hook", "install", name, "--project"]) == 0
    verdict, text = found(capsys, name)[1][name]
    assert verdict == "note" and ("trusts" in text or name == "codex")


def test_the_digest_of_a_hook_is_that_of_codex() -> None:
    """As `hooks/list` of `codex app-server` 0.171.0 gives it."""
    entry = {"type": "command", "command": "true", "timeout": 300}
    assert (
        codex._digest({"hooks": [entry]}, entry)
        == "sha256:28150fdb74b93730e9cbf5b62ba0350f6418a80992a93c7922ccf88084abbbee"
    )


def test_a_key_for_another_agent_is_found(home: Path, service: Served, capsys: Any, monkeypatch: Any) -> None:
    bound = service.credentials["bound agent"]["X-API-Key"]
    monkeypatch.setenv("GOVERNANCE_API_KEY", bound)
    assert cli.main(["hook", "install", "codex", "--agent-id", "mailer"]) == 0
    code, rows = found(capsys)
    assert code == 0, rows
    assert rows["API key"] == ("ok", "valid, bound to agent `mailer`")
    assert cli.main(["hook", "install", "codex", "--agent-id", "other"]) == 0
    code, rows = found(capsys)
    assert code == 1
    assert "bound to the agent `mailer`, and the hook speaks for `other`" in rows["codex"][1]


def test_hosts_keep_the_keys_of_their_own_agents(
    home: Path, service: Served, capsys: Any, monkeypatch: Any
) -> None:
    assert cli.main(["hook", "install", "claude-code"]) == 0
    monkeypatch.setenv("GOVERNANCE_API_KEY", service.credentials["bound agent"]["X-API-Key"])
    assert cli.main(["hook", "install", "codex"]) == 0
    monkeypatch.delenv("GOVERNANCE_API_KEY")
    assert "bound to no agent" in found(capsys, "claude-code")[1]["API key"][1]
    assert "bound to agent `mailer`" in found(capsys, "codex")[1]["API key"][1]


def test_a_revoked_key_and_no_hook_are_found(home: Path, capsys: Any, monkeypatch: Any) -> None:
    code, rows = found(capsys)
    assert code == 1
    assert rows["hooks"][0] == "BAD"
    assert "governance hook install" in rows["hooks"][1]
    code, rows = found(capsys, "cursor")
    assert "no hook is installed" in rows["cursor"][1]
    monkeypatch.setenv("GOVERNANCE_API_KEY", "agk_revoked")
    code, rows = found(capsys)
    assert rows["API key"][0] == "BAD"
    monkeypatch.delenv("GOVERNANCE_API_KEY")
    assert found(capsys)[1]["API key"][0] == "BAD"


def test_a_hook_that_was_changed_is_found(home: Path, capsys: Any) -> None:
    cases = (
        ("claude-code", '"block"', '"continue"', "`onFailure` must be"),
        ("cursor", "true", "false", "`failClosed` must be"),
        ("gemini-cli", "300000", "60000", "waits longer than it does"),
        ("copilot", "hook.py", "hooks.py", "was not denied by the service"),
        ("codex", "-I -S", "-c 0 -I", "was not denied by the service"),
    )
    for name, old, new, text in cases:
        assert cli.main(["hook", "install", name]) == 0
        file = home / host(name).entries.user
        if name == "copilot":  # not to be known as ours any more would be no hook at all
            old, new = "hook.py copilot", "hook.py nonsense"
        file.write_text(file.read_text().replace(old, new))
        code, rows = found(capsys, name)
        assert code == 1
        assert text in rows[name][1], rows
        assert cli.main(["hook", "uninstall", name]) == 0


def test_a_hook_without_its_interpreter_is_found(home: Path, capsys: Any) -> None:
    assert cli.main(["hook", "install", "codex"]) == 0
    file = home / host("codex").entries.user
    text = file.read_text()
    file.write_text(text.replace('"command": "/', '"command": "/nowhere/'))
    code, rows = found(capsys, "codex")
    assert code == 1
    assert "no program that is there" in rows["codex"][1]


def test_a_service_that_is_away_or_another_one_is_found(home: Path, capsys: Any, monkeypatch: Any) -> None:
    assert "does not answer" in found(capsys, "--url", "http://127.0.0.1:9")[1]["service"][1]
    for url in ("http://127.0.0.1:87OO", "http://a..b", "http://[::1"):
        assert "is no address" in found(capsys, "--url", url)[1]["service"][1]
    with Receiver() as other:
        assert found(capsys, "--url", f"http://{other.place}")[1]["service"][0] == "BAD"


def test_http_hooks_are_probed_too(home: Path, capsys: Any, monkeypatch: Any) -> None:
    assert cli.main(["hook", "install", "claude-code", "--http"]) == 0
    code, rows = found(capsys)
    assert code == 0, rows
    assert rows["claude-code"][0] == "ok"


def test_clocks_and_stale_policies() -> None:
    began = 1_769_851_800.0
    assert doctor._clock({"date": "Sat, 31 Jan 2026 09:30:05 GMT"}, began).verdict == "ok"
    assert doctor._clock({"date": "Sat, 31 Jan 2026 09:31:00 GMT"}, began).verdict == "BAD"
    assert doctor._clock({}, began).verdict == "note"
    stale = doctor._policies({"stale": True, "count": 3, "errors": ["wires.yaml: line 3: no"]})
    assert (stale.verdict, "line 3" in stale.text) == ("BAD", True)
    assert doctor._policies({"stale": False, "count": 0}).verdict == "note"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_before_a_service_that_is_away_is_told_from_a_wrong_address(
    home: Path, capsys: Any, status: int
) -> None:
    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_error(status)

        def do_POST(self) -> None:
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        code, rows = found(capsys, "--url", f"http://127.0.0.1:{proxy.server_port}")
        proxy.shutdown()
    assert code == 1
    assert f"a proxy that does not reach the service ({status})" in rows["service"][1]
    assert rows["API key"] == ("BAD", f"not checked, since the service did not answer ({status})")


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("claude-code", "home/.claude/settings.json", {"disableAllHooks": True}),
        ("claude-code", "project/.claude/settings.json", {"disableAllHooks": True}),
        ("claude-code", "project/.claude/settings.local.json", {"disableAllHooks": True}),
        ("gemini-cli", "home/.gemini/settings.json", {"hooksConfig": {"enabled": False}}),
        ("gemini-cli", "home/.gemini/settings.json", {"hooksConfig": {"disabled": ["governance"]}}),
        ("gemini-cli", "project/.gemini/settings.json", {"hooksConfig": {"enabled": False}}),
        ("copilot", "home/.copilot/hooks/governance.json", {"disableAllHooks": True}),
    ],
)
def test_a_host_whose_hooks_are_switched_off(
    home: Path, capsys: Any, name: str, file: str, said: dict[str, Any]
) -> None:
    """Seen with Claude Code 2.1.332, Gemini CLI 0.61.0 and Copilot 1.0.102: what was to be blocked ran."""
    assert cli.main(["hook", "install", name]) == 0
    settings = home.parent / file
    settings.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(settings.read_text()) if settings.exists() else {}
    settings.write_text(json.dumps({**before, **said}))
    code, rows = found(capsys, name)
    verdict, text = rows[name]
    assert (code, verdict) == (1, "BAD"), rows
    assert text.startswith(f"{settings}: `{next(iter(said))}") and "no call is asked about" in text


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("claude-code", "home/.claude/settings.json", '{"disableAllHooks": false}'),
        ("claude-code", "project/.claude/settings.local.json", "no JSON"),
        ("claude-code", "project/.claude/settings.local.json", ""),
        ("gemini-cli", "project/.gemini/settings.json", '{"hooksConfig": {"disabled": ["other"]}}'),
        ("gemini-cli", "project/.gemini/settings.json", '{"hooksConfig": []}'),
    ],
)
def test_settings_that_switch_nothing_of_ours_off(
    home: Path, capsys: Any, name: str, file: str, said: str
) -> None:
    settings = home.parent / file
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(said)
    assert cli.main(["hook", "install", name]) == 0
    assert found(capsys, name)[1][name][0] == "ok"


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_certificate_counts_as_it_does_for_hooks(
    home: Path, capsys: Any, monkeypatch: Any, scheme: str
) -> None:
    certificate = Certificate("127.0.0.1")
    with Receiver(tls=certificate) as receiver:
        url = f"{scheme}://127.0.0.1:{receiver.port}"
        assert "has a certificate that is not accepted" in found(capsys, "--url", url)[1]["service"][1]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
        assert "is not this service" in found(capsys, "--url", url)[1]["service"][1]


def test_tls_at_a_port_that_speaks_none(home: Path, service: Served, capsys: Any) -> None:
    text = found(capsys, "--url", f"https://127.0.0.1:{service.port}")[1]["service"][1]
    assert "makes no TLS connection" in text and "`http://`" in text
