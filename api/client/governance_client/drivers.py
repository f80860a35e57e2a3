"""Who waits while a flow does: the thread that drives it, or the task. One connection pool for each.

Requests go to the service with the key and nothing else: no redirect is followed, and a service on this
machine is reached without the environment's proxies.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from concurrent.futures import wait as wait_for
from typing import Any, Final

import httpx

from governance_client.exchange import MOST_BYTES, ClientRequest, ClientResponse, Flow, Pause, T, Unreachable
from governance_client.settings import ClientSettings

LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=4.0)
"""As many connections as calls wait for people; idle ones end before the service ends them."""
CONNECT_SECONDS: Final = 5.0
_FAILURES: Final = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


class ClientDriver:
    """See the module; one for a client, used from any thread and any event loop."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
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
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(**self._options())
        try:
            with self._client.stream(**_told(request)) as response:
                body = _Body(response, request.seconds)
                for chunk in response.iter_raw():
                    body.add(chunk)
        except _FAILURES as error:
            raise _unreachable(error) from None
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
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx.AsyncClient(**self._options())
        try:
            async with client.stream(**_told(request)) as response:
                body = _Body(response, request.seconds)
                async for chunk in response.aiter_raw():
                    body.add(chunk)
        except _FAILURES as error:
            raise _unreachable(error) from None
        return body.whole()

    # Both -----------------------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        return {
            "base_url": self._settings.url,
            "headers": {
                "X-API-Key": self._settings.api_key,
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
            },
            "limits": LIMITS,
            "trust_env": not self._settings.is_local,
            "follow_redirects": False,
        }

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
        self.close()


class _Body:
    """An answer on its way in: bounded in size and in time, however slowly it drips."""

    def __init__(self, response: httpx.Response, seconds: float) -> None:
        self._response = response
        self._until = time.monotonic() + seconds
        self._content = bytearray()

    def add(self, chunk: bytes) -> None:
        self._content += chunk
        if len(self._content) > MOST_BYTES:
            raise Unreachable("the answer is too long")
        if time.monotonic() > self._until:
            raise Unreachable("the answer takes too long")

    def whole(self) -> ClientResponse:
        response = self._response
        return ClientResponse(response.status_code, bytes(self._content), response.headers.get("Retry-After"))


def _told(request: ClientRequest) -> dict[str, Any]:
    seconds = request.seconds
    timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    return {"method": request.method, "url": request.path, "content": request.content, "timeout": timeout}


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
