"""Reading on in the log: what has been committed since, told to the detectors, and kept as one step.

Beside the decision, never in its way: it reads what is committed, some records at a time. Of all processes
one reads at a time; whoever dies leaves position and counts as they were after the last step, and the next
one goes on from there.

INVARIANT: memory is only ever ahead of the database by the step that is being made; when that fails, memory
is dropped and read again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from api.alerts import records, unseen
from api.alerts.recent import Recent
from api.alerts.records import APART_MINUTES, Gathered
from api.alerts.wording import summary
from api.clock import APART_SECONDS, Clock, Ids, iso
from api.database import audit_chain
from api.database.audit_chain import ChainName, Record
from api.database.connection import Database
from api.database.transaction import Transaction
from api.store.alerts import agents, alerts, log_reader
from api.store.alerts.agents import AgentFacts
from api.store.alerts.alerts import MoreOfAlert, NewAlert
from engine.derived.tools import Tools
from engine.detectors.happening import Happening
from engine.detectors.watch import Fired, Watch
from engine.repository.snapshot import Snapshot

AT_ONCE: Final = 500
"""Records that are read together, and of one chain those at hand: a few milliseconds, after which others have
their turn."""
MOST_TOLD_OF: Final = 500
"""Agents that a step tells of, after which it reads no further: what is known of each is written."""
LEASE_SECONDS: Final = 5.0
"""After which another process may read on. One that is too short costs only work that is done twice."""
UNSEEN_SECONDS: Final = 10.0
"""Between looks for approvals that nobody opened."""
MOST_AGENTS: Final = 5_000
"""Known ones that are kept in memory."""


class DocumentsInForce(Protocol):
    """The documents in force, as `engine.live` has them."""

    @property
    def snapshot(self) -> Snapshot: ...


@dataclass(slots=True)
class LogStep:
    """What one step leads to, by the documents of one `snapshot`; `behind`: there is more to be read."""

    version: int
    snapshot: Snapshot
    reached: dict[ChainName, tuple[int, int]] = field(default_factory=dict)
    agents: dict[tuple[str, str], AgentFacts] = field(default_factory=dict)
    gathered: dict[tuple[str, bool], Gathered] = field(default_factory=dict)
    """What was read, by organisation and whether it is so old that nobody is told."""
    watches: dict[str, Watch] = field(default_factory=dict)
    """Those that have counted anything."""
    new: dict[str, NewAlert] = field(default_factory=dict)
    more: dict[str, MoreOfAlert] = field(default_factory=dict)
    read: int = 0
    behind: bool = False

    @property
    def is_full(self) -> bool:
        return sum(each.count_agents() for each in self.gathered.values()) >= MOST_TOLD_OF

    @property
    def is_empty(self) -> bool:
        return not self.reached and not any(watch.has_changed for watch in self.watches.values())


class Detection:
    """See the module. Its methods run on one thread at a time."""

    def __init__(
        self, store: Database, live: DocumentsInForce, clock: Clock, ids: Ids, recent: Recent | None = None
    ) -> None:
        self._store = store
        self._live = live
        self._clock = clock
        self._ids = ids
        self._recent = recent or Recent()
        self._owner = secrets.token_hex(8)
        self._read_last: ChainName = ("", 0)
        """The chain that was read in the log last."""
        self.forget()

    def forget(self) -> None:
        """What is in memory does not hold any more, or may not."""
        self._version: int | None = None
        self._positions: dict[ChainName, tuple[int, int]] = {}
        self._watches: dict[str, tuple[Snapshot, Watch]] = {}
        self._agents: dict[tuple[str, str], AgentFacts] = {}
        self._looked = float("-inf")

    # For a thread that may query ----------------------------------------------------------------------

    def begin(self) -> LogStep | None:
        """The next step; None while it is another process's turn."""
        now = self._clock()
        turn = log_reader.turn(self._store)
        # A lease that ends later was taken while a clock was ahead, and holds up nobody.
        if turn.owner != self._owner and now < turn.leased_until <= now + LEASE_SECONDS + APART_SECONDS:
            self._recent.clear()
            return None
        if turn.version != self._version:
            self.forget()
            self._positions = log_reader.positions(self._store)
            self._version = turn.version
        step = LogStep(turn.version, self._live.snapshot)
        self.read_on(step)
        return step

    def read_on(self, step: LogStep) -> None:
        """The next records of the log: of each chain `AT_ONCE` that are at hand, and as many others. Chains
        take turns, so that none keeps another from being read, however much is written to it."""
        self._recent.take_in()
        room, step.behind = AT_ONCE, False
        tips = sorted(audit_chain.tips(self._store).items())
        for chain, (tip, _) in sorted(tips, key=lambda item: item[0] <= self._read_last):
            last, silent_until = self._positions.get(chain, (0, 0))
            end = min(tip, last + room, silent_until if last < silent_until else tip)
            if at_hand := self._recent.take(chain, last + 1, min(tip, last + AT_ONCE)):
                end = last + len(at_hand)
                self._gather(step, chain[0], at_hand, silent=False)
            elif end > last:
                found = records.read(self._store, chain, last + 1, end)
                self._gather(step, chain[0], found, silent=end <= silent_until)
                room, self._read_last = room - (end - last), chain
            if end > last:
                self._positions[chain] = step.reached[chain] = end, silent_until
                step.read += end - last
            step.behind = step.behind or end < tip

    def _gather(self, step: LogStep, organisation_id: str, found: list[Record], *, silent: bool) -> None:
        gathered = step.gathered.get((organisation_id, silent))
        if gathered is None:
            watch = self._watch(step, organisation_id)
            by_run, by_user = watch.reads("runId"), watch.reads("userId", "user")
            gathered = Gathered(by_run=by_run, by_user=by_user, counts=watch.counts)
            step.gathered[organisation_id, silent] = gathered
        gathered.add(found)

    def count(self, step: LogStep) -> None:
        """What was read, told to the detectors; and what time alone has brought about."""
        for (organisation_id, silent), gathered in sorted(
            step.gathered.items(), key=lambda item: not item[0][1]
        ):
            happened, seen = gathered.happenings(partial(self._known, organisation_id))
            for agent_id, facts in seen.items():
                self._agents[organisation_id, agent_id] = step.agents[organisation_id, agent_id] = facts
            self._observe(step, organisation_id, happened, silent=silent)
        step.gathered.clear()  # the writer holds a step until its next job
        now = self._clock()
        if not self._looked <= now < self._looked + UNSEEN_SECONDS:
            self._looked = now
            self._look_for_unseen(step, now)

    def _known(self, organisation_id: str, names: list[str]) -> dict[str, AgentFacts]:
        """Those of these agents that were seen before."""
        missing = [name for name in names if (organisation_id, name) not in self._agents]
        for agent_id, facts in agents.known(self._store, organisation_id, missing).items():
            self._agents[organisation_id, agent_id] = facts
        known = ((name, self._agents.get((organisation_id, name))) for name in names)
        return {name: facts for name, facts in known if facts is not None}

    def _look_for_unseen(self, step: LogStep, now: float) -> None:
        for organisation_id in sorted({name for name, _ in self._positions}):
            watch = self._watch(step, organisation_id)
            for detector in watch.detectors:
                if detector.enabled and detector.on == "approval.unseen":
                    happened = unseen.waited(self._store, watch, detector, now)
                    self._observe(step, organisation_id, happened, only=detector.detector_id)

    def _observe(
        self,
        step: LogStep,
        organisation_id: str,
        happened: list[Happening],
        *,
        silent: bool = False,
        only: str | None = None,
    ) -> None:
        watch = step.watches[organisation_id] = self._watch(step, organisation_id)
        now = int(self._clock()) // 60 + APART_MINUTES
        for fired in watch.observe(happened, silent=silent, only=only, now=now):
            if fired.is_new:
                step.new[fired.alert_id] = _alert(organisation_id, fired)
            elif (alert := step.new.get(fired.alert_id) or step.more.get(fired.alert_id)) is not None:
                alert.count += fired.count
                alert.last_at = max(alert.last_at, _at(fired.last_minute))
                alert.evidence += fired.evidence[: alerts.MOST_EVIDENCE - len(alert.evidence)]
            else:
                last_at = _at(fired.last_minute)
                step.more[fired.alert_id] = MoreOfAlert(fired.alert_id, fired.count, last_at, fired.evidence)

    def _watch(self, step: LogStep, organisation_id: str) -> Watch:
        """The detectors in force in an organisation. INVARIANT: one set of them counts in a step, and what it
        has counted is kept before another one takes its place."""
        known = self._watches.get(organisation_id)
        if known is not None and known[0] is step.snapshot:
            return known[1]
        paths = step.snapshot.detectors_of(organisation_id).values()
        watch = Watch(
            organisation_id,
            [step.snapshot.detectors[path] for path in paths],
            Tools(step.snapshot.tools_of(organisation_id)),
            load=lambda names: log_reader.tallies(self._store, organisation_id, names),
            ids=lambda: self._ids("alt"),
        )
        self._watches[organisation_id] = step.snapshot, watch
        return watch

    # In a writing transaction, and after it -----------------------------------------------------------

    def keep(self, step: LogStep, transaction: Transaction) -> None:
        """All that a step leads to. Raises Overtaken. May be run again, as every job."""
        log_reader.take_turn(transaction, step.version, self._owner, LEASE_SECONDS)
        log_reader.keep_positions(transaction, step.reached)
        for organisation_id, watch in step.watches.items():
            log_reader.keep_tallies(transaction, organisation_id, watch.changed)
        agents.keep(transaction, step.agents)
        alerts.raise_alerts(transaction, step.new.values())
        alerts.count_further(transaction, step.more.values())

    def kept(self, step: LogStep) -> None:
        """The step is committed."""
        self._version = step.version + 1
        for watch in step.watches.values():
            watch.kept()
        if len(self._agents) > MOST_AGENTS:
            self._agents = {}


def _at(minute: int) -> str:
    return iso(minute * 60.0)


def _alert(organisation_id: str, fired: Fired) -> NewAlert:
    detector, because = fired.detector, fired.because
    is_alone = fired.count == 1 and fired.per == detector.per
    of_agent = fired.per in ("agentId", "runId") or detector.on in ("agent.changed",)
    return NewAlert(
        alert_id=fired.alert_id,
        organisation_id=organisation_id,
        detector_id=detector.detector_id,
        detector_version=detector.version,
        name=detector.name,
        severity=detector.severity,
        message=detector.message,
        summary=summary(fired),
        per=fired.per,
        subject=fired.subject,
        agent_id=(because.agent_id or None) if of_agent or is_alone else None,
        run_id=(because.run_id or None) if fired.per == "runId" or is_alone else None,
        count=fired.count,
        threshold=detector.threshold,
        window_seconds=detector.window_seconds,
        first_at=_at(fired.first_minute),
        last_at=_at(fired.last_minute),
        evidence=fired.evidence,
    )
