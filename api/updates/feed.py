"""Publishes what other processes committed to those who wait in this one, from the audit log.

Every change that anybody may wait for leaves an audit record, numbered without gaps in its chain. So
following is reading the records past the last one seen, except those that this process wrote itself, whose
changes the writer has published already.

    own commit    --> hub                                   (at once, by the writer)
    other commit  --> hint --> records after the last seen --> hub

A hint may be lost, so the log is polled every few seconds in any case, and twice a second while somebody
waits for what no hint is given for: the decisions of a stream, the events of a run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from api.database import audit_chain
from api.database.audit_chain import ChainName, Spans
from api.database.change_hints import Hints, hints
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.transaction import CREDENTIAL, Change
from api.updates.hub import Hub

log = logging.getLogger("governance")

RESYNC_SECONDS = 5.0
WAITED_FOR_SECONDS = 0.5
RETRY_SECONDS = 1.0
MOST_BEHIND = 20_000
"""Records; beyond that everyone is woken to read the state anew, and the records are skipped."""

_decode = msgspec.json.decode


class Feed:
    """One thread per process, made on the event loop's process; `catch_up` makes changed policies known."""

    def __init__(self, store: Database, hub: Hub, catch_up: Callable[[], None]) -> None:
        self._store = store
        self._hub = hub
        self._catch_up = catch_up
        self._seen: dict[ChainName, int] = {}
        self._own: defaultdict[ChainName, list[tuple[int, int]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Follow from now on; called from a thread that may query."""
        self._seen = self._tips()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # The records of this process, announced by the writer --------------------------------------------

    def about_to_commit(self, spans: Spans) -> None:
        """These records are ours. INVARIANT: announced before the commit, so never read as another's."""
        with self._lock:
            for chain, (first, last) in spans.items():
                own = self._own[chain]
                if own and own[-1][1] == first - 1:
                    own[-1] = (own[-1][0], last)
                else:
                    own.append((first, last))

    def rolled_back(self, spans: Spans) -> None:
        """They were not committed after all; somebody else may get their numbers."""
        with self._lock:
            for chain, (first, _) in spans.items():
                own = self._own[chain]
                if own and own[-1][0] < first:
                    own[-1] = (own[-1][0], first - 1)
                elif own:
                    own.pop()

    def _unseen(self, chain: ChainName, tip: int) -> list[tuple[int, int]]:
        """The spans up to `tip` that others wrote and nobody here has seen; from now on they are seen."""
        with self._lock:
            seen = self._seen.get(chain, 0)
            if seen > tip:
                # A copy of the database that lacks the last records has taken over, and gives their numbers
                # to others; what of ours was announced may be lost as well.
                self._own.pop(chain, None)
                seen = tip
            spans, rest = [], []
            for first, last in self._own.pop(chain, ()):
                if last > tip:
                    # Announced, but not committed yet.
                    rest.append((max(first, tip + 1), last))
                    last = tip
                if first > last:
                    continue
                if first > seen + 1:
                    spans.append((seen + 1, first - 1))
                seen = max(seen, last)
            if seen < tip:
                spans.append((seen + 1, tip))
            self._seen[chain] = tip
            if rest:
                self._own[chain] = rest
            return spans

    # The thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        source = hints(self._store, self._hub.busy)
        looked = float("-inf")
        while not self._stop.is_set():
            try:
                looked = self._turn(source, looked)
            except DatabaseUnavailable:
                self._stop.wait(RETRY_SECONDS)
            except Exception:
                log.exception("following other processes failed; it is tried again")
                self._stop.wait(RETRY_SECONDS)
        source.close()

    def _turn(self, source: Hints, looked: float) -> float:
        """Wait for a hint or for the time, then look; returns when it was last looked."""
        pause = WAITED_FOR_SECONDS if self._hub.busy.is_set() else RESYNC_SECONDS
        hinted = source.wait(max(0.0, looked + pause - time.monotonic()))
        if self._stop.is_set() or not (hinted or time.monotonic() >= looked + pause):
            return looked
        self._look()
        return time.monotonic()

    def _look(self) -> None:
        for chain, tip in self._tips().items():
            for first, last in self._unseen(chain, tip):
                if last - first >= MOST_BEHIND:
                    self._hub.wake_all()
                else:
                    self._publish(chain, first, last)

    def _tips(self) -> dict[ChainName, int]:
        found = self._store.read_here(audit_chain.tips, self._store)
        return {chain: sequence for chain, (sequence, _) in found.items()}

    def _publish(self, chain: ChainName, first: int, last: int) -> None:
        organisation_id, _ = chain
        rows = self._store.read_here(audit_chain.between, self._store, chain, first, last)
        if any(row[0] == "policy.changed" for row in rows):
            # Whoever hears of the change may read the policies at once.
            self._catch_up()
        changes: list[Change] = []
        streaming = self._hub.streaming(organisation_id)
        for kind, run_id, record in rows:
            if run_id is not None and self._hub.waiting_for(organisation_id, "run", run_id):
                changes.append(Change(organisation_id, "run", run_id))
            if kind in _CHANGES and (streaming or kind != "decision"):
                changes += _CHANGES[kind](organisation_id, _decode(record))
        self._hub.publish(changes)


def _decision(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    names = ("runId", "agentId", "toolName", "reason")
    data = {name: record.get(name) for name in names} | {"toolCallStatus": record["decision"]}
    changes = [Change(organisation_id, "decision", record["toolCallId"], data)]
    approval_id = record["details"].get("approvalId")
    if approval_id is not None:
        asked = {"status": "pending", "runId": record["runId"]}
        changes.insert(0, Change(organisation_id, "approval", approval_id, asked))
    for used in record["details"].get("grants", ()):
        if "used" in used:
            data = {"status": used["status"], "runId": record["runId"]}
            changes.append(Change(organisation_id, "grant", used["grantId"], data))
    return changes


def _resolved(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    data = {"status": record["decision"], "runId": record["runId"]}
    return [Change(organisation_id, "approval", record["details"]["approvalId"], data)]


def _still_pending(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    data = {"status": "pending", "runId": record["runId"]}
    return [Change(organisation_id, "approval", record["details"]["approvalId"], data)]


def _change(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    details = record["details"]
    return [Change(organisation_id, "change", details["changeId"], {"status": details["status"]})]


def _halt(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    details = record["details"]
    target = record.get("agentId") or record.get("runId") or ""
    data = {"scope": details["scope"], "target": target, "active": record["type"] == "agent.halted"}
    return [Change(organisation_id, "halt", details["haltId"], data)]


def _grant(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    status = "active" if record["type"] == "grant.created" else "revoked"
    data = {"status": status, "runId": record["runId"]}
    return [Change(organisation_id, "grant", record["details"]["grantId"], data)]


def _policy(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    data = {name: value for name, value in record["details"].items() if name != "digest"}
    return [Change(organisation_id, "policy", data["policyId"], data)]


def _webhook(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    return [Change(organisation_id, "webhook", record["details"]["webhookId"])]


def _alert(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    details = record["details"]
    status = "open" if record["type"] == "alert.raised" else "acknowledged"
    data = {"severity": details["severity"], "status": status}
    return [Change(organisation_id, "alert", details["alertId"], data)]


def _credential(organisation_id: str, record: Mapping[str, Any]) -> list[Change]:
    details = record["details"]
    return [Change(organisation_id, CREDENTIAL, details.get("keyId") or details["userId"])]


_CHANGES: Mapping[str, Callable[[str, Mapping[str, Any]], list[Change]]] = {
    "decision": _decision,
    "approval.progressed": _still_pending,
    "approval.escalated": _still_pending,
    "approval.resolved": _resolved,
    "agent.halted": _halt,
    "agent.resumed": _halt,
    "grant.created": _grant,
    "grant.revoked": _grant,
    "policy.changed": _policy,
    "alert.raised": _alert,
    "alert.acknowledged": _alert,
    "change.requested": _change,
    "change.resolved": _change,
    "change.applied": _change,
    "change.failed": _change,
    "webhook.updated": _webhook,
    "webhook.disabled": _webhook,
    "key.revoked": _credential,
    "key.rotated": _credential,
    "user.updated": _credential,
}
"""Type of an audit record to the changes it stands for, as the process that wrote it published them."""
