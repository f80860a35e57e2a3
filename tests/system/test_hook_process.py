"""The installed hook as a process, started as each host starts it: what it loads, every way it can die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.hosts import hook, journal
from api.hosts.installer import Wish
from api.hosts.table import NAMES, host
from tests.harness.agent_host import Ended, consequence, told
from tests.harness.policy_bodies import on_command
from tests.harness.receiver import Answer, Receiver
from tests.harness.running_service import Served

every_host = pytest.mark.parametrize("name", NAMES)
SECONDS = 60
HEAVY = {"argparse", "asyncio", "httpx", "msgspec", "rich", "schemas", "engine", "peewee", "starlette"}
KILLED_AT_ITS_DEADLINE_GOES_ON = {"codex", "gemini-cli", "copilot"}
"""These let a call through when they have killed its hook, and have no switch against it."""

HELD = on_command("Hold pushes", "require_approval", "git push")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("service"), [HELD]) as served:
        yield served


def command(name: str, folder: Path, url: str, key: str, **wish: Any) -> str:
    """What stands in the settings."""
    key_file = folder / "key"
    key_file.write_text(key)
    made = Wish(host(name), url, key_file, agent_id=f"agent of {name}", **wish)
    event = next(iter(host(name).entries.decides))
    return str(made.entry(event)[host(name).entries.command])


def start(line: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        line,
        shell=True,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[bytes], raw: bytes | None = None) -> Ended:
    output, error = process.communicate(raw, timeout=SECONDS)
    return Ended(output.decode(), process.returncode, error.decode())


@every_host
def test_a_call_is_decided_and_the_next_one_denied_once_the_service_is_gone(
    service: Served, tmp_path: Path, name: str
) -> None:
    line = command(name, tmp_path, f"http://127.0.0.1:{service.port}", service.api_key)
    raw = told(name, "call", session=f"p-{name}")
    assert consequence(name, ended(start(line, tmp_path), raw)).goes_ahead
    line = command(name, tmp_path, "http://127.0.0.1:9", service.api_key)
    assert not consequence(name, ended(start(line, tmp_path), told(name, "call"))).goes_ahead


@every_host
def test_a_hook_that_dies_denies(tmp_path: Path, name: str) -> None:
    """Its process alone is killed, or cannot start; the shell of the host's command is left to say so."""
    with Receiver(lambda request: Answer(delay=SECONDS)) as slow:
        line = command(name, tmp_path, f"http://{slow.place}", "agk_x")
        process = start(line, tmp_path)
        assert process.stdin is not None
        process.stdin.write(told(name, "call"))
        process.stdin.close()
        process.stdin = None
        slow.wait_for(1)
        (child,) = children(process.pid)
        os.kill(child, signal.SIGKILL)
        assert not consequence(name, ended(process), closed=False).goes_ahead
    for broken in (line.replace("hook.py", "gone.py"), line.replace(sys.executable, "/nowhere/python")):
        assert not consequence(
            name, ended(start(broken, tmp_path), told(name, "call")), closed=False
        ).goes_ahead


def children(pid: int) -> list[int]:
    """Of a shell, the hook."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found] or [pid]


@every_host
def test_a_hook_answers_before_its_host_gives_up(tmp_path: Path, name: str) -> None:
    """The service hangs, or drips; the deadline is the hook's own."""
    for answer in (Answer(delay=SECONDS), Answer(200, b"{" * 1_000, drip=0.2)):
        with Receiver([answer]) as slow:
            line = command(name, tmp_path, f"http://{slow.place}", "agk_x", timeout=2)
            began = time.monotonic()
            found = consequence(name, ended(start(line, tmp_path), told(name, "call")))
            assert not found.goes_ahead
            assert time.monotonic() - began < SECONDS


