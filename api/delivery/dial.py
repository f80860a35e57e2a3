"""One attempt over the network: resolve the name, check the addresses, dial, post, read some of the answer.

The check sits where a connection is dialled: the resolver's addresses are filtered by `address.refusal`, and
only an accepted address is handed to the socket, so a name that changes its mind (DNS rebinding) gains
nothing. No redirects, cookies, proxies, environment or decompression. Knows nothing of webhooks or tables.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import certifi

from api.delivery.address import place, refusal
from api.delivery.wire import Broken, Connection, Response, request

SECONDS: Final = 15.0
"""For one attempt, from the name to the end of the answer."""

MOST_KEPT: Final = 64
KEPT_SECONDS: Final = 5.0
MOST_DIALLED: Final = 4
"""Addresses of one name that are tried."""

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to IP addresses, best first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an attempt. `status` is None when no answer came; then `error` says why."""

    status: int | None = None
    body: str = ""
    error: str | None = None
    retry_after: str | None = None
    duration_ms: int = 0

    @property
    def acknowledged(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class AddressRefused(Exception):
    """Every address of the name is one that must not be dialled."""


class CannotConnect(Exception):
    """No accepted address could be dialled; the cause says why."""


class _Place(NamedTuple):
    scheme: str
    host: str
    port: int


class NameNotFound(Exception):
    """The name has no address."""


class SystemResolver:
    """The system's resolver on threads of its own, so that a slow name server holds up nobody else."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="resolve")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@cache
def trusted() -> ssl.SSLContext:
    """Certificates are checked against the usual authorities and the system's own."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class Sender:
    """Posts to receivers; one per process. `allowed` comes from `address.places`.

    Connections are kept for a few seconds, each for the scheme, host and port that it was dialled for.
    """

    def __init__(
        self,
        resolve: Resolver,
        allowed: frozenset[str],
        *,
        tls: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._resolve = resolve
        self._allowed = allowed
        self._tls = tls or trusted()
        self._seconds = seconds
        self._idle: dict[Connection, tuple[_Place, asyncio.TimerHandle]] = {}
        self._kept: dict[_Place, list[Connection]] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """One attempt; never raises for what a receiver or the network does."""
        started = time.monotonic()
        response = Response()
        error: str | None = None
        try:
            async with asyncio.timeout(self._seconds):
                await self._exchange(url, dict(headers), body, response)
        except Exception as caught:
            error = self._told(caught).encode("utf-8", "replace").decode()
        if response.status is not None:
            # The status line is the acknowledgement; what becomes of the body afterwards is not.
            redirect = 300 <= response.status < 400
            error = "redirects are not followed; register the final address" if redirect else None
        text = response.body.decode("utf-8", "replace").replace("\0", "\ufffd")
        asked = next((value for name, value in response.headers if name == b"retry-after"), None)
        return Answer(
            response.status,
            text,
            error,
            None if asked is None else asked.decode("latin-1"),
            round((time.monotonic() - started) * 1000),
        )

    async def _exchange(self, url: str, headers: dict[str, str], body: bytes, response: Response) -> None:
        parts = urlsplit(url)
        host, usual = parts.hostname or "", 443 if parts.scheme == "https" else 80
        place_ = _Place(parts.scheme, host, parts.port or usual)
        named = f"[{host}]" if ":" in host else host
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = request(target, named if place_.port == usual else f"{named}:{place_.port}", headers, body)
        connection = self._take(place_)
        if connection is not None:
            try:
                await self._on(connection, place_, sent, response)
                return
            except (Broken, OSError):
                # The receiver let go of a kept connection just when it was used; that is no failure of its.
                if not connection.silent:
                    raise
        try:
            connection = await self._dial(place_)
        except OSError as error:
            raise CannotConnect from error
        await self._on(connection, place_, sent, response)

    async def _on(self, connection: Connection, place_: _Place, sent: bytes, response: Response) -> None:
        await connection.exchange(sent, response)
        if connection.reusable and len(self._idle) < MOST_KEPT:
            later = asyncio.get_running_loop().call_later(KEPT_SECONDS, connection.close)
            self._idle[connection] = (place_, later)
            self._kept.setdefault(place_, []).append(connection)
        else:
            connection.close()

    def _take(self, place_: _Place) -> Connection | None:
        """The connection to this place that was used last."""
        kept = self._kept.get(place_)
        if not kept:
            return None
        connection = kept[-1]
        self._forget(connection)
        return connection

    def _forget(self, connection: Connection) -> None:
        found = self._idle.pop(connection, None)
        if found is None:
            return
        place_, later = found
        later.cancel()
        self._kept[place_].remove(connection)
        if not self._kept[place_]:
            del self._kept[place_]

    async def _dial(self, place_: _Place) -> Connection:
        """INVARIANT: the socket gets an address that was accepted here, never a name to look up again."""
        addresses = await self._accepted(place_.host, place_.port)
        each = self._seconds / len(addresses)
        for address in addresses[:-1]:
            try:
                async with asyncio.timeout(each):
                    return await self._open(address, place_)
            except OSError:  # a timeout is one
                continue
        return await self._open(addresses[-1], place_)

    async def _open(self, address: str, place_: _Place) -> Connection:
        secure = place_.scheme == "https"
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._forget),
            address,
            place_.port,
            ssl=self._tls if secure else None,
            server_hostname=place_.host if secure else None,
        )
        return connection

    async def _accepted(self, host: str, port: int) -> Sequence[str]:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise NameNotFound(host) from error
        if not found:
            raise NameNotFound(host)
        if place(host, port) in self._allowed:
            return found[:MOST_DIALLED]
        refusals = {address: refusal(address) for address in found}
        accepted = [address for address in found if refusals[address] is None]
        if not accepted:
            raise AddressRefused(next(why for why in refusals.values() if why is not None))
        return accepted[:MOST_DIALLED]

    def _told(self, error: Exception) -> str:
        """The error in words for the delivery record."""
        match error:
            case AddressRefused():
                return f"refused: {error}"
            case NameNotFound():
                return f"the name `{error}` has no address"
            case CannotConnect():
                return f"cannot connect: {_reason(error)}"
            case TimeoutError():
                return f"no answer within {self._seconds:g} s"
            case Broken():
                return str(error)
            case OSError():
                return "the connection broke"
        return f"the attempt failed: {_reason(error)}"

    async def close(self) -> None:
        for connection in list(self._idle):
            connection.close()


def _reason(error: BaseException) -> str:
    """The deepest cause, shortened: `connection refused`, `certificate verify failed: ...`."""
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None and deeper is not cause:
        cause = deeper
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return (str(cause) or type(cause).__name__).lower()[:200]
