"""A service to be mistreated, a right body for every route, and much that is wrong with a body.

A new route with a body needs a line in `SAMPLES`; everything else follows from the route table.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from api.http.route import Route
from api.server.routes import ROUTES
from tests.harness.application import PASSWORD, Service, event
from tests.harness.places import SHIPPED
from tests.harness.policy_bodies import on_tool
from tests.harness.raw_requests import Answer, Headers, send

POLICY = on_tool("No wires", "block", "wire")
CALL = {"toolCallId": "call-1", "toolName": "wire", "inputPayload": {"amount": 1}}
EVENT = event(1, "tool.called", "2026-01-31T09:30:00Z", CALL)
EVALUATION = {
    "subject": {"type": "agent", "id": "mailer"},
    "action": {"name": "wire", "properties": {"amount": 1}},
    "resource": {"type": "account", "id": "acc-1"},
}
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "alert-acknowledge": {"note": "seen"},
    "detector-create": {
        "detectorId": "many-calls",
        "name": "Many calls",
        "on": "tool.called",
        "severity": "low",
        "windowSeconds": 60,
        "threshold": 5,
    },
    "detector-update": {"threshold": 6},
    "access-evaluation": EVALUATION,
    "access-evaluations": {**EVALUATION, "evaluations": [{}, {"action": {"name": "look"}}]},
    "access-request": {**EVALUATION, "denial": {"evaluation_id": "apr_unknown"}},
    "api-key-create": {"name": "deployment"},
    "backtest": {"policy": POLICY},
    "change-resolve": {"decision": "rejected", "reason": "because"},
    "event": EVENT,
    "event-batch": {"events": [EVENT]},
    "exemption": {"runId": "run-x", "labels": ["secret"], "minutes": 5, "reason": "looked at"},
    "grant-revocation": {"reason": "too wide"},
    "halt-create": {"scope": "run", "runId": "run-x", "reason": "because"},
    "halt-end": {"scope": "run", "runId": "run-x"},
    "hook-input": {
        "session_id": "run-1",
        "hook_event_name": "PreToolUse",
        "tool_name": "wire",
        "tool_input": {"amount": 1},
        "tool_use_id": "call-1",
    },
    "login": {"email": "nobody@acme.example", "password": "not the password"},
    "tool-proposal-admit": {"digest": "0" * 64},
    "tool-proposal-create": {"server": "files", "tools": [{"name": "read", "definition": "0" * 64}]},
    "tool-set-create": {
        "toolSetId": "ours",
        "name": "Ours",
        "tools": [{"names": ["frob"], "kind": "other", "effect": "write"}],
    },
    "tool-set-put": {"name": "Ours", "tools": [{"names": ["frob"], "kind": "other", "effect": "write"}]},
    "tool-set-update": {"name": "Ours"},
    "organisation-settings-update": {"settings": {"companyDomains": ["acme.example"]}},
    "notification-secret-set": {"name": "chat", "value": "https://hooks.example.com/x"},
    "organisation-update": {"name": "Acme", "userToken": None},
    "pack-activation": {"parameters": {}},
    "password-change": {"currentPassword": "not the password", "newPassword": PASSWORD},
    "policy-create": POLICY,
    "policy-rollback": {"version": 1},
    "policy-update": {"description": "new"},
    "preset-activation": {"parameters": {}},
    "rejection": {"reason": "not now"},
    "resolution": {"reason": "fine"},
    "simulation": {"toolName": "wire"},
    "user-create": {"email": "new@acme.example", "password": PASSWORD, "role": "viewer"},
    "user-update": {"role": "viewer"},
    "webhook-create": {"url": "https://hooks.example.com/x", "events": ["tool.blocked"]},
    "webhook-update": {"enabled": False},
}
"""Body schema -> a body that the schema accepts."""

AUTHZEN = "/access/"
"""Routes of another specification: what is wrong with a body is 400, and what it does not know is ignored."""


def refusal(route: Route) -> str:
    """The code by which a route says what is wrong with a body."""
    return "invalid_request" if route.path.startswith(AUTHZEN) else "validation_failed"


WITH_BODY = [route for route in ROUTES if route.body is not None]
JSON = ("Content-Type", "application/json")
MEMBERS = {"viewer", "reviewer", "admin", "agent"}


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


KINDS: Mapping[str, Any] = {
    "null": None, "boolean": True, "integer": 7, "number": 1.5, "string": "\u2603", "array": [[]],
    "object": {"\u2603": {}},
}  # fmt: skip


class World:
    """A service that is there for all tests of this module, with an event loop of its own."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.service = Service(folder, [{**POLICY, "policyId": "no-wires"}], live=True)
        for part in ("presets/integrity", "tools", "packs"):
            source, target = SHIPPED / part, self.service.settings.policies_dir / part
            if part == "packs":
                target.mkdir()
            else:
                shutil.copytree(source, target)
        self.runner.run(self.service.__aenter__())

    def close(self) -> None:
        self.runner.run(self.service.__aexit__(None, None, None))
        self.runner.close()

    def credential(self, who: str) -> list[tuple[str, str]]:
        return list(self.service.credentials[who].items())

    def send(
        self, who: str, method: str, target: str, body: Any = b"", headers: Headers = (), **how: Any
    ) -> Answer:
        """A request as somebody; a body is JSON unless a header says otherwise."""
        sent = [*self.credential(who), *headers]
        if body != b"" and not any(str(name).lower() == "content-type" for name, _ in headers):
            sent.append(JSON)
        began = time.process_time()
        answer = self.runner.run(send(self.service.application, method, target, body, sent, **how))
        spent = time.process_time() - began
        assert spent < 3, f"{method} {target[:60]} took {spent:.1f} s of a core"
        return answer

    def is_well(self) -> None:
        assert self.send("nobody", "GET", "/health").json()["status"] == "ok"


