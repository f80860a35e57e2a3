"""`GET /metrics`: who may read it, and what it says of a service in which things happen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from api import metrics
from api.cli.serving.server_process import forget_dead_workers
from api.handlers import health
from api.health.exposition import exposition
from api.version import VERSION
from engine.model import SEVERITIES
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool
from tests.harness.watching import alerts, files, look

TOKEN = "token-of-whoever-collects-metrics"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("", 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (TOKEN, 401),
        ("Bearer é", 401),
    ],
)
async def test_a_token_that_is_set_is_asked_for(tmp_path: Path, header: str | None, status: int) -> None:
    async with Service(tmp_path, environment={"GOVERNANCE_METRICS_TOKEN": TOKEN}) as service:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        answer = await service.call(headers, "GET", "/metrics")
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["code"] == "unauthenticated" and TOKEN not in answer.text
        assert (await service.call("nobody", "GET", "/health")).status_code == 200


HOLD = on_tool("Hold payments", "require_approval", "pay")
BLOCK = {**HOLD, "name": "No launches", "action": "block"} | {
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "launch"}]
}


async def read(service: Service) -> dict[str, float]:
    """Each sample as it is written, without the name of ours that all have."""
    shown = (await service.call("nobody", "GET", "/metrics")).text
    lines = (line.removeprefix("governance_").rpartition(" ") for line in shown.splitlines())
    return {name: float(value) for name, _, value in lines if not name.startswith("#")}


async def test_what_waits_is_counted_with_the_age_of_the_oldest(tmp_path: Path) -> None:
    allow = {"GOVERNANCE_WEBHOOK_ALLOW": "127.0.0.1:9"}
    async with Service(tmp_path, [HOLD], environment=allow) as service:
        assert (await read(service))["approvals_pending_oldest_seconds"] == 0
        hook = {"url": "http://127.0.0.1:9/hook", "events": ["approval.requested"]}
        assert (await service.call("admin", "POST", "/v1/webhooks", hook)).status_code == 201
        for number in (1, 2):
            answer = await service.report(
                "agent", number, "tool.called", toolCallId=f"c{number}", toolName="pay"
            )
            assert answer.json()["toolCallStatus"] == "awaiting_approval"
            service.clock.advance(40)
        found = await read(service)
        assert found["approvals_pending"] == 2
        assert found["approvals_pending_oldest_seconds"] == 80
        assert found["webhook_deliveries_pending"] == 2
        assert found["webhook_deliveries_pending_oldest_seconds"] == 80
        assert (found["notifications_pending"], found["notifications_pending_oldest_seconds"]) == (0, 0)
        before = found['approval_seconds_bucket{le="60.0",status="approved"}']
        path = f"/v1/approvals/{answer.json()['approvalId']}/approve"
        assert (await service.call("reviewer", "POST", path)).status_code == 200
        found = await read(service)
        assert found['approval_seconds_bucket{le="60.0",status="approved"}'] == before + 1
        assert found["approvals_pending_oldest_seconds"] == 80, "the other one waits on"


async def test_decisions_are_counted_by_policy(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD, BLOCK]) as service:
        name = 'policy_decisions_total{organisation="default",policy="no-launches",status="blocked"}'
        before = (await read(service)).get(name, 0)
        for number, tool in enumerate(("launch", "pay", "gaze_upon", "launch")):
            await service.report("agent", number, "tool.called", toolCallId=f"c{number}", toolName=tool)
        await service.report("agent", 9, "tool.called", toolCallId="c0", toolName="launch")
        found = await read(service)
        assert found[name] == before + 2, "a call is counted when it is decided, not when it is repeated"
        assert not any("gaze_upon" in each for each in found), "no tool is named"


def test_policies_beyond_so_many_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_counted_policies", {})
    monkeypatch.setattr(metrics, "MOST_POLICIES", 2)
    decided = [("acme", f"policy-{number}", "blocked") for number in range(4)]
    before = _sample("", "")
    metrics.recorded([], [], decided * 2)
    assert [_sample("acme", policy) for _, policy, _ in decided] == [2, 2, 0, 0]
    assert _sample("", "") == before + 4


def _sample(organisation: str, policy: str) -> float:
    labels = {"organisation": organisation, "policy": policy, "status": "blocked"}
    metrics.totals()  # what is counted some at a time is counted before anybody is told
    return metrics.REGISTRY.get_sample_value("governance_policy_decisions_total", labels) or 0.0


async def test_alerts_are_counted_by_severity_until_somebody_acknowledges_them(tmp_path: Path) -> None:
    async with Service(tmp_path, [BLOCK], live=True, files=files("repeated-refusals")) as service:
        found = await read(service)
        assert [found[f'alerts_open{{severity="{each}"}}'] for each in SEVERITIES] == [0, 0, 0, 0]
        for number in range(15):
            await service.report("agent", number, "tool.called", toolCallId=f"c{number}", toolName="launch")
        await look(service)
        (alert,) = await alerts(service)
        name = f'alerts_open{{severity="{alert["severity"]}"}}'
        found = await read(service)
        assert found[name] == 1 == sum(found[each] for each in found if each.startswith("alerts_open"))
        path = f"/v1/alerts/{alert['alertId']}/acknowledge"
        assert (await service.call("reviewer", "POST", path, {})).status_code == 200
        assert (await read(service))[name] == 0


def test_of_several_workers_gauges_are_of_the_one_that_answers(tmp_path: Path) -> None:
    asked = (
        "from dataclasses import replace\n"
        "from api.health.exposition import NOTHING_STORED, exposition\n"
        "from api.metrics import COMMITS_WAITING\n"
        "COMMITS_WAITING.set(3)\n"
        "for halts in (1, 0):\n"
        "    stored = replace(NOTHING_STORED, halts={'all': halts})\n"
        "    shown = exposition({}, 1.0, stored, unindexed=0).decode()\n"
        "print('\\n'.join(line for line in shown.splitlines() if 'halts' in line or 'waiting' in line))\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):  # two workers, one after the other
        told = subprocess.run(
            [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
        ).stdout
        lines = [line for line in told.splitlines() if not line.startswith("#")]
        assert lines[-1:] == ['governance_halts{scope="all"} 0.0'] and "pid=" not in told
    assert lines[0] == "governance_git_commits_waiting 6.0", "both are thought to run"


@pytest.mark.parametrize("what", ["folder", "files", "damaged"])
def test_of_lost_files_of_workers_it_tells_what_one_process_counted(tmp_path: Path, what: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    asked = (
        "import logging, shutil, sys\n"
        "from pathlib import Path\n"
        "from api import metrics\n"
        "from api.health.exposition import exposition\n"
        "logging.basicConfig()\n"
        "shared = Path(sys.argv[1])\n"
        "metrics.EVENTS.labels('tool.called').inc()\n"
        "def told():\n"
        "    return exposition({}, 1.0, None, unindexed=0).decode()\n"
        "def lost():\n"
        "    assert 'governance_events_total{type=\"tool.called\"} 1.0' in told()\n"
        "lost()\n"
        "match sys.argv[2]:\n"
        "    case 'folder': shutil.rmtree(shared)\n"
        "    case 'files': [each.unlink() for each in shared.iterdir()]\n"
        "    case 'damaged': (shared / 'counter_1.db').touch()\n"
        "lost(), lost()\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared)}
    command = [sys.executable, "-c", asked, str(shared), what]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    assert said.count("PROMETHEUS_MULTIPROC_DIR, cannot be read") == 1, said


def test_a_new_worker_makes_the_folder_of_metrics_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(shared))
    worker = get_context("spawn").Process(target=metrics.catch_up)
    worker.start()
    worker.join(120)
    assert worker.exitcode == 0
    assert sizes(shared) == metrics.FILE_BYTES


def test_a_worker_whose_metrics_find_no_room_counts_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    worker = get_context("spawn").Process(target=metrics.catch_up)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (metrics.FILE_BYTES["counter"] // 2, before[1]))
    try:
        worker.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    worker.join(120)
    assert worker.exitcode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there no room is reserved")
def test_a_service_of_one_process_whose_metrics_find_no_room_counts_by_itself(tmp_path: Path) -> None:
    asked = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))\n"
        "from api import metrics\n"
        "metrics.requested('GET', '/health', 200)\n"
    )
    needed = metrics.FILE_BYTES["counter"]
    for most, made in ((needed // 2, {}), (needed, metrics.FILE_BYTES)):
        sharing(tmp_path, "-c", asked, str(most))
        assert sizes(tmp_path) == made
        assert all(each.stat().st_blocks * 512 >= each.stat().st_size for each in tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there no room is reserved")
def test_what_is_counted_is_written_in_place_on_btrfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is reserved is of no use where a page that is written gets a new place: a full disk ended both
    workers by SIGBUS."""
    told: list[tuple[Path, list[Path]]] = []

    def write_in_place(folder: Path) -> None:
        told.append((folder, list(folder.iterdir())))

    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(metrics, "write_in_place", write_in_place)
    metrics._reserve()
    assert told == [(tmp_path, [])]  # only what is made after that is


