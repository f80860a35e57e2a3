"""Real agent hosts with their hook, and a stand-in for their models: what runs, and what the model is told.

Only `make test-hosts` runs these: it installs the hosts from npm, 800 MB, at the versions whose inputs are
recorded in `cases/hosts`. Cursor has no package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.cli import main
from tests.harness.model_service import DONE, ModelService
from tests.harness.policy_bodies import on_command
from tests.harness.running_service import Served

pytestmark = [pytest.mark.slow, pytest.mark.hosts]

NPM = Path(sys.prefix) / "hosts" / "node_modules"
"""Where `make host-packages` installs them."""
SECONDS = 180
BLOCKED, HELD = "marker-blocked", "marker-held"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    policies = [
        on_command("No markers", "block", BLOCKED),
        on_command("Hold markers", "require_approval", HELD),
    ]
    with Served(tmp_path_factory.mktemp("service"), policies) as served:
        yield served


# How each is started without a person, an account, or the network ------------------------------------------

Start = Callable[[Path, str], tuple[list[str], dict[str, str]]]


def _claude_code(home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    words = [str(NPM / ".bin" / "claude"), "-p", "go", "--dangerously-skip-permissions"]
    told = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "x", "IS_SANDBOX": "1"}
    return words, {**told, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


def _codex(home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    provider = f'[model_providers.x]\nname = "x"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    config = home / ".codex" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f'model = "m"\nmodel_provider = "x"\n{provider}requires_openai_auth = false\n')
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return [str(NPM / ".bin" / "codex"), "exec", *flags, "--dangerously-bypass-hook-trust", "go"], {}


def _gemini_cli(home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    words = [str(NPM / ".bin" / "gemini"), "-p", "go", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"]
    return words, {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_SANDBOX": "false"}


def _copilot(home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    told = {"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": url, "COPILOT_PROVIDER_TYPE": "anthropic"}
    told |= {"COPILOT_MODEL": "claude-sonnet-4.5", "COPILOT_PROVIDER_API_KEY": "x"}
    return [str(NPM / ".bin" / "copilot"), "-p", "go", "--allow-all-tools"], told


HOSTS: dict[str, tuple[str, Start]] = {
    "claude-code": ("@anthropic-ai/claude-code", _claude_code),
    "codex": ("@openai/codex", _codex),
    "gemini-cli": ("@google/gemini-cli", _gemini_cli),
    "copilot": ("@github/copilot", _copilot),
}
every_host = pytest.mark.parametrize("name", HOSTS)


class Desk:
    """A home of somebody with one agent host, whose model wants to write a file."""

    def __init__(self, name: str, folder: Path, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        package, self._start = HOSTS[name]
        if not shutil.which("node") or not (NPM / package / "package.json").exists():
            pytest.fail(f"there is no {package}; `make host-packages` installs it (needs npm)")
        self.name, self.service, self.home = name, service, folder / "home"
        self.made = self.home / "project" / "made"
        (self.home / "project").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("GOVERNANCE_API_KEY", service.api_key)
        for each in ("GOVERNANCE_URL", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
            monkeypatch.delenv(each, raising=False)

    def run(self, marker: str, *, url: str = "", spoil: bool = False) -> str:
        """Everything that the model heard until the host was done."""
        with ModelService(f"echo {marker} > {self.made}") as model:
            words, told = self._start(self.home, model.url)
            where = url or f"http://127.0.0.1:{self.service.port}"
            agent_id = self.home.parent.name
            assert main(["hook", "install", self.name, "--url", where, "--agent-id", agent_id]) == 0
            if spoil:
                self._spoil()
            environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], **told}
            project = self.home / "project"
            done = subprocess.run(
                words,
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        assert spoil or DONE in done.stdout, (done.stdout, done.stderr)
        return "\n".join(model.heard)

    def _spoil(self) -> None:
        """The hook that decides, the first entry, is not there any more."""
        file = next(path for path in self.home.rglob("*.json") if "hook.py" in path.read_text())
        file.write_text(file.read_text().replace("hook.py", "gone.py", 1))

    @property
    def calls(self) -> list[dict[str, Any]]:
        runs = self.service.call("admin", "GET", f"/v1/runs?agentId={self.home.parent.name}").json()
        return [
            call
            for run in runs
            for call in self.service.call("admin", "GET", f"/v1/runs/{run['runId']}").json()["toolCalls"]
        ]


@pytest.fixture
def desk(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Desk]:
    return lambda name: Desk(name, tmp_path, service, monkeypatch)


@every_host
def test_a_blocked_call_does_not_run_and_the_model_reads_why(desk: Callable[[str], Desk], name: str) -> None:
    found = desk(name)
    heard = found.run(BLOCKED)
    assert not found.made.exists()
    assert "was refused by policy and must not be made" in heard
    assert [call["status"] for call in found.calls] == ["blocked"]


@every_host
def test_a_call_runs_once_a_person_has_approved_it(desk: Callable[[str], Desk], name: str) -> None:
    found = desk(name)
    person = threading.Thread(target=approve, args=(found,))
    person.start()
    found.run(HELD)
    person.join()
    assert found.made.read_text().strip() == HELD
    (call,) = found.calls
    assert (call["status"], call["completion"], call["flags"]) == ("allowed", "completed", [])


def approve(desk: Desk) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        waiting = [call for call in desk.calls if call["status"] == "awaiting_approval"]
        if waiting:
            path = f"/v1/approvals/{waiting[0]['approvalId']}/approve"
            assert desk.service.call("reviewer", "POST", path).status_code == 200
            return
        time.sleep(0.2)


@every_host
def test_nothing_runs_while_the_service_is_away(desk: Callable[[str], Desk], name: str) -> None:
    found = desk(name)
    heard = found.run("marker-away", url="http://127.0.0.1:9")
    assert not found.made.exists()
    assert "cannot be reached" in heard


@every_host
def test_nothing_runs_when_the_hook_is_not_there_any_more(desk: Callable[[str], Desk], name: str) -> None:
    found = desk(name)
    found.run("marker-first")
    assert found.made.exists()
    found.made.unlink()
    found.run("marker-second", spoil=True)
    assert not found.made.exists()
