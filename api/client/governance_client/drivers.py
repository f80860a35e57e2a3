"""Who waits while a flow does: the thread that drives it, or the task. One connection pool for each.

Requests go to the service with the key and nothing else: no redirect is followed, and a service on this
machine is reached without the environment's proxies.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import socket
import ssl
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import httpx

from governance_client.client_key import KEY_HEADER
from governance_client.exchange import MOST_BYTES, ClientRequest, ClientResponse, Flow, Pause, T, Unreachable
from governance_client.settings import ClientSettings

LIMITS: Final = httpx.Limits(max_connections=None, keepalive_expiry=4.0)
"""As many connections as calls wait for people; idle ones end before the service ends them."""
MOST_IN_A_POOL: Final = 16
"""Requests; a pool looks at each of its connections for each of them, so that many share several pools."""
_FAILURES: Final = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)
_UNSENT: Final = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
"""What cannot be sent from here, whoever is there."""
_ENDED: Final = ("Server disconnected", "peer closed connection")
"""How httpx begins what it says of a peer that ends amid an answer; of any other it says what is no HTTP."""
_REFUSED_BY_PROXY: Final = re.compile(r"[1-4]\d\d\b")
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
_BROKE_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, TimeoutError)
TOO_SLOW: Final = "the answer takes too long"

C = TypeVar("C", httpx.Client, httpx.AsyncClient)


class _OfThread(threading.local):
    until: float = math.inf
    """When the request that this thread makes must have its answer, of the monotonic clock."""


_of_thread: Final = _OfThread()


def _watch(event: str, about: dict[str, Any]) -> None:
    """As httpcore's `trace`: whoever made a connection is told of it, and bounds what it takes altogether.
    Its own limits are for each few bytes, of which the head of an answer, and what comes before, has many."""
    if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
        stream = about["return_value"]
        stream.read, stream.write = partial(_in_time, stream.read), partial(_in_time, stream.write)


def _in_time(move: Callable[[Any, float | None], Any], what: Any, timeout: float | None = None) -> Any:
    left = _of_thread.until - time.monotonic()
    if left <= 0:
        raise httpx.ReadTimeout(TOO_SLOW)
    return move(what, left if timeout is None else min(left, timeout))


@dataclass(slots=True)
class _Pool(Generic[C]):
    client: C
    requests: int = 0


class _Pools(Generic[C]):
    """Connection pools, as many as are needed at once; the first ones are used first."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make: Callable[[], C] = make
        self._lock = threading.Lock()
        self._pools: list[_Pool[C]] = []

    @contextmanager
    def lease(self) -> Iterator[C]:
        """A pool for one request."""
        with self._lock:
            pool = next((each for each in self._pools if each.requests < MOST_IN_A_POOL), None)
            if pool is None:
                pool = _Pool(self._make())
                self._pools.append(pool)
            pool.requests += 1
        try:
            yield pool.client
        finally:
            with self._lock:
                pool.requests -= 1

    def emptied(self) -> list[C]:
        """All of them, to be closed; the next request makes a new one."""
        with self._lock:
            pools, self._pools = self._pools, []
        return [pool.client for pool in pools]


