"""The process that keeps the workers of a service running."""

from __future__ import annotations

import logging
import os
import signal
import time
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


class Supervisor(Multiprocess):
    """Puts a new worker in the place of one that ends or does not answer, and passes SIGHUP on to all instead
    of starting them anew."""

    def __init__(self, config: Config, sockets: list[socket], on_hang_up: HangUp | None) -> None:
        super().__init__(config, sockets)
        self._on_hang_up = on_hang_up
        self._begun: dict[Process, float] = {}
        """When a worker was first asked; those that have said since that they serve are in `_answered`."""
        self._answered: set[Process] = set()
        self._owed: set[Process] = set()
        """Those that get a SIGHUP as soon as they serve: before that it would end them."""

    def handle_hup(self) -> None:
        assert self._on_hang_up is not None
        if self._on_hang_up.is_end():
            self.should_exit.set()
            return
        self._on_hang_up.reopen()
        for process in self.processes:
            if process in self._answered:
                self._hang_up(process)
            else:
                self._owed.add(process)

    def _hang_up(self, process: Process) -> None:
        self._owed.discard(process)
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        before = [(process, process.exitcode) for process in self.processes]
        beginning = [process for process in self.processes if self._begins(process)]
        self.processes = [process for process in self.processes if process not in beginning]
        try:
            super().keep_subprocess_alive()
        finally:
            self.processes += beginning
        for process, code in before:
            if process not in self.processes:
                log.error("worker %s %s; a new one takes its place", process.pid, self._end(process, code))
                self._begun.pop(process, None)
                self._answered.discard(process)
                self._owed.discard(process)

    def _begins(self, process: Process) -> bool:
        """Whether it has still time to say that it serves; it is asked again only once it has denied that."""
        if process in self._answered or process.exitcode is not None:
            return False
        try:
            if process not in self._begun:
                self._begun[process] = time.monotonic()
                process.parent_conn.send(b"ping")
            if process.parent_conn.poll(0):
                if process.parent_conn.recv():
                    self._answered.add(process)
                    if process in self._owed:
                        self._hang_up(process)
                    return False
                process.parent_conn.send(b"ping")
        except (OSError, EOFError):
            return False
        return time.monotonic() - self._begun[process] < BEGINNING

    def _end(self, process: Process, code: int | None) -> str:
        if code is None and process not in self._answered:
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
