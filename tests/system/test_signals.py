"""Signals that do not stop the service, sent to real processes: what they do, and that nothing is lost."""

from __future__ import annotations

import os
import pty
import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.harness.application import PASSWORD
from tests.harness.nodes import CLEAN, KEY, Anew, called, free_port, serve
from tests.harness.waiting import until

SETTINGS = {"GOVERNANCE_API_KEY": KEY, "GOVERNANCE_ADMIN_PASSWORD": PASSWORD}
ASKED = "the policy files are read anew, as asked"
POLICY = """apiVersion: governance/v1
kind: Policy
policyId: no-pay
name: No pay
action: block
enabled: true
matchConditions:
  - {field: toolName, operator: equals, value: pay}
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_reads_the_policies_anew_and_opens_the_log_anew(tmp_path: Path, workers: int) -> None:
    with serve(tmp_path, "--workers", str(workers), kind=Anew, **SETTINGS) as service:
        http = service.ready().http
        key = {"X-API-Key": KEY}
        assert http.post("/v1/events", headers=key, json=called(1)).json()["toolCallStatus"] == "allowed"
        login = {"email": "admin@localhost", "password": PASSWORD}
        token = http.post("/auth/login", json=login).json()["accessToken"]
        admin = {"Authorization": f"Bearer {token}"}
        until(lambda: len(http.get("/v1/nodes", headers=admin).json()) == workers)
        before, log = service.below(), tmp_path / "errors"
        log.rename(tmp_path / "errors.1")
        (tmp_path / "policies.d" / "policies" / "no-pay.yaml").write_text(POLICY)
        service.process.send_signal(signal.SIGHUP)
        # The log goes on under its name, in every process of the service.
        until(lambda: log.exists() and log.read_text().count(ASKED) == workers)
        assert ASKED not in (tmp_path / "errors.1").read_text()
        number = iter(range(2, 10_000))
        until(
            lambda: (
                http.post("/v1/events", headers=key, json=called(next(number))).json()["toolCallStatus"]
                == "blocked"
            )
        )
        assert service.below() == before, "no process was started anew"
        for other in (signal.SIGUSR1, signal.SIGUSR2):
            service.process.send_signal(other)
            for worker in service.below():
                os.kill(worker, other)
        assert http.post("/v1/events", headers=key, json=called("last")).status_code == 200
        assert service.below() == before and service.process.poll() is None
        assert service.stop() == 0
        assert "Traceback" not in service.errors


def test_a_log_that_cannot_be_opened_anew_goes_on_and_says_so(tmp_path: Path) -> None:
    with serve(tmp_path, kind=Anew, **SETTINGS) as service:
        service.ready()
        log, before = tmp_path / "errors", tmp_path / "errors.1"
        log.rename(before)
        log.mkdir()
        service.process.send_signal(signal.SIGHUP)
        until(lambda: ASKED in before.read_text())
        assert f"since `{log}` cannot be opened: Is a directory" in before.read_text()
        log.rmdir()
        service.process.send_signal(signal.SIGHUP)
        until(lambda: log.is_file() and ASKED in log.read_text())
        assert service.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminal_that_is_closed_ends_the_service(tmp_path: Path, workers: int) -> None:
    port = free_port()
    settings = {**SETTINGS, "GOVERNANCE_PORT": str(port), "GOVERNANCE_WORKERS": str(workers)}
    process, terminal = pty.fork()
    if not process:
        os.chdir(tmp_path)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have ignored it
        os.execve(sys.executable, [sys.executable, "-m", "api.cli", "serve"], CLEAN | settings)

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        until(answers)
        os.kill(process, signal.SIGHUP)  # its terminal is there: it goes on
        assert answers()
        os.close(terminal)
        until(lambda: os.waitpid(process, os.WNOHANG)[0] == process)
        assert not answers()
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
