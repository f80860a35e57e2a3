"""The row of signed checkpoints, checked one by one, and what it says of each chain as that is walked.

Decides whose signature counts and that no checkpoint is missing. It must not know tables beside their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from api.audit import checkpoints
from api.audit.checkpoints import Body, Checkpoint, Dropped, Gap
from api.audit.installation_key import PublicKey
from api.database import audit_chain
from api.database.connection import Database

MOST_PROBLEMS = 100
OWN_COPY = (
    "there is no key file here, so the checkpoints were held against the public key that the database itself"
    " names: whoever can write to the database can have put a key of their own there. Name the key that was"
    " noted elsewhere with --public-key, or what an earlier check said with --expect"
)


@dataclass(frozen=True, slots=True)
class DroppedRecords:
    """How many records are gone, by which certificate, and why."""

    records: int
    before: str
    at: str
    setting: str
    checkpoint: int


@dataclass(slots=True)
class Verification:
    """What was found. `problems` are sentences, at most `MOST_PROBLEMS`."""

    count: int = 0
    last_hash: str = audit_chain.GENESIS
    first_broken: str | None = None
    signed: int = 0
    """Records that the checkpoints cover."""
    checkpoint: int = 0
    signed_hash: str | None = None
    """Of a record that the newest checkpoint with any of the organisation's covers last."""
    signed_at: str | None = None
    key_id: str | None = None
    dropped: DroppedRecords | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no fault, but must be known to judge."""
    gaps: list[Gap] = field(default_factory=list)
    """Of the checkpoints, as long as nobody has judged them."""

    def add(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def judge_gaps(self, given_up: Collection[Gap]) -> None:
        """Those that are missing are a fault, unless somebody who has the key has given up just these."""
        for gap in self.gaps:
            if gap in given_up:
                self.notes.append(f"{_missing(*gap)}; it was said that this is known (`accept-restored`)")
            else:
                self.add(f"{_missing(*gap)}{_WHY_MISSING}")
        self.gaps.clear()

    def shape(self) -> dict[str, Any]:
        return {
            "valid": not self.problems,
            "count": self.count,
            "firstBroken": self.first_broken,
            "lastHash": self.last_hash,
            "signed": self.signed,
            "unsigned": max(0, self.count - self.signed),
            "checkpoint": self.checkpoint,
            "signedHash": self.signed_hash,
            "signedAt": self.signed_at,
            "keyId": self.key_id,
            "dropped": self.dropped and asdict(self.dropped),
            "problems": self.problems,
            "notes": self.notes,
        }


def intact(
    store: Database,
    keys: Keys,
    found: Verification,
    last: int,
    since: int = 0,
    previous: str = checkpoints.FIRST,
) -> Iterator[tuple[Checkpoint, Body]]:
    """The checkpoints behind one (`previous` is its digest) up to the last: each for itself, and their row,
    up to the first that is not as it was signed. Where some are missing, which `gaps` tells, it goes on
    behind them."""
    expected = since + 1
    for each in checkpoints.after(store, since or -(1 << 62)):
        if each.number > last:
            return
        body = each.read()
        if body is not None and body.number == each.number > expected:
            found.gaps.append((expected, each.number - 1))
            expected, previous = body.number, body.previous
        if body is None or (each.number, body.number, body.previous) != (expected, expected, previous):
            found.add(f"checkpoint {each.number} was changed, or does not follow from the one before it")
            return
        key = PublicKey(body.publicKey)
        if not keys.goes_on(body):
            found.add(
                f"checkpoint {each.number} is signed with another key, `{key.key_id}`; if you changed the"
                " key, name the one of before too (--public-key)"
            )
            return
        if not each.is_signed(key):
            found.add(f"checkpoint {each.number} was changed: its signature does not hold")
            return
        expected, previous = expected + 1, each.digest
        yield each, body


class SignedRow:
    """All checkpoints, followed along with each chain of one organisation."""

    def __init__(
        self, store: Database, organisation_id: str, trusted: Collection[PublicKey], found: Verification
    ) -> None:
        self._store = store
        self._organisation_id = organisation_id
        self._found = found
        self.chains: dict[int, int] = {}
        """Those that checkpoints tell of, and how many records of each the last of them does."""
        self.certificates: list[tuple[int, Dropped]] = []
        """Those that let records go, with their numbers."""
        self.dropped_at = ""
        """When the newest of them was made."""
        newest = checkpoints.newest(store)
        keys = Keys(trusted, newest, found)
        given_up: set[Gap] = set()
        for each, body in intact(store, keys, found, newest.number if newest is not None else 0):
            found.checkpoint, found.signed_at = each.number, body.at
            found.key_id = PublicKey(body.publicKey).key_id
            for name, (count, digest) in body.chains.get(organisation_id, {}).items():
                self.chains[int(name)] = count
                found.signed_hash = digest
            given_up.update(body.givenUp)
            if body.dropped is not None:
                self._certify(each.number, body.at, body.dropped)
        found.judge_gaps(given_up)

    def _certify(self, number: int, at: str, dropped: Dropped) -> None:
        self.dropped_at = at
        if self.certificates:
            # Of those before only what they carry counts.
            before, said = self.certificates.pop()
            self.certificates.append((before, msgspec.structs.replace(said, chains={})))
        self.certificates.append((number, dropped))

    @property
    def gone(self) -> dict[int, tuple[int, str, str]]:
        """Chain to the last record that may be gone."""
        chains = self.certificates[-1][1].chains if self.certificates else {}
        return {int(name): end for name, end in chains.get(self._organisation_id, {}).items()}

    def follow(self, chain: int, unseen: set[str]) -> SignedChain:
        gone, digest, _ = self.gone.get(chain, (0, audit_chain.GENESIS, ""))
        return SignedChain(self._tips(chain), self._found, gone, digest, unseen)

    def _tips(self, chain: int) -> Iterator[SignedTip]:
        """The checkpoints that tell of this chain."""
        name = str(chain)
        for each in checkpoints.after(self._store, -(1 << 62)):
            body = each.read() if each.number <= self._found.checkpoint else None
            if body is None:
                return
            tip = body.chains.get(self._organisation_id, {}).get(name)
            if tip is not None:
                yield (*tip, each.number)


def _missing(first: int, last: int) -> str:
    """Of checkpoints, by their numbers."""
    which = f"checkpoint {first} is" if first == last else f"checkpoints {first} to {last} are"
    return f"{which} missing, and with them perhaps records that only they signed"


_WHY_MISSING = (
    ": so it is after a failover to a copy of the database that lacked the last commits, and then `governance"
    " audit accept-restored` says that this is known; else somebody has removed them"
)


SignedTip = tuple[int, str, int]
"""How many records a chain had, the hash of the last, and the checkpoint that says so."""


class SignedChain:
    """What the checkpoints say of one chain, compared as it is walked: from its first record on, or behind
    those that are gone, of which the last had number `gone` and this hash. What is known of their hashes is
    taken from the `unseen` ones."""

    def __init__(
        self,
        tips: Iterator[SignedTip],
        found: Verification,
        gone: int = 0,
        digest: str = audit_chain.GENESIS,
        unseen: set[str] | None = None,
    ) -> None:
        unseen = set() if unseen is None else unseen
        self._found = found
        self._tips = tips
        self._signed = gone
        if gone:
            unseen.discard(digest)
        self._next = next(tips, None)
        while self._next is not None and self._next[0] < gone:
            unseen.discard(self._next[1])
            self._next = next(tips, None)
        if gone:
            self.reached(gone, digest)

    def reached(self, count: int, digest: str) -> None:
        """The chain goes on to this record."""
        while self._next is not None and self._next[0] <= count:
            said, hash_then, checkpoint = self._next
            if said == count and hash_then == digest:
                self._signed = count
            else:
                self._found.add(
                    f"checkpoint {checkpoint} says that record {said} has the hash `{hash_then}`, but the log"
                    " says otherwise: records were changed or removed and the chain computed anew"
                )
            self._next = next(self._tips, None)

    def finish(self, count: int, *, whole: bool) -> None:
        """The chain ends here, or breaks."""
        self._found.signed += self._signed
        if not whole:
            return
        highest, checkpoint = 0, 0
        while self._next is not None:
            highest, _, checkpoint = self._next
            self._next = next(self._tips, None)
        if highest > count:
            self._found.add(
                f"checkpoint {checkpoint} says that there were {highest} records; {highest - count} of them,"
                " at the end, are gone"
            )


class Keys:
    """Whose signatures count. Each checkpoint names the digest of the one before, so a key that is trusted
    vouches for all before its last one; and a key that hands over vouches for the next."""

    def __init__(
        self, trusted: Collection[PublicKey], newest: Checkpoint | None, found: Verification
    ) -> None:
        self._trusted = {key.text for key in trusted}
        self._found = found
        self._before: Body | None = None
        self._vouched = not trusted or (newest is not None and any(newest.is_signed(key) for key in trusted))
        """The newest checkpoint is signed with a trusted key, or none can be told from others."""
        if newest is not None and not trusted:
            found.notes.append(OWN_COPY)

    def goes_on(self, body: Body) -> bool:
        """Whether the signer of the next checkpoint counts."""
        before, self._before = self._before, body
        if before is None:
            return self._vouched or body.publicKey in self._trusted
        if body.publicKey == before.publicKey:
            return True
        if body.publicKey == before.nextKey:
            self._changed(before.publicKey, body, "the key of before signed that")
            return True
        if body.lostKey == before.signer_after and (self._vouched or body.publicKey in self._trusted):
            self._changed(body.lostKey, body, "the key of before was lost, so only the new one says so")
            return True
        return body.publicKey in self._trusted

    def _changed(self, old: str, body: Body, how: str) -> None:
        old_id, new_id = PublicKey(old).key_id, PublicKey(body.publicKey).key_id
        self._found.notes.append(
            f"since checkpoint {body.number} (at the latest {body.at}) the key is `{new_id}`, before it was"
            f" `{old_id}`; {how}"
        )
