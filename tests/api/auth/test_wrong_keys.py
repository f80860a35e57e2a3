"""Wrong API keys slow down the address that sends them, and nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from api.auth.credentials import WRONG_KEYS_AT_ONCE, key_digest
from api.auth.throttle import Throttle
from api.database.connection import Database
from api.database.transaction import Transaction
from api.http.problems import ApiError
from api.store import accounts
from tests.harness.application import Service, event
from tests.harness.running_service import Served
from tests.harness.sql_archive import in_transaction

EVENT = event(1, "custom.ping", "2026-01-01T00:00:00Z", {})


def ask(service: Served, key: str, address: str = "192.0.2.1", path: str = "/v1/runs") -> Any:
    headers = {"X-API-Key": key, "X-Forwarded-For": address}
    if path == "/v1/events":
        return service.call(headers, "POST", path, EVENT)
    return service.call(headers, "GET", path)


def test_wrong_keys_are_slowed_down_by_address(tmp_path: Path) -> None:
    with Served(tmp_path) as service:
        wrong = [ask(service, f"agk_{number}") for number in range(300)]
        statuses = [answer.status_code for answer in wrong]
        assert statuses.count(401) <= WRONG_KEYS_AT_ONCE + 10 and statuses[-1] == 429
        assert wrong[-1].json()["code"] == "rate_limited"
        assert 1 <= int(wrong[-1].headers["Retry-After"]) <= 2
        # On the path of events too; but the right key passes, and other addresses have a rate of their own.
        # (One wrong key a second is let in, which may be the first of these.)
        assert 429 in [ask(service, "agk_x", path="/v1/events").status_code for _ in range(3)]
        for path in ("/v1/runs", "/v1/events"):
            assert ask(service, service.api_key, path=path).status_code == 200
        assert ask(service, "agk_x", "192.0.2.2").status_code == 401
        service.clock.ahead = 5
        assert ask(service, "agk_x").status_code == 401


async def test_a_key_that_another_process_has_just_made_is_right(tmp_path: Path) -> None:
    """Also for an address that is slowed down, and however many wrong ones come with it."""

    def make(store: Database) -> None:
        def job(transaction: Transaction) -> None:
            accounts.add_key(transaction, "default", "new", key_digest("agk_new"), "agk_new", "test")

        in_transaction(store, job, 0.0)

    async with Service(tmp_path, []) as service:
        credentials, store = service.context.credentials, service.context.store

        async def status(key: str) -> int:
            try:
                await credentials.from_key(key, "192.0.2.1")
            except ApiError as error:
                return {"unauthenticated": 401, "rate_limited": 429}[error.code]
            return 200

        while await status("agk_wrong") == 401:
            """Until it is slowed down."""
        looks, look = [], credentials._catch_up

        async def counted() -> None:
            looks.append(1)
            await look()

        credentials._catch_up = counted  # type: ignore[method-assign]
        await asyncio.to_thread(make, store)
        statuses = await asyncio.gather(*(status(f"agk_{n}") for n in range(50)), status("agk_new"))
        assert statuses == [429] * 50 + [200]
        assert len(looks) <= 2


def test_a_rate_is_kept_per_address() -> None:
    now = [0.0]
    throttle = Throttle(3, 0.5, lambda: now[0])
    for _ in range(3):
        assert throttle.wait("a") == 0
        throttle.count("a")
    assert (throttle.wait("a"), throttle.wait("b")) == (2, 0)
    now[0] = 2.0
    assert throttle.wait("a") == 0
    throttle.count("a")
    assert throttle.wait("a") == 2
    now[0] = 1_000.0
    for _ in range(3):
        assert throttle.wait("a") == 0
        throttle.count("a")
    assert throttle.wait("a") == 2
