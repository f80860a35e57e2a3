"""The log of a serving process: which lines are written, and how; `log_lines.py` says in which form.

It must not know the service: what is worth a line is decided where it happens.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from api.cli.serving.log_lines import JsonLine, OneLine

MOST_WAITING: Final = 2_000
"""Lines that wait for whoever reads the log."""
PATIENCE: Final = 2.0
"""Seconds that the end of the process waits for them."""
TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Said(logging.Filter):
    """Drops the web server's words about a refused start: the reason has been said, in one line less."""

    WORDS: Final = ("Application startup failed", "failed to start, stopping the parent process")

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(words in record.getMessage() for words in self.WORDS)


class Repeats(logging.Filter):
    """Tells of requests that are no HTTP once a minute, with their count: nobody needs a key to send one."""

    WORDS: Final = "Invalid HTTP request"
    EVERY_SECONDS: Final = 60.0

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next = -math.inf
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if self.WORDS not in record.getMessage():
            return True
        if self._clock() < self._next:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.msg} (and {self._left_out:,} since this was said last)"
        self._next, self._left_out = self._clock() + self.EVERY_SECONDS, 0
        return True


class ErrorStream(logging.Handler):
    """Writes to the error stream on a thread of its own, so that nobody waits for whoever reads the log: a
    pager, a terminal that was stopped, a collector that hangs. Lines that find too many waiting are left out,
    and counted.

    It writes to the descriptor itself: at the end of the process nothing waits for a lock that a write that
    stands still would hold.
    """

    def __init__(self, descriptor: int = 2) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[str] = queue.Queue(MOST_WAITING)
        self._left_out = 0
        self._counting = threading.Lock()
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="log", daemon=True)
            self._writer.start()
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            with self._counting:
                self._left_out += 1

    def flush(self) -> None:
        """Wait until all is written, but not for a reader that does not read."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, PATIENCE)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            with self._counting:  # not the handler's own lock, which whoever waits in `flush` holds
                left_out, self._left_out = self._left_out, 0
            if left_out:
                line += "\n" + self.format(_left_out(left_out))
            with contextlib.suppress(OSError):  # whoever read it is gone
                _write_all(self._descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
            self._lines.task_done()


def _left_out(lines: int) -> logging.LogRecord:
    said = f"{lines:,} lines of the log were left out, since it was not read"
    return logging.makeLogRecord(
        {"name": "governance", "levelno": logging.WARNING, "levelname": "WARNING", "msg": said}
    )


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def configuration(log_format: str = "text", secrets: Sequence[str] = ()) -> dict[str, Any]:
    """For `logging.config`: all goes to the error stream, as text or as JSON, without these secrets."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "said": {"()": "api.cli.serving.server_log.Said"},
            "repeats": {"()": "api.cli.serving.server_log.Repeats"},
        },
        "formatters": {
            "text": {"()": partial(OneLine, TEXT, secrets)},
            "json": {"()": partial(JsonLine, secrets)},
        },
        "handlers": {"errors": {"()": "api.cli.serving.server_log.ErrorStream", "formatter": log_format}},
        "loggers": {
            "governance": {"handlers": ["errors"], "level": "INFO", "propagate": False},
            "uvicorn": {"handlers": ["errors"], "level": "WARNING", "propagate": False},
            "uvicorn.error": {"level": "WARNING", "filters": ["said", "repeats"]},
        },
        "root": {"handlers": ["errors"], "level": "WARNING"},
    }
