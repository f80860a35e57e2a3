"""Is the record whole? Its chain, its signed checkpoints, what somebody noted earlier, and what it tells of.

`verify` walks one organisation's chain, holds every checkpoint against it, and compares calls, approvals,
policy versions and people with what the log says of them (`agreement.py`). It changes nothing.

A hash chain alone shows no cut at its end, and whoever can write to the database can compute it anew. A
checkpoint cannot be made without the installation's key, so the log is proved up to the newest checkpoint;
what is newer is reported as unsigned. Whoever deletes all checkpoints too is found by what was noted
elsewhere (`Expectation`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from api.audit import checkpoints
from api.audit.agreement import Agreement
from api.audit.checkpoints import Body, Checkpoint
from api.audit.installation_key import PublicKey
from api.database import audit_chain
from api.database.connection import Database

MOST_PROBLEMS = 100
OWN_COPY = (
    "there is no key file here, so the checkpoints were held against the public key that the database itself"
    " names: whoever can write to the database can have put a key of their own there. Name the key that was"
    " noted elsewhere with --public-key, or what an earlier check said with --expect"
)

Progress = Callable[[int], None]
"""Told now and then how many records are through."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What was noted earlier of a chain: its count, or a hash that must be in it."""

    count: int | None = None
    digest: str | None = None


@dataclass(slots=True)
class Verification:
    """What was found. `problems` are sentences, at most `MOST_PROBLEMS`."""

    count: int = 0
    last_hash: str = audit_chain.GENESIS
    first_broken: str | None = None
    signed: int = 0
    """Records that the checkpoints cover."""
    checkpoint: int = 0
    signed_at: str | None = None
    key_id: str | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no fault, but must be known to judge."""

    def add(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def shape(self) -> dict[str, Any]:
        return {
            "valid": not self.problems,
            "count": self.count,
            "firstBroken": self.first_broken,
            "lastHash": self.last_hash,
            "signed": self.signed,
            "unsigned": max(0, self.count - self.signed),
            "checkpoint": self.checkpoint,
            "signedAt": self.signed_at,
            "keyId": self.key_id,
            "problems": self.problems,
            "notes": self.notes,
        }


def verify(
    store: Database,
    organisation_id: str,
    trusted: Collection[PublicKey] = (),
    expected: Expectation | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What `Verification.shape` says.

    `trusted` are the keys that checkpoints may be signed with; none: the key that they name themselves, which
    proves less. `firstBroken` is the `auditId` of the first record that does not follow from those before it,
    `lastHash` the hash of the newest one of all chains.
    """
    found = Verification()
    newest = checkpoints.newest(store)
    signed = _Signed(store, organisation_id, trusted, newest, found)
    agreement = Agreement(store, organisation_id)
    tips = audit_chain.tips(store)
    noted = {chain: tip for (name, chain), tip in tips.items() if name == organisation_id}
    hash_wanted = expected.digest if expected is not None else None
    hash_seen = hash_wanted in (None, audit_chain.GENESIS)
    newest_at = ""
    for chain in sorted({*audit_chain.numbers(store, organisation_id), *noted, *signed.chains}):
        count, digest, at, intact = 0, audit_chain.GENESIS, "", True
        checked = signed.follow(chain)
        for row in audit_chain.walk(organisation_id, chain):
            intact = audit_chain.follows(row, count + 1, digest)
            if not intact:
                found.first_broken = found.first_broken or str(row[3])
                found.add(f"record `{row[3]}` was changed, or does not follow from the one before it")
                break
            count, digest, at = count + 1, str(row[-1]), str(row[4])
            checked.reached(count, digest)
            agreement.told(row)
            hash_seen = hash_seen or digest == hash_wanted
            found.count += 1
            if progress is not None and found.count % audit_chain.MOST_READ == 0:
                progress(found.count)
        checked.finish(count, intact=intact)
        if intact and count < noted.get(chain, (0, ""))[0]:
            found.add(f"chain {chain} ends before the last record that its lane has written")
        if count and at >= newest_at:
            newest_at, found.last_hash = at, digest
    if found.first_broken is None:
        for problem in agreement.problems():
            found.add(problem)
    if expected is not None:
        if expected.count is not None and found.count < expected.count:
            found.add(
                f"there are {found.count} records where {expected.count} were noted; the others are gone"
            )
        if not hash_seen:
            found.add(f"no record has the hash `{expected.digest}` that was noted")
    return found.shape()


class _Signed:
    """The checkpoints, followed along with each chain of one organisation."""

    def __init__(
        self,
        store: Database,
        organisation_id: str,
        trusted: Collection[PublicKey],
        newest: Checkpoint | None,
        found: Verification,
    ) -> None:
        self._store = store
        self._organisation_id = organisation_id
        self._keys = _Keys(trusted, newest, found)
        self._found = found
        self.chains: set[int] = set()
        """Those that checkpoints tell of."""
        self._check(newest.number if newest is not None else 0)

    def follow(self, chain: int) -> _SignedChain:
        return _SignedChain(self._tips(chain), self._found)

    def _tips(self, chain: int) -> Iterator[tuple[int, str, int]]:
        """Count, hash and number of the checkpoints that tell of this chain."""
        name = str(chain)
        for each in checkpoints.after(self._store, -(1 << 62)):
            body = each.read() if each.number <= self._found.checkpoint else None
            if body is None:
                return
            tip = body.chains.get(self._organisation_id, {}).get(name)
            if tip is not None:
                yield (*tip, each.number)

    def _check(self, last: int) -> None:
        """Each checkpoint for itself, and their row, up to the first that is not as it was signed. Where some
        are missing it goes on behind them."""
        found, expected, previous = self._found, 1, checkpoints.FIRST
        for each in checkpoints.after(self._store, -(1 << 62)):
            if each.number > last:
                return
            body = each.read()
            if body is not None and body.number == each.number > expected:
                found.add(_missing(expected, each.number - 1))
                expected, previous = body.number, body.previous
            if body is None or (each.number, body.number, body.previous) != (expected, expected, previous):
                found.add(f"checkpoint {each.number} was changed, or does not follow from the one before it")
                return
            key = PublicKey(body.publicKey)
            if not self._keys.goes_on(body):
                found.add(
                    f"checkpoint {each.number} is signed with another key, `{key.key_id}`; if you changed the"
                    " key, name the one of before too (--public-key)"
                )
                return
            if not each.is_signed(key):
                found.add(f"checkpoint {each.number} was changed: its signature does not hold")
                return
            expected, previous = expected + 1, each.digest
            found.checkpoint, found.signed_at, found.key_id = each.number, body.at, key.key_id
            self.chains.update(map(int, body.chains.get(self._organisation_id, ())))


def _missing(first: int, last: int) -> str:
    """Of checkpoints, by their numbers."""
    which = f"checkpoint {first} is" if first == last else f"checkpoints {first} to {last} are"
    return (
        f"{which} missing, and with them perhaps records that only they signed: so it is after a failover to"
        " a copy of the database that lacked the last commits; else somebody has removed them"
    )


class _SignedChain:
    """What the checkpoints say of one chain, compared as it is walked."""

    def __init__(self, tips: Iterator[tuple[int, str, int]], found: Verification) -> None:
        self._found = found
        self._tips = tips
        self._next = next(tips, None)
        self._signed = 0

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

    def finish(self, count: int, *, intact: bool) -> None:
        """The chain ends here, or breaks."""
        self._found.signed += self._signed
        if not intact:
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


class _Keys:
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
