"""What lies around a log whose old records went: the mark, a copy, another key, other nodes, the API."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.audit import checkpoints, records
from api.audit.checkpoints import Body, Checkpointer, Dropped
from api.audit.installation_key import InstallationKey
from api.audit.mark import AuditMark
from api.audit.retention import carried
from api.audit.retention.record_retention import RecordRetention
from api.audit.verification import Expectation, verify
from api.database.connection import Database
from api.database.moving import move
from api.database.transaction import Transaction
from tests.api.audit.retention.test_record_retention import call, serving
from tests.harness.application import Service
from tests.harness.dropping import (
    DAY,
    DAYS,
    changed,
    cleaned,
    log_of,
    rekeyed,
    retention_of,
    signed,
    verified,
)
from tests.harness.postgres import Postgres
from tests.harness.watching import look


async def test_the_mark_beside_the_database_knows_what_was_dropped(tmp_path: Path) -> None:
    """Even where nobody noted anything since."""
    async with serving(tmp_path) as service:
        checkpointer, mark = Checkpointer(service.context.audit_key), AuditMark(service.settings)
        service.clock.advance(-40 * DAY)
        await call(service, 6, "look")
        service.clock.advance(2)
        assert await service.context.writer.write(checkpointer.sign) is not None
        mark.follow(checkpointer, service.context.store)
        service.clock.advance(40 * DAY)
        await cleaned(service)
        assert mark.lacks() == []
        mark.follow(checkpointer, service.context.store)
        assert not mark.behind
        await changed(service, "DELETE FROM audit_carried")
        assert mark.lacks()[0].signed == 20


@pytest.mark.postgres
async def test_a_copy_goes_on_behind_the_certificate(tmp_path: Path, postgres: Postgres) -> None:
    async with serving(tmp_path) as service:
        await cleaned(service)
        await call(service, 6, "look")
        await signed(service)
        key = service.context.audit_key.public
    url = postgres.create()
    move.copy(tmp_path / "data" / "governance.sqlite", url, lambda *_: None, lambda: None)
    with closing(Database(url)) as store:
        found = store.read_here(lambda: verify(store, "default", [key]))
        assert (found["problems"], found["dropped"]["records"]) == ([], 19)
    postgres.drop(url)


@pytest.mark.parametrize("spoilt", [False, True])
async def test_a_new_key_vouches_for_what_the_old_one_has_signed(tmp_path: Path, spoilt: bool) -> None:
    """Also for a certificate of the old one; but not where something between was changed."""
    async with serving(tmp_path) as service:
        await cleaned(service)
        await call(service, 6, "look")
        await signed(service)
        store, writer = service.context.store, service.context.writer
        new = await rekeyed(service)
        service.clock.advance(40 * DAY)
        assert await cleaned(service) == 0, "the old key signs no more"
        if spoilt:
            await changed(service, "UPDATE checkpoints SET signature = '00' WHERE number = 4")
        gone = await RecordRetention(store, writer, new, DAYS).clean(service.clock())
        assert (gone == 0) is spoilt
        assert (await verified(service, trusted=(new.public,)))["valid"] is not spoilt


async def test_that_nothing_is_signed_behind_a_certificate_yet_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of young checkpoints the key of before has signed some, and the new one none since."""
    async with serving(tmp_path) as service:
        await call(service, 6, "look")
        await signed(service)
        store, writer = service.context.store, service.context.writer
        new = await rekeyed(service)
        await look(service)
        await writer.write(Checkpointer(new).sign)
        assert await RecordRetention(store, writer, new, DAYS).clean(service.clock()) > 0
        assert "is not whole" not in caplog.text
        assert (await verified(service, trusted=(new.public,)))["problems"] == []


async def test_what_was_noted_before_it_was_signed_is_missed_by_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await call(service, 6, "look")
        noted = await verified(service)
        assert noted["unsigned"] == 1 and noted["signedHash"] not in (None, noted["lastHash"])
        await call(service, 7, "look")
        await signed(service)
        expected = Expectation(noted["count"], noted["lastHash"], noted["signedHash"], noted["checkpoint"])
        assert (await verified(service, expected=expected))["problems"] == []
        await cleaned(service)
        assert (await verified(service, expected=expected))["problems"] == []
        service.clock.advance(40 * DAY)
        await call(service, 8, "look")
        await signed(service)
        await cleaned(service)
        found = await verified(service, expected=expected)
        assert found["problems"] == [] and "is as it was noted" in found["notes"][-1]
        for each, words in (
            (replace(expected, signed=None), "only the last ones of each checkpoint are known"),
            (replace(expected, signed="0" * 63 + "1"), "nor has any the hash"),
            (replace(expected, checkpoint=found["checkpoint"]), "no record has the hash"),
        ):
            assert words in (await verified(service, expected=each))["problems"][0]


