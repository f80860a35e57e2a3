"""The servers that are compared: how each is given the same rules, started, asked and read.

Each is set up as its own documentation says; nothing of the rivals is kept here. Versions are pinned, what
they depend on is not. Access logs are off where there is a switch, as they are in the service.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.bench import load, served
from tests.bench.contender import Contender, ask, from_npm, from_pypi, python_from, run, serve, written
from tests.bench.load import Measured
from tests.bench.rules import Call, Rule
from tests.bench.served import KEY, Server

DAY = Path(__file__).parent / "day.py"


# ---- ours and the peer of a day --------------------------------------------------------------------------


class Ours(Contender):
    """The service as `governance serve` starts it, with one worker."""

    name = "this service"
    started = "`governance serve`, SQLite"
    request = "`POST /v1/events`, one `tool.called` with a new `eventId`"
    keeps = "event, call, decision, approval, rate counts, chained audit entry, webhook rows"
    durable = "durable"
    path = "/v1/events"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.headers = {"X-API-Key": KEY}

    def install(self) -> None:
        pass

    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        target = place / "rules" / "policies"
        target.mkdir(parents=True)
        for policy in policies(rules) or [{**policies([_NEVER])[0], "enabled": False}]:
            document = {"apiVersion": "governance/v1", "kind": "Policy", **policy}
            (target / f"{policy['policyId']}.yaml").write_text(json.dumps(document), encoding="utf-8")
        return served.service(place / "data", place / "rules")

    def body(self, call: Call, number: int) -> dict[str, Any]:
        return {
            "eventId": f"evt-{number}",
            "runId": "run-1",
            "agentId": "agent-1",
            "timestamp": "2026-01-31T09:30:00.125Z",
            "eventType": "tool.called",
            "metadata": {
                "toolCallId": f"call-{number}",
                "toolName": call.tool,
                "inputPayload": call.payload,
            },
        }

    def held(self, answer: dict[str, Any]) -> bool:
        return bool(answer["toolCallStatus"] != "allowed")

    def load(self, server: Server, folder: Path, calls: Sequence[Call], **how: Any) -> Measured:
        """Every event is a new one: a repeated `eventId` would be answered from what was stored."""
        tails = (
            '",' + json.dumps({"toolName": call.tool, "inputPayload": call.payload})[1:] + "}"
            for call in calls
        )
        return load.run(folder, server.port, KEY, written(folder / "tails", tails), **how)


class Day(Ours):
    """`day.py` beside this file."""

    name = "a day's FastAPI + SQLAlchemy"
    registry = "PyPI"
    packages = ("fastapi==0.165.0", "sqlalchemy==2.1.9", "uvicorn[standard]==0.54.0")
    started = "`python tests/bench/day.py`, SQLite"
    keeps = "event with its decision, approval, chained audit entry"

    def install(self) -> None:
        from_pypi(self.place, self.packages)

    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        given = written(place / "policies.json", [json.dumps(policies(rules))])
        environment = {
            "DAY_PORT": str(served.free_port()),
            "DAY_KEY": KEY,
            "DAY_POLICIES": str(given),
            "DAY_DATABASE": str(place / "day.sqlite"),
        }
        return serve(place, [from_pypi(self.place, self.packages), DAY], environment, "/health")


_NEVER = Rule("never", "none", 1, "block")


def policies(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    return [
        {
            "policyId": rule.name,
            "name": rule.name,
            "action": rule.action,
            "enabled": True,
            "matchConditions": [
                {"field": "toolName", "operator": "equals", "value": rule.tool},
                {"field": "inputPayload.amount", "operator": "greater_than", "value": rule.bound},
            ],
        }
        for rule in rules
    ]


# ---- rivals ----------------------------------------------------------------------------------------------


class PolicyServer(Contender):
    """The policy server of Microsoft's Agent Governance Toolkit."""

    name = "Agent Governance Toolkit, policy server"
    registry = "PyPI"
    packages = ("agentmesh-platform[server]==3.7.0",)
    started = "`python -m agentmesh.server policy-server`, `LOG_LEVEL=warning`"
    request = (
        "`POST /api/v1/policy/evaluate`: action and context,"
        " against rules like `action == 'x' and params.amount > 9`"
    )
    keeps = "nothing"
    durable = "nothing"
    path = "/api/v1/policy/evaluate"

    def install(self) -> None:
        from_pypi(self.place, self.packages)

    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        document = {
            "apiVersion": "governance.toolkit/v1",
            "name": "bench",
            "agents": ["*"],
            "default_action": "allow",
            "rules": [
                {
                    "name": rule.name,
                    "condition": f"action == '{rule.tool}' and params.amount > {rule.bound}",
                    "action": "deny" if rule.action == "block" else rule.action,
                }
                for rule in rules
            ],
        }
        written(place / "bench.yaml", [json.dumps(document)])
        environment = {
            "PORT": str(served.free_port()),
            "HOST": "127.0.0.1",
            "LOG_LEVEL": "warning",
            "AGENTMESH_POLICY_DIR": str(place),
        }
        program = from_pypi(self.place, self.packages)
        return serve(place, [program, "-m", "agentmesh.server", "policy-server"], environment, "/readyz")

    def body(self, call: Call, number: int) -> dict[str, Any]:
        return {
            "agent_did": "did:mesh:agent-1",
            "action": call.tool,
            "resource": call.payload["account"],
            "context": {"params": call.payload},
        }

    def held(self, answer: dict[str, Any]) -> bool:
        return bool(answer["decision"] != "allow")


