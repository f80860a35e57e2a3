"""An MCP server over HTTP that behaves as few do: broken streams, refusals, what headers must carry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import pytest

from api.mcp_proxy import http_server
from api.mcp_proxy.event_stream import events
from api.mcp_proxy.http_server import McpEndpoint
from api.mcp_proxy.message import made, read
from tests.harness.mcp_proxy import MODERN, SECONDS, call, tool

URL = "http://mcp.test/mcp"
Answer = Callable[[httpx.Request], httpx.Response | Coroutine[Any, Any, httpx.Response]]


def served(
    answer: Answer, test: Callable[[McpEndpoint, AsyncIterator[bytes]], Coroutine[Any, Any, None]]
) -> list[str]:
    """Runs a test with an endpoint that answers so; what the endpoint warned of."""

    async def told() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            endpoint = McpEndpoint(URL, http, lambda name: DEFINITION, warned.append)
            async with asyncio.timeout(SECONDS):
                await test(endpoint, endpoint.lines())
                assert await endpoint.end() == 0

    warned: list[str] = []
    asyncio.run(told())
    return warned


DEFINITION = tool(
    "deploy", inputSchema={"properties": {"zone": {"x-mcp-header": "Zone"}, "dry": {"x-mcp-header": "Dry"}}}
)


def stream(*parts: bytes) -> httpx.Response:
    async def content() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=content())


def compressed() -> httpx.Response:
    async def content() -> AsyncIterator[bytes]:
        raise AssertionError("it is not read")
        yield b""

    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip, gzip"}
    return httpx.Response(200, headers=headers, content=content())


def ok(request: httpx.Request, **result: Any) -> httpx.Response:
    return httpx.Response(
        200, json={"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "result": result}
    )


def test_headers_of_both_generations() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.method != "POST":
            return httpx.Response(405)
        if "id" not in json.loads(request.content):
            return httpx.Response(202)
        found = ok(request, protocolVersion="2025-11-25")
        if json.loads(request.content)["method"] == "initialize":
            found.headers["Mcp-Session-Id"] = "s1"
        return found

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        for message in (
            {"id": 1, "method": "initialize", "params": {}},
            {"method": "notifications/initialized"},
            call(2, "deploy"),
            call(3, "dé ploy", MODERN, zone="eu", dry=True, other=1),
        ):
            await endpoint.send(made(message))
            if "id" in message:
                await anext(lines)

    served(answer, test)
    first, initialized, old, new = (each for each in seen if each.method == "POST")
    assert "Mcp-Session-Id" not in first.headers and "MCP-Protocol-Version" not in first.headers
    for request in (initialized, old):
        assert request.headers["Mcp-Session-Id"] == "s1"
        assert request.headers["MCP-Protocol-Version"] == "2025-11-25"
        assert "Mcp-Method" not in request.headers
    named = {
        name: new.headers[name] for name in ("Mcp-Method", "Mcp-Name", "Mcp-Param-Zone", "Mcp-Param-Dry")
    }
    assert named == {
        "Mcp-Method": "tools/call",
        "Mcp-Name": "=?base64?ZMOpIHBsb3k=?=",
        "Mcp-Param-Zone": "eu",
        "Mcp-Param-Dry": "true",
    }
    assert new.headers["MCP-Protocol-Version"] == "2026-07-28" and "Mcp-Session-Id" not in new.headers
    assert seen[-1].method == "DELETE", "the session is ended"


def test_who_connects_again_hears_what_the_server_says_by_itself() -> None:
    """A server that was started anew has forgotten its sessions."""
    sessions: list[str] = []
    listened: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(200)
        if request.method == "GET":
            listened.append(request.headers.get("Mcp-Session-Id"))
            if listened[-1] != sessions[-1]:
                return httpx.Response(404)
            changed = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
            return stream(b"retry: 60000\n\n", changed)
        if "id" not in json.loads(request.content):
            return httpx.Response(202)
        found = ok(request, protocolVersion="2025-11-25")
        sessions.append(f"s{len(sessions) + 1}")
        found.headers["Mcp-Session-Id"] = sessions[-1]
        return found

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        for number in (1, 2):
            await endpoint.send(made({"id": number, "method": "initialize", "params": {}}))
            assert json.loads(await anext(lines))["id"] == number
            await endpoint.send(made({"method": "notifications/initialized"}))
            assert json.loads(await anext(lines))["method"] == "notifications/tools/list_changed"

    served(answer, test)
    assert listened == ["s1", "s2"]


def test_a_stream_that_breaks_is_gone_on_with_where_it_ended() -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return stream(b'id: 7\nretry: 100\ndata: {"jsonrpc":"2.0","method":"notifications/x"}\n\n')
        asked.append(request.headers.get("Last-Event-ID"))
        return stream(b'data: {"jsonrpc":"2.0",\ndata: "id":1,"result":{}}\n\n')

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        await endpoint.send(made(call(1, "deploy")))
        assert json.loads(await anext(lines))["method"] == "notifications/x"
        assert await anext(lines) == b'{"jsonrpc":"2.0", "id":1,"result":{}}'

    served(answer, test)
    assert asked == ["7"]


def down(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


REFUSALS: dict[str, tuple[Answer, str]] = {
    "down": (down, "cannot be reached: refused"),
    "redirect": (
        lambda _: httpx.Response(307, headers={"Location": "http://evil.test/"}),
        "answers with 307",
    ),
    "no message": (lambda _: httpx.Response(401, text="who are you?"), "answers with 401"),
    "no answer": (lambda _: httpx.Response(202), "answers with 202"),
    "a page": (lambda _: httpx.Response(200, html="<p>"), "answers with 200"),
    "a bomb": (lambda _: compressed(), "its answer is compressed, which nobody has asked for"),
    "an end": (lambda _: stream(b": nothing\n\n"), "ended the stream without an answer"),
    "an error": (
        lambda _: httpx.Response(
            400, json={"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "its own"}}
        ),
        "its own",
    ),
}


@pytest.mark.parametrize(("answer", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_goes_wrong_is_the_answer_to_the_request(answer: Answer, text: str) -> None:
    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        for number in (1, 2):
            await endpoint.send(made(call(number, "deploy")))
            found = read(await anext(lines))
            assert found.id == number and text in found.body["error"]["message"]

    served(answer, test)


def test_a_server_that_takes_no_notification_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that does not let its session be ended."""
    monkeypatch.setattr(http_server, "PATIENCE", 0.1)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and "id" in json.loads(request.content):
            found = ok(request, protocolVersion="2025-11-25")
            found.headers["Mcp-Session-Id"] = "s1"
            return found
        await asyncio.sleep(2 * SECONDS)
        raise AssertionError

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        for number, method in enumerate(("initialize", "tools/list")):
            await endpoint.send(made({"method": "notifications/cancelled", "params": {}}))
            await endpoint.send(made({"id": number, "method": method, "params": {}}))
            assert read(await anext(lines)).id == number

    told = "`notifications/cancelled` did not reach the server: no answer within 0.1 seconds"
    assert told in served(answer, test)