@pytest.mark.skipif(sys.platform == "win32", reason="there no room is reserved")
def test_the_files_of_metrics_never_grow(tmp_path: Path) -> None:
    """Where a mapped file has grown and the disk is full, to write there ends the process."""
    asked = (
        "from api import metrics\n"
        "from api.server.routes import ROUTES\n"
        "routes = sorted({route.path for route in ROUTES}, key=len)[-30:]\n"
        "for status in range(100, 600):\n"
        "    for route in routes:\n"
        "        metrics.requested('OPTIONS', route, status)\n"
        "        metrics.requested('whatever', route, status)\n"
        "for number in range(2 * metrics.MOST_POLICIES):\n"
        "    metrics.recorded([], [], [(f'{number:063}', f'{number:0250}', 'awaiting_approval')])\n"
    )
    sharing(tmp_path, "-c", asked)
    assert sizes(tmp_path) == metrics.FILE_BYTES


def sharing(shared: Path, *words: str) -> bytes:
    """What a process of Python says that counts in a shared folder, and ends well."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared)}
    done = subprocess.run([sys.executable, *words], env=environment, stdout=subprocess.PIPE, check=True)
    return done.stdout


def sizes(shared: Path) -> dict[str, int]:
    """Of the files of one process."""
    return {each.name.rpartition("_")[0]: each.stat().st_size for each in shared.iterdir()}


def test_a_command_counts_for_nobody(tmp_path: Path) -> None:
    """Its files would stay, and as those of root the service could not read them."""
    assert sharing(tmp_path, "-m", "api.cli", "openapi")
    assert list(tmp_path.iterdir()) == []


def test_what_waited_with_a_dead_worker_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    stay = [f"gauge_livesum_{os.getpid()}.db", f"counter_{ended.pid}.db"]
    for name in (*stay, f"gauge_livesum_{ended.pid}.db"):
        (tmp_path / name).touch()
    forget_dead_workers()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(stay)


async def test_halts_and_what_is_running(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        found = await read(service)
        assert [found[f'halts{{scope="{scope}"}}'] for scope in ("all", "agent", "run")] == [0, 0, 0]
        for _ in range(2):
            await service.call("admin", "POST", "/v1/halt", {"agentId": "mailer"})
        await service.call("other admin", "POST", "/v1/halt", {})
        found = await read(service)
        assert [found[f'halts{{scope="{scope}"}}'] for scope in ("all", "agent", "run")] == [1, 2, 0]
        assert found['database_info{kind="sqlite"}'] == found["database_up"] == 1
        (build,) = (name for name in found if name.startswith("build_info"))
        assert f'version="{VERSION}"' in build and 'python="3.' in build and 'revision="' in build
        assert "event_loop_lag_seconds_count" in found


def test_they_are_written_once_for_all_who_ask_meanwhile_and_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may ask, and writing them takes as long as fifty other answers."""
    threads: list[threading.Thread] = []

    def written(*of: Any, **also: Any) -> bytes:
        threads.append(threading.current_thread())
        return exposition(*of, **also)

    monkeypatch.setattr(health, "exposition", written)

    async def run() -> None:
        async with Service(tmp_path) as service:
            asked = [service.call("nobody", "GET", "/metrics") for _ in range(100)]
            answers = await asyncio.gather(*asked)
            assert {answer.status_code for answer in answers} == {200}
            assert 0 < len(threads) < 20 and threading.current_thread() not in threads
            metrics.recorded(["tool.called"], ["allowed"], [])
            before = len(threads)
            later = await service.call("nobody", "GET", "/metrics")
            assert len(threads) == before + 1 and later.text != answers[-1].text, "nothing is kept"

    asyncio.run(run())
