"""Lines in and out of this process and of a server that it starts; knows nothing of what stands in them.

The process's own input and output are read and written by threads, since they may be files, terminals or
pipes that others share, which an event loop cannot wait for without changing them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from api.mcp_proxy.message import RpcMessage

LONGEST_LINE: Final = 64 * 1024 * 1024
_CHUNK: Final = 256 * 1024
_CHUNKS_AHEAD: Final = 4
PATIENCE: Final = 5.0
"""Seconds that a server has to end after its input was closed, and again after SIGTERM."""


class LineTooLong(Exception):
    """More bytes than any message has, and no end of line."""


async def _lines(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """What is read, until that is nothing, cut into lines without looking twice at what had no end."""
    rest = bytearray()
    while chunk := await read():
        looked, found = len(rest), list[bytes]()
        rest += chunk
        while (end := rest.find(b"\n", looked)) >= 0:
            found.append(bytes(rest[:end]))
            del rest[: end + 1]
            looked = 0
        if len(rest) > LONGEST_LINE:
            raise LineTooLong(f"a message is longer than {LONGEST_LINE} bytes")
        for line in found:
            yield line
    if rest:
        yield bytes(rest)


class ByteInput:
    """A descriptor read by a thread, a few chunks ahead of who takes them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def lines(self) -> AsyncIterator[bytes]:
        chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS_AHEAD)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(chunks, loop), daemon=True).start()
        async for line in _lines(chunks.get):
            yield line

    def _read(self, chunks: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody reads any more
            while True:
                try:
                    chunk = os.read(self._descriptor, _CHUNK)
                except OSError:
                    chunk = b""
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
                if not chunk:
                    return


class ByteOutput:
    """A descriptor written by a thread, one line after the other. `write` returns once the line is
    written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None], asyncio.AbstractEventLoop]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._write, daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Raises OSError where nobody reads any more."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._jobs.put((line + b"\n", written, loop))
        await written

    def _write(self) -> None:
        while True:
            data, written, loop = self._jobs.get()
            failure: OSError | None = None
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, written, failure)


def _settle(written: asyncio.Future[None], failure: OSError | None) -> None:
    if written.done():
        return
    if failure is None:
        written.set_result(None)
    else:
        written.set_exception(failure)


class McpProcess:
    """An MCP server on its standard input and output, in a process group of its own.

    It inherits the environment but for what is the service's: the API key is no business of the server's.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._writing = asyncio.Lock()

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> McpProcess:
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={
                    name: value for name, value in environment.items() if not name.startswith("GOVERNANCE_")
                },
                start_new_session=True,
            )
        )

    async def send(self, message: RpcMessage) -> None:
        """Raises OSError where the server has gone."""
        assert self._process.stdin is not None
        async with self._writing:
            self._process.stdin.write(message.line + b"\n")
            await self._process.stdin.drain()

    def lines(self) -> AsyncIterator[bytes]:
        assert self._process.stdout is not None
        return _lines(partial(self._process.stdout.read, _CHUNK))

    async def end(self) -> int:
        """Waits for the server to end, urges it when it takes too long; its exit code, as a shell states
        it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for urge in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), PATIENCE)
                break
            self._signal(urge)
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    def interrupt(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
