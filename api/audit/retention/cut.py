"""Which records may go next, and what is carried of them: some thousand checkpoints of the log at a time.

What goes are the records that one checkpoint had signed, of every chain of every organisation, so the cut is
itself signed. They are proved before: the checkpoints, the chains up to the cut, the calls and events that
they tell of. Where anything of that is not as it must be nothing goes: a certificate would cover it up.
It reads only, and much, so it goes in steps, that nobody has to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from api.audit import checkpoints
from api.audit.agreement import tell
from api.audit.calls_and_events import CallsAndEvents, digest_of_calls
from api.audit.checkpoints import FIRST, Body, Checkpoint, Dropped, Gap
from api.audit.installation_key import PublicKey
from api.audit.retention import carried
from api.audit.retention.carried import CallSpan, Gone
from api.audit.retention.certificate import Certificate, newest_certificate, newest_number
from api.audit.signed import Keys, SignedChain, SignedTip, Verification, intact
from api.audit.testimony import APPROVAL, REQUEST, TOLD, Testimony
from api.database import audit_chain
from api.database.audit_chain import ChainName
from api.database.connection import Database

CHECKPOINTS_AT_ONCE: Final = 10_000
CHECKPOINTS_A_STEP: Final = 100
RECORDS_A_STEP: Final = 500
_READ: Final = "SELECT organisation_id, chain, sequence FROM log_positions"
_OWNER: Final = "SELECT user_id FROM api_keys WHERE key_id = ?"
_KNOWN_BY_THEMSELVES: Final = frozenset((APPROVAL, REQUEST, TOLD))
"""What one record says in whole, so that nothing of before is needed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What the next certificate says."""

    after: int
    """The newest certificate when it was made; 0: there was none."""
    dropped: Dropped
    bodies: dict[str, bytes]
    """Organisation to what is carried of its records."""
    records: dict[str, int]
    """How many records of an organisation go with it."""


class NotWhole(Exception):
    """The log is not as it was signed, or the tables are not as it says."""


@dataclass(slots=True)
class _Span:
    """Checkpoints up to the one that is cut at."""

    until: int = 0
    at: str = ""
    tips: dict[ChainName, list[SignedTip]] = field(default_factory=dict)
    by_others: bool = False
    """Another key than the installation's of now has signed some."""

    def take(self, number: int, body: Body) -> None:
        self.until, self.at = number, body.at
        for organisation_id, chains in body.chains.items():
            for chain, tip in chains.items():
                self.tips.setdefault((organisation_id, int(chain)), []).append((*tip, number))


