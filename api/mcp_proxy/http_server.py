"""An MCP server behind Streamable HTTP, spoken to as if it were a process: messages in, lines out.

Speaks both generations, told apart by each message: with a session (`Mcp-Session-Id`, a standing stream,
cancellation as a message) up to 2025-11-25, without one since 2026-07-28 (`Mcp-Method`, `Mcp-Name` and
`Mcp-Param-*` headers, cancellation by closing the stream). Follows no redirect, since a message may carry
what the other place must not see. Verified against mcp 2.3.0 and @modelcontextprotocol/sdk 1.32.2.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import httpx

from api.mcp_proxy.event_stream import events
from api.mcp_proxy.message import INTERNAL_ERROR, RpcMessage, UnreadableMessage, error, key_of, made, read
from api.mcp_proxy.pipes import LONGEST_LINE, PATIENCE, LineTooLong
from api.mcp_proxy.tools.definitions import Definition, header_parameters

_SESSION: Final = "Mcp-Session-Id"
_VERSION: Final = "MCP-Protocol-Version"
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose subject stands in `Mcp-Name`, and the parameter it is."""
_PLAIN: Final = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_WRAPPED: Final = re.compile(r"=\?base64\?.*\?=")
_LARGEST_NOTHING: Final = 65_536
"""Bytes that are read of an answer which says nothing."""
_LINES_AHEAD: Final = 4
"""Which a server has said and nobody has taken yet; it says no more before that."""
_RESUMPTIONS: Final = 5
_RETRY_SECONDS: Final = 1.0

Warn = Callable[[str], None]


