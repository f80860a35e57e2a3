"""The process that keeps the workers of a service running."""

from __future__ import annotations

import logging
import os
import signal
from socket import socket
from typing import Final

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from api.cli.serving.hang_up import HangUp

log = logging.getLogger("governance")

READY: Final = 15
"""Seconds that a worker which has just been started has before it misses a SIGHUP."""


class Supervisor(Multiprocess):
    """Puts a new worker in the place of one that ends or does not answer, and passes SIGHUP on to all instead
    of starting them anew."""

    def __init__(self, config: Config, sockets: list[socket], on_hang_up: HangUp | None) -> None:
        super().__init__(config, sockets)
        self._on_hang_up = on_hang_up

    def handle_hup(self) -> None:
        assert self._on_hang_up is not None
        if self._on_hang_up.is_end():
            self.should_exit.set()
            return
        self._on_hang_up.reopen()
        for process in self.processes:
            if process.wait_until_ready(READY, self.should_exit):
                assert process.pid is not None
                os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        before = [(process, process.exitcode) for process in self.processes]
        super().keep_subprocess_alive()
        for process, code in before:
            if process not in self.processes:
                log.error("worker %s %s; a new one takes its place", process.pid, self._end(code))

    def _end(self, code: int | None) -> str:
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