class ClientDriver:
    """See the module; one for a client, used from any thread and any event loop."""

    def __init__(self, settings: ClientSettings) -> None:
        options: dict[str, Any] = {
            "base_url": settings.url,
            "headers": {
                "X-API-Key": settings.api_key,
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
            },
            "limits": LIMITS,
            "trust_env": not settings.is_local,
            "follow_redirects": False,
            # Without TLS no certificates are read, which takes longer than all else here.
            "verify": httpx.create_ssl_context() if httpx.URL(settings.url).scheme != "http" else False,
        }
        if options["trust_env"]:
            _look_at_proxies(options)
        self._make_async = partial(httpx.AsyncClient, **options)
        self._pools = _Pools(partial(httpx.Client, **options))
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pools[httpx.AsyncClient]] = (
            weakref.WeakKeyDictionary()
        )

    # Threads --------------------------------------------------------------------------------------

    def run(self, flow: Flow[T]) -> T:
        """The flow's result; this thread waits."""
        resume, value = flow.send, None
        try:
            while True:
                step = resume(value)
                try:
                    resume, value = flow.send, self._perform(step)
                except Unreachable as error:
                    resume, value = flow.throw, error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            flow.close()

    def _perform(self, step: Any) -> Any:
        if isinstance(step, ClientRequest):
            return self._request(step)
        if isinstance(step, Pause):
            time.sleep(step.seconds)
        else:
            wait_for([step.future], timeout=max(step.seconds, 0))
        return None

    def _request(self, request: ClientRequest) -> ClientResponse:
        handled = sys.exc_info()[1]
        _of_thread.until = time.monotonic() + request.seconds
        told = {**_told(request), "extensions": {"trace": _watch}}
        try:
            with self._pools.lease() as client, client.stream(**told) as response:
                body = _Body(response, _of_thread.until)
                for chunk in response.iter_raw():
                    body.add(chunk)
        except _FAILURES as error:
            raise _unreachable(error, handled) from None
        finally:
            _of_thread.until = math.inf
        return body.whole()

    # Tasks ----------------------------------------------------------------------------------------

    async def run_async(self, flow: Flow[T]) -> T:
        """The flow's result; this task waits."""
        resume, value = flow.send, None
        try:
            while True:
                step = resume(value)
                try:
                    resume, value = flow.send, await self._perform_async(step)
                except Unreachable as error:
                    resume, value = flow.throw, error
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            flow.close()

    async def _perform_async(self, step: Any) -> Any:
        if isinstance(step, ClientRequest):
            return await self._request_async(step)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        else:
            await asyncio.wait([asyncio.wrap_future(step.future)], timeout=max(step.seconds, 0))
        return None

    async def _request_async(self, request: ClientRequest) -> ClientResponse:
        handled = sys.exc_info()[1]
        loop = asyncio.get_running_loop()
        pools = self._of_loops.get(loop)
        if pools is None:
            pools = self._of_loops[loop] = _Pools(self._make_async)
        until = time.monotonic() + request.seconds
        try:
            with pools.lease() as client:
                async with (
                    asyncio.timeout(request.seconds),
                    client.stream(**_told(request)) as response,
                ):
                    body = _Body(response, until)
                    async for chunk in response.aiter_raw():
                        body.add(chunk)
        except TimeoutError:
            raise Unreachable(TOO_SLOW) from None
        except _FAILURES as error:
            raise _unreachable(error, handled) from None
        return body.whole()

    # Both -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connections of threads."""
        for client in self._pools.emptied():
            client.close()

    async def close_async(self) -> None:
        """End those of this event loop, too."""
        pools = self._of_loops.get(asyncio.get_running_loop())
        for client in pools.emptied() if pools is not None else ():
            await client.aclose()
        self.close()


class _Body:
    """An answer on its way in: bounded in size and in time, however slowly it drips."""

    def __init__(self, response: httpx.Response, until: float) -> None:
        self._response, self._until = response, until
        self._content = bytearray()

    def add(self, chunk: bytes) -> None:
        self._content += chunk
        if len(self._content) > MOST_BYTES:
            raise Unreachable("the answer is too long")
        if time.monotonic() > self._until:
            raise Unreachable(TOO_SLOW)

    def whole(self) -> ClientResponse:
        response = self._response
        told = response.headers
        content, key_id = bytes(self._content), told.get(KEY_HEADER, "")
        return ClientResponse(response.status_code, content, told.get("Retry-After"), key_id)


def _told(request: ClientRequest) -> dict[str, Any]:
    seconds = request.seconds
    timeout = httpx.Timeout(seconds, connect=min(request.connect, seconds))
    return {"method": request.method, "url": request.path, "content": request.content, "timeout": timeout}


def _look_at_proxies(options: dict[str, Any]) -> None:
    """Raises ValueError for variables of the environment by which nobody could ever be reached."""
    try:
        httpx.Client(**options).close()
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        raise ValueError(
            "the proxies of the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, and `NO_PROXY`, which "
            f"takes no networks of IPv6) cannot be used: {error}"
        ) from None


def _unreachable(error: Exception, handled: BaseException | None) -> Unreachable:
    """`handled`: what the agent itself is about to handle while it asks."""
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    causes = list(_causes(error, handled))
    if _is_of_tls(causes):
        return Unreachable(f"no TLS comes about: {why}", away=False)
    if _is_without_descriptors(causes):
        return Unreachable(f"this process may open no more files: {why}", away=False)
    return Unreachable(why, away=not _stays(error))


def _is_of_tls(causes: Sequence[BaseException]) -> bool:
    """Whether it comes of what was said in the handshake, not of a connection that broke off."""
    first = next((each for each in causes if isinstance(each, ssl.SSLError)), None)
    return first is not None and not isinstance(first, _BROKE_OFF)


def _stays(error: Exception) -> bool:
    """Whether the service may well be there: this side cannot send what it was to send, a proxy refuses to
    pass it on, or whoever is at the address speaks no HTTP."""
    if isinstance(error, httpx.ProxyError):
        return _REFUSED_BY_PROXY.match(str(error)) is not None
    if isinstance(error, httpx.RemoteProtocolError):
        return not str(error).startswith(_ENDED)
    return isinstance(error, _UNSENT)


def _is_without_descriptors(causes: Sequence[BaseException]) -> bool:
    """Whether one is wanting now, too: who looks up a name without it is told that nobody knows that."""
    try:
        socket.socket().close()
    except OSError as error:
        causes = [*causes, error]
    return any(isinstance(each, OSError) and each.errno in _NO_DESCRIPTORS for each in causes)


def _causes(error: BaseException | None, handled: BaseException | None) -> Iterator[BaseException]:
    while error is not None and error is not handled:
        yield error
        error = error.__cause__ or error.__context__
