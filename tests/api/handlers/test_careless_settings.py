"""Settings of an organisation that are hardly meant, in `/health`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.api.handlers.test_policy_files import serving


async def test_where_nothing_guards_the_root_any_more_it_is_told(tmp_path: Path) -> None:
    """Whoever means to add a folder has put a list of one in the place of what is shipped."""
    async with serving(tmp_path) as service:
        file = service.settings.policies_dir / "settings/default.yaml"
        file.parent.mkdir()

        async def warnings(*folders: str) -> list[Any]:
            settings = {"systemFolders": folders} if folders else {"paymentLimit": 5}
            document = {"apiVersion": "governance/v1", "kind": "OrganisationSettings"}
            document |= {"organisationId": "default"}
            file.write_text(json.dumps(document | {"settings": settings}), encoding="utf-8")
            service.context.live.reload()
            found = (await service.call("nobody", "GET", "/health")).json()["policies"]
            assert found["errors"] == [] and isinstance(found["warnings"], list)
            return found["warnings"]

        (warning,) = await warnings("/data")
        assert warning["file"] == "settings/default.yaml"
        assert "sets `systemFolders` without `/`, so that nothing keeps agents from" in warning["message"]
        assert await warnings("/", "/data") == []
        assert await warnings() == []
