"""Files and API together, through HTTP: a broken file is reported and left alone, and what was stays."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.database.transaction import Transaction
from api.store import accounts
from engine.worktree import markers
from engine.worktree.markers import Replaced
from tests.harness.application import Service
from tests.harness.conversation import check_shape
from tests.harness.places import SHIPPED
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")

OTHER = {"apiVersion": "governance/v1", "kind": "Policy", "policyId": "other"} | HOLD


def serving(tmp_path: Path, **environment: str) -> Service:
    return Service(tmp_path, [HOLD], live=True, environment=environment)


async def until(check: Any) -> Any:
    """The first true answer of `check`; the watcher needs a moment."""
    for _ in range(200):
        if found := await check():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to pass")


async def logged(caplog: pytest.LogCaptureFixture, message: str) -> None:
    async def found() -> bool:
        return message in caplog.text

    await until(found)


async def test_a_broken_file_is_a_conflict_and_stays_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "policies" / "hold-payments.yaml"
        broken = file.read_text(encoding="utf-8").replace("require_approval", "requires_approval")
        file.write_text(broken, encoding="utf-8")
        problem = await service.answered(
            "admin", "PATCH", "/v1/policies/hold-payments", {"enabled": False}, status=409
        )
        assert problem["code"] == "policy_file_invalid"
        assert problem["errors"][0]["file"] == "policies/hold-payments.yaml"
        assert problem["errors"][0]["line"] > 0
        assert "did you mean `require_approval`" in problem["errors"][0]["message"]
        assert file.read_text(encoding="utf-8") == broken

        async def stale() -> Any:
            found = (await service.call("nobody", "GET", "/health")).json()
            return found if found["policies"]["stale"] else None

        health = await until(stale)
        assert health["status"] == "ok"
        assert "policies/hold-payments.yaml" in str(health["policies"]["errors"])
        decided = await service.report("agent", 1, "tool.called", toolCallId="c-1", toolName="pay")
        assert decided.json()["toolCallStatus"] == "awaiting_approval"


async def test_an_edit_on_disk_counts_before_the_one_by_the_api(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "policies" / "hold-payments.yaml"
        file.write_text(
            file.read_text(encoding="utf-8").replace("Hold payments", "Hold all payments"), "utf-8"
        )
        answer = await service.answered("admin", "PATCH", "/v1/policies/hold-payments", {"action": "block"})
        assert answer["name"] == "Hold all payments"
        assert answer["version"] == 3
        history = (await service.call("viewer", "GET", "/v1/policies/hold-payments/versions")).json()
        assert [(entry["version"], entry["source"]) for entry in history["versions"]] == [
            (2, "file"),
            (1, "file"),
        ]


async def test_health_names_files_that_nobody_reads_and_policies_that_govern_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as service:
        folder = service.settings.policies_dir
        good = (folder / "policies/hold-payments.yaml").read_text(encoding="utf-8")
        (folder / "organisations/othr").mkdir(parents=True)
        (folder / "organisations/othr/hold-payments.yaml").write_text(good, encoding="utf-8")
        for name in ("forgotten.yaml.txt", "hold-payments.yaml.bak"):
            (folder / "policies" / name).write_text(good, encoding="utf-8")
        (folder / "settings").mkdir(exist_ok=True)
        (folder / "settings/othr.yaml").write_text(
            "apiVersion: governance/v1\nkind: OrganisationSettings\norganisationId: othr\n"
            "settings: {companyDomains: [a.example]}\n",
            encoding="utf-8",
        )
        service.context.live.reload()

        async def loaded() -> Any:
            answer = await service.call("nobody", "GET", "/health")
            return answer if answer.json()["policies"]["count"] == 2 else None

        answer = await until(loaded)
        check_shape("GET", "/health", answer)
        policies = answer.json()["policies"]
        assert (answer.status_code, policies["stale"]) == (200, False)
        assert [each["file"] for each in policies["warnings"]] == [
            "policies/forgotten.yaml.txt",
            "organisations/othr",
            "settings/othr.yaml",
        ]
        for warning in policies["warnings"][1:]:
            assert "did you mean `other`?" in warning["message"]
            await logged(caplog, warning["message"])

        def make(transaction: Transaction) -> None:
            accounts.add_organisation(transaction, "othr", "Othr", "cli")

        await service.context.writer.write(make)
        (folder / "policies/forgotten.yaml.txt").unlink()
        service.context.live.reload()
        assert (await service.call("nobody", "GET", "/health")).json()["policies"]["warnings"] == []


async def test_files_that_gave_way_are_named_until_an_admin_accepts(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        repository = service.context.live.repository
        files, at = repository.snapshot.files, service.clock.text
        path = "policies/hold-payments.yaml"
        found = [Replaced(path, files[path].digest, at), Replaced("policies/gone.yaml", None, at)]

        async def named() -> list[str]:
            repository.sync.current.look_for_replaced()
            answer = await service.call("nobody", "GET", "/health")
            check_shape("GET", "/health", answer)
            return [each["message"] for each in answer.json()["policies"]["warnings"]]

        async def accepted(who: str = "admin") -> Any:
            answer = await service.call(who, "POST", "/v1/policies/accept-replaced")
            check_shape("POST", "/v1/policies/accept-replaced", answer)
            return answer

        assert await named() == []
        assert (await accepted()).json() == {"accepted": []}
        service.clock.advance(1)
        found = [replace(each, at=service.clock.text) for each in found]
        markers.add_replaced(repository.worktree.disk, found)
        (told,) = await named()
        assert "`policies/gone.yaml`, `policies/hold-payments.yaml`" in told and "accept-replaced" in told
        assert (await accepted("other admin")).status_code == 409
        assert (await named()) == [told]
        assert (await accepted()).json() == {"accepted": ["policies/gone.yaml", path]}
        assert await named() == []
        (record,) = (await service.call("admin", "GET", "/v1/audit?type=policy.replaced_accepted")).json()
        assert record["details"] == {"count": 2, "files": ["policies/gone.yaml", path]}
        # What gives way later is told of again, until it is changed.
        service.clock.advance(1)
        markers.add_replaced(repository.worktree.disk, [replace(found[0], at=service.clock.text)])
        (told,) = await named()
        assert f": `{path}`;" in told
        assert (await service.call("admin", "PATCH", "/v1/policies/hold-payments", {"name": "x"})).is_success
        assert await named() == []


async def test_health_and_log_say_when_nothing_is_enforced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Disabled, in shadow mode, inactive, or not there: to a call it is the same."""
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "policies/hold-payments.yaml"
        good = json.loads(file.read_text(encoding="utf-8"))
        (condition,) = good["matchConditions"]

        async def warnings() -> list[str]:
            service.context.live.reload()
            answer = await service.call("nobody", "GET", "/health")
            check_shape("GET", "/health", answer)
            return [each["message"] for each in answer.json()["policies"]["warnings"]]

        assert await warnings() == []
        lacking = [condition | {"value": "{{companyDomains}}", "operator": "in"}]
        for change in ({"mode": "shadow"}, {"enabled": False}, {"matchConditions": lacking}, None):
            if change is None:
                file.unlink()
            else:
                file.write_text(json.dumps(good | change), encoding="utf-8")
            (warning,) = await warnings()
            assert "no policy is enforced, so that every call is allowed" in warning
            await logged(caplog, warning)
            file.write_text(json.dumps(good), encoding="utf-8")
            assert await warnings() == []


