"""Long polls: who waits is woken, what ends ends, and nobody costs the others anything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path

import msgspec
import pytest

from api.auth.credentials import Credentials
from api.caller import Caller
from api.handlers import approvals as approval_handlers
from tests.harness.application import PEOPLE, Service
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")


def serving(folder: Path, **environment: str) -> Service:
    return Service(folder, [HOLD], environment=environment)


async def held(service: Service, number: int | str = 1) -> str:
    """A call that waits for a reviewer; its approval's id."""
    answer = await service.report("agent", number, "tool.called", toolCallId=f"call-{number}", toolName="pay")
    return str(answer.json()["approvalId"])


@pytest.mark.parametrize("what", ["approvals", "runs"])
async def test_a_key_that_is_revoked_ends_its_wait(tmp_path: Path, what: str) -> None:
    async with serving(tmp_path) as service:
        name = await held(service) if what == "approvals" else "run-1"
        await held(service)
        waiting = asyncio.create_task(service.call("agent", "GET", f"/v1/{what}/{name}?wait=60"))
        await asyncio.sleep(0.1)
        key_id = service.callers["agent"].key_id
        begun = time.monotonic()
        revoked = await service.call("admin", "DELETE", f"/v1/api-keys/{key_id}")
        assert revoked.status_code < 300, revoked.text
        answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize("what", ["approvals", "runs"])