class Cutting:
    """One try. `before` and `now` are times (ISO 8601 UTC): what was signed before the one may go, and what
    says that it was signed after the other was signed by a clock that was ahead."""

    def __init__(self, store: Database, key: PublicKey, before: str, now: str, setting: str) -> None:
        self._store = store
        self._key = key
        self._before = before
        self._now = now
        self._setting = setting
        self.cut: Cut | None = None
        """What may go, at the end; None: nothing."""
        self.finished = False
        self.waits = False
        """Something may go, but not yet."""
        self._chains: dict[str, dict[str, tuple[int, str, str]]] = {}
        self._bodies: dict[str, bytes] = {}
        self._records: dict[str, int] = {}
        self._given_up: set[Gap] = set()

    def steps(self) -> Iterator[None]:
        """The work, some milliseconds a step. Raises NotWhole."""
        yield from self._steps()
        self.finished = True

    def _steps(self) -> Iterator[None]:
        newest = checkpoints.newest(self._store)
        body = newest.read() if newest is not None else None
        if newest is None or body is None or body.signer_after != self._key.text:
            return  # another node signs
        number = newest_number()
        known = newest_certificate(number)
        if known is None and number:
            raise NotWhole("the newest certificate of dropped records is gone or was changed")
        span = _Span()
        yield from self._signed(span, newest, known)
        chains = known.dropped.chains if known is not None else {}
        self._chains = {name: dict(ends) for name, ends in chains.items()}
        grown = sorted(name for name, tips in span.tips.items() if tips[-1][0] > self._end(name)[0])
        if not grown:
            return
        if span.by_others or (known is not None and known.key != self._key):
            yield from self._leads_on(known, newest)
        if self.waits or self._unread(span, grown):
            self.waits = True
            return
        for organisation_id in sorted({name for name, _ in grown}):
            own = [name for name in grown if name[0] == organisation_id]
            yield from self._carry(organisation_id, {name: span.tips[name] for name in own}, known)
        digests = {name: carried.digest_of(body) for name, body in self._bodies.items()}
        dropped = Dropped(
            before=span.at, carried=digests, chains=self._chains, setting=self._setting, until=span.until
        )
        self.cut = Cut(known.number if known is not None else 0, dropped, self._bodies, self._records)

    def _end(self, name: ChainName) -> tuple[int, str, str]:
        """The last record of a chain that may be gone."""
        return self._chains.get(name[0], {}).get(str(name[1]), (0, audit_chain.GENESIS, ""))

    # The checkpoints ------------------------------------------------------------------------------

    def _signed(self, span: _Span, newest: Checkpoint, known: Certificate | None) -> Iterator[None]:
        """Those behind the ones that were cut before, up to the last that is old enough."""
        since, previous = self._begin(known)
        found = Verification()
        keys = Keys((self._key,), newest, found)
        ahead: list[tuple[int, Body]] = []
        row = intact(self._store, keys, found, newest.number, since, previous)
        for count, (each, body) in enumerate(row, 1):
            span.by_others = span.by_others or body.publicKey != self._key.text
            if self._before <= body.at <= self._now:
                break
            ahead.append((each.number, body))
            if body.at < self._before:
                for number, said in ahead:
                    span.take(number, said)
                ahead.clear()
                span.at = body.at
            if count % CHECKPOINTS_A_STEP == 0:
                yield
            if count >= CHECKPOINTS_AT_ONCE and span.tips:
                break
        if found.gaps:
            yield from self._read_given_up(found.gaps[0][1])
            found.judge_gaps(self._given_up)
        if found.problems:
            raise NotWhole(found.problems[0])
        if known is not None and not known.checkpoint.is_signed(known.key):
            raise NotWhole(f"checkpoint {known.number}, a certificate of dropped records, was changed")

    def _begin(self, known: Certificate | None) -> tuple[int, str]:
        if known is None:
            return 0, FIRST
        since = known.dropped.until
        for each in checkpoints.after(self._store, since - 1):
            if each.number == since:
                return since, each.digest
            break
        raise NotWhole(f"checkpoint {since} is missing")

    def _read_given_up(self, behind: int) -> Iterator[None]:
        """The checkpoints that are missing, and that this key has given up in one behind them."""
        for count, each in enumerate(checkpoints.after(self._store, behind), 1):
            self._given_up.update(checkpoints.given_up(each, self._key))
            if count % CHECKPOINTS_A_STEP == 0:
                yield

    def _leads_on(self, known: Certificate | None, newest: Checkpoint) -> Iterator[None]:
        """Each names the one before it, up to one behind the certificate that this key has signed: so it
        vouches for those that another one has. Where there is none yet, as just behind a certificate or a
        change of keys, there soon is."""
        since, certificate = (0, 0) if known is None else (known.dropped.until, known.number)
        before: Checkpoint | None = None
        for count, each in enumerate(checkpoints.after(self._store, since), 1):
            body = each.read()
            if before is not None and each.number > before.number + 1:
                yield from self._read_given_up(before.number)
            follows = (
                before is None
                or (body is not None and body.previous == before.digest)
                or (before.number + 1, each.number - 1) in self._given_up
            )
            if body is None or not follows:
                raise NotWhole(
                    f"checkpoint {each.number} was changed, or does not follow from the one before"
                )
            before = each
            own = body.publicKey == self._key.text and each.is_signed(self._key)
            if own and each.number > certificate:
                return
            if each.number == newest.number:
                break
            if count % CHECKPOINTS_A_STEP == 0:
                yield
        self.waits = True

    def _unread(self, span: _Span, grown: list[ChainName]) -> bool:
        """Whether detectors have records before them that would go."""
        read = {(name, int(chain)): int(last) for name, chain, last in self._store.rows(_READ)}
        return any(read.get(name, 0) < span.tips[name][-1][0] for name in grown)

    # The records ----------------------------------------------------------------------------------

    def _carry(
        self, organisation_id: str, tips: dict[ChainName, list[SignedTip]], known: Certificate | None
    ) -> Iterator[None]:
        """All chains of an organisation up to where they are cut."""
        before = self._carried_before(organisation_id, known)
        testimony = Testimony(self._owner)
        testimony.state |= before.state
        calls: dict[int, CallSpan] = {}
        events: dict[int, int] = {}
        for name, signed in tips.items():
            rows = CallsAndEvents(self._store, organisation_id, (name[1],), before.begin)
            yield from self._walk(name, signed, rows, testimony)
            rows.finish_up_to(self._end(name)[2])
            if rows.problems:
                raise NotWhole(rows.problems[0])
            first = before.begin_of(name[1])
            if rows.last_call > first.call_no:
                made = digest_of_calls(self._store, organisation_id, first.call_no, rows.last_call)
                calls[name[1]] = (first.call_no, rows.last_call, *made)
            if rows.last_event > first.event_no:
                events[name[1]] = rows.last_event
            yield
        testimony.finish()
        self._bodies[organisation_id] = carried.body_of(calls, events, testimony.changed, testimony.state)

    def _carried_before(self, organisation_id: str, known: Certificate | None) -> Gone:
        certificates = []
        if known is not None:
            for (number,) in self._store.rows(carried.NUMBERS, (organisation_id,)):
                each = next(checkpoints.after(self._store, int(number) - 1), None)
                body = each.read() if each is not None else None
                if body is None or body.dropped is None or body.number != number:
                    raise NotWhole(f"checkpoint {number}, a certificate of dropped records, was changed")
                certificates.append((int(number), body.dropped))
        found = carried.gone(self._store, organisation_id, certificates, _KNOWN_BY_THEMSELVES)
        if found.problems:
            raise NotWhole(found.problems[0])
        return found

    def _walk(
        self, name: ChainName, signed: list[SignedTip], rows: CallsAndEvents, testimony: Testimony
    ) -> Iterator[None]:
        """One chain; each record follows from the one before, and is what the checkpoints say."""
        count, digest, at = first, _, _ = self._end(name)
        last = signed[-1][0]
        found = Verification()
        checked = SignedChain(iter(signed), found, count, digest)
        for row in audit_chain.walk(self._store, name, last=count):
            if not audit_chain.follows(row, count + 1, digest):
                raise NotWhole(f"record `{row[3]}` was changed, or does not follow from the one before it")
            count, digest, at = count + 1, str(row[-1]), str(row[4])
            checked.reached(count, digest)
            tell(row, rows, testimony)
            if count == last:
                break
            if count % RECORDS_A_STEP == 0:
                yield
        checked.finish(count, whole=True)
        if found.problems:
            raise NotWhole(found.problems[0])
        self._chains.setdefault(name[0], {})[str(name[1])] = (count, digest, at)
        self._records[name[0]] = self._records.get(name[0], 0) + count - first

    def _owner(self, key_id: str) -> str | None:
        rows = self._store.rows(_OWNER, (key_id,))
        return str(rows[0][0]) if rows and rows[0][0] is not None else None
