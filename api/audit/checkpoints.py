"""Signed checkpoints: at most one a second says how long every chain of the audit log is, and how it ends.

A checkpoint is canonical JSON, signed with the installation's key (`installation_key.py`):

    {"at": ..., "chains": {"<organisationId>": {"0": [<count>, "<hash>"]}}, "number": 7,
     "previous": "<sha256>", "publicKey": "<hex>"}

"0" is the number of a chain: an organisation has one for each lane. It names the chains that have grown since
the one before it (the first of a process names all). `previous` is the digest of the checkpoint before, so
none can be taken out of their row. `nextKey` is the public key that signs what follows; `lostKey` is the one
of before, when it could not be used to say so. `dropped` makes it a certificate: that records may go, and
what they were (`retention/`). `givenUp` are checkpoints that are missing, as somebody with the key knows.

INVARIANT: a checkpoint covers only what was committed before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import sha256
from time import monotonic
from typing import Any, Final

import msgspec

from api.audit.installation_key import InstallationKey, PublicKey
from api.clock import seconds
from api.database.audit_chain import ChainName, Tip, tips
from api.database.connection import Database
from api.database.transaction import Transaction
from engine.canonical_json import canonical_json

log = logging.getLogger("governance")

FIRST: Final = "0" * 64
EVERY_SECONDS: Final = 1.0
LATE_SECONDS: Final = 10.0
"""Records that are not signed after so long are told of."""
PAGE: Final = 1_000

Tips = dict[ChainName, Tip]
"""Chain to its count and last hash."""

Gap = tuple[int, int]
"""The first and the last of checkpoints that are missing in their row."""

_FROM = "SELECT number, body, signature FROM checkpoints WHERE number > ? ORDER BY number LIMIT ?"
_LAST = "SELECT number, body, signature FROM checkpoints ORDER BY number DESC LIMIT 1"


class Dropped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records are gone, or may go, now: of each chain those up to one that is named."""

    before: str
    """They were signed before this time (ISO 8601 UTC)."""
    carried: dict[str, str]
    """Organisation to the sha256 of what its records said that go with this certificate (`carried.py`)."""
    chains: dict[str, dict[str, tuple[int, str, str]]]
    """Organisation and chain to the last record that goes, by this certificate or one of before: its number,
    which is how many go, its hash, and when it was written."""
    setting: str
    """By which they go, with its value."""
    until: int
    """The checkpoint that had signed just these."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is signed; see the module."""

    at: str
    chains: dict[str, dict[str, tuple[int, str]]]
    dropped: Dropped | None = None
    givenUp: tuple[Gap, ...] = ()  # noqa: N815
    lostKey: str | None = None  # noqa: N815
    nextKey: str | None = None  # noqa: N815
    number: int
    previous: str
    publicKey: str  # noqa: N815

    @property
    def signer_after(self) -> str:
        """The public key that the next checkpoint is signed with."""
        return self.nextKey or self.publicKey


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint as it is stored: the text of its body, and the signature in hexadecimal."""

    number: int
    body: str
    signature: str

    @property
    def digest(self) -> str:
        """What the next one names as `previous`."""
        return sha256(f"{self.body}\n{self.signature}".encode()).hexdigest()

    def read(self) -> Body | None:
        """What it says; None when it is no checkpoint."""
        try:
            return msgspec.json.decode(self.body, type=Body)
        except (msgspec.DecodeError, UnicodeError):
            return None

    @property
    def follows(self) -> PublicKey | None:
        """The key that signs the next one; None when it is no checkpoint."""
        body = self.read()
        return None if body is None else PublicKey(body.signer_after)

    def is_signed(self, key: PublicKey) -> bool:
        return key.verifies(self.signature, self.body.encode())


class KeyDiffers(Exception):
    """The checkpoints of this database are signed with another key than this node has: `signer`, if known."""

    def __init__(self, signer: PublicKey | None = None) -> None:
        super().__init__()
        self.signer = signer


class Checkpointer:
    """Signs what is new; one per process, used by one task at a time."""

    def __init__(self, key: InstallationKey) -> None:
        self._key = key
        self._number = 0
        """Of the newest checkpoint that `_signed` takes in."""
        self._digest = FIRST
        self._signed: Tips = {}
        self.signs = True
        """Whether this node has the key that the checkpoints are signed with."""
        self.complete = True
        """Nothing was missed of what was signed; once there was, until the next start."""
        self.signed_at: str | None = None
        """When the newest checkpoint known here was made."""
        self._grown_since: float | None = None
        """When something new was first seen that is not signed yet, by the clock that never leaps."""

    def anything_new(self, store: Database) -> bool:
        """A cheap read: whether a chain has grown since the last checkpoint known here."""
        new = tips(store) != self._signed
        self._grown_since = (self._grown_since or monotonic()) if new else None
        return new

    @property
    def public_key(self) -> PublicKey:
        return self._key.public

    @property
    def signed(self) -> Tips:
        """What is signed, as far as this process knows; none before its first checkpoint."""
        return self._signed

    @property
    def lags(self) -> bool:
        """Whether records wait for their signature for longer than they should."""
        return self._grown_since is not None and monotonic() - self._grown_since > LATE_SECONDS

    def sign(self, transaction: Transaction) -> Checkpoint | None:
        """A job of the writer: one checkpoint, unless another process has just made one. Raises
        KeyDiffers."""
        store = transaction.store
        last = newest(store)
        now = tips(store)
        before, number, previous = self._signed, self._number, self._digest
        if last is not None and last.number >= number:
            body = last.read()
            if body is None or body.signer_after != self._key.public.text:
                raise KeyDiffers(last.follows)
            before, number, previous, at = self._followed(store), last.number, last.digest, body.at
            # One that was made while the clock was ahead holds up nothing.
            if 0 <= transaction.now - seconds(at) < EVERY_SECONDS or now == before:
                transaction.after_commit(lambda: self._keep(number, previous, before, at))
                return None
        elif number:
            # Somebody has removed checkpoints. The row goes on where it was, so that the gap stays visible.
            log.error("checkpoints of the audit log are gone; run `governance audit verify`")
            self.complete = False
            before = {}
        body = Body(
            at=transaction.at,
            chains=by_chain({name: tip for name, tip in now.items() if before.get(name) != tip}),
            number=number + 1,
            previous=previous,
            publicKey=self._key.public.text,
        )
        made = put(store, body, self._key)
        transaction.after_commit(lambda: self._keep(made.number, made.digest, now, body.at))
        return made

    def _followed(self, store: Database) -> Tips:
        """What all checkpoints up to now sign. At first that is not looked up: all is signed again."""
        if not self._number:
            return {}
        found = dict(self._signed)
        for each in after(store, self._number):
            body = each.read()
            for organisation_id, chains in (body.chains if body is not None else {}).items():
                found |= {(organisation_id, int(chain)): tip for chain, tip in chains.items()}
        return found

    def _keep(self, number: int, digest: str, signed: Tips, at: str) -> None:
        if signed != self._signed:
            self._grown_since = None
        self._number, self._digest, self._signed, self.signed_at = number, digest, signed, at


def given_up(each: Checkpoint, key: PublicKey) -> tuple[Gap, ...]:
    """What this one gives up, if the key has signed it."""
    body = each.read() if '"givenUp"' in each.body else None
    holds = body is not None and body.number == each.number and each.is_signed(key)
    return body.givenUp if body is not None and holds else ()


def _gaps(store: Database) -> tuple[list[Gap], set[Gap]]:
    """What is missing in the row, and what the key that signs now has given up."""
    missing: list[Gap] = []
    known: set[Gap] = set()
    if (key := signer(store)) is None:
        return missing, known
    expected = 1
    for each in after(store, 0):
        if each.number > expected:
            missing.append((expected, each.number - 1))
        known.update(given_up(each, key))
        expected = each.number + 1
    return missing, known


def gaps(store: Database) -> tuple[Gap, ...]:
    """What is missing in the row, and the key that signs now has not given up."""
    missing, known = _gaps(store)
    return tuple(gap for gap in missing if gap not in known)


def known_gaps(store: Database) -> tuple[Gap, ...]:
    """What the key that signs now has given up. A new key says it anew."""
    return tuple(sorted(_gaps(store)[1]))


def give_up(transaction: Transaction, missing: tuple[Gap, ...], key: InstallationKey) -> None:
    """A job: a checkpoint that gives up what is missing before it. Raises KeyDiffers."""
    store = transaction.store
    last = newest(store)
    if last is None or last.follows != key.public:
        raise KeyDiffers(None if last is None else last.follows)
    said = Body(
        at=transaction.at,
        chains=by_chain(tips(store)),
        givenUp=missing,
        number=last.number + 1,
        previous=last.digest,
        publicKey=key.public.text,
    )
    put(store, said, key)


def put(store: Database, body: Body, key: InstallationKey) -> Checkpoint:
    """Sign a checkpoint and store it; part of a transaction."""
    text = canonical_json(body)
    made = Checkpoint(body.number, text.decode(), key.sign(text))
    store.insert_many("checkpoints", ("number", "body", "signature"), [msgspec.structs.astuple(made)])
    return made


def by_chain(tips: Tips) -> dict[str, dict[str, Tip]]:
    """As a checkpoint says it."""
    said: dict[str, dict[str, Tip]] = {}
    for (organisation_id, chain), tip in sorted(tips.items()):
        said.setdefault(organisation_id, {})[str(chain)] = tip
    return said


def _stored(number: int, body: Any, signature: Any) -> Checkpoint:
    """A row; whoever changes one by hand may leave any type, which reads as a text that nobody signed."""
    return Checkpoint(number, str(body), str(signature))


def newest(store: Database) -> Checkpoint | None:
    rows = store.rows(_LAST)
    return _stored(*rows[0]) if rows else None


def signer(store: Database) -> PublicKey | None:
    """The key that signs what follows the newest checkpoint; None: there is none that can be read."""
    last = newest(store)
    return None if last is None else last.follows


def after(store: Database, number: int) -> Iterator[Checkpoint]:
    """The checkpoints behind this number, in order, some at a time."""
    while rows := store.rows(_FROM, (number, PAGE)):
        for row in rows:
            yield _stored(*row)
        number = rows[-1][0]
