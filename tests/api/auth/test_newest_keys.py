"""The key table in memory is the newest that was read, whatever its counter says."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from api.auth.credentials import Credentials, key_digest
from api.clock import random_ids
from api.database.connection import Database
from api.database.transaction import Transaction
from api.http.problems import ApiError
from api.store import accounts


def test_a_key_counts_where_a_copy_of_the_database_lacks_the_last_changes(tmp_path: Path) -> None:
    """The counter of the copy is behind what is remembered, after a change too; no event has to come."""
    with contextlib.closing(Database(f"sqlite:///{tmp_path}/g.sqlite")) as store:
        store.migrate()
        credentials = Credentials(store, b"secret" * 8, 60)

        def add(transaction: Transaction, key: str) -> str:
            added = accounts.add_key(transaction, "default", key, key_digest(key), "gov", "admin")
            return str(added["keyId"])

        async def known(key: str) -> bool:
            try:
                return bool(await credentials.from_key(key, "127.0.0.1", certain=True))
            except ApiError:
                return False

        with store.transaction():
            transaction = Transaction(store, 0.0, random_ids, None)
            kept = add(transaction, "kept")
            transaction.flush()
        with pytest.raises(RuntimeError), store.transaction():
            transaction = Transaction(store, 0.0, random_ids, None)
            for number in range(50):
                add(transaction, f"lost {number}")
            credentials.load_keys()
            raise RuntimeError
        with store.transaction():
            transaction = Transaction(store, 0.0, random_ids, None)
            add(transaction, "new")
            accounts.revoke_key(transaction, "default", kept, "admin")
            transaction.flush()
        credentials.load_keys()  # as after each change of keys
        assert [asyncio.run(known(key)) for key in ("lost 1", "kept", "new")] == [False, False, True]