@pytest.mark.parametrize(
    "change", [{"password": "another long password"}, {"enabled": False}, {"role": "viewer"}]
)
async def test_a_person_whose_token_ended_gets_no_answer_to_a_wait(
    tmp_path: Path, what: str, change: dict[str, object]
) -> None:
    async with serving(tmp_path) as service:
        name = await held(service)
        name = name if what == "approvals" else "run-1"
        people = (await service.call("admin", "GET", "/v1/users")).json()
        user_id = next(each["userId"] for each in people if each["email"] == PEOPLE["reviewer"][1])
        waiting = asyncio.create_task(service.call("reviewer", "GET", f"/v1/{what}/{name}?wait=240"))
        while not service.context.hub.busy.is_set():
            await asyncio.sleep(0.01)
        await service.answered("admin", "PATCH", f"/v1/users/{user_id}", change)
        answer = await asyncio.wait_for(waiting, 60)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_what_is_halted_does_not_read_as_free_to_act(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        approval = await held(service)
        await service.call("reviewer", "POST", f"/v1/approvals/{approval}/approve")
        for number in (2, 3):
            await service.report("agent", number, "tool.called", toolCallId=f"call-{number}", toolName="look")
        await service.report("agent", 4, "tool.completed", toolCallId="call-3", outputPayload={})
        halt = await service.call("admin", "POST", "/v1/halt", {"agentId": "mailer", "reason": "look first"})
        run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        why = "halted by admin@acme.example: look first"
        assert [call.get("halted") for call in run["toolCalls"]] == [why, why, None]
        assert [call["status"] for call in run["toolCalls"]] == ["blocked", "blocked", "allowed"]
        assert [call.get("blockedReason") for call in run["toolCalls"]] == [why, why, None]
        path = f"/v1/approvals/{approval}"
        read = (await service.call("agent", "GET", f"{path}?wait=60")).json()
        assert (read["status"], read["decisionReason"], read["halted"]) == ("rejected", why, why)
        assert read["resolvedBy"] == "admin@acme.example"
        for person in ("reviewer", "admin"):
            shown = (await service.call(person, "GET", path)).json()
            assert (shown["status"], shown["halted"]) == ("approved", why)
        await service.call("admin", "POST", "/v1/resume", {"haltId": halt.json()["haltId"]})
        run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        assert [call["status"] for call in run["toolCalls"]] == ["allowed"] * 3
        assert not any("halted" in call for call in run["toolCalls"])
        read = (await service.call("agent", "GET", path)).json()
        assert read["status"] == "approved" and "halted" not in read


async def test_many_agents_wait_and_all_are_woken(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        approval_id = await held(service)
        waiting = [
            asyncio.create_task(service.call("agent", "GET", f"/v1/approvals/{approval_id}?wait=60"))
            for _ in range(200)
        ]
        await asyncio.sleep(1)
        began = time.monotonic()
        await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve")
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 10)
        assert {answer.json()["status"] for answer in answers} == {"approved"}
        assert time.monotonic() - began < 5
        assert not service.context.hub._waiting


async def test_what_is_no_news_costs_as_much_for_many_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    recheck = Credentials.recheck

    async def counted(self: Credentials, caller: Caller) -> None:
        nonlocal looks
        looks += 1
        await recheck(self, caller)

    monkeypatch.setattr(Credentials, "recheck", counted)
    async with serving(tmp_path) as service:
        await held(service)
        waiting = [
            asyncio.create_task(service.call("agent", "GET", "/v1/runs/run-1?wait=60")) for _ in range(50)
        ]
        while len(service.context.waits._waiting.get(service.callers["agent"].key_id, ())) < 50:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for number in range(20):
            await service.report("agent", f"note-{number}", "custom.note", text="nothing to be read")
            await asyncio.sleep(0.01)
        assert looks <= 20 and not any(task.done() for task in waiting)
        await held(service, 2)
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert {len(answer.json()["toolCalls"]) for answer in answers} == {2}
        assert looks <= 20 + 1 + 50
        assert not service.context.looks._under_way and not service.context.hub._waiting


async def test_a_credential_that_changes_wakes_nobody_who_waits_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    recheck = Credentials.recheck

    async def noted(self: Credentials, caller: Caller) -> None:
        if caller.role != "admin":
            looks.append(caller.kind)
        await recheck(self, caller)

    monkeypatch.setattr(Credentials, "recheck", noted)
    async with serving(tmp_path) as service:
        name = await held(service)
        waiting = [
            asyncio.create_task(service.call(who, "GET", f"/v1/{what}?wait=60"))
            for who in ("agent", "reviewer")
            for what in (f"approvals/{name}", "runs/run-1")
        ]
        while sum(map(len, service.context.hub._waiting.values())) < 4:
            await asyncio.sleep(0.01)
        made = (await service.call("admin", "POST", "/v1/api-keys", {"name": "another"})).json()
        await service.call("admin", "POST", f"/v1/api-keys/{made['keyId']}/rotate")
        await service.call("admin", "DELETE", f"/v1/api-keys/{made['keyId']}")
        people = (await service.call("admin", "GET", "/v1/users")).json()
        user_id = next(each["userId"] for each in people if each["email"] == PEOPLE["viewer"][1])
        await service.call("admin", "PATCH", f"/v1/users/{user_id}", {"enabled": False})
        assert not looks and not any(task.done() for task in waiting)
        await service.call("admin", "DELETE", f"/v1/api-keys/{service.callers['agent'].key_id}")
        ended = await asyncio.wait_for(asyncio.gather(*waiting[:2]), 60)
        assert [answer.status_code for answer in ended] == [401, 401]
        assert looks and set(looks) == {"key"} and not any(task.done() for task in waiting[2:])
        service.context.hub.close()
        await asyncio.gather(*waiting)


async def test_a_waiter_does_not_miss_what_happens_between_reading_and_listening(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for number in range(30):
            approval_id = await held(service, number)
            answer, _ = await asyncio.wait_for(
                asyncio.gather(
                    service.call("agent", "GET", f"/v1/approvals/{approval_id}?wait=60"),
                    service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve"),
                ),
                3,
            )
            assert answer.json()["status"] == "approved"


async def test_a_change_by_another_process_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody wakes the waiter here, so it has to look for itself."""
    monkeypatch.setattr(approval_handlers, "WAIT_CHECK", 0.1)
    async with serving(tmp_path) as service:
        approval_id = await held(service)
        service.context.writer.publish = lambda changes: None
        waiting = asyncio.create_task(service.call("agent", "GET", f"/v1/approvals/{approval_id}?wait=60"))
        await asyncio.sleep(0.05)
        await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve")
        answer = await asyncio.wait_for(waiting, 5)
        assert answer.json()["status"] == "approved"


async def test_a_stopping_service_lets_waiters_go(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        approval_id = await held(service)
        waiting = asyncio.create_task(service.call("agent", "GET", f"/v1/approvals/{approval_id}?wait=60"))
        await asyncio.sleep(0.1)
        service.context.hub.close()
        answer = await asyncio.wait_for(waiting, 5)
        assert answer.json()["status"] == "pending"


async def test_of_many_reviewers_exactly_one_wins(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, GOVERNANCE_DATABASE_URL=database_url) as service:
        people = [name for name, (organisation, _, role) in PEOPLE.items() if organisation == "default"]
        people = [name for name in people if name != "viewer"]
        for number in range(10):
            approval_id = await held(service, number)
            answers = await asyncio.gather(
                *(
                    service.call(who, "POST", f"/v1/approvals/{approval_id}/{verb}")
                    for who in people
                    for verb in ("approve", "reject")
                )
            )
            won = [answer.json() for answer in answers if answer.status_code == 200]
            lost = [answer.json() for answer in answers if answer.status_code == 409]
            assert (len(won), len(lost)) == (1, len(answers) - 1)
            assert all(body["approval"] == won[0] for body in lost)
            run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
            status = {"approved": "allowed", "rejected": "blocked"}[won[0]["status"]]
            assert run["toolCalls"][-1]["status"] == status
        records = (await service.call("admin", "GET", "/v1/audit?type=approval.resolved")).json()
        assert len(records) == 10


async def test_resolving_and_running_off_at_once_leaves_one_truth(tmp_path: Path) -> None:
    """Approval, expiry, cancelling and the agent's repeated call race; approval and call always agree."""
    async with serving(tmp_path) as service:
        for number in range(20):
            approval_id = await held(service, number)
            fields = {"toolCallId": f"call-{number}", "toolName": "pay"}
            await asyncio.gather(
                service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve"),
                service.report("agent", f"{number}-again", "tool.called", **fields),
                service.report("agent", f"{number}-end", "run.completed", cancelApprovals=True),
                service.housekeeping(),
            )
            approval = (await service.call("reviewer", "GET", f"/v1/approvals/{approval_id}")).json()
            run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
            call = next(call for call in run["toolCalls"] if call["approvalId"] == approval_id)
            assert (approval["status"], call["status"]) in {("approved", "allowed"), ("cancelled", "blocked")}


async def test_a_long_audit_log_is_exported_whole_and_verifies_outside(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await asyncio.gather(
            *(
                service.report("agent", number, "tool.called", toolCallId=f"c{number}", toolName="look")
                for number in range(2_300)
            )
        )
        total = int((await service.call("admin", "GET", "/v1/audit?limit=1")).headers["x-total-count"])
        for order in ("asc", "desc"):
            answer = await service.call("admin", "GET", f"/v1/audit?format=jsonl&order={order}")
            records = [msgspec.json.decode(line) for line in answer.text.splitlines()]
            assert len(records) == total > 2_300
            if order == "desc":
                records.reverse()
            previous = "0" * 64
            for number, record in enumerate(records, 1):
                digest = record.pop("hash")
                assert record["previousHash"] == previous and record["sequence"] == number
                # As anybody would check it, with nothing of ours.
                text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                assert hashlib.sha256(text.encode()).hexdigest() == digest
                previous = digest
        verification = (await service.call("admin", "GET", "/v1/audit/verify")).json()
        expected = {"valid": True, "count": total, "firstBroken": None, "lastHash": previous, "problems": []}
        assert expected.items() <= verification.items()


async def test_health_without_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as service:

        def broken(*_arguments: object) -> None:
            raise OSError("gone")

        with monkeypatch.context() as patch:
            patch.setattr(service.context.store.peewee, "execute_sql", broken)
            body = await service.answered("nobody", "GET", "/health", status=503)
            assert (body["status"], body["database"]) == ("unavailable", "disconnected")
            assert (await service.call("nobody", "GET", "/health/ready")).status_code == 503
            assert (await service.call("nobody", "GET", "/health/live")).status_code == 200
            text = (await service.call("nobody", "GET", "/metrics")).text
            assert "governance_database_up 0.0" in text and "approvals_pending" not in text
        assert (await service.call("nobody", "GET", "/health")).status_code == 200
