"""How a call is decided: ask, wait for people, and what holds while the service is away.

Reports of the run that are not sent yet go ahead of the question, in the same request, so that policies see
what the run has read before they decide.

INVARIANT: a call is allowed by an answer of the service about this very call, or, in the fail mode `open`, by
an entry of the journal that is on disk - and that only where nobody was there to ask, and nothing known of
the run speaks against it.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from governance_client.decision import MalformedAnswer, Question, Status, ToolDecision, resolved
from governance_client.events import ClientEvent, batch
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
from governance_client.report_queue import UNREADABLE, BatchResult, Flight, ReportQueue, result_of
from governance_client.run_memory import AskedCall
from governance_client.settings import ClientSettings

log = logging.getLogger("governance_client")

LONGEST_POLL: Final = 60
SLACK_SECONDS: Final = 15.0
"""Which an answer may come later than its long poll was to last."""
OPEN_SECONDS: Final = 3.0
"""In which a service must answer that calls need not wait for, in the fail mode `open`."""
AWAY_SECONDS: Final = 0.5
"""The same of one that was away."""


class Deciding:
    """The flows of one client, shared by its runs."""

    def __init__(self, settings: ClientSettings, queue: ReportQueue) -> None:
        self._settings = settings
        self._queue = queue
        self.is_away = False
        """Whether nobody answered the last time that somebody was asked."""

    # A call ---------------------------------------------------------------------------------------

    def decide(self, call: AskedCall, wait: float | None) -> Flow[ToolDecision]:
        """The decision on a call, having waited for people that long (None: until it is resolved)."""
        question, opened = call.question, self._settings.fail_mode == "open"
        seconds = self._settings.decide_seconds
        if opened:
            seconds = min(seconds, AWAY_SECONDS if self.is_away else OPEN_SECONDS)
        try:
            result = yield from self._asked(call.event, time.monotonic() + seconds)
        except NoAnswer as error:
            if opened and error.away:
                return self._offline(call, str(error))
            return question.without_answer("unavailable", str(error))
        decision = _decision(call, result)
        call.memory.learn(question, decision)
        if decision.waiting and wait != 0:
            decision = yield from self.wait(decision, wait)
            call.memory.learn(question, decision)
        return decision

    def _asked(self, called: ClientEvent, deadline: float) -> Flow[BatchResult]:
        """What is said of this call; what is queued of its run goes ahead of it."""
        while True:
            taken = self._queue.take(called.line)
            if isinstance(taken, Future):
                yield from self._joined(taken, deadline)
            elif not taken.reports:
                request = ClientRequest("POST", "/v1/events", called.content)
                response = yield from self._ask(request, deadline)
                return BatchResult(response.status, _content(response))
            elif taken.more:
                yield from self._sent(taken, (), deadline)
            else:
                results = yield from self._sent(taken, (called,), deadline)
                if results is not None and results[-1].status not in RETRIED:
                    return results[-1]

    def _joined(self, future: Future[None], deadline: float) -> Flow[None]:
        left = deadline - time.monotonic()
        if left > 0:
            yield Join(future, left)
        if not future.done():
            raise NoAnswer("earlier reports of the run could not be sent in time", away=self.is_away)

    def _ask(self, request: ClientRequest, deadline: float) -> Flow[ClientResponse]:
        try:
            response = yield from ask(request, deadline)
        except NoAnswer as error:
            self.is_away = error.away
            raise
        self.is_away = False
        return response

    # Reports --------------------------------------------------------------------------------------

    def flush(self, line: Sequence[str] | None, deadline: float) -> Flow[None]:
        """Send what is queued, for these runs or for all, until it has arrived. Raises NoAnswer."""
        while True:
            taken = self._queue.take_any() if line is None else self._queue.take(line)
            if isinstance(taken, Future):
                yield from self._joined(taken, deadline)
            elif taken.reports:
                yield from self._sent(taken, (), deadline)
            else:
                return

    def _sent(
        self, flight: Flight, further: Sequence[ClientEvent], deadline: float
    ) -> Flow[list[BatchResult] | None]:
        """The results of a flight and of what goes with it; None when some of it must go again."""
        events = [*(report.event for report in flight.reports), *further]
        count = len(flight.reports)
        try:
            request = ClientRequest("POST", "/v1/events/batch", batch(events))
            response = yield from self._ask(request, deadline)
        except BaseException:
            self._queue.put_back(flight)
            raise
        results = _results(response, len(events))
        if results is not None:
            again = not self._queue.settle(flight, results[:count])
        elif response.status not in UNREADABLE:
            self._queue.put_back(flight)
            if response.status == 200 or not further:
                raise NoAnswer(f"reports cannot be sent: {response.problem()}", away=False)
            # The key does not hold for the call either, and the answer says why.
            return [BatchResult(response.status, _content(response))]
        elif len(events) > 1:
            self._queue.put_back(flight, smaller=True)
            return None
        else:
            again = not self._queue.settle(flight, [BatchResult(response.status, _content(response))])
        again = again or (results is not None and any(each.status in RETRIED for each in results[count:]))
        if again:
            if time.monotonic() >= deadline:
                raise NoAnswer("the service does not take all reports of the run", away=False)
            yield Pause(backoff(1))
        return results

    # People ---------------------------------------------------------------------------------------

    def wait(self, decision: ToolDecision, seconds: float | None) -> Flow[ToolDecision]:
        """The decision once a person has made it, or as it is after so many seconds. Outlasts restarts of the
        service: nothing but an answer ends it, and nothing but a yes allows."""
        ends = math.inf if seconds is None else time.monotonic() + seconds
        failures = 0
        while True:
            begun = time.monotonic()
            poll = max(0, math.ceil(min(LONGEST_POLL, ends - begun)))
            path = f"/v1/approvals/{quote(decision.approval_id or '', safe='')}?wait={poll}"
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


def _decision(call: AskedCall, result: BatchResult) -> ToolDecision:
    question = call.question
    if result.status == 200:
        try:
            return question.answered(call.event.event_id, result.content)
        except MalformedAnswer as error:
            return question.without_answer("unavailable", f"the answer cannot be understood: {error}")
    return question.without_answer(_refusal(result.status), result.problem())


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


def _content(response: ClientResponse) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _results(response: ClientResponse, count: int) -> list[BatchResult] | None:
    content = _content(response)
    results = content.get("results") if response.status == 200 and isinstance(content, dict) else None
    return list(map(result_of, results)) if isinstance(results, list) and len(results) == count else None