def test_what_is_said_to_a_notification_is_not_read_to_an_end_that_never_comes() -> None:
    given: dict[str, int] = {"POST": 0, "DELETE": 0}

    def answer(request: httpx.Request) -> httpx.Response:
        async def content() -> AsyncIterator[bytes]:
            for _ in range(1_000):
                given[request.method] += 1
                yield b" " * 65_536

        if request.method == "POST" and "id" in json.loads(request.content):
            found = ok(request, protocolVersion="2025-11-25")
            found.headers["Mcp-Session-Id"] = "s1"
            return found
        return httpx.Response(200, content=content())

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        await endpoint.send(made({"id": 1, "method": "initialize", "params": {}}))
        await anext(lines)
        await endpoint.send(made({"method": "notifications/cancelled", "params": {"requestId": 7}}))

    assert served(answer, test) == []
    assert given == {"POST": 2, "DELETE": 2}


def test_what_answers_nothing_that_was_asked_is_an_error_of_the_request() -> None:
    answers = [{"jsonrpc": "2.0", "id": 1, "result": {}}]

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        await endpoint.send(made(call(1, "deploy")))
        assert (await anext(lines)).startswith(b"[")  # which the relay passes to nobody
        found = read(await anext(lines))
        assert found.id == 1 and "answers with 200" in found.body["error"]["message"]

    served(lambda _: httpx.Response(200, json=answers), test)


