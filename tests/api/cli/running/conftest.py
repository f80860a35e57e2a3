"""A service that runs for all tests of a file, and the commands that ask it, as one of its people."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.application import event
from tests.harness.command_line import run_command
from tests.harness.places import SHIPPED
from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.running_service import Served

HOLD = on_tool("Hold wires", "require_approval", "wire")
LABEL = policy_body("Label papers", "warn", where("inputPayload.paper", "exists"), labels={"add": ["secret"]})
HOLD_FOR_TWO = policy_body(
    "Hold for two",
    "require_approval",
    where("inputPayload.people", "equals", 2),
    approval={"approvers": 2, "roles": ["admin"]},
)


class Terminal(io.StringIO):
    """An input at which somebody sits."""

    def isatty(self) -> bool:
        return True


class Operator:
    """Somebody with a token, at a terminal that the tests type into."""

    def __init__(
        self, service: Served, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.service = service
        self.url = f"http://127.0.0.1:{service.port}"
        self.environment = monkeypatch
        self._capture = capture
        monkeypatch.setenv("GOVERNANCE_URL", self.url)
        self.leaves()
        self.become("admin")

    def become(self, who: str) -> None:
        token = self.service.credentials[who]["Authorization"].removeprefix("Bearer ")
        self.environment.setenv("GOVERNANCE_TOKEN", token)

    def types(self, text: str) -> None:
        self.environment.setattr(sys, "stdin", Terminal(text))

    def leaves(self) -> None:
        """Nobody sits there any more."""
        self.environment.setattr(sys, "stdin", io.StringIO())

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        return run_command(self._capture, *words)

    def done(self, *words: str | Path) -> str:
        code, output, error = self.run(*words)
        assert code == 0, output + error
        return output

    def json(self, *words: str | Path) -> Any:
        return json.loads(self.done(*words, "--json"))

    def refused(self, *words: str | Path, code: int = 1) -> str:
        got, output, error = self.run(*words)
        assert got == code, output + error
        return error

    def held(self, number: int, **payload: Any) -> str:
        """The approval of a call that waits."""
        return str(self._called(number, payload)["approvalId"])

    def held_status(self, number: int, **payload: Any) -> str:
        """What the service says of the same call."""
        return str(self._called(number, payload)["toolCallStatus"])

    def _called(self, number: int, payload: dict[str, Any]) -> dict[str, Any]:
        fields = {"agentId": "agent-1", "toolCallId": f"call-{number}", "toolName": "wire"}
        called = event(number, "tool.called", "2026-01-31T09:30:00Z", fields | {"inputPayload": payload})
        found: dict[str, Any] = self.service.answered("agent", "POST", "/v1/events", called)
        return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("service")
    for part in ("presets/integrity", "presets/secrets", "tools"):
        shutil.copytree(SHIPPED / part, folder / "policies.d" / part)
    packs = folder / "policies.d" / "packs"
    packs.mkdir()
    for name in ("integrity", "secrets"):
        shutil.copy(SHIPPED / "packs" / f"{name}.yaml", packs)
    with Served(
        folder, [HOLD, HOLD_FOR_TWO, LABEL], live=True, GOVERNANCE_WEBHOOK_ALLOW="127.0.0.1:9"
    ) as made:
        yield made


@pytest.fixture
def operator(
    service: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    return Operator(service, monkeypatch, capsys)