def callers(route: Route) -> list[str]:
    """One caller of each kind that may use the route."""
    return sorted(route.who & MEMBERS) or ["nobody"]


def target_of(route: Route) -> str:
    """An address of the route; what it names need not exist, since bodies are looked at first."""
    parts = ["no-wires" if part.startswith(":") else part for part in route.path.split("/")]
    return "/".join(parts)


def everybody(routes: list[Route]) -> Any:
    pairs = [(route, who) for route in routes for who in callers(route)]
    return pytest.mark.parametrize(
        ("route", "who"), pairs, ids=[f"{name_of(route)} as {who}" for route, who in pairs]
    )


def anybody(routes: list[Route]) -> Any:
    """For what is dear, and looked at before anybody's role: one caller of each route."""
    pairs = [(route, callers(route)[0]) for route in routes]
    return pytest.mark.parametrize(("route", "who"), pairs, ids=[name_of(route) for route, _ in pairs])


def sample(route: Route) -> dict[str, Any]:
    assert route.body is not None
    return json.loads(json.dumps(SAMPLES[route.body]))  # type: ignore[no-any-return]


def text_of(route: Route) -> bytes:
    return json.dumps(sample(route)).encode()


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


NOT_JSON: Mapping[str, bytes] = {
    "nothing": b"",
    "blanks": b" \n\t",
    "half an object": b'{"a":',
    "wrong bracket": b'{"a":1]',
    "a bare word": b"hello",
    "single quotes": b"{'a':1}",
    "two objects": b"{}{}",
    "text after it": b"{} x",
    "a comment": b'{/* x */"a":1}',
    "a comma too many": b'{"a":1,}',
    "a leading zero": b'{"a":01}',
    "a plus sign": b'{"a":+1}',
    "a number in hex": b'{"a":0x10}',
    "a raw control character": b'{"a":"\x01"}',
    "a raw NUL": b'{"a":"\x00"}',
    "nothing but NUL": b"\x00" * 10,
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "minus Infinity": b'{"a":-Infinity}',
    "a number beyond a double": b'{"a":1e400}',
    "a number of 5,000 digits": b'{"a":' + b"7" * 5_000 + b"}",
    "a lone surrogate": b'{"a":"\\ud800"}',
    "a lone low surrogate": b'{"a":"x\\udc00y"}',
    "surrogates in the wrong order": b'{"a":"\\udc00\\ud800"}',
    "a lone surrogate in a key": b'{"\\ud800":1}',
    "a surrogate in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "an overlong byte": b'{"a":"\xc0\xaf"}',
    "Latin-1": '{"a":"é"}'.encode("latin-1"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-16 without mark": '{"a":1}'.encode("utf-16-le"),
    "UTF-32": '{"a":1}'.encode("utf-32"),
    "a broken escape": b'{"a":"\\x41"}',
    "depth 65": nested(65),
    "depth 10,000": nested(10_000),
    "lists of depth 10,000": b"[" * 10_000 + b"]" * 10_000,
    "brackets without end": b"[" * 500_000,
    "braces without end": b'{"a":' * 150_000,
    "XML": b"<a/>",
    "a form": b"a=1&b=2",
    "gzip": gzip.compress(b"{}"),
}
