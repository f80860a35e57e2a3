"""The demo: its session is real-looking and large, and it plays against fakes and the real service."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.demo.play import DemoFailed, play
from api.demo.session import load_session, posted
from api.demo.show import Summary
from engine.conditions.settings import SAMPLES
from engine.documents.policy import load_policy
from engine.documents.tool_sets import load_tool_set
from engine.matching.decision import decide
from engine.matching.ruleset import Ruleset
from engine.model import Policy, ToolCall, ToolSet
from tests.harness.application import PASSWORD, write_files
from tests.harness.places import SHIPPED
from tests.harness.running_service import Served

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
FOLDER = SHIPPED / "policies"


def shipped() -> list[Policy]:
    files = sorted(path for path in FOLDER.rglob("*.yaml") if "_test" not in path.stem)
    return [load_policy(path.read_bytes(), path.name).policy for path in files]


def tools() -> list[ToolSet]:
    files = sorted((SHIPPED / "tools").rglob("*.yaml"))
    return [load_tool_set(path.read_bytes(), path.name) for path in files]


SET = Ruleset.build(shipped(), tools=tools(), settings=SAMPLES)
"""What decides once the organisation has said what its own domain is."""


OURS = (
    "apiVersion: governance/v1\nkind: OrganisationSettings\norganisationId: default\n"
    "settings: {companyDomains: [acme.com]}\n"
)


class FakeService:
    """The contract's answers, decided by the shipped policies; remembers what it was sent."""

    def __init__(self) -> None:
        self.ruleset = SET
        self.events: list[dict[str, Any]] = []
        self.approvals: dict[str, dict[str, Any]] = {}
        self.repeats: Counter[str] = Counter()
        self.before: Callable[[httpx.Request], httpx.Response | None] = lambda request: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, method = request.url.path, request.method
        early = self.before(request)
        if early is not None:
            return early
        body = json.loads(request.content) if request.content else None
        if path == "/auth/login":
            if body != {"email": "r@acme.com", "password": "pw"}:
                return httpx.Response(401, json={"title": "Unauthenticated", "detail": "wrong password"})
            return httpx.Response(200, json={"accessToken": "t", "tokenType": "Bearer"})
        if path == "/v1/events":
            assert request.headers["X-API-Key"] == "key"
            return httpx.Response(200, json=self.answer(body))
        assert request.headers["Authorization"] == "Bearer t"
        if path == "/v1/approvals":
            assert request.url.params["status"] == "pending"
            return httpx.Response(200, json=[a for a in self.approvals.values() if a["status"] == "pending"])
        approval = self.approvals[path.split("/")[3]]
        if method == "POST":
            approval["status"] = {"approve": "approved", "reject": "rejected"}[path.split("/")[4]]
            approval["decisionReason"] = body["reason"]
        return httpx.Response(200, json=approval)

    def answer(self, event: dict[str, Any]) -> dict[str, Any]:
        self.events.append(event)
        answer = {"eventId": event["eventId"], "runId": event["runId"], "processed": True}
        if event["eventType"] != "tool.called":
            return answer
        metadata = event["metadata"]
        same = json.dumps([event["runId"], metadata["toolName"], metadata["inputPayload"]])
        self.repeats[same] += 1
        call = ToolCall.of(
            toolName=metadata["toolName"], inputPayload=metadata["inputPayload"], runId=event["runId"]
        )
        decision = decide(self.ruleset.evaluate(call), lambda policy: self.repeats[same] > 5)
        answer |= {"toolCallStatus": decision.status, "reason": decision.reason}
        for name, matches in (("matchedPolicies", decision.matched), ("shadowPolicies", decision.shadow)):
            answer[name] = [
                {"policyId": m.policy.policy_id, "policyName": m.policy.name, "action": m.policy.action}
                for m in matches
            ]
        if decision.status == "awaiting_approval":
            answer["approvalId"] = f"a{len(self.approvals)}"
            self.approvals[answer["approvalId"]] = {"approvalId": answer["approvalId"], "status": "pending"}
        return answer

    def play(self, password: str = "pw", **options: Any) -> tuple[Summary, str]:
        out = io.StringIO()
        transport = httpx.MockTransport(self)
        summary = play("http://service", "key", "r@acme.com", password, out, transport=transport, **options)
        return summary, out.getvalue()


def test_session_is_a_real_looking_working_day() -> None:
    session = load_session()
    kinds = Counter(event["eventType"] for event in session.events)
    calls = [event["metadata"] for event in session.events if event["eventType"] == "tool.called"]
    text = json.dumps(calls, ensure_ascii=False)
    assert len(session.events) >= 200
    assert len(session.run_names()) == 10
    assert kinds["run.started"] == 10
    assert kinds["run.completed"] + kinds["run.failed"] == 10
    assert min(kinds["tool.completed"], kinds["tool.failed"], kinds["run.failed"]) >= 1
    assert any(kind.startswith("custom.") for kind in kinds)
    assert any(ord(character) > 0x3000 for character in text)
    assert max(len(json.dumps(call)) for call in calls) > 1000
    assert len({call["toolName"] for call in calls}) >= 30
    started = [event["metadata"] for event in session.events if event["eventType"] == "run.started"]
    assert all(each["task"] and each["model"] and each["agentContext"]["goal"] for each in started)
    assert [event["after"] for event in session.events] == sorted(e["after"] for e in session.events)


