"""The newest certificate: which records are gone, or may go, and who says so.

It is the checkpoint that the newest of what is carried belongs to. Whether it is the one that was signed is
for `verification.py`; here it is believed, so nothing that is allowed may hang on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from peewee import fn

from api.audit.checkpoints import Checkpoint, Dropped
from api.audit.installation_key import PublicKey
from api.database.models import AuditCarried, AuditCheckpoint


@dataclass(frozen=True, slots=True)
class Certificate:
    checkpoint: Checkpoint
    key: PublicKey
    """That it names as the one it is signed with."""
    at: str
    dropped: Dropped

    @property
    def number(self) -> int:
        return self.checkpoint.number

    def written_until(self, organisation_id: str) -> str:
        """When the youngest of an organisation's records was written that may be gone; empty: none is."""
        ends = self.dropped.chains.get(organisation_id, {}).values()
        return max((at for _, _, at in ends), default="")

    @property
    def told(self) -> str:
        """Why a record is not there, for people."""
        return (
            f"the records of before {self.dropped.before} were dropped since {self.at}, as"
            f" {self.dropped.setting} says"
        )


def newest_number() -> int:
    """0: there is none."""
    return int(AuditCarried.select(fn.MAX(AuditCarried.number)).scalar() or 0)


def newest_certificate(number: int | None = None) -> Certificate | None:
    """That of this number, if it is known; None also when it cannot be read."""
    wanted = newest_number() if number is None else number
    row = AuditCheckpoint.get_or_none(AuditCheckpoint.number == wanted)
    if row is None:
        return None
    checkpoint = Checkpoint(row.number, row.body, row.signature)
    body = checkpoint.read()
    if body is None or body.dropped is None:
        return None
    return Certificate(checkpoint, PublicKey(body.publicKey), body.at, body.dropped)
