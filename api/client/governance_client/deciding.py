"""How a call is decided: ask, wait for people, and what holds while the service is away.

Reports of the run that are not sent yet go ahead of the question, and are taken before it is asked: policies
see what the run has read before they decide, and no report that cannot be read gets around that.

INVARIANT: a call is allowed by an answer of the service about this very call, or, in the fail mode `open`, by
an entry of the journal that is on disk - and that only where nobody was there to ask, and nothing known of
the run speaks against it.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from governance_client.client_key import ClientKey
from governance_client.decision import MalformedAnswer, Question, Status, ToolDecision, resolved
from governance_client.events import batch, new_id
from governance_client.exchange import (
    RETRIED,
    ClientRequest,
    ClientResponse,
    Flow,
    Join,
    NoAnswer,
    Pause,
    Unreachable,
    ask,
    backoff,
    seconds_of,
)
from governance_client.journal import OfflineJournal
from governance_client.report_queue import (
    FOR_THE_KEY,
    UNREADABLE,
    BatchResult,
    Flight,
    ReportQueue,
    result_of,
)
from governance_client.run_memory import AskedCall
from governance_client.settings import ClientSettings

log = logging.getLogger("governance_client")

LONGEST_POLL: Final = 60
SLACK_SECONDS: Final = 15.0
"""Which an answer may come later than its long poll was to last."""
OPEN_SECONDS: Final = 3.0
"""In which a service must answer that calls need not wait for, in the fail mode `open`."""
OPEN_TRIES: Final = 3
AWAY_SECONDS: Final = 0.5
"""In which one that was away must be reached again; its answer may take longer."""
_NOTHING: Final[Mapping[str, Collection[str]]] = {}
WELL_SECONDS: Final = 1.0
"""In which a service that has not answered a question says that it is there all the same."""


class TakenCallId(Exception):
    """The run has another call under the id of the one that was asked about."""


class Deciding:
    """The flows of one client, shared by its runs."""

    def __init__(self, settings: ClientSettings, queue: ReportQueue, key: ClientKey) -> None:
        self._settings, self._key = settings, key
        self._tries = OPEN_TRIES if settings.fail_mode == "open" else math.inf
        self._queue = queue
        self.is_away = False
        """Whether nobody answered the last time that somebody was asked."""
        self._adopting = threading.RLock()
        self._unclear: dict[OfflineJournal, dict[str, set[str]]] = {}
        """Of each journal: by run that is held back, what it goes on with."""

    # A call ---------------------------------------------------------------------------------------

    def decide(self, call: AskedCall) -> Flow[tuple[ToolDecision, bool]]:
        """The decision on a call, and whether the service has said it of this very call; people are not
        waited for. Raises TakenCallId."""
        question, opened = call.question, self._settings.fail_mode == "open"
        seconds = self._settings.decide_seconds
        if opened:
            seconds = min(seconds, OPEN_SECONDS)
        try:
            response = yield from self._asked(call, time.monotonic() + seconds)
        except NoAnswer as error:
            if opened and error.away:
                return self._offline(call, str(error)), False
            return question.without_answer(_refusal(error.status), str(error)), False
        decision = _decision(call, response)
        call.memory.learn(question, decision)
        return decision, True

    def _asked(self, call: AskedCall, deadline: float) -> Flow[ClientResponse]:
        """The response about this call, once all is taken that is queued of its run."""
        yield from self.flush(call.event.line, deadline)
        return (yield from self._ask(ClientRequest("POST", "/v1/events", call.event.content), deadline))

    def _joined(self, future: Future[None], deadline: float) -> Flow[None]:
        left = deadline - time.monotonic()
        if left > 0:
            yield Join(future, left)
        if not future.done():
            silent = NoAnswer("earlier reports of the run could not be sent in time", away=self.is_away)
            raise (yield from self._looked_after(silent))

    def _ask(self, request: ClientRequest, deadline: float) -> Flow[ClientResponse]:
        try:
            if self.is_away and self._settings.fail_mode == "open":
                response = yield from ask(replace(request, connect=AWAY_SECONDS), deadline, 1)
            else:
                response = yield from ask(request, deadline, self._tries)
        except NoAnswer as error:
            raise (yield from self._looked_after(error)) from None
        self.is_away = False
        if response.key_id:
            self._key.learn(response.key_id)
        return response

    def _looked_after(self, error: NoAnswer) -> Flow[NoAnswer]:
        """The same, once it was looked whether the service is away. INVARIANT: nothing lets a call through
        that was not looked after."""
        sign = (yield from self._sign_of_it()) if error.away else ""
        self.is_away = error.away and not sign
        return NoAnswer(f"{error}{sign}", away=self.is_away, status=error.status)

    def _sign_of_it(self) -> Flow[str]:
        """What says that the service is not away: that it decides and records, and so keeps this question
        waiting, as it does with a key that takes more than its share; or that something before it keeps its
        health to itself, so that nobody can tell. Nothing is let through for that. Empty: it is away."""
        if self._settings.fail_mode != "open":
            return ""  # nothing is let through anyway
        try:
            asked = ClientRequest("GET", "/health/ready", None, WELL_SECONDS, AWAY_SECONDS)
            response: ClientResponse = yield asked
        except Unreachable:
            return ""
        if response.status == 200:
            return ", though it says that it is well"
        kept = f", and `/health/ready` answers {response.status}: let that address through to the service"
        return kept if response.status < 500 else ""

    # Reports --------------------------------------------------------------------------------------

    def flush(self, line: Sequence[str] | None, deadline: float) -> Flow[None]:
        """Send what is queued by now, for these runs or for all, until it has arrived. Raises NoAnswer."""
        if self._queue.held(line) is not None:
            yield from self._clear(deadline)
        until = self._queue.newest
        while True:
            taken = self._queue.take_any() if line is None else self._queue.take(line, until)
            if isinstance(taken, Future):
                yield from self._joined(taken, deadline)
            elif not taken.reports:
                if (why := self._queue.held(line)) is not None:
                    raise NoAnswer(why, away=False)
                return
            elif not (yield from self._sent(taken, deadline)):
                if time.monotonic() >= deadline:
                    raise NoAnswer("the service does not take all reports of the run", away=False)
                yield Pause(backoff(1))

    def _sent(self, flight: Flight, deadline: float) -> Flow[bool]:
        """Whether the service has taken or refused each report of a flight for good."""
        events = [report.event for report in flight.reports]
        try:
            request = ClientRequest("POST", "/v1/events/batch", batch(events))
            response = yield from self._ask(request, deadline)
        except BaseException:
            self._queue.put_back(flight)
            raise
        results = _results(response, len(events))
        if results is None and response.status in UNREADABLE and len(events) == 1:
            results = [BatchResult(response.status, _content(response))]
        if results is not None:
            if self._queue.settle(flight, results):
                return True
            refused = next((each for each in results if each.status in FOR_THE_KEY), None)
            if refused is None:
                return False
            why = f"reports of the run cannot be sent: {refused.problem()}"
            raise NoAnswer(why, away=False, status=refused.status)
        self._queue.put_back(flight, smaller=response.status in UNREADABLE)
        if response.status in UNREADABLE:
            return True
        why = f"reports of the run cannot be sent: {response.problem()}"
        raise NoAnswer(why, away=False, status=response.status)

    # Journals -------------------------------------------------------------------------------------

    def adopt(self, journal: OfflineJournal, going: Mapping[str, Collection[str]] = _NOTHING) -> set[str]:
        """Queue what others have left, and what they hold of these: by run, what it goes on with. Whoever
        comes meanwhile goes on when all of it is queued. Returns who is held back. INVARIANT: nothing of a
        run is told, nor asked, before what is left of those that it goes on with, unless that is of another
        key; a run of which something is found goes on with those that this names."""
        kept, lines = [], {run_id: set(runs) for run_id, runs in going.items()}
        wanted = set[str]().union(*lines.values())
        before = self._unclear.get(journal, {})
        with self._adopting:
            unclear = {run_id: self._queue.held((each,)) or "" for each in before for run_id in before[each]}
            try:
                while True:
                    unclear = journal.unclear(wanted)  # before, as it may be said meanwhile
                    kept.append(found := journal.adopt(wanted, going.keys()))
                    for event, _ in found:
                        lines.setdefault(event.run_id, set()).update(event.line)
                    if wanted.issuperset(named := set().union(*lines.values())):
                        break
                    wanted |= named
                if journal.unread:
                    unclear = dict.fromkeys(wanted, journal.unread) | unclear
            except PermissionError as error:  # another user's folder, of no run of this one
                log.error("the journal cannot be read: %s", error)
            except OSError as error:
                unclear = dict.fromkeys(wanted, f"the journal cannot be read: {error}")
            held = {run_id: why for run_id, runs in lines.items() if (why := _first(unclear, runs))}
            for run_id, why in held.items():
                self._unclear.setdefault(journal, {}).setdefault(run_id, set()).update(lines[run_id])
                self._queue.hold_back(run_id, why)
            self._queue.add_first(*kept)
        return set(held)

    def inherit(self, other: Deciding) -> None:
        """Have what another process tells told by this one as well, should it have to be known."""
        self._queue.inherit(other._queue)
        for journal, held in other._unclear.items():
            self.adopt(journal, held)

    def _clear(self, deadline: float) -> Flow[None]:
        """Let go on what nobody could tell before whether it may. Raises NoAnswer."""
        if not self._key.is_known:
            response = yield from self._ask(ClientRequest("GET", f"/v1/runs/{new_id()}"), deadline)
            if response.status in FOR_THE_KEY:
                raise NoAnswer(response.problem(), away=False, status=response.status)
        with self._adopting:
            for journal, held in self._unclear.items():
                if journal.is_closed:
                    continue  # nothing can be adopted any more
                for run_id in held.keys() - self.adopt(journal, held):
                    if not any(run_id in each for each in self._unclear.values() if each is not held):
                        self._queue.release(run_id)
                    del held[run_id]

    # People ---------------------------------------------------------------------------------------

    def wait(self, decision: ToolDecision, seconds: float | None) -> Flow[ToolDecision]:
        """The decision once a person has made it, or as it is after so many seconds. Outlasts restarts of the
        service: nothing but an answer ends it, and nothing but a yes allows."""
        ends = math.inf if seconds is None else time.monotonic() + seconds
        failures = 0
        while True:
            begun = time.monotonic()
            poll = max(0, math.ceil(min(LONGEST_POLL, ends - begun)))
            path = f"/v1/approvals/{quote(decision.approval_id or '', safe='', errors='replace')}?wait={poll}"
            pause = 0.0
            try:
                response: ClientResponse = yield ClientRequest("GET", path, None, poll + SLACK_SECONDS)
            except Unreachable:
                pause = backoff(failures)
                failures += 1
            else:
                if response.status in RETRIED:
                    pause = max(backoff(failures), seconds_of(response.retry_after))
                    failures += 1
                else:
                    failures = 0
                    decision = _resolution(decision, response)
                    if not decision.waiting:
                        return decision
            if time.monotonic() >= ends:
                return decision
            if not pause and time.monotonic() - begun < poll / 2:
                pause = random.uniform(0.5, 1.5)  # the service has made room for others
            if pause:
                yield Pause(min(pause, ends - time.monotonic()))

    # Away -----------------------------------------------------------------------------------------

    def _offline(self, call: AskedCall, reason: str) -> ToolDecision:
        question = call.question
        known = call.memory.against(question)
        if known is not None:
            return known
        try:
            self._queue.keep(call.offline(), call.memory.journal.append)
        except OSError as error:
            why = f"{reason}, and the call cannot be put into the journal: {error}"
            return question.without_answer("unavailable", why)
        log.warning("a call of `%s` is let through: %s", question.tool, reason)
        return question.offline(f"allowed without a decision, since {reason}")


def _first(unclear: Mapping[str, str], runs: Collection[str]) -> str:
    return next((unclear[each] for each in runs if each in unclear), "")


def _decision(call: AskedCall, response: ClientResponse) -> ToolDecision:
    question = call.question
    if response.status == 200:
        content = _content(response)
        try:
            decision = question.answered(call.event.event_id, content)
        except MalformedAnswer as error:
            return question.without_answer("unavailable", f"the answer cannot be understood: {error}")
        if content.get("completion") == "completed":
            call.memory.calls.completed(question.tool_call_id)
        return decision
    if response.status == 409 and _code(response) == "tool_call_conflict":
        raise TakenCallId
    return question.without_answer(_refusal(response.status), response.problem())


def _resolution(decision: ToolDecision, response: ClientResponse) -> ToolDecision:
    question = Question(decision.run_id, decision.tool, decision.tool_call_id, "")
    if response.status != 200:
        said = question.without_answer(_refusal(response.status), response.problem())
    else:
        try:
            return resolved(decision, _content(response))
        except MalformedAnswer as error:
            said = question.without_answer("unavailable", f"the answer cannot be understood: {error}")
    return replace(said, approval_id=decision.approval_id, approval_url=decision.approval_url)


def _refusal(status: int) -> Status:
    """What an answer means that is no decision and will not become one."""
    if status in (401, 403):
        return "unauthorized"
    return "invalid" if 400 <= status < 500 else "unavailable"


def _code(response: ClientResponse) -> Any:
    problem = _content(response)
    return problem.get("code") if isinstance(problem, dict) else None


def _content(response: ClientResponse) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _results(response: ClientResponse, count: int) -> list[BatchResult] | None:
    content = _content(response)
    results = content.get("results") if response.status == 200 and isinstance(content, dict) else None
    return list(map(result_of, results)) if isinstance(results, list) and len(results) == count else None
