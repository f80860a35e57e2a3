"""When checkpoints are made."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from api.audit import checkpoints
from api.audit.checkpoints import Checkpointer
from tests.api.audit.test_verification import played, verified
from tests.harness.application import Service


def test_a_clock_that_was_ahead_does_not_hold_up_the_signing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(service: Service) -> None:
        checkpointer = Checkpointer(service.context.audit_key)
        write, store = service.context.writer.write, service.context.store
        service.clock.advance(86_400)
        assert await write(checkpointer.sign) is not None
        service.clock.advance(-86_400)
        await service.report("agent", 6, "tool.called", toolCallId="c-4", toolName="look", inputPayload={})
        assert checkpointer.anything_new(store) and not checkpointer.lags
        monkeypatch.setattr(checkpoints, "monotonic", lambda: time.monotonic() + 11)
        assert checkpointer.lags
        assert await write(checkpointer.sign) is not None
        assert not checkpointer.lags and (await verified(service))["unsigned"] == 0

    played(tmp_path, steps)
