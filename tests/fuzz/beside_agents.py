"""What programs beside an agent say: hosts to their hook, clients and servers of MCP through the proxy."""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from api.hosts.report import Unreadable, decoded
from api.hosts.table import NAMES, host
from api.mcp_proxy.message import UnreadableMessage, made, read
from api.mcp_proxy.tool_call import ProxiedCall
from api.mcp_proxy.tools.listing import ListFailed, definitions_of
from tests.fuzz.target import Target, split_words
from tests.harness.mcp_proxy import MODERN, call
from tests.harness.places import CASES

WORDS = (
    *split_words(
        '{ } [ ] , : " \\" \\u0000 \\ud800 null true -0 1e400 NaN "id":1 "params": "_meta": "tools":'
    ),
    *(
        b'"jsonrpc":"2.0",',
        b'"method":"tools/call",',
        b'"tool_input":',
        b'"session_id":',
        b"\r",
        b"\xef\xbb\xbf",
    ),
)


def hook_seeds() -> Sequence[bytes]:
    told = [yaml.safe_load(path.read_text("utf-8")) for path in sorted((CASES / "hosts").glob("*.yaml"))]
    kinds = ("call", "result", "prompt", "other")
    return [json.dumps(each[kind]).encode() for each in told for kind in kinds if kind in each]


def check_hook(data: bytes) -> None:
    """Whatever a host says is a report of one kind, or cannot be read."""
    try:
        said = decoded(data)
    except Unreadable:
        return
    for name in NAMES:
        try:
            report = host(name).read(said)
        except Unreadable as unreadable:
            assert str(unreadable)
        else:
            assert report.kind in ("call", "result", "prompt", "other")
            assert isinstance(report.payload, dict) and isinstance(report.tool, str)


def mcp_seeds() -> Sequence[bytes]:
    lines = (CASES / "mcp" / "server-everything-2026.8.31.jsonl").read_text("utf-8").splitlines()
    recorded = [json.loads(line)["line"].encode() for line in lines]
    own = [call(1, "echo", MODERN, text="x"), call("a", "wire", amount=5)]
    return [*(made(each).line for each in own), *(each for each in recorded if len(each) < 2_000)]


def check_mcp(data: bytes) -> None:
    """A line passes only where it can be read in one way, and then says what any reader finds in it."""
    try:
        message = read(data)
    except UnreadableMessage as unreadable:
        assert str(unreadable)
        return
    assert json.loads(message.line) == message.body and b"\n" not in message.line
    assert message.is_request + message.is_response <= 1
    name = message.client_name
    assert name is None or name.encode()
    try:
        definitions_of(message)
    except ListFailed as failed:
        assert str(failed)
    if message.method == "tools/call":
        try:
            found = ProxiedCall.of(message)
        except UnreadableMessage as unreadable:
            assert str(unreadable)
        else:
            assert found.name and made(found.for_server(without_state=True).body).line


TARGETS = (
    Target("hook", check_hook, hook_seeds, WORDS, rounds=2_000),
    Target("mcp", check_mcp, mcp_seeds, WORDS, rounds=2_000),
)
