"""Commands of `governance` in processes of their own that need not load its modules: they are forked from one
that has.

    process = forked.start(["serve"], folder, environment, output, errors)

Each runs as `python -m api.cli` does, in a session, folder and environment of its own. What it costs to load
everything is what most tests with many nodes would otherwise cost; those of the start itself start it as
people do.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.harness.places import ROOT

LOADED = ("api.app", "api.bootstrap", "api.database.connection", "uvicorn.supervisors", "uvloop", "psycopg")


class Forked:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(64))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("governance", timeout or 0) from None
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: IO[bytes],
    errors: IO[bytes],
    given: IO[bytes] | None = None,
) -> Forked:
    """`given` is what it reads; nothing unless told."""
    with Path(os.devnull).open("rb") as nothing:
        files = (given or nothing, output, errors)
        return _start(words, folder, environment, [each.fileno() for each in files])


def run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    """What a command says and answers that ends within five minutes."""
    with contextlib.ExitStack() as stack:
        given, output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(text.encode())
        given.seek(0)
        code = start(words, folder, environment, output, errors, given).wait(300)
        output.seek(0)
        errors.seek(0)
        said, complained = output.read().decode(), errors.read().decode()
        return subprocess.CompletedProcess(list(words), code, said, complained)


def _start(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], files: Sequence[int]
) -> Forked:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_server())
    told = json.dumps({"words": list(words), "folder": str(folder), "environment": dict(environment)})
    socket.send_fds(connection, [told.encode()], files)
    return Forked(connection)


_servers: list[subprocess.Popen[bytes]] = []
"""Kept, since each ends with its input."""


@functools.cache
def _server() -> str:
    """Where the process listens from which the others are forked; it ends with this one."""
    folder = tempfile.mkdtemp(prefix="governance-")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.forked", f"{folder}/socket"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    _servers.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"loaded\n"
    return f"{folder}/socket"


def _serve(path: str) -> None:
    """Returns in each process that is forked, as the one that was asked for."""
    for name in LOADED:
        importlib.import_module(name)
    from tests.harness import cheap_passwords

    cheap_passwords.use()
    gc.collect()
    gc.freeze()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "who is forked would miss the other threads"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("loaded", flush=True)
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if 0 in ready:
                shutil.rmtree(Path(path).parent, ignore_errors=True)
                os._exit(0)
            connection, _ = listener.accept()
            if not os.fork():
                break
            connection.close()
    with connection:
        _attend(connection)


def _attend(connection: socket.socket) -> None:
    """Starts the process and tells how it ended; returns as that process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    begun, begins = os.pipe()
    if pid := os.fork():
        for each in (*files, begins):
            os.close(each)
        os.read(begun, 1)  # until it has a session of its own: signals are for that
        with contextlib.suppress(OSError):
            connection.send(b"%d" % pid)
            _, status = os.waitpid(pid, 0)
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.setsid()
    os.close(begins)
    os.close(begun)
    _become(json.loads(told), files)


def _become(told: Mapping[str, Any], files: Sequence[int]) -> None:
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    for target, number in enumerate(files):
        os.dup2(number, target)
        os.close(number)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    sys.argv[1:] = told["words"]


if __name__ == "__main__":
    _serve(sys.argv[1])
    runpy.run_module("api.cli", run_name="__main__", alter_sys=True)
