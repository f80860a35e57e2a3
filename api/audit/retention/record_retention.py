"""Lets records of the audit log go that are too old: first a certificate, then the rows.

INVARIANT: no record goes that no committed certificate names. Whoever dies in between leaves rows that the
certificate covers; they lead up to it, and the next round deletes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

from api.audit import checkpoints
from api.audit.checkpoints import Body
from api.audit.installation_key import InstallationKey
from api.audit.retention.certificate import Certificate, newest_certificate, newest_number
from api.audit.retention.cut import Cut, Cutting, NotWhole
from api.audit.retention.partitions import LeavingRows, delete, drop, leaving
from api.clock import DAY, iso
from api.database.audit_chain import ChainName
from api.database.connection import Database
from api.database.partitions.upkeep import midnight
from api.database.transaction import Transaction
from api.database.writer import Writer

log = logging.getLogger("governance")

AHEAD_SECONDS: Final = 3_600.0
"""What was signed so much later than now was signed by a clock that was wrong."""
PAUSE: Final = 0.02
"""Between two steps, for everybody else."""
MOST_AT_ONCE: Final = 500


class RecordRetention:
    """Of one process, used by one task at a time; 0 days: everything stays."""

    def __init__(self, store: Database, writer: Writer, key: InstallationKey, days: int) -> None:
        self._store = store
        self._writer = writer
        self._key = key
        self.days = days
        """That count now; another number counts from the next `clean` on."""
        self._certified_before = ""
        """Up to when nothing is left to certify."""
        self._deleted = (0, "")
        """The certificate whose records are gone, as far as they are of before a time."""

    async def clean(self, now: float) -> int:
        """Let go what is due now; returns how many records this process has deleted."""
        if not self.days:
            return 0
        before = midnight(now - self.days * DAY)
        total = await self._delete(before)
        while self._certified_before != before and await self._certify(before, now):
            total += await self._delete(before)
        return total

    async def _certify(self, before: str, now: float) -> bool:
        """One certificate; False: none is due now."""
        cutting = Cutting(
            self._store,
            self._key.public,
            before,
            iso(now + AHEAD_SECONDS),
            f"GOVERNANCE_AUDIT_DAYS={self.days}",
        )
        steps = cutting.steps()
        try:
            while await self._store.read(_step, steps):
                await asyncio.sleep(PAUSE)
        except NotWhole as problem:
            log.error(
                "nothing is dropped from the audit log, for it is not whole: %s; run `governance audit"
                " verify`",
                problem,
            )
            self._certified_before = before
            return False
        if cutting.cut is None:
            if cutting.finished and not cutting.waits:
                self._certified_before = before
            return False
        if await self._writer.write(partial(certify, cut=cutting.cut, key=self._key)):
            records, said = sum(cutting.cut.records.values()), cutting.cut.dropped
            log.info("retention drops %d audit records, signed up to %s", records, said.before)
        return True  # or another node was faster

    async def _delete(self, before: str) -> int:
        """What the newest certificate lets go."""
        known, total = await self._store.read(self._undeleted, before), 0
        while known is not None:
            part = await self._store.read(leaving, self._store, known, before, self.days)
            if part is None:
                self._deleted = known.number, before
                break
            if isinstance(part, LeavingRows):
                for name, last in part.ends.items():
                    total += await self._delete_rows(name, last)
            elif not await self._store.read(drop, self._store, part):
                break
            else:
                log.info("retention dropped `%s` of the audit log", part.partition.name)
        return total

    def _undeleted(self, before: str) -> Certificate | None:
        """The newest certificate, unless all is gone that can go with it."""
        return None if (newest_number(), before) == self._deleted else newest_certificate()

    async def _delete_rows(self, name: ChainName, last: int) -> int:
        total = 0
        while gone := await self._writer.write(partial(delete, name=name, last=last, most=MOST_AT_ONCE)):
            total += gone
            await asyncio.sleep(PAUSE)
        return total


def _step(steps: Iterator[None]) -> bool:
    """False: that was the last."""
    return next(steps, _END) is not _END


_END: Final = object()


def certify(transaction: Transaction, cut: Cut, key: InstallationKey) -> bool:
    """A job: the checkpoint that lets the records go, what is carried of them, and a record that says so.
    False: another node was faster."""
    store = transaction.store
    last = checkpoints.newest(store)
    if last is None or last.follows != key.public or newest_number() != cut.after:
        return False
    number = last.number + 1
    rows = [(name, number, body.decode()) for name, body in cut.bodies.items()]
    store.insert_many("audit_carried", ("organisation_id", "number", "body"), rows)
    made = Body(
        at=transaction.at,
        chains={},
        dropped=cut.dropped,
        number=number,
        previous=last.digest,
        publicKey=key.public.text,
    )
    checkpoints.put(store, made, key)
    for name, count in cut.records.items():
        details = {
            "before": cut.dropped.before,
            "checkpoint": number,
            "records": count,
            "setting": cut.dropped.setting,
        }
        transaction.audit(name, "audit.dropped", actor="service", details=details)
    return True
