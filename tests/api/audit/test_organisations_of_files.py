"""Files of an organisation that was never made are on record, and are no sign that one was removed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from api.database.transaction import Transaction
from api.store import accounts
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import changed, log_of, signed, verified

SETTINGS = """\
apiVersion: governance/v1
kind: OrganisationSettings
organisationId: othr
settings:
  companyDomains: [a.example]
  notifications:
    ops: {type: slack, secret: hook, events: [agent.halted]}
"""


async def test_a_name_that_is_mistyped_or_comes_too_early_leaves_the_log_valid(
    tmp_path: Path, database_url: str
) -> None:
    environment = {"GOVERNANCE_DATABASE_URL": database_url}
    async with Service(tmp_path, POLICIES, live=True, environment=environment) as service:
        folder = service.settings.policies_dir
        (folder / "settings").mkdir(exist_ok=True)
        (folder / "settings/othr.yaml").write_text(SETTINGS, encoding="utf-8")
        policy = (folder / "policies/no-wipes.yaml").read_text(encoding="utf-8")
        (folder / "organisations/othr").mkdir(parents=True)
        (folder / "organisations/othr/no-wipes.yaml").write_text(policy, encoding="utf-8")
        service.context.live.reload()
        await recorded(service, 2)
        await signed(service)
        found = await verified(service, "othr")
        assert (found["valid"], found["problems"]) == (True, [])
        assert "there is no organisation `othr`, and there never was" in found["notes"][0]

        (folder / "organisations/othr/no-wipes.yaml").unlink()
        service.context.live.reload()
        await recorded(service, 3)
        assert (await verified(service, "othr"))["valid"] is True

        def make(transaction: Transaction) -> None:
            accounts.add_organisation(transaction, "othr", "Othr", "cli")

        await service.context.writer.write(make)
        await signed(service)
        found = await verified(service, "othr")
        assert (found["valid"], found["notes"], found["unsigned"]) == (True, [], 0)

        await changed(service, "DELETE FROM organisations WHERE organisation_id = 'othr'")
        found = await verified(service, "othr")
        assert "the organisation `othr` is gone from the database" in found["problems"]

        await changed(
            service,
            "UPDATE audit SET type = 'policy.changed'"
            " WHERE organisation_id = 'othr' AND type = 'organisation.created'",
        )
        found = await verified(service, "othr")
        assert "the organisation `othr` is gone from the database" in found["problems"]


async def recorded(service: Service, least: int) -> list[Any]:
    """Of the organisation that is not there, once there are so many."""
    for _ in range(200):
        if len(found := await log_of(service, "othr")) >= least:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it is not on record")
