"""Is the record whole? Its chain, its signed checkpoints, what somebody noted earlier, and what it tells of.

`verify` walks one organisation's chain, holds every checkpoint against it (`signed.py`), and compares calls,
approvals, policy versions and people with what the log says of them (`agreement.py`). It changes nothing.

A hash chain alone shows no cut at its end, and whoever can write to the database can compute it anew. A
checkpoint cannot be made without the installation's key, so the log is proved up to the newest checkpoint;
what is newer is reported as unsigned. Whoever deletes all checkpoints too is found by what was noted
elsewhere (`Expectation`). Old records may be gone if a checkpoint says so, a certificate (`retention/`): then
the chains begin behind it, and what it carries takes the place of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api.audit import checkpoints, in_force
from api.audit.agreement import Agreement
from api.audit.installation_key import PublicKey
from api.audit.retention import carried
from api.audit.retention.certificate import newest_number
from api.audit.signed import DroppedRecords, SignedRow, Verification
from api.database import audit_chain
from api.database.connection import Database
from api.database.sqlite.files import any_text

_THERE = "SELECT organisation_id FROM organisations"
_OF_FILES: Final = frozenset((*in_force.DOCUMENTS, "channel.changed"))
"""Types of records that an organisation has because of files alone. One that is made has another first."""
_TOLD_OF = "SELECT DISTINCT organisation_id FROM audit"

Progress = Callable[[int], None]
"""Told now and then how many records are through."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What was noted earlier of a log: its count, or a hash that must be in it; and that of a record that was
    signed by then, and by which checkpoint."""

    count: int | None = None
    digest: str | None = None
    signed: str | None = None
    checkpoint: int = 0


def organisations(store: Database) -> list[str]:
    """All that there are or were: one that was removed with all its rows still stands in checkpoints."""
    with any_text(store.peewee):
        found = {str(name) for (name,) in (*store.rows(_THERE), *store.rows(_TOLD_OF))}
        for each in checkpoints.after(store, -(1 << 62)):
            body = each.read()
            found.update(
                () if body is None else {*body.chains, *(body.dropped.chains if body.dropped else ())}
            )
    return sorted(found)


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
    with any_text(store.peewee):
        while True:
            begin = _begin(store, organisation_id)
            found = _Walk(store, organisation_id, trusted, expected, progress).found
            # What was dropped meanwhile is missing by rights.
            if not found.problems or _begin(store, organisation_id) == begin:
                return found.shape()


def _begin(store: Database, organisation_id: str) -> tuple[int, dict[int, int]]:
    """The newest certificate, and where each chain begins."""
    return newest_number(), audit_chain.firsts(store, organisation_id)


class _Walk:
    """One walk along all chains of an organisation."""

    def __init__(
        self,
        store: Database,
        organisation_id: str,
        trusted: Collection[PublicKey],
        expected: Expectation | None,
        progress: Progress | None,
    ) -> None:
        self.found = found = Verification()
        self._store = store
        self._organisation_id = organisation_id
        self._progress = progress
        self._signed = signed = SignedRow(store, organisation_id, trusted, found)
        gone = carried.gone(store, organisation_id, signed.certificates)
        self._agreement = Agreement(store, organisation_id, gone, signed.chains)
        tips = audit_chain.tips(store)
        noted = {chain: tip for (name, chain), tip in tips.items() if name == organisation_id}
        wanted = (expected.digest, expected.signed) if expected is not None else ()
        self._unseen = {each for each in wanted if each not in (None, audit_chain.GENESIS)}
        self._newest_at = ""
        self._only_of_files = True
        chains = {*noted, *signed.chains, *signed.gone}
        for name in audit_chain.names(store, organisation_id):
            if isinstance(name, int):
                chains.add(name)
            else:
                found.add(f"records name `{name}` as their chain, which is no number")
        for chain in sorted(chains):
            self._follow(chain, noted.get(chain, (0, ""))[0])
        if found.first_broken is None:
            for problem in (*gone.problems, *carried.changed_calls(store, organisation_id, gone)):
                found.add(problem)
            for problem in self._agreement.problems():
                found.add(problem)
            found.notes.extend(self._agreement.notes())
        if (organisation_id,) not in store.rows(_THERE):
            self._tell_missing()
        self._tell_dropped()
        if expected is not None:
            self._compare(expected)
        elif found.count and not found.checkpoint:
            found.notes.append(
                "no checkpoint signs any of this: the service has not run since, or somebody took them away;"
                " hold it against what was noted elsewhere (`--expect`)"
            )

    def _follow(self, chain: int, noted: int) -> None:
        """One chain, from its first record on or from where older ones are gone. Those of them that are still
        there lead up to it."""
        found = self.found
        gone, digest_then, at = self._signed.gone.get(chain, (0, audit_chain.GENESIS, ""))
        count, digest, whole = gone, digest_then, True
        checked = self._signed.follow(chain, self._unseen)
        for row in audit_chain.walk(self._store, (self._organisation_id, chain)):
            if isinstance(row[2], int) and row[2] <= gone and count == gone and digest == digest_then:
                count, digest = row[2] - 1, _previous(row)
            whole = audit_chain.follows(row, count + 1, digest)
            if not whole or (count + 1 == gone and str(row[-1]) != digest_then):
                whole = False
                found.first_broken = found.first_broken or str(row[3])
                found.add(f"record `{row[3]}` was changed, or does not follow from the one before it")
                break
            count, digest = count + 1, str(row[-1])
            if count <= gone:
                continue
            at = str(row[4])
            checked.reached(count, digest)
            self._agreement.told(row)
            self._only_of_files = self._only_of_files and row[5] in _OF_FILES
            self._unseen.discard(digest)
            found.count += 1
            if self._progress is not None and found.count % audit_chain.MOST_READ == 0:
                self._progress(found.count)
        if whole and count < gone:
            found.add(f"chain {chain} does not lead up to where its dropped records end")
        count = max(count, gone)
        found.count += gone
        checked.finish(count, whole=whole)
        if whole and count < noted:
            found.add(f"chain {chain} ends before the last record that its lane has written")
        if count and at >= self._newest_at:
            self._newest_at, found.last_hash = at, digest

    def _tell_missing(self) -> None:
        """The organisation is not there. Files in a folder of its name are on record also where it never was:
        the name is mistyped, or nobody has made it yet."""
        name, found = self._organisation_id, self.found
        if found.count and self._only_of_files and not (found.problems or self._signed.gone):
            found.notes.append(
                f"there is no organisation `{name}`, and there never was: its records are of files below"
                f" `organisations/{name}/`, or of `settings/{name}.yaml`, which govern nobody"
            )
        else:
            found.add(f"the organisation `{name}` is gone from the database")

    def _tell_dropped(self) -> None:
        records = sum(count for count, _, _ in self._signed.gone.values())
        if records:
            number, said = self._signed.certificates[-1]
            at = self._signed.dropped_at
            self.found.dropped = DroppedRecords(records, said.before, at, said.setting, number)
            self.found.notes.append(
                f"{records} records, signed up to {said.before}, are dropped ({said.setting}); so checkpoint"
                f" {number} of {at} says, which takes their place"
            )

    def _compare(self, expected: Expectation) -> None:
        found = self.found
        if expected.count is not None and found.count < expected.count:
            found.add(
                f"there are {found.count} records where {expected.count} were noted; the others are gone"
            )
        if expected.digest not in self._unseen:
            return
        said = f"no record has the hash `{expected.digest}` that was noted"
        if found.dropped is None:
            found.add(said)
        elif expected.checkpoint >= self._signed.certificates[-1][1].until or expected.signed is None:
            found.add(f"{said}; of those that are dropped only the last ones of each checkpoint are known")
        elif expected.signed in self._unseen:
            found.add(f"{said}, nor has any the hash `{expected.signed}`, which was signed by then")
        else:
            found.notes.append(
                "the last record that was noted was not signed by then, and is dropped since; what was signed"
                f" by then, `{expected.signed}`, is as it was noted"
            )


def _previous(row: tuple[Any, ...]) -> str:
    """The hash that a record names as that of the one before it."""
    try:
        return str(msgspec.json.decode(row[10], type=dict[str, Any]).get("previousHash"))
    except (msgspec.MsgspecError, UnicodeError):
        return ""
