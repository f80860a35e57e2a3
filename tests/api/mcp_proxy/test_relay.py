"""What passes the proxy, and what does not: byte for byte what it came as, or nowhere."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from api.mcp_proxy.message import UnreadableMessage, read
from tests.harness.mcp_proxy import MODERN, Proxy, ScriptedRun, call, elicits, tool

FROM_CLIENT = (
    b'{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"x:\\u00e9\xc3\xa9"}}',
    b'{ "method" : "unknown/method", "jsonrpc":"2.0", "id" : "text id", "extra": [1.0, 1e5] }',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}',
    b'{"jsonrpc":"2.0","id":"from-server","result":{"roots":[]}}',
    b'{"jsonrpc":"2.0","id":"from-server-2","error":{"code":-1,"message":"no"}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
)
FROM_SERVER = (
    b'{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{"messages":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}',
    b'{"method":"notifications/message","jsonrpc":"2.0","params":{"level":"info","data":"\xe2\x80\xa8"}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
)


async def test_everything_but_tool_calls_passes_as_it_came(tmp_path: Path) -> None:
    async with Proxy(ScriptedRun(), pins=tmp_path) as proxy:
        for line in FROM_CLIENT:
            await proxy.say(line)
            assert await proxy.line_to_server() == line
        for line in FROM_SERVER:
            await proxy.server_says(line)
            assert await proxy.line_to_client() == line
        answer = b'{"id":7, "jsonrpc":"2.0", "result":{"contents":[1.50]}}'
        await proxy.server_says(answer)
        assert await proxy.line_to_client() == answer


async def test_a_call_that_is_allowed_and_its_answer_pass_as_they_came(tmp_path: Path) -> None:
    run = ScriptedRun()
    async with Proxy(run, [tool("echo", annotations={"readOnlyHint": True})], pins=tmp_path) as proxy:
        line = (
            b'{"params":{"name":"echo","arguments":{"n":1.0}},"method":"tools/call","id":1,"jsonrpc":"2.0"}'
        )
        await proxy.say(line + b"\r\n")
        assert await proxy.line_to_server() == line
        answer = b'{"jsonrpc":"2.0","id":1,"result":{ "content":[{"type":"text","text":"x"}] }}'
        await proxy.server_says(answer)
        assert await proxy.line_to_client() == answer
    ((name, arguments, call_id, annotations),) = run.asked
    assert (name, arguments, annotations) == ("mcp__fixture__echo", {"n": 1.0}, {"readOnlyHint": True})
    assert run.outcomes == [(call_id, {"content": [{"type": "text", "text": "x"}]})]


SMUGGLED = (
    b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"tools/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":\r{"jsonrpc":"2.0","id":2,"method":"tools/call"}\r}',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wire"}}]',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wire"}}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call"}'.encode("utf-16"),
    b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":true,"method":"tools/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","argument\xc5\xbf":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","requeststate":"s"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["echo"]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["echo"]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":NaN}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":9007199254740993.0}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":1e999}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"} {"id":2}',
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","result":{},"params":{"name":"wire"}}',
    b'"tools/call"',
    b'{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tool\xc5\xbf/call","params":{"name":"wire"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call ","params":{"name":"wire"}}',
)


@pytest.mark.parametrize("line", SMUGGLED, ids=range(len(SMUGGLED)))
async def test_what_could_be_read_in_two_ways_reaches_nobody(line: bytes, tmp_path: Path) -> None:
    run = ScriptedRun()
    async with Proxy(run, [tool("echo"), tool("wire")], pins=tmp_path) as proxy:
        await proxy.say(line)
        assert (await proxy.to_client())["error"]["code"] in (-32700, -32600, -32602)
        assert await proxy.nothing_reached_the_server()
    assert not run.asked


async def test_an_argument_that_a_server_might_take_for_another_is_refused(tmp_path: Path) -> None:
    """Servers that read keys in any case would take the second path, which no policy on `path` has seen."""
    run = ScriptedRun()
    schema = {"type": "object", "properties": {"path": {}, "Mode": {}, "mode": {}}}
    async with Proxy(run, [tool("read", inputSchema=schema)], pins=tmp_path) as proxy:
        await proxy.say(call(1, "read", path="list.txt", Path="/etc/shadow"))
        assert "no argument `Path`, which some servers would take for `path`" in await proxy.refusal()
        await proxy.say(call(2, "read", path="list.txt", mode=1, Mode=2, other=3))
        assert (await proxy.to_server())["id"] == 2
    assert len(run.asked) == 1


async def test_a_tool_that_a_server_might_take_for_another_is_refused(tmp_path: Path) -> None:
    """Servers that read names in any case would run the tool, of which no policy on its name has heard."""
    run = ScriptedRun()
    async with Proxy(run, [tool("wire"), tool("Echo"), tool("echo")], pins=tmp_path) as proxy:
        for name in ("Wire", "wire ", "WIRE"):
            await proxy.say(call(1, name))
            assert "which some servers would take for `wire`" in await proxy.refusal()
        for number, name in enumerate(("Echo", "echo", "unlisted")):
            await proxy.say(call(number, name))
            assert (await proxy.to_server())["params"]["name"] == name
    assert len(run.asked) == 3


@pytest.mark.parametrize("method", ["ping", "tools/call"])
async def test_the_answer_to_what_was_cancelled_answers_nothing_else(method: str, tmp_path: Path) -> None:
    """Else what a tool gave comes to the client, and the record has it as the answer to something else."""
    run = ScriptedRun()
    async with Proxy(run, [tool("secrets"), tool("echo")], pins=tmp_path) as proxy:
        await proxy.say(call(1, "secrets"))
        await proxy.to_server()
        await proxy.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
        assert (await proxy.to_server())["method"] == "notifications/cancelled"
        again = {"id": 1, "method": method, "params": {"name": "echo"}}
        await proxy.say(again)
        assert "in use" in (await proxy.to_client())["error"]["message"]
        await proxy.server_says({"id": 1, "result": {"content": [{"type": "text", "text": "hush"}]}})
        await proxy.server_says({"id": "s", "method": "ping"})
        assert (await proxy.to_client())["id"] == "s"  # and nothing before it
        await proxy.say(again)
        assert (await proxy.to_server())["method"] == method
    assert [text for _, text in run.outcomes][:1] == ["cancelled by the client"]
    assert "hush" not in str(run.outcomes)


LIES = (
    b'{"jsonrpc":"2.0","id":5,"result":{"tools":[]},"result":{"tools":[{"name":"x"}]}}',
    b'{"jsonrpc":"2.0","id":6,"result":{"tools":[]}}',
    b"Listening on port 8000",
    b'{"jsonrpc":"2.0","id":5,"result":{},"error":{}}',
)


async def test_lines_of_a_server_that_are_no_answers_reach_nobody(tmp_path: Path) -> None:
    async with Proxy(ScriptedRun(), pins=tmp_path, lists=False) as proxy:
        await proxy.say({"id": 5, "method": "tools/list"})
        await proxy.to_server()
        for line in LIES:
            await proxy.server_says(line)
        await proxy.server_says({"id": 5.0, "result": {"tools": []}})
        assert (await proxy.to_client()) == {"jsonrpc": "2.0", "id": 5.0, "result": {"tools": []}}
        assert len(proxy.warnings) == len(LIES)


async def test_an_id_is_used_once_at_a_time_however_it_is_written(tmp_path: Path) -> None:
    async with Proxy(ScriptedRun(), pins=tmp_path) as proxy:
        await proxy.say({"id": 1, "method": "ping"})
        await proxy.to_server()
        await proxy.say({"id": "1", "method": "ping"})
        assert "is in use" in (await proxy.to_client())["error"]["message"]


async def test_hundreds_of_calls_are_decided_at_once(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, [tool("wire")], pins=tmp_path) as proxy:
        for number in range(300):
            await proxy.say(call(number, "wire", amount=number))
        await proxy.until_asked(run, 300)
        run.later.set_result("allowed")
        seen = {(await proxy.to_server())["params"]["arguments"]["amount"] for _ in range(300)}
        assert seen == set(range(300))
    assert len(set(run.call_ids)) == 300


async def test_a_large_message_passes(tmp_path: Path) -> None:
    async with Proxy(ScriptedRun(), [tool("echo")], pins=tmp_path) as proxy:
        await proxy.say(call(1, "echo", text="x" * 8_000_000))
        assert len(await proxy.line_to_server()) > 8_000_000
        await proxy.server_says({"id": 1, "result": {"content": [{"type": "text", "text": "y" * 8_000_000}]}})
        assert len(await proxy.line_to_client()) > 8_000_000


async def test_a_call_that_the_server_wants_continued_is_the_same_call(tmp_path: Path) -> None:
    """2026-07-28: `input_required`, answered by the same call with the server's own request state."""
    run = ScriptedRun()
    async with Proxy(run, [tool("deploy")], pins=tmp_path) as proxy:
        await proxy.say(call(1, "deploy", elicits(form={})))
        await proxy.to_server()
        asked = {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "theirs"}
        await proxy.server_says({"id": 1, "result": asked})
        assert (await proxy.to_client())["result"] == asked
        again = call(2, "deploy", elicits(form={}))
        again["params"] |= {"requestState": "theirs", "inputResponses": {"a": {"action": "accept"}}}
        await proxy.say(again)
        assert (await proxy.to_server())["params"] == again["params"]
    first, second = run.call_ids
    assert first == second