def test_how_long_a_server_wants_to_be_left_alone_may_be_any_number() -> None:
    async def told() -> list[float | None]:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"retry: " + b"9" * 5_000 + b"\n\nretry: 100\n\n"

        return [event.retry async for event in events(chunks())]

    assert asyncio.run(told()) == [float("inf"), 0.1]


def test_cancelling_closes_the_stream_where_there_is_no_session() -> None:
    seen: list[str] = []
    begun, closed = asyncio.Event(), asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        try:
            begun.set()
            yield b": wait\n\n"
            await asyncio.sleep(SECONDS)
        finally:
            closed.set()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content)["method"])
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=content())

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        await endpoint.send(made(call(1, "deploy", MODERN)))
        await begun.wait()
        await endpoint.send(made({"method": "notifications/cancelled", "params": {"requestId": 1}}))
        await closed.wait()

    served(answer, test)
    assert seen == ["tools/call"], "it is no message there"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_read_wherever_the_chunks_part_them(size: int) -> None:
    text = "data: a\r\ndata:b\u2028\r\n\r\n: comment\nid: 1\rdata: c\r\revent: message\ndata:  d\n\ndata: cut"

    async def chunks() -> AsyncIterator[bytes]:
        raw = text.encode()
        for start in range(0, len(raw), size):
            yield raw[start : start + size]

    async def found() -> list[tuple[bytes, str | None]]:
        return [(each.data, each.id) async for each in events(chunks())]

    assert asyncio.run(found()) == [("a\nb\u2028".encode(), None), (b"c", "1"), (b" d", None)]


def test_what_a_server_chose_for_headers_may_be_any_text() -> None:
    seen: list[httpx.Request] = []
    first = (
        b'id: \xc3\xa9\xe4\xb8\xad\nretry: 1\ndata: {"jsonrpc": "2.0", "method": "notifications/message"}\n\n'
    )

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.method == "GET":
            text = '{"jsonrpc": "2.0", "id": 2, "result": {}}'
            return stream(f"data: {text}\n\n".encode())
        if request.method == "DELETE":
            return httpx.Response(200)
        said = json.loads(request.content)
        if said["method"] != "initialize":
            return stream(first)
        found = {"jsonrpc": "2.0", "id": said["id"], "result": {"protocolVersion": "\u4e2d"}}
        return httpx.Response(200, json=found, headers=[(b"Mcp-Session-Id", "\u4e2d".encode())])

    async def test(endpoint: McpEndpoint, lines: AsyncIterator[bytes]) -> None:
        await endpoint.send(made({"id": 1, "method": "initialize", "params": {}}))
        assert read(await anext(lines)).key == "1"
        await endpoint.send(made({"id": 2, "method": "tools/call", "params": {"name": "a"}}))
        assert read(await anext(lines)).method == "notifications/message"
        assert read(await anext(lines)).key == "2"

    served(answer, test)
    raw = [dict(request.headers.raw) for request in seen]
    assert [each.get(b"Mcp-Session-Id") for each in raw[1:]] == ["\u4e2d".encode()] * 3
    assert raw[2][b"Last-Event-ID"] == "\u00e9\u4e2d".encode()


@pytest.mark.parametrize("name", ["\u4e2d", "\ud800", "Zone\r\nHost: elsewhere"], ids=ascii)
def test_what_no_header_can_carry_is_an_error_of_the_call(name: str) -> None:
    definition = {"inputSchema": {"properties": {"zone": {"x-mcp-header": name}}}}
    arrived = bytearray()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.extend(await reader.read())
        writer.close()

    async def test() -> None:
        listening = await asyncio.start_server(take, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
        async with listening, httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(SECONDS):
            endpoint = McpEndpoint(url, http, lambda _: definition, print)
            await endpoint.send(made(call(1, "deploy", MODERN, zone="eu")))
            assert "error" in read(await anext(endpoint.lines())).body

    asyncio.run(test())
    assert arrived == b""
