"""An operator who has the page `deploy.md` and nothing else: from files of settings to a restored backup.

The commands are the page's own, with other folders, another address and no other user; what systemd would do
is done by the words of the unit. The proxy is nginx, with a certificate of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.guide import GUIDE, Block, blocks
from tests.harness.nodes import CLEAN, free_port
from tests.harness.places import ROOT, SHIPPED
from tests.harness.postgres import Postgres
from tests.harness.tls_proxy import text, tls_proxy

PAGE = list(blocks(GUIDE / "how-to" / "deploy.md"))
ADDRESS = "https://governance.example.com"
RESUME = f"export GOVERNANCE_URL={ADDRESS}\ngovernance resume --yes"
NO_USER = ("-o governance -g governance ", "runuser --user governance -- ")

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


def block(part: str) -> Block:
    """The one of the page that has this in it."""
    (found,) = (each for each in PAGE if part in each.text)
    return found


class Machine:
    """One whose `/etc`, `/var/lib` and `/opt` are folders, and that has a service of systemd."""

    def __init__(self, folder: Path, database: str, postgres: Postgres) -> None:
        self.folder, self.port, self.tls_port = folder, free_port(), 0
        self.environment = dict(CLEAN)
        programs = (str(Path(sys.executable).parent), str(postgres.programs), os.environ["PATH"])
        self.environment |= {"PATH": os.pathsep.join(programs), "HOME": str(folder)}
        self._places = {
            "/opt/governance/lib/python3*/site-packages/api/policies.d": str(SHIPPED),
            "/opt/governance/bin": str(Path(sys.executable).parent),
            "/etc/governance": str(folder / "etc"),
            "/var/lib/governance": str(folder / "lib"),
            "postgresql://governance:the-password-of-the-database@db.example.com/governance": database,
        }
        self._service: subprocess.Popen[bytes] | None = None

    def here(self, words: str) -> str:
        """The page's words on this machine."""
        for place, other in self._places.items():
            words = words.replace(place, other)
        for each in NO_USER:
            words = words.replace(each, "")
        return "".join(line for line in words.splitlines(True) if not line.startswith("chown "))

    def does(self, words: str) -> str:
        """What the page's commands print, with the settings of the service at hand."""
        load = block("while IFS= read").text.partition("cd /var")[0] if (self.folder / "etc").exists() else ""
        done = subprocess.run(
            [
                "bash",
                "-e",
                "-c",
                self.here(load + words).replace(ADDRESS, f"https://localhost:{self.tls_port}"),
            ],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    # What systemd does -----------------------------------------------------------------------------------

    def start(self) -> None:
        unit = self.here(text("governance.service"))
        said: dict[str, list[str]] = {}
        for name, value in re.findall(r"^(\w+)=(.*)$", unit, re.M):
            said.setdefault(name, []).append(value)
        told: dict[str, str] = {}
        for file in said["EnvironmentFile"]:
            told |= _settings_in(Path(file))
        with self.journal.open("ab") as journal:
            self._service = subprocess.Popen(
                said["ExecStart"][0].split(),
                cwd=said["WorkingDirectory"][0],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **told},
                stdout=journal,
                stderr=journal,
                umask=int(said["UMask"][0], 8),
            )
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self._service.poll() is None:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(self.journal.read_text("utf-8"))

    def stop(self) -> None:
        if self._service is not None:
            self._service.send_signal(signal.SIGTERM)
            assert self._service.wait(60) == 0
            self._service = None

    def kill(self) -> None:
        if self._service is not None:
            self._service.kill()
            self._service.wait()

    @property
    def journal(self) -> Path:
        return self.folder / "journal"


@pytest.fixture
def machine(postgres: Postgres, postgres_url: str, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, postgres_url, postgres)
    try:
        yield made
    finally:
        made.kill()


