"""Answers that are none: whatever comes instead of a decision, no tool runs, in either fail mode."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from typing import Any, Self

import pytest
from governance_client.settings import FailMode

from tests.api.client import stub
from tests.api.client.conftest import Ask, Told
from tests.harness.receiver import Answer, Received, Receiver

SPOILT: dict[str, Any] = {
    "nothing": lambda answer: b" ",
    "no JSON": lambda answer: b"<html>proxy</html>",
    "half of it": lambda answer: json.dumps(answer).encode()[:-20],
    "not UTF-8": lambda answer: b'{"toolCallStatus": "allowed", "reason": "\xff"}',
    "too deep": lambda answer: b"[" * 200_000,
    "a list": lambda answer: [answer],
    "a text": lambda answer: "allowed",
    "true": lambda answer: b"true",
    "an unknown status": lambda answer: answer.update(toolCallStatus="approved"),
    "a status in capitals": lambda answer: answer.update(toolCallStatus="ALLOWED"),
    "a status in a list": lambda answer: answer.update(toolCallStatus=["allowed"]),
    "a status that is true": lambda answer: answer.update(toolCallStatus=True),
    "no status": lambda answer: answer.pop("toolCallStatus") and None,
    "no reason": lambda answer: answer.pop("reason") and None,
    "another event": lambda answer: answer.update(eventId="another"),
    "another run": lambda answer: answer.update(runId="another"),
    "no event": lambda answer: answer.pop("eventId") and None,
    "policies that are none": lambda answer: answer.update(matchedPolicies=[7]),
    "policies in an object": lambda answer: answer.update(matchedPolicies={"a": 1}),
    "an approval without an id": lambda answer: answer.update(toolCallStatus="awaiting_approval"),
    "a message that is no text": lambda answer: answer.update(agentMessage={}),
}


@pytest.mark.parametrize("fail_mode", ["closed", "open"])
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_malformed_answer(ask: Ask, told: Told, spoil: stub.Spoil, fail_mode: FailMode) -> None:
    with Receiver(lambda request: stub.plain_service(request, spoil=spoil)) as service:
        decision = ask(told(service.port, fail_mode=fail_mode), "list", {})
    assert (decision.status, decision.allowed, decision.decided_offline) == ("unavailable", False, False)


@pytest.mark.parametrize("fail_mode", ["closed", "open"])
@pytest.mark.parametrize(
    "status, body, expected",
    [
        (201, b"{}", "unavailable"),
        (204, b"", "unavailable"),
        (302, b"", "unavailable"),
        (400, b'{"detail": "no JSON"}', "invalid"),
        (401, b"", "unauthorized"),
        (403, b'{"detail": "not yours"}', "unauthorized"),
        (404, b"nginx", "invalid"),
        (409, b'{"detail": "another payload"}', "invalid"),
        (422, b'{"detail": ["no", "text"]}', "invalid"),
        (418, b"[]", "invalid"),
    ],
)
def test_a_status_that_is_no_decision(
    ask: Ask, told: Told, status: int, body: bytes, expected: str, fail_mode: FailMode
) -> None:
    def plan(request: Received) -> Answer:
        if b"tool.called" in request.body:
            return Answer(status, body, {"Location": "http://127.0.0.1:1/"})
        return stub.plain_service(request)

    with Receiver(plan) as service:
        decision = ask(told(service.port, fail_mode=fail_mode), "list", {})
    assert (decision.status, decision.allowed) == (expected, False)


def test_a_service_that_fails_on_this_call_alone_opens_nothing(ask: Ask, told: Told) -> None:
    """A call that makes the service fail must not get through by that; one that limits it, neither."""
    for status in (500, 429):
        with Receiver([Answer(status)]) as service:
            decision = ask(told(service.port, fail_mode="open", decide_seconds=0.3), "list", {})
        assert (decision.status, decision.allowed) == ("unavailable", False)


@pytest.mark.parametrize("answer", [Answer(200, b"x" * 200, drip=0.1), Answer(200, b"{}", delay=60)])
def test_an_answer_that_takes_too_long(ask: Ask, told: Told, answer: Answer) -> None:
    begun = time.monotonic()
    with Receiver([answer]) as service:
        decision = ask(told(service.port, decide_seconds=0.5), "list", {})
    assert (decision.status, decision.allowed) == ("unavailable", False)
    assert time.monotonic() - begun < 50


ENDLESS = {
    "a head": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "answers before the answer": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "the size of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"x"),
    "a trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", b"x"),
}


class _Dripping(socketserver.ThreadingTCPServer):
    """Begins an answer, and goes on with it a bit at a time, each sooner than anybody gives up on one."""

    daemon_threads = True

    def __init__(self, first: bytes, then: bytes) -> None:
        self.over = threading.Event()
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(65536)
                with contextlib.suppress(OSError):
                    self.request.sendall(first)
                    while not server.over.wait(0.05):
                        self.request.sendall(then)

        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


@pytest.mark.parametrize("parts", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_answer_that_never_comes_to_its_end(ask: Ask, told: Told, parts: tuple[bytes, bytes]) -> None:
    begun = time.monotonic()
    with _Dripping(*parts) as service:
        decision = ask(told(service.server_address[1], decide_seconds=0.5), "list", {})
    assert (decision.status, decision.allowed) == ("unavailable", False)
    assert time.monotonic() - begun < 50


@pytest.mark.parametrize(
    "always",
    [Answer(409, b'{"code": "tool_call_conflict"}'), {"completion": "completed"}],
    ids=["another call has its id", "it has completed"],
)
def test_a_service_that_knows_every_call_already(ask: Ask, told: Told, always: Any) -> None:
    """Each call is asked about under another id then, but not for ever."""

    def plan(request: Received) -> Answer:
        if isinstance(always, Answer) and b"tool.called" in request.body:
            return always
        return stub.plain_service(request, spoil=lambda answer: answer.update(always))

    with Receiver(plan) as service:
        decision = ask(told(service.port), "list", {})
        assert len(service.requests) < 300
    assert (decision.status, decision.allowed) == ("unavailable", False)


APPROVALS: dict[str, Any] = {
    "no JSON": b"<html>",
    "another approval": {"approvalId": "apr_2"},
    "another call": {"toolCallId": "another"},
    "another run": {"runId": "another"},
    "an unknown status": {"status": "allowed"},
    "no status": {"status": None},
    "a reason that is no text": {"decisionReason": 7},
}


@pytest.mark.parametrize("wrong", APPROVALS.values(), ids=APPROVALS.keys())
def test_a_malformed_approval(ask: Ask, told: Told, wrong: Any) -> None:
    def plan(request: Received) -> Answer:
        if request.path.startswith("/v1/events"):
            return stub.plain_service(request, "awaiting_approval")
        if isinstance(wrong, bytes):
            return Answer(200, wrong)
        right = {"approvalId": "apr_1", "runId": "run-1", "toolCallId": "call-1", "status": "approved"}
        return Answer(200, json.dumps({**right, **wrong}).encode())

    with Receiver(plan) as service:
        decision = ask(told(service.port), "list", {}, run_id="run-1", tool_call_id="call-1")
    assert (decision.status, decision.allowed) == ("unavailable", False)