class Cerbos(Contender):
    """Cerbos, a policy decision point in Go. A tool is an action; a rule denies it above an amount."""

    name = "Cerbos"
    registry = "npm"
    packages = ("cerbos@0.51.0",)
    started = "`cerbos server --config=...`, policies on disk, decision log off (as it comes)"
    request = "`POST /api/check/resources`: one resource with the payload as attributes, one action"
    keeps = "nothing"
    durable = "nothing"
    path = "/api/check/resources"

    def install(self) -> None:
        from_npm(self.place, self.packages)

    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        everything = {"actions": ["*"], "effect": "EFFECT_ALLOW", "roles": ["*"]}
        denials = [
            {
                "actions": [rule.tool],
                "effect": "EFFECT_DENY",
                "roles": ["*"],
                "condition": {"match": {"expr": f"request.resource.attr.amount > {rule.bound}"}},
            }
            for rule in rules
        ]
        policy = {
            "apiVersion": "api.cerbos.dev/v1",
            "resourcePolicy": {"resource": "call", "version": "default", "rules": [everything, *denials]},
        }
        (place / "policies").mkdir()
        written(place / "policies" / "call.yaml", [json.dumps(policy)])
        port = served.free_port()
        config = {
            "server": {
                "httpListenAddr": f"127.0.0.1:{port}",
                "grpcListenAddr": f"127.0.0.1:{served.free_port()}",
            },
            "storage": {
                "driver": "disk",
                "disk": {"directory": str(place / "policies"), "watchForChanges": False},
            },
        }
        settings = written(place / "config.yaml", [json.dumps(config)])
        program = from_npm(self.place, self.packages) / "cerbos"
        environment = {"CERBOS_NO_TELEMETRY": "1", "BENCH_PORT": str(port)}
        return serve(place, [program, "server", f"--config={settings}"], environment, "/_cerbos/health")

    def body(self, call: Call, number: int) -> dict[str, Any]:
        return {
            "requestId": f"call-{number}",
            "principal": {"id": "agent-1", "roles": ["agent"]},
            "resources": [
                {"actions": [call.tool], "resource": {"kind": "call", "id": "1", "attr": call.payload}}
            ],
        }

    def held(self, answer: dict[str, Any]) -> bool:
        (effect,) = answer["results"][0]["actions"].values()
        return bool(effect == "EFFECT_DENY")