def test_the_page_leads_from_nothing_to_a_restored_backup(machine: Machine, tmp_path: Path) -> None:
    machine.does(block("cat > /etc/governance/secrets").text)
    settings = machine.here(text("settings")) + f"GOVERNANCE_PORT={machine.port}\n"
    (machine.folder / "etc" / "settings").write_text(settings, encoding="utf-8")
    machine.does(block("install -d -o governance -g governance -m 0700").text)
    machine.start()
    secrets = dict(
        line.split("=", 1) for line in (machine.folder / "etc" / "secrets").read_text().splitlines()
    )
    (tmp_path / "proxy").mkdir()
    with tls_proxy("nginx", tmp_path / "proxy", machine.port) as proxy:
        machine.tls_port = proxy.port
        machine.environment |= {
            "CURL_CA_BUNDLE": str(proxy.certificate),
            "SSL_CERT_FILE": str(proxy.certificate),
        }
        first = json.loads(machine.does(block('"eventId": "e-1"').text))
        assert first["toolCallStatus"] == "blocked" and "delete" in first["reason"]
        _sees_metrics(machine, proxy.http, secrets["GOVERNANCE_METRICS_TOKEN"])
        _halts(machine)
        _loses_and_restores(machine)
    machine.stop()
    _reads_the_log(machine, secrets)


def _settings_in(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())


def _sees_metrics(machine: Machine, outside: httpx.Client, token: str) -> None:
    assert outside.get("/metrics").status_code == 403
    inside = f"http://127.0.0.1:{machine.port}/metrics"
    assert httpx.get(inside).status_code == 401
    shown = httpx.get(inside, headers={"Authorization": f"Bearer {token}"}).text
    assert 'governance_decisions_total{status="blocked"} 1.0' in shown
    assert 'governance_halts{scope="all"} 0.0' in shown


def _call(machine: Machine, number: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(machine.does(_words_of_call(number)))
    return answer


def _words_of_call(number: str) -> str:
    words = block('"eventId": "e-1"').text.replace("rm -rf /", "ls")
    return words.replace('"e-1"', f'"{number}"').replace('"call-1"', f'"{number}"')


def _halts(machine: Machine) -> None:
    assert _call(machine, "before")["toolCallStatus"] == "allowed"
    login = "governance login --email admin@example.com"
    by_command = block(login).text
    assert by_command.count("governance halt --reason") == 1
    # Nobody sits at a terminal here.
    by_command = by_command.replace(
        login, f'echo "$GOVERNANCE_ADMIN_PASSWORD" | {login} --password-stdin'
    ).replace("halt --reason", "halt --yes --reason")
    assert "halted all agents" in machine.does(by_command)
    answer = _call(machine, "halted")
    assert answer["toolCallStatus"] == "blocked" and "an agent misbehaves" in answer["reason"]
    assert "ended the halt of all agents" in machine.does(RESUME)
    assert _call(machine, "resumed")["toolCallStatus"] == "allowed"
    assert (
        json.loads(machine.does(block("curl -s https://governance.example.com/v1/halt").text))["scope"]
        == "all"
    )
    assert _call(machine, "halted again")["toolCallStatus"] == "blocked"


def _loses_and_restores(machine: Machine) -> None:
    back_up, restore = (each.text for each in PAGE if "runs it with a PostgreSQL" in each.not_run)
    _until_signed(machine)
    machine.does(back_up)
    _call(machine, "after the backup")
    machine.stop()
    printed = machine.does(restore)
    assert "yes" in printed, printed
    machine.start()
    assert _call(machine, "new")["toolCallStatus"] == "blocked", "the halt of before is in force"
    assert "ended the halt of all agents" in machine.does(RESUME)
    again = machine.does(_words_of_call("resumed").replace("curl -s", "curl -s -D headers.txt"))
    assert json.loads(again)["toolCallStatus"] == "allowed"
    assert "idempotent-replay: true" in (machine.folder / "headers.txt").read_text("utf-8").lower()
    verified = machine.does(block("governance audit verify\n").text)
    assert "yes" in verified


def _until_signed(machine: Machine) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = json.loads(machine.does("governance audit verify --format json"))
        if "'unsigned': 0" in str(found):
            return
        time.sleep(0.2)
    raise AssertionError("the record was not signed")


def _reads_the_log(machine: Machine, secrets: dict[str, str]) -> None:
    said = machine.journal.read_text("utf-8")
    lines = [json.loads(line) for line in said.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    starts = [line for line in lines if line["message"].startswith("Agent Governance Service ")]
    assert [line["data"] for line in starts] == ["PostgreSQL"] * 2
    assert any("halt" in line["message"] and "admin@example.com" in line["message"] for line in lines)
    assert not [name for name, value in secrets.items() if value in said], "no secret is in the log"
