"""Processes that an agent starts: what it has read counts in them, and their end tells what they have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_end_of_a_worker_sends_what_is_queued(
    told: Told, service: Served, method: str, tmp_path: Path
) -> None:
    """`multiprocessing` ends its processes without what Python does at the end of others."""
    program, run_id = tmp_path / "workers.py", service.ids("run")
    program.write_text(WORKERS)
    made(told, str(program), method, run_id)
    assert [each["outputPayload"] for each in run_of(service, run_id)["toolCalls"]] == ["done"]