async def test_a_folder_of_a_version_without_detectors_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as service:
        folder = service.settings.policies_dir / "detectors"

        async def warnings() -> list[Any]:
            service.context.live.reload()
            answer = await service.call("nobody", "GET", "/health")
            check_shape("GET", "/health", answer)
            found: list[Any] = answer.json()["policies"]["warnings"]
            return found

        assert await warnings() == [], "an empty folder says that none is meant"
        folder.rmdir()
        (warning,) = await warnings()
        assert warning["file"] == "detectors" and "nothing unusual raises an alert" in warning["message"]
        (folder.parent / "policies/other.yaml").write_text(json.dumps(OTHER), encoding="utf-8")
        assert len(await warnings()) == 1
        await logged(caplog, warning["message"])
        own = service.settings.policies_dir / "organisations/other/detectors"
        own.mkdir(parents=True)
        shutil.copy(SHIPPED / "detectors/enforcement-gap.yaml", own)
        assert await warnings() == []


async def test_where_nobody_can_agree_to_changes_it_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:

        async def warnings() -> list[str]:
            service.context.live.reload()
            answer = await service.call("nobody", "GET", "/health")
            return [each["message"] for each in answer.json()["policies"]["warnings"]]

        settings: dict[str, Any] = {"apiVersion": "governance/v1", "kind": "OrganisationSettings"}
        settings |= {"organisationId": "default", "settings": {"changes": {"approvers": 2}}}
        file = service.settings.policies_dir / "settings/default.yaml"
        file.parent.mkdir()
        file.write_text(json.dumps(settings), encoding="utf-8")
        assert await warnings() == []
        store, enable = service.context.store, service.context.writer.write
        users, _ = store.read_here(accounts.list_users, "default")
        second = next(user["userId"] for user in users if user["email"].startswith("second.admin"))
        for enabled in (False, True):
            change = partial(accounts.change_user, enabled=enabled)
            await enable(lambda transaction, c=change: c(transaction, "default", second, "cli:me"))
            found = await warnings()
            assert bool(found) is not enabled
            if found:
                assert "asks for 2 admins" in found[0] and "but 1 can log in: `governance users" in found[0]


