"""The service against its own API document, by schemathesis: all its checks, as admin, agent and nobody.

A real `governance serve` with the shipped policies, over HTTP. By default a short run, with `LONG=1`
a longer one. What the checks are told is in `schemathesis.toml`, with reasons.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from api.server import openapi
from api.server.routes import ROUTES
from tests.harness.application import PASSWORD
from tests.harness.effort import LONG
from tests.harness.nodes import KEY, Node, called
from tests.harness.places import ROOT

ENDLESS = "/v1/stream"
"""Its answer never ends; it is tested in `test_waiting.py`."""


def test_the_document_is_openapi_3_1() -> None:
    document = openapi.document(ROUTES)
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


@dataclass
class Target:
    """A running service, and things in it that exist."""

    node: Node
    admin: dict[str, str]
    own_id: str
    known: dict[str, dict[str, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("schemathesis")
    shutil.copytree(ROOT / "policies.d", folder / "policies")
    changes = {"GOVERNANCE_TRUSTED_PROXIES": "127.0.0.1"}
    node = Node(folder / "node", f"sqlite:///{folder / 'governance.sqlite'}", folder / "policies", changes)
    try:
        yield _furnished(node.ready())
    finally:
        node.http.close()
        node.stop()


def _furnished(node: Node) -> Target:
    """One of everything that an address can name."""
    admin = node.admin()

    def call(method: str, path: str, body: Any = None, headers: dict[str, str] = admin) -> Any:
        answer = node.http.request(method, path, json=body, headers=headers)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()

    made = Target(node, admin, call("GET", "/v1/me")["userId"])
    hold = {"field": "toolName", "operator": "equals", "value": "hold_me"}
    policy = {"name": "Hold", "action": "require_approval", "enabled": True, "matchConditions": [hold]}
    ids = {"/v1/policies": call("POST", "/v1/policies", policy)["policyId"]}
    call("PATCH", f"/v1/policies/{ids['/v1/policies']}", {"description": "second"})
    person = {"email": "vera@example.com", "password": PASSWORD, "role": "viewer"}
    ids["/v1/users"] = call("POST", "/v1/users", person)["userId"]
    ids["/v1/api-keys"] = call("POST", "/v1/api-keys", {"name": "another"})["keyId"]
    hook = {"url": "https://127.0.0.1:9/", "events": ["run.failed"]}
    node_hook = {**hook, "url": "https://hooks.example.com/x"}
    ids["/v1/webhooks"] = call("POST", "/v1/webhooks", node_hook)["webhookId"]
    delivery = call("POST", f"/v1/webhooks/{ids['/v1/webhooks']}/test")["deliveryId"]
    held = called("held", "hold_me", "run-held")
    ids["/v1/approvals"] = call("POST", "/v1/events", held, {"X-API-Key": KEY})["approvalId"]
    ids["/access/v1/requests"] = ids["/v1/approvals"]
    tools = {"server": "files", "tools": [{"name": "frob", "definition": "0" * 64}]}
    ids["/v1/tool-proposals"] = call("POST", "/v1/tool-proposals", tools, {"X-API-Key": KEY})["proposalId"]
    ids["/v1/runs"] = "run-held"
    for path in openapi.document(ROUTES)["paths"]:
        for start, identifier in ids.items():
            if path.startswith(f"{start}/{{id}}"):
                made.known[path] = {"id": identifier}
                if "{deliveryId}" in path:
                    made.known[path]["deliveryId"] = delivery
    made.known["/v1/policy-presets/packs/{packId}/activate"] = {"packId": "starter"}
    presets = call("GET", "/v1/policy-presets")
    free = next(one["presetId"] for group in presets for one in group["presets"] if not one["activated"])
    made.known["/v1/policy-presets/{presetId}/activate"] = {"presetId": free}
    made.known["/v1/hooks/{host}"] = {"host": "claude-code"}
    made.known["/api/docs/{asset}"] = {"asset": "start.js"}
    return made


def _paths(option: str, callers: set[str], others: frozenset[str] = frozenset()) -> list[str]:
    """The option for each path whose routes are for some of these callers, and none for the others."""
    who: dict[str, set[str]] = {}
    for route in ROUTES:
        who.setdefault(openapi.path(route), set()).update(route.who)
    found = [path for path, allowed in who.items() if allowed & callers and not allowed & others]
    return [part for path in found for part in (option, path)]


SAME = ("update_policy", "simulate", "run_backtest", "update_detector", "put_tools", "update_tools")
"""Their bodies are made of the same schemas as those that create a policy, a detector and tools."""
SAME_BODIES = [part for operation in SAME for part in ("--exclude-operation-id", operation)]
AGENTS = _paths("--include-path", {"agent"})
AGENTS_ALONE = _paths("--exclude-path", {"agent"}, frozenset({"viewer", "reviewer", "admin"}))
ANYBODY = _paths("--include-path", {"anyone"})
DEADLINE = 1_200
"""Seconds for one run, which takes some 60 where nothing else goes on."""
RUNS = {
    "admin, every case of the schemas": (
        "admin",
        ["--phases", "coverage", *([] if LONG else [*AGENTS_ALONE, *SAME_BODIES])],
    ),
    "admin, random values": ("admin", ["--phases", "fuzzing", "-n", "25" if LONG else "4"]),
    "admin, sequences": ("admin", ["--phases", "stateful", "-n", "40" if LONG else "3"]),
    "agent, every case of the schemas": ("agent", ["--phases", "coverage", *AGENTS]),
    "agent, random values": ("agent", ["--phases", "fuzzing", "-n", "100" if LONG else "20", *AGENTS]),
    "nobody, every case of the schemas": (
        "nobody",
        ["--phases", "coverage", *([] if LONG else ANYBODY)],
    ),
    "nobody, random values": ("nobody", ["--phases", "fuzzing", "-n", "25" if LONG else "1"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_service_keeps_to_its_document(target: Target, tmp_path: Path, run: str) -> None:
    who, options = RUNS[run]
    headers = {"admin": target.admin, "agent": {"X-API-Key": KEY}, "nobody": {}}[who]
    finished = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            *("--config-file", str(ROOT / "tests" / "harness" / "schemathesis.toml")),
            *("run", f"http://127.0.0.1:{target.node.port}/api/openapi.json"),
            *("--exclude-path", ENDLESS, "--checks", "all", "--continue-on-failure", "--no-color"),
            *("--seed", "1", "--generation-database", "none", "--request-timeout", "20", "--warnings", "off"),
            *(part for name, value in headers.items() for part in ("--header", f"{name}: {value}")),
            *options,
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.harness.schemathesis_hooks",
            "TEST_OWN_USER_ID": target.own_id,
            "TEST_KNOWN_IDS": msgspec.json.encode(target.known).decode(),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert finished.returncode == 0, finished.stdout[-20_000:] + finished.stderr[-5_000:]
    answer = target.node.http.get("/health")
    assert answer.status_code == 200 and answer.json()["status"] == "ok"
    assert "Traceback" not in target.node.log