@every_host
def test_a_host_that_kills_its_hook_at_its_deadline(service: Served, tmp_path: Path, name: str) -> None:
    """The whole group is killed while the call waits for a person: the approval stays, and is found again."""
    session = f"killed-{name}"
    raw = told(name, "call", session=session, call="c-1", command="git push")
    line = command(name, tmp_path, f"http://127.0.0.1:{service.port}", service.api_key)
    process = start(line, tmp_path)
    threading.Thread(target=process.communicate, args=(raw,), daemon=True).start()
    approval_id = waiting(service, session)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(SECONDS)
    goes_on = consequence(name, Ended("", None)).goes_ahead
    assert goes_on == (name in KILLED_AT_ITS_DEADLINE_GOES_ON)
    assert service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve").status_code == 200
    again = told(name, "call", session=session, call="c-2", command="git push")
    assert consequence(name, ended(start(line, tmp_path), again)).goes_ahead
    calls = service.call("agent", "GET", f"/v1/runs/{session}").json()["toolCalls"]
    assert [call.get("approvalId") for call in calls] == [approval_id]


def waiting(service: Served, session: str) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        answer = service.call("agent", "GET", f"/v1/runs/{session}")
        if answer.status_code == 200 and (calls := answer.json()["toolCalls"]):
            return str(calls[0]["approvalId"])
        time.sleep(0.05)
    raise AssertionError("the call was never held")


def test_parallel_hooks_journal_every_call(service: Served, tmp_path: Path) -> None:
    """While the service is away, and hooks are killed: what went ahead is in the journal, and is told."""
    away = command("claude-code", tmp_path, "http://127.0.0.1:9", service.api_key, fail_mode="open")
    processes = []
    for number in range(12):
        process = start(away, tmp_path)
        assert process.stdin is not None
        process.stdin.write(
            told("claude-code", "call", session="crowd", call=f"c-{number}", command=f"{number}")
        )
        process.stdin.close()
        process.stdin = None
        processes.append(process)
    for process in processes[::3]:
        os.killpg(process.pid, signal.SIGKILL)
    results = [ended(process) for process in processes]
    ahead = {
        f"c-{number}"
        for number, each in enumerate(results)
        if each.code == 0 and consequence("claude-code", each).goes_ahead
    }
    assert len(ahead) >= 8
    back = command("claude-code", tmp_path, f"http://127.0.0.1:{service.port}", service.api_key)
    assert ended(start(back, tmp_path), told("claude-code", "call", session="crowd", call="last")).code == 0
    recorded = service.call("agent", "GET", "/v1/runs/crowd").json()["toolCalls"]
    assert ahead | {"last"} <= {call["toolCallId"] for call in recorded}


def test_the_hook_loads_nothing_heavy() -> None:
    script = Path(hook.__file__)
    words = [
        sys.executable,
        "-X",
        "importtime",
        "-I",
        "-S",
        str(script),
        "claude-code",
        "--url",
        "http://127.0.0.1:9",
    ]
    done = subprocess.run(
        words, input=told("claude-code", "call"), capture_output=True, env={}, timeout=SECONDS
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "api.hosts.link" in loaded
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    code = (
        "import sys; from api.cli import main; main(['hook', 'claude-code']);"
        " print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"{}", capture_output=True, timeout=SECONDS)
    loaded = {name.partition(".")[0] for name in done.stderr.decode().splitlines()[-1].split()}
    assert not HEAVY & loaded


STUCK = """
import runpy, socket, sys, time

def resolve(*names, **how):
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

socket.getaddrinfo = resolve
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def stuck(folder: Path, name: str, raw: bytes) -> Ended:
    """How a hook ends for which no name is resolved, as when the servers of names do not answer."""
    words = [hook.__file__, name, "--url", "http://governance.example", "--timeout", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GOVERNANCE_API_KEY": "agk_x"},
    )
    try:
        return ended(process, raw)
    finally:
        process.kill()
        process.wait()


@every_host
@pytest.mark.parametrize("kind", ["call", "unknown"])
def test_what_no_signal_ends_is_denied_in_time(tmp_path: Path, name: str, kind: str) -> None:
    raw = told(name, kind) if kind == "call" else b'{"session_id": "s-1", "hook_event_name": "Unknown"}'
    found = consequence(name, stuck(tmp_path, name, raw))
    assert not found.goes_ahead
    assert "it took too long" in found.text


@every_host
def test_what_became_of_a_call_is_kept_in_time(tmp_path: Path, name: str) -> None:
    """The next one may depend on it."""
    assert stuck(tmp_path, name, told(name, "result")).code == 0
    (entry,) = journal.waiting(tmp_path / ".local/state/governance/journal/hooks")
    assert entry["host"] == name
    assert not entry["decidedOffline"]
