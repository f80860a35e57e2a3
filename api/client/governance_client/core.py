"""One client of the service, whoever waits on it: settings, connections, reports in the background.

Reports go behind decisions: a daemon thread sends them a moment later, many at once, unless the next question
of their run takes them along before. A report that is lost with its process is not a call let through; what
the service has not taken of outputs when a process ends, or of which others a run goes on from, stands in the
journal, for the next one of its agent.
"""

from __future__ import annotations

import atexit
import json
import logging
import multiprocessing.util
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Final

from governance_client.client_key import ClientKey
from governance_client.deciding import AWAY_SECONDS, Deciding
from governance_client.drivers import ClientDriver
from governance_client.events import ClientEvent
from governance_client.exchange import Flow, NoAnswer, backoff
from governance_client.journal import OfflineJournal
from governance_client.report_queue import ReportQueue, Settled
from governance_client.settings import ClientSettings

log = logging.getLogger("governance_client")

LINGER_SECONDS: Final = 0.1
"""Which reports wait for others, or for the next question of their run."""
CLOSE_SECONDS: Final = 5.0
"""Which the end of a run, or of the process, waits for reports."""
ADOPT_SECONDS: Final = 30.0
"""Between looks for what processes that are gone have left behind."""
MOST_ATTEMPTS: Final = 8

_living: weakref.WeakSet[ClientCore] = weakref.WeakSet()


class ClientCore:
    """See the module; used from any thread and any event loop, also after a fork."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings, self._key = settings, ClientKey(settings)
        self._lock = threading.Lock()
        self._begin()
        _living.add(self)
        if settings.agent_id is not None:
            self.journal(settings.agent_id)

    def _begin(self) -> None:
        self.queue = ReportQueue(self._start)
        self.driver = ClientDriver(self.settings)
        self.deciding = Deciding(self.settings, self.queue, self._key)
        self._journals: dict[str, OfflineJournal] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def after_fork(self) -> None:
        """In the child: what is journaled and connected is the parent's. What is queued is, too, but the
        child tells it as well before it asks anything of these runs."""
        for journal in self._journals.values():
            journal.after_fork()
        journals, before = self._journals, self.deciding
        self._lock = threading.Lock()
        self._begin()
        self._journals = journals
        self.deciding.inherit(before)

    # Reports --------------------------------------------------------------------------------------

    def report(self, event: ClientEvent, journal: OfflineJournal) -> None:
        """Send an event in the background, in its run's order; returns at once."""
        if self.deciding.is_away and self.settings.fail_mode == "open":
            try:
                self.queue.keep(event, journal.append)
            except OSError as error:
                log.error("a report cannot be put into the journal: %s", error)
                self.queue.add(event)
        else:
            self.queue.add(event)

    def flushing(self, line: Sequence[str] | None = None) -> Flow[None]:
        """Send what is queued, for these runs or for all, as far as somebody takes it in time."""
        longest = AWAY_SECONDS if self.deciding.is_away else CLOSE_SECONDS
        seconds = min(longest, self.settings.decide_seconds)
        try:
            yield from self.deciding.flush(line, time.monotonic() + seconds)
        except NoAnswer as error:
            log.warning("reports are not sent yet: %s", error)

    def journal(self, agent_id: str) -> OfflineJournal:
        """The journal of an agent; what others have left in it is reported from now on."""
        with self._lock:
            found = self._journals.get(agent_id)
            if found is not None:
                return found
            found = self._journals[agent_id] = OfflineJournal(self.settings, agent_id, self._key)
        self.deciding.adopt(found)
        return found

    # In the background ----------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    send = _Sending(self)
                    self._thread = threading.Thread(target=send.run, name="governance-reports", daemon=True)
                    self._thread.start()

    def adopt_all(self) -> None:
        """Look again for what others have left."""
        with self._lock:
            journals = list(self._journals.values())
        for journal in journals:
            self.deciding.adopt(journal)

    def close(self) -> None:
        """Send what is queued, as far as somebody takes it, and let go of connections and files. Where this
        process has queued nothing, what is in the queue is sent by the one that it was forked from."""
        if not self._closed and self._thread is not None and not self.queue.is_empty:
            self.driver.run(self.flushing())
        self.release()

    def release(self) -> None:
        """Let go of connections and files. What is not sent is left to the next process, in the journal."""
        if not self._closed:
            self._closed = True
            if self._thread is not None:
                self._leave()
            self.queue.wake()
            self.driver.close()
            for journal in self._journals.values():
                journal.close()

    def _leave(self) -> None:
        """INVARIANT: a run that goes on in another process is not decided without what it has read in this
        one, however long the service is away."""
        try:
            self.queue.keep_rest(self._put_in_journals)
        except OSError as error:
            log.error("reports are lost, as they cannot be put into the journal: %s", error)

    def _put_in_journals(self, events: Sequence[ClientEvent]) -> list[Settled]:
        """Each into that of its agent; whom to tell what became of it."""
        of_agents: dict[str, list[ClientEvent]] = {}
        for event in events:
            of_agents.setdefault(json.loads(event.content)["agentId"], []).append(event)
        told: dict[str, Settled] = {}
        for agent_id, those in of_agents.items():
            settled = self._journals[agent_id].append(those)
            told |= zip((event.event_id for event in those), settled, strict=True)
        return [told[event.event_id] for event in events]

    @property
    def is_closed(self) -> bool:
        return self._closed