class McpEndpoint:
    """See the module. An error of the connection is the answer to the request that met it, not the end."""

    def __init__(
        self, url: str, http: httpx.AsyncClient, definition: Callable[[str], Definition], warn: Warn
    ) -> None:
        self._url = url
        self._http = http
        self._definition = definition
        self._warn = warn
        self._session: str | None = None
        self._version: str | None = None
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(_LINES_AHEAD)
        self._posts: dict[str, tuple[asyncio.Task[None], bool]] = {}
        """Requests under way by their key, and whether closing the stream is how they are cancelled."""
        self._listening: asyncio.Task[None] | None = None

    # ---- what a server is ------------------------------------------------------------------------------

    async def send(self, message: RpcMessage) -> None:
        if message.is_request:
            post = asyncio.create_task(self._request(message))
            self._posts[message.key] = (post, message.modern_version is not None)
            post.add_done_callback(lambda done: self._forget(message.key, done))
        elif not self._is_cancellation(message):
            await self._tell(message)

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            yield line

    async def end(self) -> int:
        """Lets what is asked be answered for a while, then closes the session."""
        posts = {post for post, _ in self._posts.values()}
        if posts:
            await asyncio.wait(posts, timeout=PATIENCE)
        tasks = [*posts, *([self._listening] if self._listening is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            with contextlib.suppress(httpx.HTTPError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._answered("DELETE", self._headers())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._lines.put(None)
        return 0

    def interrupt(self) -> None:
        for post, _ in self._posts.values():
            post.cancel()

    # ---- one message -----------------------------------------------------------------------------------

    def _forget(self, key: str, done: asyncio.Task[None]) -> None:
        if self._posts.get(key, (None, False))[0] is done:
            del self._posts[key]

    def _is_cancellation(self, message: RpcMessage) -> bool:
        """Whether this was a cancellation that is no message: then the stream of the request is closed."""
        if message.method != "notifications/cancelled":
            return False
        post, by_closing = self._posts.get(key_of(message.params.get("requestId")), (None, False))
        if post is not None and by_closing:
            post.cancel()
        return by_closing or (post is None and self._version is None)

    async def _tell(self, message: RpcMessage) -> None:
        """A notification, or the answer to a request of the server. What comes after it is not sent before
        it was taken, so a server that takes none must not keep the rest waiting."""
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._answered("POST", self._headers(message), message.line)
        except (httpx.HTTPError, TimeoutError) as failure:
            self._warn(f"`{message.method or 'an answer'}` did not reach the server: {_said(failure)}")
            return
        if answer.is_error:
            self._warn(f"the server answers `{message.method or 'an answer'}` with {answer.status_code}")
        elif message.method == "notifications/initialized" and self._session and self._listening is None:
            self._listening = asyncio.create_task(self._listen())

    async def _answered(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx.Response:
        """An answer of which the status counts; whatever else it says, without end perhaps, is not read."""
        async with self._http.stream(
            method, self._url, content=content, headers=_as_bytes(headers)
        ) as answer:
            size = 0
            _refuse_compressed(answer)
            async for chunk in answer.aiter_bytes():  # to its end, so that the connection is used again
                size += len(chunk)
                if size > _LARGEST_NOTHING:
                    break
            return answer

    async def _request(self, message: RpcMessage) -> None:
        try:
            headers = _as_bytes(self._headers(message))
            async with self._http.stream("POST", self._url, content=message.line, headers=headers) as answer:
                _refuse_compressed(answer)
                problem = await self._take(message, answer)
        except (httpx.HTTPError, UnicodeError) as failure:  # the latter of a header's name
            problem = f"the MCP server cannot be reached: {_said(failure)}"
        except LineTooLong as failure:
            problem = str(failure)
        if problem:
            await self._lines.put(error(message.id, INTERNAL_ERROR, problem))

    async def _take(self, message: RpcMessage, answer: httpx.Response) -> str | None:
        """Passes on what the server answers; a text when that is no answer."""
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if message.method == "initialize" and answer.is_success:
            self._session = answer.headers.get(_SESSION)
            if self._listening is not None:  # to the session of before, as far as it was not over
                self._listening.cancel()
                self._listening = None
        if kind == "text/event-stream" and answer.is_success:
            return await self._follow(message, answer)
        body = await _whole(answer)
        if kind == "application/json":
            if answer.is_success and await self._pass(message, body):
                return None
            with contextlib.suppress(UnreadableMessage):
                if "error" in (found := read(_one_line(body))).body:
                    await self._lines.put(made({"id": message.id, "error": found.body["error"]}).line)
                    return None
        if answer.status_code == httpx.codes.NOT_FOUND and self._session:
            return "the session has ended at the server; connect again"
        return f"the MCP server answers with {answer.status_code} {answer.reason_phrase} and no message"

    async def _pass(self, message: RpcMessage, data: bytes) -> bool:
        """One message of the server's; whether it is the answer to this one."""
        line = _one_line(data)
        await self._lines.put(line)
        with contextlib.suppress(UnreadableMessage):
            found = read(line)
            if found.is_response and found.key == message.key:
                if message.method == "initialize":
                    self._version = _agreed_version(found)
                return True
        return False

    # ---- streams ---------------------------------------------------------------------------------------

    async def _follow(self, message: RpcMessage, answer: httpx.Response) -> str | None:
        """Passes on a stream until the answer came, asking for its rest where it breaks and can be
        resumed."""
        last, wait = None, _RETRY_SECONDS
        for _ in range(_RESUMPTIONS):
            try:
                async for event in events(answer.aiter_bytes()):
                    last, wait = event.id or last, _bounded(event.retry, wait)
                    if event.data and await self._pass(message, event.data):
                        return None
            except httpx.HTTPError:
                pass
            finally:
                await answer.aclose()
            if last is None:
                break
            await asyncio.sleep(wait)
            answer = await self._open_stream(last)
            if not answer.is_success:
                await answer.aclose()
                break
        return "the MCP server ended the stream without an answer"

    async def _listen(self) -> None:
        """The standing stream of a session, for what the server says by itself."""
        last, wait, failures = None, _RETRY_SECONDS, 0
        while failures < _RESUMPTIONS:
            try:
                answer = await self._open_stream(last)
                try:
                    if answer.is_client_error or answer.is_redirect:
                        return  # it has none to offer
                    answer.raise_for_status()
                    async for event in events(answer.aiter_bytes()):
                        last, wait, failures = event.id or last, _bounded(event.retry, wait), 0
                        if event.data:
                            await self._lines.put(_one_line(event.data))
                finally:
                    await answer.aclose()
            except (httpx.HTTPError, LineTooLong):
                failures += 1
            await asyncio.sleep(wait)
        self._warn("the server's own stream has broken off: its notifications do not arrive any more")

    async def _open_stream(self, last: str | None) -> httpx.Response:
        headers = self._headers() | {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        request = self._http.build_request("GET", self._url, headers=_as_bytes(headers))
        answer = await self._http.send(request, stream=True)
        try:
            _refuse_compressed(answer)
        except httpx.HTTPError:
            await answer.aclose()
            raise
        return answer

    # ---- headers ---------------------------------------------------------------------------------------

    def _headers(self, message: RpcMessage | None = None) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
        if message is not None:
            headers["Content-Type"] = "application/json"
        if message is not None and message.modern_version is not None:
            return headers | self._modern_headers(message, message.modern_version)
        if message is not None and message.method == "initialize":
            return headers
        if self._session is not None:
            headers[_SESSION] = self._session
        if self._version is not None:
            headers[_VERSION] = self._version
        return headers

    def _modern_headers(self, message: RpcMessage, version: str) -> dict[str, str]:
        method = message.method or ""
        headers = {_VERSION: _header_value(version), "Mcp-Method": _header_value(method)}
        subject = message.params.get(_NAMED.get(method, ""))
        if isinstance(subject, str):
            headers["Mcp-Name"] = _header_value(subject)
            if method == "tools/call":
                headers |= _mirrored(self._definition(subject), message.params.get("arguments"))
        return headers


def _as_bytes(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """The server chose some of it - session, version, ids of events -, which may be any text."""
    return {name.encode(): text.encode(errors="replace") for name, text in headers.items()}


def _mirrored(definition: Mapping[str, Any], arguments: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, name in header_parameters(definition).items():
        value = arguments
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            found[f"Mcp-Param-{name}"] = _header_value(str(value))
    return found


def _header_value(text: str) -> str:
    """As it is where a header can carry it, else in base64, as 2026-07-28 says."""
    if _PLAIN.fullmatch(text) and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode(errors='replace')).decode()}?="


def _refuse_compressed(answer: httpx.Response) -> None:
    """A few bytes of it may be as much as there is memory, before any of it can be counted."""
    if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise httpx.DecodingError("its answer is compressed, which nobody has asked for")


async def _whole(answer: httpx.Response) -> bytes:
    found = bytearray()
    async for chunk in answer.aiter_bytes():
        found += chunk
        if len(found) > LONGEST_LINE:
            raise LineTooLong(f"an answer is longer than {LONGEST_LINE} bytes")
    return bytes(found)


def _bounded(retry: float | None, otherwise: float) -> float:
    """Seconds as the server wishes, where that neither hurries nor forgets."""
    return otherwise if retry is None else min(max(retry, 0.1), 60.0)


def _one_line(data: bytes) -> bytes:
    """The same JSON on one line: outside of texts a line's end is blank space, and in them it cannot
    stand."""
    return data.strip().replace(b"\r", b" ").replace(b"\n", b" ")


def _agreed_version(answer: RpcMessage) -> str | None:
    found = answer.body.get("result")
    version = found.get("protocolVersion") if isinstance(found, dict) else None
    return version if isinstance(version, str) else None


def _said(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return f"no answer within {PATIENCE:g} seconds"
    return str(failure) or type(failure).__name__
