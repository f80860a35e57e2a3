"""One serving process, as the web server sees it: how the application starts and stops.

A start that is refused is said in words instead of a stack trace. A stop lets long polls and streams go at
once, before the web server waits for requests under way.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TextIO

from api.cli.scarcity import scarcity
from api.cli.serving import hang_up
from api.cli.terminal import say_error

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger("governance")

MANY: Final = 1_000
"""Loading fewer documents than this takes no time worth a word."""


def application() -> ServerProcess:
    """What the web server calls in every process."""
    from api.app import create

    hang_up.installed()
    _stop_with_supervisor()
    forget_dead_workers()
    line = loading_line(sys.stderr, multiprocessing.current_process().name)
    return ServerProcess(create(line, prepared=multiprocessing.parent_process() is not None), line)


def _stop_with_supervisor() -> None:
    """A worker whose supervisor was killed, such as where memory ran out, would go on by itself, and hold the
    address against every new start: it stops as if it had been told to."""
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def wait() -> None:
        supervisor.join()
        log.warning("the process that started this worker has ended; so this one stops")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()


def forget_dead_workers() -> None:
    """What waited with workers that have ended, as their metrics say, does so no more; what they counted
    stays."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    for path in Path(folder).glob("gauge_live*.db") if folder and os.name != "nt" else ():
        with contextlib.suppress(PermissionError):
            try:
                os.kill(int(path.stem.rpartition("_")[2]), 0)
            except ProcessLookupError:
                path.unlink(missing_ok=True)


class LoadingLine:
    """One line of a terminal that says how far a long loading of policies is; short ones say nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        if total >= MANY:
            count = f"{done:,} of {total:,}" if done else f"{total:,}"
            text = f"  {what} policies: {count}"
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def loading_line(stream: TextIO, process: str) -> LoadingLine | None:
    """Only on a terminal, and only of the first worker: several would write over one another."""
    first = process == "MainProcess" or process.endswith("Process-1")
    return LoadingLine(stream) if first and stream.isatty() else None


class ServerProcess:
    """Stands in front of the application for the start and stop messages only."""

    def __init__(self, app: Any, line: LoadingLine | None = None) -> None:
        self.app = app
        self.line = line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return

        async def forward(message: Message) -> None:
            if self.line is not None and message["type"].startswith("lifespan.startup."):
                self.line.clear()
            if message["type"] == "lifespan.startup.complete":
                _settle_memory()
                _on_stop(lambda: self.app.context().hub.close())
                _on_hang_up(lambda: self.app.context().live.look_again())
            if message["type"] == "lifespan.startup.failed":
                return  # said below, in words
            await send(message)

        try:
            await self.app(scope, receive, forward)
        except Exception as error:
            if not refused(error):
                raise
            if self.line is not None:
                self.line.clear()
            say_error(f"refused to start: {reason(error)}")
            await send({"type": "lifespan.startup.failed", "message": ""})


def _settle_memory() -> None:
    """What was loaded at the start stays; the collector need not walk through it again and again. Events make
    hardly any cycles, so it may come by seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def refused(error: Exception) -> bool:
    """True for an error that tells a person what to mend; anything else is a fault of ours."""
    from api.database.errors import DatabaseUnavailable
    from api.settings import SettingsError
    from engine.errors import EngineError

    told = isinstance(error, (SettingsError, DatabaseUnavailable, EngineError))
    return told or scarcity(error) is not None


def reason(error: Exception) -> str:
    """Why it was refused, for whoever runs the service."""
    from api.database.errors import DatabaseUnavailable

    if isinstance(error, DatabaseUnavailable) and error.operator_message:
        return error.operator_message
    return scarcity(error) or str(error)


def _on_hang_up(look_again: Callable[[], None]) -> None:
    """Call this on the event loop when the process gets SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return
    import asyncio

    from api.loops import call_on

    if (handler := hang_up.installed()) is not None:
        loop = asyncio.get_running_loop()
        handler.look_again = lambda: call_on(loop, look_again)
        handler.tell = lambda text: call_on(loop, log.error, "%s", text)


def _on_stop(close_waits: Callable[[], None]) -> None:
    """Call this on the event loop as soon as the process is told to stop."""
    if threading.current_thread() is not threading.main_thread():
        return
    import asyncio

    loop = asyncio.get_running_loop()

    def close() -> None:
        with contextlib.suppress(RuntimeError):
            close_waits()

    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def handler(number: int, frame: FrameType | None, before: Any = before) -> None:
            loop.call_soon_threadsafe(close)
            if callable(before):
                before(number, frame)

        signal.signal(number, handler)
