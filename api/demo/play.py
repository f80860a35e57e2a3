"""Plays the session against a running service, as its agents and its reviewer would.

Decides the order of requests: an agent whose call is held waits for the reviewer, and does not go on with a
call that is blocked or rejected. Anything but the answers of the contract ends the play with a `DemoFailed`
that says what happened and what to do. It must not know the service's inside: only its HTTP interface.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import TracebackType
from typing import Any, TextIO

import httpx

from api.demo.session import RecordedSession, load_session, posted
from api.demo.show import Row, Summary, progress, show

TIMEOUT = 30.0


class DemoFailed(Exception):
    """The play could not go on; the text is for the person who started it."""


def play(
    base_url: str,
    api_key: str,
    email: str,
    password: str,
    out: TextIO,
    *,
    session: RecordedSession | None = None,
    transport: httpx.BaseTransport | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
    width: int | None = None,
) -> Summary:
    """Posts the session, resolves its approvals, prints the decisions to `out` and returns their counts.

    `email` and `password` are those of a reviewer or admin. Raises DemoFailed; exit non-zero then.
    """
    session = session or load_session()
    rows: list[Row] = []
    began = monotonic()
    length = session.events[-1]["after"] if session.events else 0
    start = now() - timedelta(seconds=length)
    play_id = new_id()
    with _Service(base_url, api_key, transport) as service:
        service.log_in(email, password)
        refused: set[tuple[str, str]] = set()
        for number, event in progress(session.events, out):
            metadata = event.get("metadata") or {}
            call = (event["run"], metadata.get("toolCallId", ""))
            if event["eventType"] in ("tool.completed", "tool.failed") and call in refused:
                continue
            answer = service.post_event(posted(event, number, play_id, start))
            if event["eventType"] == "tool.called":
                row = _decided(service, session, event, answer)
                rows.append(row)
                if row.outcome in ("blocked", "rejected"):
                    refused.add(call)
        posts = service.events
    summary = Summary.of(rows, posts, len(session.run_names()), monotonic() - began)
    show(session, rows, summary, out, width)
    return summary


def _decided(
    service: _Service, session: RecordedSession, event: Mapping[str, Any], answer: Mapping[str, Any]
) -> Row:
    metadata = event["metadata"]
    tool, payload = metadata["toolName"], metadata["inputPayload"]
    names = [str(match["policyName"]) for match in answer.get("matchedPolicies", ())]
    row = Row(event["run"], tool, payload, answer["toolCallStatus"], names)
    row.warned = row.outcome == "allowed" and any(
        match["action"] == "warn" for match in answer.get("matchedPolicies", ())
    )
    row.shadow = [str(match["policyName"]) for match in answer.get("shadowPolicies", ())]
    if row.outcome == "awaiting_approval":
        if "approvalId" not in answer:
            raise DemoFailed("the service holds a call but names no `approvalId`")
        rule = session.review(tool, payload)
        row.outcome, row.review = service.resolve(answer["approvalId"], rule.decision, rule.reason)
    return row


class _Service:
    """The running service, as an agent and a reviewer see it."""

    def __init__(self, base_url: str, api_key: str, transport: httpx.BaseTransport | None) -> None:
        self._base_url = base_url.rstrip("/")
        self._http = httpx.Client(
            base_url=self._base_url, transport=transport, timeout=TIMEOUT, trust_env=False
        )
        self._key = {"X-API-Key": api_key}
        self._token: dict[str, str] = {}
        self.events = 0

    def __enter__(self) -> _Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def log_in(self, email: str, password: str) -> None:
        body = self._send("POST", "/auth/login", {}, {"email": email, "password": password})
        self._token = {"Authorization": f"Bearer {_member(body, 'accessToken', '/auth/login')}"}

    def post_event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        body = self._send("POST", "/v1/events", self._key, event)
        if _member(body, "eventId", "/v1/events") != event["eventId"]:
            raise DemoFailed("POST /v1/events answered for another event than the one sent")
        if event["eventType"] == "tool.called":
            _member(body, "toolCallStatus", "/v1/events")
        self.events += 1
        answer: dict[str, Any] = body
        return answer

    def resolve(self, approval_id: str, decision: str, reason: str) -> tuple[str, str]:
        """How the approval ended, `approved` or `rejected`, and the reviewer's words."""
        pending = self._send("GET", "/v1/approvals?status=pending&limit=1000", self._token)
        if not isinstance(pending, list):
            raise DemoFailed("GET /v1/approvals answered no list; is this the governance service?")
        if any(each.get("approvalId") == approval_id for each in pending):
            body = self._send(
                "POST", f"/v1/approvals/{approval_id}/{decision}", self._token, {"reason": reason}, {409}
            )
            if isinstance(body, dict) and body.get("status") in ("approved", "rejected"):
                return body["status"], reason
        # Not pending any more: somebody was faster, in the console perhaps. Theirs counts.
        approval = self._send("GET", f"/v1/approvals/{approval_id}", self._token)
        status = _member(approval, "status", "/v1/approvals/:id")
        if status == "approved":
            return "approved", f"{approval.get('decisionReason') or ''} (by {approval.get('resolvedBy')})"
        if status == "pending":
            raise DemoFailed(f"the approval `{approval_id}` stays pending although it was resolved")
        return "rejected", str(approval.get("decisionReason") or status)

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Any = None,
        expected: frozenset[int] | set[int] = frozenset(),
    ) -> Any:
        try:
            reply = self._http.request(method, path, headers=dict(headers), json=body)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise DemoFailed(
                f"no service answers at `{self._base_url}` ({error or type(error).__name__}); "
                "start it with `governance serve` or `make serve`; if it runs at another port, say where "
                'with `--url http://127.0.0.1:PORT` (`make demo ARGS="--url http://127.0.0.1:PORT"`)'
            ) from None
        if reply.status_code >= 300 and reply.status_code not in expected:
            raise DemoFailed(self._refusal(method, path, reply))
        try:
            return reply.json()
        except ValueError:
            raise DemoFailed(
                f"{method} {path} answered {reply.status_code} without JSON; is this the governance service?"
            ) from None

    def _refusal(self, method: str, path: str, reply: httpx.Response) -> str:
        try:
            problem = reply.json()
            detail = problem.get("detail") or problem.get("title") or ""
        except (ValueError, AttributeError):
            detail = ""
        text = f"{method} {path} answered {reply.status_code}" + (f": {detail}" if detail else "")
        if reply.status_code == 401 and path == "/auth/login":
            text += "; check the reviewer's e-mail and password"
        elif reply.status_code == 401:
            text += "; check the API key" if path == "/v1/events" else "; log in again"
        elif reply.status_code == 403:
            text += "; the demo needs a key that is bound to no agent, and a reviewer or admin"
        return text


def _member(body: Any, name: str, path: str) -> str:
    if not isinstance(body, dict) or not isinstance(body.get(name), str):
        raise DemoFailed(f"{path} answered without `{name}`; is this the governance service?")
    value: str = body[name]
    return value
