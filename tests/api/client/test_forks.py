"""Processes that an agent starts: what it has read counts in them, and their end tells what they have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from governance_client import Governance, core

from tests.api.client.conftest import Told, run_of
from tests.harness.nodes import CLEAN
from tests.harness.places import ROOT
from tests.harness.running_service import Served

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

FORKS = """
import os, sys
from governance_client import Governance, core
core.LINGER_SECONDS = 600.0  # nothing is told in the background
run = Governance.from_env().run("a task", run_id=sys.argv[1]).begin()
decision = run.check("fetch", {})
run.report("custom.note", {"text": "the output is not the only thing that waits"})
run.completed(decision, sys.argv[2].replace("NUL", chr(0)))
if child := os.fork():
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    run.end()  # which tells all of it once more
    os._exit(status)
print(run.check("send", {}).status, flush=True)
os._exit(0)
"""

IDLE = """
import os, sys, time
from governance_client import Governance, core
core.LINGER_SECONDS = 600.0
run = Governance.from_env().run("a task", run_id=sys.argv[1]).begin()
if os.fork() == 0:
    begun = time.monotonic()
    core._close_all()
    print(time.monotonic() - begun < 0.4, flush=True)
    os._exit(0)
os.wait()
os._exit(0)
"""

BUSY = """
import os, signal, sys, threading
from governance_client import Governance, core
from governance_client.decision import Question
core.LINGER_SECONDS = 600.0
run = Governance.from_env().run("a task", run_id=sys.argv[1]).begin()

def ask():
    run.report_start()
    asked = run.memory.calls.begin(Question(run.run_id, "list", "call", "{}"))
    run.memory.calls.end(asked, None)

def work():
    while True:
        ask()

def fork(*_):
    if (child := os.fork()) == 0:
        signal.alarm(20)
        ask()
        os._exit(0)
    ended.append(os.waitpid(child, 0)[1])

ended = []
if sys.argv[2] == "threads":
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    while len(ended) < 20:
        fork()
else:
    signal.signal(signal.SIGVTALRM, fork)
    while len(ended) < 60:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005)
        before = len(ended)
        while len(ended) == before:
            run.report("custom.note", {"text": "a"})
print(any(ended), flush=True)
os._exit(0)
"""

WORKERS = """
import multiprocessing, sys
from governance_client import Governance

def work(run_id):
    run = Governance.from_env().run(run_id=run_id)
    run.completed(run.check("list", {}), "done")

if __name__ == "__main__":
    method, run_id = sys.argv[1:]
    governance = Governance.from_env()
    worker = multiprocessing.get_context(method).Process(target=work, args=(run_id,))
    worker.start()
    worker.join()
"""


def environment(told: Told, **changes: Any) -> dict[str, str]:
    settings = told(**changes)
    return CLEAN | {
        "GOVERNANCE_API_KEY": settings.api_key,
        "GOVERNANCE_URL": settings.url,
        "GOVERNANCE_AGENT_ID": "payer",
        "GOVERNANCE_JOURNAL": str(settings.journal),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "api" / "client"))),
    }


def made(told: Told, *command: str, **changes: Any) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env=environment(told, **changes),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("output", ["a page", "a NUL page"])
def test_a_forked_child_is_decided_with_what_its_parent_has_read(
    told: Told, service: Served, output: str
) -> None:
    """However soon it comes: what the parent was about to tell is told by the child before it asks."""
    run_id = service.ids("run")
    assert made(told, "-c", FORKS, run_id, output) == "blocked"
    (call, _) = run_of(service, run_id)["toolCalls"]
    assert (call["completion"], call["flags"]) == ("completed", [])


def test_a_forked_child_that_asks_nothing_tells_nothing(told: Told, service: Served) -> None:
    """What waits is its parent's, and its end waits for nobody."""
    assert made(told, "-c", IDLE, service.ids("run"), port=9) == "True"


@pytest.mark.parametrize("busy", ["threads", "signals"])
def test_a_fork_finds_no_lock_that_nobody_lets_go(told: Told, service: Served, busy: str) -> None:
    """Whatever other threads do with the run, or was interrupted by the signal whose handler forks."""
    assert made(told, "-c", BUSY, service.ids("run"), busy, port=9) == "False"


def test_an_interrupted_fork_lets_go_what_it_holds_alone(told: Told) -> None:
    with Governance(told(port=9)) as governance:
        queue, forking = governance.core.queue, core._Forking()
        queue.hold()
        waiting = Thread(target=forking.in_parent)
        waiting.start()
        waiting.join()
        forking.before()
        forking.in_parent()
        free = Thread(target=lambda: found.append(queue._lock.acquire(blocking=False)))
        found: list[bool] = []
        free.start()
        free.join()
        assert found == [False], "it is still held by whoever held it before"
        queue.let_go()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_end_of_a_worker_sends_what_is_queued(
    told: Told, service: Served, method: str, tmp_path: Path
) -> None:
    """`multiprocessing` ends its processes without what Python does at the end of others."""
    program, run_id = tmp_path / "workers.py", service.ids("run")
    program.write_text(WORKERS)
    made(told, str(program), method, run_id)
    assert [each["outputPayload"] for each in run_of(service, run_id)["toolCalls"]] == ["done"]