async def test_answers_that_a_server_has_not_asked_for_reach_nobody(tmp_path: Path) -> None:
    """No policy or reviewer sees them: what a call is about would stand there, and not in its arguments."""
    run = ScriptedRun()
    pay = {"pay": {"action": "accept", "content": {"amount": 1_000_000}}}
    async with Proxy(run, [tool("pay")], pins=tmp_path) as proxy:
        for number, said in enumerate(
            ({"inputResponses": pay}, {"inputResponses": pay, "requestState": "s"}, {"requestState": "s"})
        ):
            told = call(number, "pay", elicits(form={}))
            told["params"] |= said
            await proxy.say(told)
            answer = (await proxy.to_client())["result"]
            assert (
                answer["isError"] and "its request state is not of this call" in answer["content"][0]["text"]
            )
        told = call(9, "pay", elicits(form={}))
        told["params"] |= {"inputResponses": {}, "requestState": None}
        await proxy.say(told)
        assert (await proxy.to_server())["id"] == 9, "it answers nothing"
    assert len(run.call_ids) == 1


async def test_answers_are_of_use_once_and_again_where_nothing_was_decided(tmp_path: Path) -> None:
    run = ScriptedRun()
    async with Proxy(run, [tool("deploy")], pins=tmp_path) as proxy:
        await proxy.say(call(1, "deploy", elicits(form={})))
        await proxy.to_server()
        asked = {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "theirs"}
        await proxy.server_says({"id": 1, "result": asked})
        await proxy.to_client()
        again = call(2, "deploy", elicits(form={}))
        again["params"] |= {"requestState": "theirs", "inputResponses": {"a": {"action": "accept"}}}
        run.now = "unavailable"
        await proxy.say(again)
        assert (await proxy.to_client())["result"]["isError"]
        run.now = "allowed"
        await proxy.say({**again, "id": 3})
        assert (await proxy.to_server())["id"] == 3
        await proxy.say({**again, "id": 4})
        assert (await proxy.to_client())["result"]["isError"]
    assert len(set(run.call_ids)) == 1


