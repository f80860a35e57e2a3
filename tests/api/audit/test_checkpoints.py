"""When checkpoints are made."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from pathlib import Path

import pytest

from api import cli
from api.audit import checkpointer, checkpoints
from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import InstallationKey
from api.audit.mark import AuditMark
from tests.api.audit.test_verification import serving
from tests.harness.application import Service
from tests.harness.dropping import changed, verified


async def test_a_clock_that_was_ahead_does_not_hold_up_the_signing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as service:
        signer = Checkpointer(service.context.audit_key)
        write, store = service.context.writer.write, service.context.store
        service.clock.advance(86_400)
        assert await write(signer.sign) is not None
        service.clock.advance(-86_400)
        await service.report("agent", 6, "tool.called", toolCallId="c-4", toolName="look", inputPayload={})
        assert signer.anything_new(store) and not signer.lags
        monkeypatch.setattr(checkpoints, "monotonic", lambda: time.monotonic() + 11)
        assert signer.lags
        assert await write(signer.sign) is not None
        assert not signer.lags and (await verified(service))["unsigned"] == 0


async def signed(service: Service, signer: Checkpointer, number: int) -> None:
    """One more record, and a checkpoint of it."""
    service.clock.advance(2)
    fields = {"toolCallId": f"call-{number}", "toolName": "look", "inputPayload": {}}
    assert (await service.report("agent", number, "tool.called", **fields)).status_code == 200
    assert await service.context.writer.write(signer.sign) is not None


async def test_checkpoints_that_were_removed_leave_a_gap(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        signer = Checkpointer(service.context.audit_key)
        await signed(service, signer, 6)
        await changed(service, "DELETE FROM checkpoints")
        assert signer.complete
        await signed(service, signer, 7)
        assert not signer.complete
        found = await verified(service)
        (problem,) = found["problems"]
        assert problem.startswith("checkpoints 1 to 2 are missing")
        assert (found["valid"], found["checkpoint"], found["unsigned"]) == (False, 3, 0)
        await signed(service, signer, 8)
        await changed(service, "DELETE FROM checkpoints WHERE number = 3")
        (problem,) = (await verified(service))["problems"]
        assert problem.startswith("checkpoints 1 to 3 are missing")


async def test_what_follows_missing_checkpoints_is_held_against_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        signer = Checkpointer(service.context.audit_key)
        for number in range(6, 9):
            await signed(service, signer, number)
        await changed(service, "DELETE FROM checkpoints WHERE number = 2")
        found = await verified(service)
        (problem,) = found["problems"]
        assert problem.startswith("checkpoint 2 is missing")
        assert (found["checkpoint"], found["unsigned"]) == (4, 0)
        await changed(service, "UPDATE checkpoints SET number = 2 WHERE number = 3")
        found = await verified(service)
        assert "checkpoint 2 was changed" in found["problems"][0], found["problems"]
        assert found["checkpoint"] == 1


async def test_the_key_that_signs_is_on_an_endpoint_and_in_every_backup(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await signed(service, Checkpointer(service.context.audit_key), 6)
        told = (await service.call("viewer", "GET", "/v1/audit/key")).json()
        public = service.context.audit_key.public
        assert (told["publicKey"], told["keyId"]) == (public.text, public.key_id)
        settings = service.settings
        await asyncio.to_thread(
            cli.main, ["backup", str(tmp_path / "copy"), "--data-dir", str(settings.data_dir)]
        )
        with contextlib.closing(sqlite3.connect(tmp_path / "copy")) as copy:
            bodies = [json.loads(body) for (body,) in copy.execute("SELECT body FROM checkpoints")]
        assert bodies and {body["publicKey"] for body in bodies} == {public.text}


async def test_the_log_says_where_the_key_of_a_restored_database_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`audit rekey` keeps the file of before under the id of its key."""
    monkeypatch.setattr(checkpointer, "EVERY_SECONDS", 0.01)
    async with serving(tmp_path) as service:
        settings, context = service.settings, service.context
        file = settings.data_dir / "audit-key"
        file.write_text("6f" * 32)
        changed_to = Checkpointer(InstallationKey(b"o" * 32))
        arguments = (changed_to, context.store, context.writer, AuditMark(settings), settings)
        await service.report("agent", 6, "tool.called", toolCallId="c-4", toolName="look", inputPayload={})
        await checkpointer.keep_signing(*arguments)
        assert "copy the file `audit-key` from the data folder of the node that began" in caplog.text
        kept = file.with_name(f"audit-key.{context.audit_key.public.key_id}")
        kept.touch()
        await checkpointer.keep_signing(*arguments)
        assert f"put `{kept}`, the key of then, in the place of `{file}`, and start again" in caplog.text
