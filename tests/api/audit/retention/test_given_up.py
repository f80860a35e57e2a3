"""Checkpoints that are missing, as after a failover to a copy that lacked the last commits: the record is not
whole until somebody who has its key says that this is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from api import cli
from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import InstallationKey, installation_key
from api.audit.retention.record_retention import RecordRetention
from tests.api.audit.retention.test_record_retention import YEAR, call
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import DAY, DAYS, changed, cleaned, rekeyed, verified
from tests.harness.watching import look


async def signed_on(service: Service, key: InstallationKey, numbers: range, lost: int = 0) -> None:
    """A call and a checkpoint of it each time; what follows the lost one goes on behind it."""
    signer = Checkpointer(key)
    for number in numbers:
        service.clock.advance(2)
        await call(service, number, "look")
        assert await service.context.writer.write(signer.sign) is not None
        if number == lost:
            await changed(
                service, "DELETE FROM checkpoints WHERE number = (SELECT MAX(number) FROM checkpoints)"
            )


async def asked(service: Service, *command: str) -> int:
    settings = service.settings
    place = ["--data-dir", str(settings.data_dir), "--database-url", settings.database]
    return await asyncio.to_thread(cli.main, ["audit", *command, *place])


async def accept(service: Service) -> int:
    return await asked(service, "accept-restored")


@pytest.mark.parametrize("new_key", [False, True])
async def test_what_is_known_to_be_missing_is_given_up(
    tmp_path: Path, database_url: str, new_key: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_TOKEN_SECONDS": str(YEAR)}
    async with Service(tmp_path, POLICIES, live=True, environment=environment) as service:
        key, store, writer = service.context.audit_key, service.context.store, service.context.writer
        await signed_on(service, key, range(1, 5), lost=2)
        (problem,) = (await verified(service))["problems"]
        assert "is missing" in problem and "accept-restored" in problem
        service.clock.advance(40 * DAY)
        assert await cleaned(service) == 0, "a certificate would cover it up"
        if new_key:
            key = await rekeyed(service)
        assert await accept(service) == 0
        assert "given up: checkpoint" in capsys.readouterr().out
        found = await verified(service, trusted=(key.public,))
        assert (found["valid"], found["problems"]) == (True, [])
        (note,) = [each for each in found["notes"] if "is missing" in each]
        assert "it was said that this is known" in note
        assert await accept(service) == 0
        assert "given up" not in capsys.readouterr().out
        await signed_on(service, key, range(5, 7))
        await look(service)
        assert await RecordRetention(store, writer, key, DAYS).clean(service.clock()) > 0
        assert (await verified(service, trusted=(key.public,)))["problems"] == []


async def test_nothing_else_that_is_missing_is_given_up(tmp_path: Path) -> None:
    async with Service(tmp_path, POLICIES, live=True) as service:
        await signed_on(service, service.context.audit_key, range(1, 6), lost=2)
        key = service.settings.data_dir / "audit-key"
        aside = key.rename(tmp_path / "elsewhere")
        assert await accept(service) == 1, "whoever has no key cannot sign that"
        assert not (await verified(service))["valid"]
        aside.rename(key)
        assert await accept(service) == 0
        assert (await verified(service))["valid"]
        gap = "SELECT number + 1 FROM checkpoints c WHERE NOT EXISTS"
        gap = f"({gap} (SELECT 1 FROM checkpoints n WHERE n.number = c.number + 1) ORDER BY number LIMIT 1)"
        await changed(service, f"DELETE FROM checkpoints WHERE number = {gap} + 1")
        (problem,) = (await verified(service))["problems"]
        assert "are missing" in problem
        forged = "UPDATE checkpoints SET body = replace(body, '\"givenUp\":[[', '\"givenUp\":[[1,1],[')"
        await changed(service, forged)
        assert not (await verified(service))["valid"]


@pytest.mark.parametrize("lost", [False, True])
async def test_what_was_given_up_stays_so_with_a_new_key(tmp_path: Path, lost: bool) -> None:
    async with Service(tmp_path, POLICIES, live=True) as service:
        key, store, writer = service.context.audit_key, service.context.store, service.context.writer
        await signed_on(service, key, range(1, 5), lost=2)
        assert await accept(service) == 0
        service.clock.advance(40 * DAY)
        if lost:
            (service.settings.data_dir / "audit-key").unlink()
            assert await asked(service, "rekey", "--lost") == 0
            key = installation_key(service.settings)
        else:
            key = await rekeyed(service)
        assert (await verified(service, trusted=(key.public,)))["problems"] == []
        await signed_on(service, key, range(5, 7))
        await look(service)
        assert await RecordRetention(store, writer, key, DAYS).clean(service.clock()) > 0
        assert (await verified(service, trusted=(key.public,)))["problems"] == []
