"""When a worker is replaced: the supervisor of real workers, which here begin slowly or stand still."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn import Config

from api.cli.serving import supervisor as module
from api.cli.serving.supervisor import Supervisor

SILENCE = 1
"""Seconds that one which has begun may be silent."""


class Beginning:
    """A worker that answers after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.parent_conn, self.child_conn = multiprocessing.Pipe()
        spawned = multiprocessing.get_context("fork")
        self.process = spawned.Process(target=self._run, args=(seconds,), daemon=True)
        self.process.start()

    def _run(self, seconds: float) -> None:
        time.sleep(seconds)
        while True:
            self.child_conn.recv()
            self.child_conn.send(True)

    def is_alive(self, timeout: float) -> bool:
        if not self.process.is_alive():
            return False
        self.parent_conn.send(b"ping")
        return self.parent_conn.poll(timeout) and bool(self.parent_conn.recv())

    def start(self) -> None:
        pass

    def kill(self) -> None:
        self.process.kill()

    def join(self) -> None:
        self.process.join()

    @property
    def pid(self) -> int | None:
        return self.process.pid

    @property
    def exitcode(self) -> int | None:
        return self.process.exitcode


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("uvicorn.supervisors.multiprocess.signal.signal", lambda *_: None)
    monkeypatch.setattr("uvicorn.supervisors.multiprocess.Process", lambda *_: Beginning(0))
    made: Any = Supervisor(Config("none", timeout_worker_healthcheck=SILENCE), [], None)
    yield made
    for process in made.processes:
        process.kill()


def until(met: Callable[[], bool], supervisor: Any) -> None:
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline
        supervisor.keep_subprocess_alive()
        time.sleep(0.05)


def serves(supervisor: Any, process: Beginning) -> bool:
    worker = supervisor._workers.get(process)
    return worker is not None and worker.serves


def test_a_worker_may_begin_slowly(supervisor: Any, caplog: pytest.LogCaptureFixture) -> None:
    slow, quick = Beginning(3 * SILENCE), Beginning(0)
    supervisor.processes = [slow, quick]
    until(lambda: all(serves(supervisor, each) for each in (slow, quick)), supervisor)
    assert set(supervisor.processes) == {slow, quick}
    os.kill(quick.pid or 0, signal.SIGSTOP)
    until(lambda: quick not in supervisor.processes, supervisor)
    assert slow in supervisor.processes and len(supervisor.processes) == 2
    assert f"worker {quick.pid} did not answer for 1 seconds, and was killed" in caplog.text


def test_one_that_never_begins_is_replaced(
    supervisor: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEGINNING", 1)
    supervisor.processes = [never := Beginning(600)]
    until(lambda: never not in supervisor.processes, supervisor)
    assert f"worker {never.pid} did not begin within 1 seconds, and was killed" in caplog.text
    assert never not in supervisor._workers


def test_one_that_ends_while_it_begins_is_replaced_at_once(supervisor: Any) -> None:
    supervisor.processes = [ended := Beginning(600)]
    supervisor.keep_subprocess_alive()
    ended.process.terminate()
    ended.process.join()
    supervisor.keep_subprocess_alive()
    assert ended not in supervisor.processes and len(supervisor.processes) == 1


def test_where_none_can_begin_they_are_tried_ever_more_seldom(
    supervisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, tried = [1000.0], []
    supervisor.processes = [Beginning(600)]
    with monkeypatch.context() as patched:
        patched.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        for _ in range(240):
            (process,) = supervisor.processes
            if process.exitcode is None:
                tried.append(now[0])
                process.process.kill()
                process.join()
            supervisor.keep_subprocess_alive()
            now[0] += 0.5
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[:8] == [0.5, 0.5, 1, 2, 4, 8, 16, 30] and set(pauses[8:]) == {30}, pauses
    now[0] = supervisor._resumes = 0.0
    until(lambda: serves(supervisor, supervisor.processes[0]), supervisor)
    supervisor.processes[0].process.kill()
    supervisor.processes[0].join()
    supervisor.keep_subprocess_alive()
    assert supervisor.processes[0].exitcode is None, "one that has served is replaced at once"


def test_one_that_begins_gets_the_hang_up_once_it_serves(
    supervisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    killed = SimpleNamespace(kill=lambda *given: told.append(given))
    monkeypatch.setattr(module, "os", killed)
    supervisor._on_hang_up = SimpleNamespace(is_end=lambda: False, reopen=list)
    supervisor.processes = [slow, quick] = Beginning(3 * SILENCE), Beginning(0)
    until(lambda: serves(supervisor, quick), supervisor)
    begun = time.monotonic()
    supervisor.handle_hup()  # and nobody is waited for: who is told to stop meanwhile stops
    assert time.monotonic() - begun < SILENCE
    assert told == [(quick.pid, signal.SIGHUP)]
    until(lambda: serves(supervisor, slow), supervisor)
    assert told[1:] == [(slow.pid, signal.SIGHUP)]
