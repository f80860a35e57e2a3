"""One attempt over the network: resolve the name, check the addresses, dial, post, read some of the answer.

The check sits in the connection itself: the resolver's addresses are filtered by `address.refusal`, and only
an accepted address is handed to the socket, so a name that changes its mind (DNS rebinding) gains nothing.
No redirects, cookies, proxies, environment or decompression, and never more than the beginning of an answer.
Knows nothing of webhooks or tables.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Thread
from typing import Any, Final

import certifi
import httpcore

from api.loops import call_on, settle
from api.webhooks.address import place, refusal
from api.webhooks.bounded_answer import MOST_ANSWER_BYTES, AnswerTooLong, BoundedAnswer
from api.webhooks.connections import KEPT_SECONDS, Connections

log = logging.getLogger("governance")

SECONDS: Final = 15.0
"""For one attempt, from the name to the end of the answer."""

HEADERS: Final[Mapping[str, str]] = {
    "content-type": "application/json",
    "user-agent": "agent-governance-service",
    "accept-encoding": "identity",
}
"""Of every attempt, beside its own."""
MOST_BODY_BYTES: Final = 2048
MOST_DIALLED: Final = 4
"""Addresses of one name that are tried."""

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to IP addresses, best first."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """What came of an attempt. `status` is None when no answer came; then `error` says why, or else why the
    answer does not count."""

    status: int | None = None
    body: str = ""
    error: str | None = None
    retry_after: str | None = None
    duration_ms: int = 0

    @property
    def acknowledged(self) -> bool:
        return self.error is None and self.status is not None and 200 <= self.status < 300


class AddressRefused(Exception):
    """The name has no address, or only such as must not be dialled.

    Which of the two is for the log alone: who registers webhooks must not learn what names of the service's
    own network lead to.
    """


class SystemResolver:
    """The system's resolver, so many names at once, each on a thread of its own: a name server that is silent
    keeps it for half a minute, and holds up nobody else, nor the end of the process."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        await self._free.acquire()
        asked: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        try:
            Thread(target=self._ask, args=(asked, host, port), name="resolve", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise OSError(str(error)) from None
        return await asked

    def _ask(self, asked: asyncio.Future[Sequence[str]], host: str, port: int) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result: Any = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        except Exception as error:
            result = error
        call_on(asked.get_loop(), self._told, asked, result)

    def _told(self, asked: asyncio.Future[Sequence[str]], result: Any) -> None:
        self._free.release()
        settle(asked, result)


class Addresses:
    """Which addresses of a name may be dialled; `allowed` comes from `address.places`."""

    def __init__(self, resolve: Resolver, allowed: frozenset[str]) -> None:
        self._resolve = resolve
        self.allowed = allowed

    def is_listed(self, host: str, port: int) -> bool:
        """Whether `GOVERNANCE_WEBHOOK_ALLOW` names it."""
        return place(host, port) in self.allowed

    async def accepted(self, host: str, port: int) -> Sequence[str]:
        """One or more, best first. Raises AddressRefused."""
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):
            found = []
        listed = self.is_listed(host, port)
        refusals = {address: None if listed else refusal(address) for address in found}
        accepted = [address for address, why in refusals.items() if why is None]
        if not accepted:
            why = next(iter(refusals.values()), None) or "the name has no address"
            log.info("`%s` not called: %s", host, why)
            raise AddressRefused(host)
        return accepted[:MOST_DIALLED]


class _Guarded(httpcore.AsyncNetworkBackend):
    """Opens connections to accepted addresses only."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._dial = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._addresses.accepted(host, port)
        each = None if timeout is None else timeout / len(addresses)
        others = each, local_address, socket_options
        for address in addresses[:-1]:
            try:
                return BoundedAnswer(await self._dial.connect_tcp(address, port, *others))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return BoundedAnswer(await self._dial.connect_tcp(addresses[-1], port, *others))


@cache
def trusted() -> ssl.SSLContext:
    """Certificates are checked against the usual authorities and the system's own."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class Sender:
    """Posts to receivers; one per process. `allowed` comes from `address.places`."""

    def __init__(
        self,
        resolve: Resolver,
        allowed: frozenset[str],
        *,
        tls: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._seconds = seconds
        self.addresses = Addresses(resolve, allowed)
        self.tls = tls or trusted()
        self._connections = Connections(
            lambda: httpcore.AsyncConnectionPool(
                ssl_context=self.tls,
                max_connections=None,  # the worker bounds how many attempts run at once
                max_keepalive_connections=64,
                keepalive_expiry=KEPT_SECONDS,
                network_backend=_Guarded(self.addresses),
            )
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        """One attempt; never raises for what a receiver or the network does."""
        started = time.monotonic()
        answer = await self._bounded(url, {**HEADERS, **headers}, body)
        return replace(answer, duration_ms=round((time.monotonic() - started) * 1000))

    async def _bounded(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        parts = bytearray()
        status: int | None = None
        asked: str | None = None
        error: str | None = None
        try:
            async with asyncio.timeout(self._seconds):
                timeout = {"connect": self._seconds}
                sent = list(headers.items())
                async with (
                    self._connections.to(url) as pool,
                    pool.stream(
                        "POST", url, headers=sent, content=body, extensions={"timeout": timeout}
                    ) as response,
                ):
                    status = response.status
                    asked = _header(response.headers, b"retry-after")
                    async for part in response.aiter_stream():
                        parts += part
                        if len(parts) >= MOST_BODY_BYTES:
                            break
        except Exception as caught:
            error = self._described(caught).encode("utf-8", "replace").decode()
        if status is not None:
            # The status line is the acknowledgement; what becomes of the body afterwards is not.
            error = "redirects are not followed; register the final address" if 300 <= status < 400 else None
        text = parts[:MOST_BODY_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd")
        return PostResult(status, text, error, asked)

    def _described(self, error: Exception) -> str:
        """The text of the error in the delivery record."""
        match error:
            case AddressRefused():
                return f"`{error}` leads to no address that may be called; the log of the service says why"
            case TimeoutError() | httpcore.TimeoutException():
                return f"no answer within {self._seconds:g} s"
            case httpcore.ConnectError():
                return f"cannot connect{_reason(error)}"
            case httpcore.RemoteProtocolError() | httpcore.LocalProtocolError():
                return "the answer is not HTTP, or broke off"
            case AnswerTooLong():
                return f"the answer did not begin within {MOST_ANSWER_BYTES >> 10} KiB"
            case httpcore.NetworkError():
                return "the connection broke"
        log.warning("an attempt to deliver failed", exc_info=error)
        return "the attempt failed; the log of the service says why"

    async def close(self) -> None:
        await self._connections.close()


def _header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1")
    return None


def _reason(error: BaseException) -> str:
    """The deepest cause, if a receiver's owner can mend it and it tells nothing of this host."""
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None and deeper is not cause:
        cause = deeper
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f": the certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return ": no TLS connection was made"
    if isinstance(cause, OSError) and cause.errno:
        return f": {os.strerror(cause.errno).lower()}"
    return ""