def test_decisions_of_the_shipped_policies_are_worth_looking_at() -> None:
    summary, _ = FakeService().play()
    assert 0.65 <= summary.allowed / summary.calls <= 0.75
    assert summary.blocked >= 8
    assert summary.held >= 8
    assert summary.warned >= 1
    assert min(summary.approved, summary.rejected) >= 4


def test_all_events_are_posted_with_times_up_to_now_and_ids_of_their_own() -> None:
    service = FakeService()
    summary, _ = service.play(now=lambda: NOW)
    # the agent that is stuck gets no outcome for the three calls beyond the limit
    assert summary.events == len(service.events) == len(load_session().events) - 3
    times = [event["timestamp"] for event in service.events]
    assert times == sorted(times)
    assert times[-1] == "2026-11-21T12:00:00.000Z"
    service.play(now=lambda: NOW)
    assert len({event["eventId"] for event in service.events}) == 2 * summary.events
    assert len({event["runId"] for event in service.events}) == 20


def test_agent_does_not_go_on_with_a_call_that_was_refused() -> None:
    service = FakeService()
    service.play()
    statuses = {}
    for event in service.events:
        if event["eventType"] == "tool.called":
            statuses[event["runId"], event["metadata"]["toolCallId"]] = event["metadata"]
    done = [
        (event["runId"], event["metadata"]["toolCallId"])
        for event in service.events
        if event["eventType"] in ("tool.completed", "tool.failed")
    ]
    assert done
    for key in done:
        call = ToolCall.of(toolName=statuses[key]["toolName"], inputPayload=statuses[key]["inputPayload"])
        assert decide(service.ruleset.evaluate(call), lambda policy: False).status != "blocked"
    assert all(approval["status"] != "pending" for approval in service.approvals.values())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_fits_the_terminal_and_ends_with_the_summary(width: int) -> None:
    summary, text = FakeService().play(width=width)
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= width
    assert str(summary) in " ".join(line.strip() for line in lines)
    assert "held, approved" in text
    assert "held, rejected" in text
    assert "allowed, warned" in text


def test_somebody_faster_in_the_console_wins() -> None:
    service = FakeService()

    def resolve_first(request: httpx.Request) -> httpx.Response | None:
        if request.method == "POST" and request.url.path.endswith(("/approve", "/reject")):
            approval = service.approvals[request.url.path.split("/")[3]]
            approval |= {"status": "rejected", "decisionReason": "not today", "resolvedBy": "x@acme.com"}
            return httpx.Response(409, json={"code": "approval_not_pending"})
        return None

    service.before = resolve_first
    summary, text = service.play(width=200)
    assert summary.approved == 0
    assert summary.rejected == summary.held
    assert "not today" in text


def test_no_service_is_said_clearly() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    with pytest.raises(
        DemoFailed,
        match=r"no service answers at `http://x`.*governance serve.*make serve"
        r".*`--url http://127.0.0.1:PORT`.*ARGS=\"--url http://127.0.0.1:PORT",
    ):
        play("http://x", "k", "e", "p", io.StringIO(), transport=httpx.MockTransport(refuse))


def test_wrong_password_is_said_clearly() -> None:
    with pytest.raises(DemoFailed, match="answered 401: wrong password; check the reviewer's e-mail"):
        FakeService().play(password="other")


@pytest.mark.parametrize(
    ("path", "reply", "message"),
    [
        ("/auth/login", httpx.Response(200, text="<html>"), "without JSON; is this the governance service"),
        ("/auth/login", httpx.Response(200, json=[]), "without `accessToken`"),
        ("/auth/login", httpx.Response(404, json={"title": "Not Found"}), "answered 404: Not Found"),
        ("/v1/events", httpx.Response(401, json={}), "answered 401; check the API key"),
        ("/v1/events", httpx.Response(403, json=7), "answered 403; the demo needs a key"),
        ("/v1/events", httpx.Response(200, json={"eventId": "other"}), "for another event"),
        ("/v1/events", httpx.Response(503, text="busy"), "POST /v1/events answered 503"),
        ("/v1/approvals", httpx.Response(200, json={}), "answered no list"),
    ],
)
def test_unexpected_answers_end_the_play(path: str, reply: httpx.Response, message: str) -> None:
    service = FakeService()
    service.before = lambda request: reply if request.url.path == path else None
    with pytest.raises(DemoFailed, match=message.replace("?", r"\?")):
        service.play()


def test_event_bodies_keep_the_recorded_facts() -> None:
    event = load_session().events[0]
    body = posted(event, 1, "abc", NOW)
    assert body["eventId"] == "demo-abc-0001"
    assert body["runId"] == f"demo-abc-{event['run']}"
    assert body["metadata"] == event["metadata"]
    assert "after" not in body


def test_plays_twice_against_the_real_service(tmp_path: Path) -> None:
    for part in ("policies", "tools"):
        shutil.copytree(SHIPPED / part, tmp_path / "policies.d" / part, copy_function=shutil.copyfile)
    write_files(tmp_path / "policies.d", {"settings/default.yaml": OURS})
    with Served(tmp_path, live=True) as service:
        reviewer = service.user("reviewer", "reviewer@acme.com")
        for _ in range(2):
            out = io.StringIO()
            summary = play(
                str(service.http.base_url), service.api_key, reviewer["email"], PASSWORD, out, width=120
            )
            assert summary.events == len(load_session().events)
            assert 0.65 <= summary.allowed / summary.calls <= 0.78
            assert min(summary.blocked, summary.approved, summary.rejected) >= 4
        assert service.call("reviewer", "GET", "/v1/approvals?status=pending").json() == []
        assert service.audit("enforcement.gap") == []
