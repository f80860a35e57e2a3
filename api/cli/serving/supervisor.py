"""The process that keeps the workers of a service running."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from dataclasses import dataclass
from socket import socket
from typing import Final

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from api.cli.serving.hang_up import HangUp

log = logging.getLogger("governance")

BEGINNING: Final = 120
"""Seconds that a worker has until it serves. Where many processes share few processors, Python alone takes
longer to begin than a worker may be silent; who is killed for that begins again, which takes more."""
PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds until another one that ends while it begins is replaced: twice as many each time."""


@dataclass
class _Worker:
    """What is known of one."""

    asked: float
    """When it was first asked whether it serves (monotonic)."""
    serves: bool = False
    owed: bool = False
    """It gets a SIGHUP as soon as it serves: before that it would end by it."""


class Supervisor(Multiprocess):
    """Puts a new worker in the place of one that ends or does not answer, and passes SIGHUP on to all instead
    of starting them anew."""

    def __init__(self, config: Config, sockets: list[socket], on_hang_up: HangUp | None) -> None:
        super().__init__(config, sockets)
        self._on_hang_up = on_hang_up
        self._workers: dict[Process, _Worker] = {}
        self._pause = PAUSE
        """How long the next one that ends while it begins is left."""
        self._resumes = 0.0
        """Until when that is (monotonic)."""

    def handle_hup(self) -> None:
        assert self._on_hang_up is not None
        if self._on_hang_up.is_end():
            self.should_exit.set()
            return
        self._on_hang_up.reopen()
        for process in self.processes:
            worker = self._worker(process)
            worker.owed = True
            if worker.serves:
                self._hang_up(process, worker)

    def _worker(self, process: Process) -> _Worker:
        if process not in self._workers:
            self._workers[process] = _Worker(time.monotonic())
            with contextlib.suppress(OSError):
                process.parent_conn.send(b"ping")
        return self._workers[process]

    @staticmethod
    def _hang_up(process: Process, worker: _Worker) -> None:
        worker.owed = False
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        before = [(process, process.exitcode) for process in self.processes]
        left = [process for process in self.processes if self._is_left(process, self._worker(process))]
        self.processes = [process for process in self.processes if process not in left]
        try:
            super().keep_subprocess_alive()
        finally:
            self.processes += left
        replaced = [(process, code) for process, code in before if process not in self.processes]
        ended = {process: self._workers.pop(process) for process, _ in replaced}
        for process, code in replaced:
            log.error("worker %s %s; a new one takes its place", process.pid, self._end(ended[process], code))
        if not all(worker.serves for worker in ended.values()):
            self._resumes = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _is_left(self, process: Process, worker: _Worker) -> bool:
        """Whether it has still time to say that it serves, or is not replaced yet."""
        if worker.serves:
            return False
        if process.exitcode is not None:
            return process.exitcode != STARTUP_FAILURE and time.monotonic() < self._resumes
        try:
            if process.parent_conn.poll(0):
                if process.parent_conn.recv():
                    worker.serves, self._pause = True, PAUSE
                    if worker.owed:
                        self._hang_up(process, worker)
                    return False
                process.parent_conn.send(b"ping")  # only once it has denied that
        except (OSError, EOFError):
            return False
        return time.monotonic() - worker.asked < BEGINNING

    def _end(self, worker: _Worker, code: int | None) -> str:
        if code is None and not worker.serves:
            return f"did not begin within {BEGINNING} seconds, and was killed"
        if code is None:
            return f"did not answer for {self.config.timeout_worker_healthcheck} seconds, and was killed"
        if code >= 0:
            return f"ended by itself with {code}"
        name = signal.Signals(-code).name
        return f"was killed with {name}" + (", as where memory runs out" if -code == signal.SIGKILL else "")

    @property
    def was_refused(self) -> bool:
        """Whether a worker could not start."""
        return any(process.exitcode == STARTUP_FAILURE for process in self.processes)