class _Sending:
    """The thread's work, until its client is closed or the process ends."""

    def __init__(self, core: ClientCore) -> None:
        self._core, self._queue = core, core.queue

    def run(self) -> None:
        attempt, core = 0, self._core
        while not core.is_closed:
            if not self._queue.wait(ADOPT_SECONDS):
                core.adopt_all()
                continue
            time.sleep(LINGER_SECONDS)
            try:
                core.driver.run(core.deciding.flush(None, time.monotonic() + CLOSE_SECONDS))
                attempt = 0
            except NoAnswer as error:
                attempt = min(attempt + 1, MOST_ATTEMPTS)
                log.info("reports wait: %s", error)
                time.sleep(backoff(attempt))
            except Exception:
                log.exception("reports cannot be sent")
                time.sleep(backoff(MOST_ATTEMPTS))


@atexit.register
def _close_all() -> None:
    for core in list(_living):
        core.close()


class _Forking:
    """What a fork finds: INVARIANT: no queue is being changed meanwhile, so that the child has all of it."""

    def __init__(self) -> None:
        self._held = threading.local()

    def before(self) -> None:
        """Each in the order of its id, so that forks of several threads do not wait for each other."""
        held: list[ReportQueue] = []
        self._forks.append(held)
        for queue in sorted((core.queue for core in list(_living)), key=id):
            queue.hold()
            held.append(queue)

    def in_parent(self) -> None:
        """INVARIANT: only what this fork holds is let go; an interrupt may have ended `before` early."""
        for queue in self._forks.pop() if self._forks else ():
            queue.let_go()

    def in_child(self) -> None:
        self._held = threading.local()
        for core in list(_living):
            try:
                core.after_fork()
            except Exception:  # which must not leave the others as their parent had them
                log.exception("a client cannot go on after a fork")

    @property
    def _forks(self) -> list[list[ReportQueue]]:
        """Of this thread, which may fork in the handler of a signal that interrupts another one."""
        forks: list[list[ReportQueue]] = vars(self._held).setdefault("forks", [])
        return forks


_forking: Final = _Forking()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forking.before, after_in_parent=_forking.in_parent, after_in_child=_forking.in_child
    )


def _close_with_worker(_: object = None) -> None:
    """`multiprocessing` ends its processes without `atexit`; each forgets at its beginning what is to be done
    at its end."""
    multiprocessing.util.Finalize(None, _close_all, exitpriority=0)


_close_with_worker()
multiprocessing.util.register_after_fork(_forking, _close_with_worker)