class AgentGate(Contender):
    """agentgate: it has no rules; every write of an agent without bypass waits for a person."""

    name = "agentgate"
    registry = "npm"
    packages = ("agentgate@0.16.0",)
    started = "`agentgate start`, SQLite; admin, account and key made by its web forms"
    request = "`POST /api/queue/github/bench/submit`: one write, which always waits for a person"
    keeps = "the waiting write"
    durable = "durable"
    always = True
    path = "/api/queue/github/bench/submit"

    def install(self) -> None:
        from_npm(self.place, self.packages)

    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        program = from_npm(self.place, self.packages) / "agentgate"
        environment = {"PORT": str(served.free_port()), "AGENTGATE_DATA_DIR": str(place)}
        server = serve(place, [program, "start"], environment, "/health")
        base = f"http://127.0.0.1:{server.port}/ui"
        with httpx.Client(trust_env=False, timeout=30) as http:
            password = "of the benchmark only"
            ask(
                http.post,
                f"{base}/setup-password",
                data={"password": password, "confirmPassword": password},
            )
            ask(http.post, f"{base}/github/setup", data={"accountName": "bench", "token": "none"})
            made = ask(
                http.post,
                f"{base}/keys/create",
                data={"name": "bench"},
                headers={"Accept": "application/json"},
            )
        self.headers = {"Authorization": f"Bearer {made.json()['key']}"}
        return server

    def body(self, call: Call, number: int) -> dict[str, Any]:
        write = {"method": "POST", "path": f"/{call.tool}", "body": call.payload}
        return {"requests": [write], "comment": "bench"}

    def held(self, answer: dict[str, Any]) -> bool:
        return bool(answer["status"] == "pending")


class AgentControl(Contender):
    """Agent Control: controls in PostgreSQL, evaluated by its server."""

    name = "Agent Control"
    registry = "PyPI"
    packages = ("agent-control-server[binary]==8.15.0",)
    started = "`agent-control-migrate upgrade head`, `agent-control-server`; PostgreSQL on the load's core"
    request = "`POST /api/v1/evaluation`: a tool step, against controls with a step name and a `max`"
    keeps = "nothing of the call (reads its controls from the database each time)"
    durable = "nothing"
    path = "/api/v1/evaluation"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.databases: list[Any] = []

    def install(self) -> None:
        from_pypi(self.place, self.packages, python_from(12))

    def start(self, place: Path, rules: Sequence[Rule]) -> Server:
        from tests.harness.postgres import Postgres

        programs = (self.place / "bin").resolve()
        postgres = Postgres()
        self.databases.append(postgres)
        postgres.start()
        url = postgres.create().replace("postgresql://", "postgresql+psycopg://")
        environment = {
            "AGENT_CONTROL_PORT": str(served.free_port()),
            "AGENT_CONTROL_HOST": "127.0.0.1",
            "AGENT_CONTROL_DB_URL": url,
            "AGENT_CONTROL_ACCESS_LOG": "false",
        }
        given = [f"{name}={value}" for name, value in environment.items()]
        run(["env", *given, programs / "agent-control-migrate", "upgrade", "head"], 120, "its migration")
        server = serve(place, [programs / "agent-control-server"], environment, "/health")
        with httpx.Client(
            base_url=f"http://127.0.0.1:{server.port}/api/v1", trust_env=False, timeout=60
        ) as http:
            agent = {"agent_name": "bench-agent", "agent_version": "1"}
            ask(http.post, "/agents/initAgent", json={"agent": agent, "steps": []})
            for rule in rules:
                made = ask(http.put, "/controls", json={"name": rule.name, "data": self.control(rule)})
                ask(http.post, f"/agents/bench-agent/controls/{made.json()['control_id']}")
        return server

    def control(self, rule: Rule) -> dict[str, Any]:
        bound = {"field_constraints": {"amount": {"type": "number", "max": rule.bound}}}
        return {
            "enabled": True,
            "execution": "server",
            "scope": {"step_types": ["tool"], "step_names": [rule.tool], "stages": ["pre"]},
            "condition": {"selector": {"path": "input"}, "evaluator": {"name": "json", "config": bound}},
            "action": {"decision": "deny"},
        }

    def body(self, call: Call, number: int) -> dict[str, Any]:
        step = {"type": "tool", "name": call.tool, "input": call.payload}
        return {"agent_name": "bench-agent", "step": step, "stage": "pre"}

    def held(self, answer: dict[str, Any]) -> bool:
        return not answer["is_safe"]

    def stop(self, server: Server) -> None:
        server.stop()
        while self.databases:
            self.databases.pop().close()


CONTENDERS: tuple[type[Contender], ...] = (Ours, Day, AgentGate, AgentControl, PolicyServer, Cerbos)