async def test_two_nodes_make_one_certificate(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        await look(service)
        await asyncio.gather(*(retention_of(service).clean(service.clock()) for _ in range(4)))
        assert [type for _, _, type in await log_of(service)] == ["audit.dropped"]
        assert (await verified(service))["problems"] == []


async def test_what_the_interface_says_of_dropped_records(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        records = (await service.call("admin", "GET", "/v1/audit?limit=1000&type=decision")).json()
        run: Any = (await service.call("admin", "GET", "/v1/runs/run-1")).json()
        await cleaned(service)
        gone = await service.call("admin", "GET", f"/v1/audit/{records[0]['auditId']}")
        assert gone.status_code == 404 and "GOVERNANCE_AUDIT_DAYS=30" in gone.json()["detail"]
        assert (await service.call("admin", "GET", "/v1/audit?type=decision")).json() == []
        (said,) = (await service.call("admin", "GET", "/v1/audit")).json()
        assert said["type"] == "audit.dropped" and said["details"]["records"] == 19
        exported = (await service.call("admin", "GET", "/v1/audit?format=jsonl")).text
        assert len(exported.splitlines()) == 1
        found = (await service.call("admin", "GET", "/v1/audit/verify")).json()
        assert found["valid"] and found["dropped"]["records"] == 19
        assert (await service.call("admin", "GET", "/v1/runs/run-1")).json() == run, "runs stay as they are"
        # An agent acts on nothing that cannot be proved.
        again = await service.report(
            "agent", "again", "tool.called", toolCallId="c-2", toolName="look", inputPayload={"n": 2}
        )
        assert again.json()["toolCallStatus"] == "blocked"
        assert "is not kept any more" in again.json()["reason"]
        assert (await verified(service))["problems"] == []
        pending = (await service.call("reviewer", "GET", "/v1/approvals?status=pending")).json()
        path = f"/v1/approvals/{pending[0]['approvalId']}"
        assert (await service.call("reviewer", "POST", f"{path}/approve", {})).status_code == 200
        withheld = await service.call("agent", "GET", path)
        assert withheld.status_code == 409 and "is not kept any more" in withheld.json()["detail"]
        assert (await verified(service))["problems"] == []


async def test_whoever_reads_page_by_page_goes_on_and_an_export_is_never_a_part(
    tmp_path: Path, database_url: str
) -> None:
    async with serving(tmp_path, database_url) as service:
        await call(service, 6, "look")
        await signed(service)
        first = await service.call("admin", "GET", "/v1/audit?order=asc&limit=3")
        read = service.context.store.read
        chosen = await read(records.up_to_now, records.Filter("default"))
        _, after = await read(records.export_lines, chosen, 3, None, True)
        # There may be more by now, of the service's own accord.
        newest = await read(records.up_to_now, records.Filter("default"))
        behind = dict(newest.ends or {})
        assert await cleaned(service) > 0
        with pytest.raises(records.DroppedMeanwhile, match="export again"):
            await read(records.export_lines, chosen, 3, after, True)
        await read(records.export_lines, chosen, 3, behind, True)
        following = first.headers["Link"].split("cursor=")[1].split("&")[0].split(">")[0]
        rest = await service.call("admin", "GET", f"/v1/audit?order=asc&limit=3&cursor={following}")
        assert [each["type"] for each in rest.json()] == ["decision", "audit.dropped"]
        whole = (await service.call("admin", "GET", "/v1/audit?format=jsonl")).text
        assert len(whole.splitlines()) == 2


async def test_a_certificate_of_a_key_of_their_own_is_found(tmp_path: Path) -> None:
    """Somebody cuts the log, and writes the certificate themselves: the first, or one after the right one."""
    async with serving(tmp_path) as service:
        store = service.context.store
        rows = await read_rows(
            service, "SELECT sequence, hash, at FROM audit WHERE organisation_id = 'default'"
        )
        end = (int(rows[9][0]), str(rows[9][1]), str(rows[9][2]))
        body = carried.body_of({}, {}, (), {})

        def forge(transaction: Transaction) -> None:
            last = checkpoints.newest(store)
            assert last is not None
            dropped = Dropped(
                before=transaction.at,
                carried={"default": carried.digest_of(body)},
                chains={"default": {"0": end}},
                setting="GOVERNANCE_AUDIT_DAYS=30",
                until=1,
            )
            key, number = InstallationKey(b"f" * 32), last.number + 1
            made = Body(
                at=transaction.at,
                chains={},
                dropped=dropped,
                number=number,
                previous=last.digest,
                publicKey=key.public.text,
            )
            checkpoints.put(store, made, key)
            carried_row = ("default", number, body.decode())
            store.insert_many("audit_carried", ("organisation_id", "number", "body"), [carried_row])

        await service.context.writer.write(forge)
        await changed(
            service, f"DELETE FROM audit WHERE organisation_id = 'default' AND sequence <= {end[0]}"
        )
        found = await verified(service)
        assert "signed with another key" in found["problems"][0] and not found["valid"]
        assert await cleaned(service) == 0


async def read_rows(service: Service, statement: str) -> list[tuple[Any, ...]]:
    store = service.context.store
    return await store.read(store.rows, statement)