async def test_the_proxys_own_list_names_the_revision_of_the_call(tmp_path: Path) -> None:
    async with Proxy(ScriptedRun(), pins=tmp_path, lists=False) as proxy:
        await proxy.say(call(1, "echo", {**MODERN, "progressToken": 5}))
        asked = await proxy.to_server()
        assert asked["method"] == "tools/list" and asked["params"] == {"_meta": MODERN}
        page = {"tools": [tool("other")], "nextCursor": "c"}
        await proxy.server_says({"id": asked["id"], "result": page})
        asked = await proxy.to_server()
        assert asked["params"]["cursor"] == "c"
        await proxy.server_says({"id": asked["id"], "result": {"tools": [tool("echo")]}})
        assert (await proxy.to_server())["method"] == "tools/call"


def test_a_key_that_stands_twice_is_found_at_once() -> None:
    """Behind many others, where the proxy would stand still for minutes."""
    keys = ",".join(f'"{number}":0' for number in range(100_000))
    begun = time.process_time()
    with pytest.raises(UnreadableMessage, match="stands twice") as refused:
        read(f'{{"jsonrpc":"2.0","id":1,"result":{{{keys},"{"x" * 999}":0,"{"x" * 999}":1}}}}'.encode())
    assert time.process_time() - begun < 10
    assert len(str(refused.value)) < 200
