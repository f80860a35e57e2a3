"""Every request that writes, with a fault at every statement it makes and at its commit, on both databases.

`test_database_faults.py` tells what all can be wrong with a database; this, that it is no matter which
request meets it: a refusal, not a row changed, and the same request goes through once the fault is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.database_faults import ERRORS, Faults, intact, payment, post, refused
from tests.faults.test_disk_faults import EVENTS, HOLD, WIRES
from tests.harness.application import Service, event

HOOK = {"url": "https://hooks.example/here", "events": EVENTS}
KINDS = (ERRORS["an I/O error"], ERRORS["a full disk"])

Answer = Awaitable[httpx.Response]
Prepare = Callable[[Service, str], Awaitable[Any]]
Act = Callable[[Service, str, Any], Answer]


async def nothing(_service: Service, _name: str) -> None:
    """Some requests need nothing to be there before."""


async def approval(service: Service, name: str) -> str:
    return str((await post(service, payment(name))).json()["approvalId"])


async def new_hook(service: Service, name: str) -> str:
    answer = await service.call("admin", "POST", "/v1/webhooks", {**HOOK, "description": name})
    return str(answer.json()["webhookId"])


async def new_key(service: Service, name: str) -> str:
    return str((await service.call("admin", "POST", "/v1/api-keys", {"name": name})).json()["keyId"])


async def new_policy(service: Service, name: str) -> str:
    await service.answered(
        "admin", "POST", "/v1/policies", {**WIRES, "policyId": name, "name": name}, status=201
    )
    return name


async def stopped(service: Service, name: str) -> None:
    await halt(service, name)


def halt(service: Service, name: str) -> Answer:
    body = {"scope": "agent", "agentId": name, "reason": "odd"}
    return service.call("admin", "POST", "/v1/halt", body)


def resume(service: Service, name: str) -> Answer:
    return service.call("admin", "POST", "/v1/resume", {"scope": "agent", "agentId": name})


def run_completed(service: Service, name: str) -> Answer:
    body = event(f"end-{name}", "run.completed", "2026-01-31T09:30:00Z", {"runId": f"run-{name}"})
    return service.call("agent", "POST", "/v1/events", body)


def patch(service: Service, name: str, action: str) -> Answer:
    return service.call("admin", "PATCH", f"/v1/policies/{name}", {"action": action})


def resolve(service: Service, approval_id: str, way: str) -> Answer:
    return service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/{way}", {})


REQUESTS: dict[str, tuple[Prepare, Act]] = {
    "an approval": (approval, lambda s, _, found: resolve(s, found, "approve")),
    "a rejection": (approval, lambda s, _, found: resolve(s, found, "reject")),
    "the end of a run": (approval, lambda s, name, _: run_completed(s, name)),
    "a halt": (nothing, lambda s, name, _: halt(s, name)),
    "the end of a halt": (stopped, lambda s, name, _: resume(s, name)),
    "a webhook": (nothing, lambda s, _, __: s.call("admin", "POST", "/v1/webhooks", HOOK)),
    "a webhook's end": (new_hook, lambda s, _, it: s.call("admin", "DELETE", f"/v1/webhooks/{it}")),
    "a new secret": (new_hook, lambda s, _, it: s.call("admin", "POST", f"/v1/webhooks/{it}/rotate", {})),
    "a webhook's change": (
        new_hook,
        lambda s, _, it: s.call("admin", "PATCH", f"/v1/webhooks/{it}", {"events": ["run.failed"]}),
    ),
    "a key": (nothing, lambda s, name, _: s.call("admin", "POST", "/v1/api-keys", {"name": name})),
    "a key's end": (new_key, lambda s, _, it: s.call("admin", "DELETE", f"/v1/api-keys/{it}")),
    "a policy": (nothing, lambda s, n, _: s.call("admin", "POST", "/v1/policies", {**HOLD, "policyId": n})),
    "a looser policy": (new_policy, lambda s, name, _: patch(s, name, "warn")),
    "a policy's end": (new_policy, lambda s, n, _: s.call("admin", "DELETE", f"/v1/policies/{n}")),
}


async def state(service: Service) -> dict[str, list[str]]:
    """Every row there is, and the policies in force."""

    def read() -> dict[str, list[str]]:
        store = service.context.store
        # Leases are taken and renewed at any time.
        tables = [n for n in store.peewee.get_tables() if not n.startswith("sqlite_") and n != "lanes"]
        return {name: sorted(map(repr, store.rows(f'SELECT * FROM "{name}"'))) for name in tables}

    rules = service.context.live.ruleset("default")
    in_force = sorted(f"{each.policy_id} {each.action}" for each in rules.policies.values())
    return await service.context.store.read(read) | {"in force": in_force}


@pytest.mark.slow
@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_fault_at_every_statement(
    request_: str, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, act = REQUESTS[request_]
    # Nothing is delivered meanwhile: the first attempt is an hour away.
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_WEBHOOK_RETRY": "3600"}
    async with Service(tmp_path, [HOLD, WIRES], live=True, environment=environment) as service:
        await new_hook(service, "all")
        faults = Faults(service, events=False)
        refusals = 0
        with faults.installed(monkeypatch):
            for step in range(200):
                faults.error, status = KINDS[step % len(KINDS)]
                name = f"n{step}"
                prepared = await prepare(service, name)
                before = await state(service)
                faults.at, faults.reached = step, False
                answer = await act(service, name, prepared)
                faults.at = None
                if answer.is_success:
                    # The end; or the commit stood and what failed came after it.
                    assert await state(service) != before
                    if not faults.reached:
                        break
                    continue
                assert faults.reached, answer.text
                refused(answer, status)
                refusals += 1
                assert await state(service) == before, f"step {step} left something"
                answer = await act(service, name, prepared)
                assert answer.is_success, f"step {step}: {answer.text}"
            else:
                raise AssertionError("there is no end to the steps")
            assert refusals >= 3
        await intact(service)