async def test_a_policy_that_asks_for_what_there_is_not_is_told_of(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:

        async def warnings() -> list[str]:
            answer = await service.call("nobody", "GET", "/health")
            return [each["message"] for each in answer.json()["policies"]["warnings"]]

        asked = {"matchConditions": [{"field": "tool.kind", "operator": "equals", "value": "mails"}]}
        approval = {"approval": {"approvers": 5, "roles": ["admin"]}}
        policy = HOLD | asked | approval | {"name": "Mails", "enabled": True}
        assert await warnings() == []
        created = await service.call("admin", "POST", "/v1/policies", policy)
        people, vain = await warnings()
        assert people.startswith(
            "`mails` asks for 5 people to approve a call, each admin, but 2 can log in: "
        )
        assert vain == '`mails` of `default` asks in vain: `tool.kind` is never "mails"; did you mean `mail`?'
        better = {"matchConditions": HOLD["matchConditions"], "approval": {"approvers": 2}}
        path = f"/v1/policies/{created.json()['policyId']}"
        assert (await service.call("admin", "PATCH", path, better)).status_code == 200
        assert await warnings() == []


async def test_a_start_without_policies_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Service(tmp_path, [], live=True) as service:
        policies = (await service.call("nobody", "GET", "/health")).json()["policies"]
        assert [each["message"] for each in policies["warnings"]] == [
            "no policy is enforced, so that every call is allowed: there is none"
        ]
        assert policies["warnings"][0]["message"] in caplog.text


async def test_what_a_file_of_another_installation_takes_away_is_told_with_how_it_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names a version that nobody has made here; who edits what is in force leaves its number."""
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "policies/hold-payments.yaml"
        path = "/v1/policies/hold-payments"
        assert (await service.call("admin", "PATCH", path, {"action": "block"})).is_success
        made = file.read_text()
        assert "version: 2\n" in made

        async def told() -> Any:
            return [each.getMessage() for each in caplog.records if "brings it back" in each.getMessage()]

        for version in (2, 9):
            assert await told() == []
            file.write_text(made.replace("version: 2\n", f"version: {version}\n") + "# edited\n")
            service.context.live.reload()
            name = {"name": f"Beside {version}"}
            assert (await service.call("admin", "PATCH", path, name)).is_success
        (line,) = await until(told)
        assert "version 4 of the policy `hold-payments` is not in force any more" in line
        assert "says that it is version 9, which this database does not know" in line
        assert '`POST /v1/policies/hold-payments/rollback` with {"version": 4}' in line


async def test_what_a_checkout_takes_away_is_told_with_how_it_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "policies/hold-payments.yaml"
        before = file.read_bytes()
        assert (
            await service.call("admin", "PATCH", "/v1/policies/hold-payments", {"action": "block"})
        ).is_success
        made = {**HOLD, "policyId": "second", "enabled": True}
        assert (await service.call("admin", "POST", "/v1/policies", made)).is_success
        file.write_bytes(before)
        file.with_name("second.yaml").unlink()
        service.context.live.reload()

        async def lines() -> Any:
            told = [each.getMessage() for each in caplog.records if "brings it back" in each.getMessage()]
            return told if len(told) == 2 else None

        told = "\n".join(await until(lines))
        assert "version 2 of the policy `hold-payments` is not in force any more" in told
        assert "says again what version 1 said" in told
        assert "version 1 of the policy `second` is not in force any more" in told
        for policy_id, version in (("hold-payments", 2), ("second", 1)):
            assert f'`POST /v1/policies/{policy_id}/rollback` with {{"version": {version}}}' in told
            path = f"/v1/policies/{policy_id}/rollback"
            assert (await service.call("admin", "POST", path, {"version": version})).is_success
        answer = await service.report("agent", 1, "tool.called", toolCallId="c-1", toolName="pay")
        assert answer.json()["toolCallStatus"] == "blocked"


async def test_settings_that_go_with_their_file_are_told_with_how_they_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As by `git clean`, since the API made the file and nobody committed it."""
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "settings/default.yaml"
        file.parent.mkdir()
        text = (
            "apiVersion: governance/v1\nkind: OrganisationSettings\norganisationId: default\n"
            "settings: {companyDomains: [acme.example], changes: {approvers: 2}}\n"
        )
        file.write_text(text)
        service.context.live.reload()

        async def line(there: str) -> Any:
            return next((each for each in map(str, caplog.messages) if there in each), None)

        file.unlink()
        service.context.live.reload()
        told = await until(lambda: line("`settings/default.yaml` is gone"))
        assert "`changes`, `companyDomains` is not in force any more, so that one admin alone may" in told
        assert "version 1 stays in `GET /v1/organisation/settings/versions`" in told
        file.write_text(text)
        service.context.live.reload()
        file.write_text(text.replace("approvers: 2", "approvers: 1"))
        service.context.live.reload()
        told = await until(lambda: line("does not say so any more"))
        assert "of the settings of `default`, `changes` is not in force any more" in told


async def test_the_body_limit_is_a_setting(tmp_path: Path) -> None:
    async with serving(tmp_path, GOVERNANCE_MAX_BODY_BYTES="2048") as service:
        payload = {"text": "x" * 3000}
        answer = await service.report(
            "agent", 1, "tool.called", toolCallId="c-1", toolName="pay", inputPayload=payload
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


async def test_the_lifetime_of_tokens_is_a_setting(tmp_path: Path) -> None:
    async with serving(tmp_path, GOVERNANCE_TOKEN_SECONDS="60") as service:
        assert (await service.call("viewer", "GET", "/v1/me")).status_code == 200
        service.clock.advance(61)
        answer = await service.call("viewer", "GET", "/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
