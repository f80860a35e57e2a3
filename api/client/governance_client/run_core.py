"""A run of an agent: its task, its calls, their outputs and its end, reported without the agent's doing.

The current run is a context variable: nested tools, tasks and `asyncio.to_thread` belong to it by themselves,
a thread of one's own when it is started by `copy_context().run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, Self, Unpack

from governance_client import payloads
from governance_client.core import ClientCore
from governance_client.deciding import TakenCallId
from governance_client.decision import Question, ToolDecision
from governance_client.declared_arguments import UnfitArguments, as_declared
from governance_client.drivers import ClientDriver
from governance_client.events import ClientEvent, event, new_id
from governance_client.exchange import Flow
from governance_client.guard import CallDetails, GuardDetails, guarded
from governance_client.run_memory import AskedCall, ClientRunMemory, ForkLock

_UNTELLABLE: Final = (ValueError, TypeError, RecursionError)
"""What arguments raise that have no exact form in JSON."""
MOST_IDS: Final = 200
"""Under which one call is asked about: more than a run can have used of those that follow from its own."""
_current: ContextVar[RunCore | None] = ContextVar("governance_run", default=None)


class NoCurrentRun(RuntimeError):
    """A guarded tool was called outside of every run."""

    def __init__(self) -> None:
        super().__init__(
            "no run is going on here; call this inside `with governance.run(task=...)`, start a run for the"
            " whole process by `governance.start(task=...)`, or start the thread by `copy_context().run`"
        )


def current_run() -> RunCore | None:
    """The run that this code belongs to."""
    return _current.get()


class RunCore:
    """What runs of threads and of tasks have in common. `run_id` is the run's own; give the same one again to
    go on with a run, also after a restart: calls with a `tool_call_id` find their decisions and approvals,
    until they have completed: the next call under that id is another one, as is one that comes while that
    one goes on, or that does something else."""

    core: ClientCore
    memory: ClientRunMemory

    def __init__(
        self,
        core: ClientCore,
        task: str | None,
        *,
        agent_id: str | None = None,
        run_id: str | None = None,
        model: str | None = None,
        host: str | None = None,
        reason: str | None = None,
        context: Mapping[str, Any] | None = None,
        parent: RunCore | str | Literal[False] | None = None,
        continues: str | None = None,
    ) -> None:
        current = current_run()
        if parent is None and current is not None and current.core is core and current.run_id != run_id:
            parent = current
        above = parent.memory if isinstance(parent, RunCore) else None
        if above is not None and run_id in above.line:
            raise ValueError(f"the run `{run_id}` cannot have started itself; give another `parent`")
        agent = agent_id or core.settings.agent_id or (above.agent_id if above else None)
        if agent is None:
            raise ValueError("no agent is named; set `GOVERNANCE_AGENT_ID`, or give `agent_id`")
        line = (*(above.line if above else ()), run_id or f"run-{new_id()}")
        self.core = core
        told = (*(above.named if above else ()), continues, parent if isinstance(parent, str) else None)
        named = tuple(filter(None, told))
        goes_on = (*named, *((run_id,) if run_id else ()))
        journal = core.journal(agent)
        if goes_on:
            core.deciding.adopt(journal, {line[-1]: goes_on})
        self.memory = ClientRunMemory(line, agent, journal, above, named)
        self._metadata = {
            "task": task,
            "model": model,
            "host": host,
            "reason": reason,
            "agentContext": None if context is None else dict(context),
            "parentRunId": parent.run_id if isinstance(parent, RunCore) else parent or None,
            "continuesRunId": continues,
        }
        self._tokens: list[Token[RunCore | None]] = []
        self._begun = self._ended = False
        self._lock = ForkLock()

    @property
    def run_id(self) -> str:
        return self.memory.run_id

    @property
    def agent_id(self) -> str:
        return self.memory.agent_id

    @property
    def driver(self) -> ClientDriver:
        return self.core.driver

    # Reports: behind the decisions, in order ------------------------------------------------------

    def completed(self, decision: ToolDecision | str, output: Any = None) -> None:
        """Report what a call gave back; by its decision or its `tool_call_id`. Returns at once."""
        self.memory.calls.completed(self._outcome("tool.completed", decision, payloads.output_json(output)))

    def failed(self, decision: ToolDecision | str, error: BaseException | str) -> None:
        """Report that a call was made and failed. Returns at once."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.memory.calls.stopped(
            self._outcome("tool.failed", decision, payloads.output_json({"error": text}))
        )

    def postponed(self, decision: ToolDecision | str) -> None:
        """Nothing is reported of a call that was not made, or that begins once more: asked for again by its
        `tool_call_id`, it finds the same decision."""
        self.memory.calls.stopped(self._id_of(decision))

    def _id_of(self, decision: ToolDecision | str) -> str:
        return self.memory.calls.meant(decision) if isinstance(decision, str) else decision.tool_call_id

    def said(self, message: str) -> None:
        """Report what a person wrote to the run after its task; it vouches for values as the task does."""
        self.report("custom.user_message", {"message": payloads.whole(message)})

    def report(self, event_type: str, metadata: Mapping[str, Any]) -> None:
        """Report any other event, such as `custom.*`. Returns at once."""
        self.report_start()
        made = event(event_type, self.memory.behind, self.agent_id, metadata)
        self.core.report(made, self.memory.journal)

    def _outcome(self, event_type: str, decision: ToolDecision | str, output: str) -> str:
        """Returns the call's id."""
        tool_call_id = self._id_of(decision)
        about = {"toolCallId": tool_call_id}
        line, agent_id, event_id = self.memory.behind, self.agent_id, new_id()

        def told(text: str, plainer: Any = None) -> ClientEvent:
            return event(event_type, line, agent_id, about, {"outputPayload": text}, plainer, event_id)

        self.report_start()
        made = told(output, lambda: told(payloads.plainer(output), lambda: told(payloads.untold(output))))
        self.core.report(made, self.memory.journal)
        return tool_call_id

    # Questions ------------------------------------------------------------------------------------

    def asking(
        self, tool: str, arguments: Mapping[str, Any], details: CallDetails, *, goes_on: bool = False
    ) -> Flow[ToolDecision]:
        """The flow behind `check`, to be driven by a thread or a task. With `goes_on` it takes the same call
        up again that was left waiting for a person."""
        question = Question(self.run_id, tool, details.get("tool_call_id") or f"call-{new_id()}", "{}")
        try:
            self.report_start()
            question = replace(question, payload=_payload(arguments, details))
        except _UNTELLABLE as error:
            return _untold(question, error)
        for _ in range(MOST_IDS):
            asked = self.memory.calls.begin(question, goes_on=goes_on)
            decision = yield from self._decided(asked, arguments, details, goes_on)
            if decision is None or (decision.allowed and self.memory.calls.is_made(asked.tool_call_id)):
                continue  # as the service has told
            return decision
        return question.without_answer("unavailable", "the service knows another call under every id")

    def _decided(
        self, asked: Question, arguments: Mapping[str, Any], details: CallDetails, goes_on: bool
    ) -> Flow[ToolDecision | None]:
        """What comes of a question; None where another call has its id."""
        wait = seconds_to_wait(details.get("wait", True))
        known: ToolDecision | None = None
        is_said = False
        try:
            try:
                call = AskedCall.of(self.memory, asked, _metadata(details))
            except _UNTELLABLE as error:
                known = _untold(asked, error)
                return known
            known, is_said = yield from self.core.deciding.decide(call)
            if is_said and known.waiting and wait != 0:
                known = yield from self.core.deciding.wait(known, wait)
                self.memory.learn(asked, known)
            if known.approval_id and known.allowed and not _same(arguments, details, asked.payload):
                known = asked.without_answer("invalid", "its arguments changed while it waited for approval")
            return known
        except TakenCallId:
            self.memory.calls.is_another(asked)
            known = asked.without_answer("invalid", "the run has another call under its id")
            return None
        finally:
            self.memory.calls.end(asked, known, goes_on=goes_on and is_said)

    def waiting(self, decision: ToolDecision, seconds: float | None) -> Flow[ToolDecision]:
        """The flow behind `wait`."""
        if decision.waiting:
            decision = yield from self.core.deciding.wait(decision, seconds)
            if decision.allowed:
                self.memory.calls.may_run(decision.tool_call_id)
        return decision

    def guard(self, function: Any = None, **how: Unpack[GuardDetails]) -> Any:
        """Decorate a tool: each call is asked about, waited for, made, and reported; it raises Refused when
        it must not be made. An `async def` waits as a task, a `def` keeps its thread waiting."""
        return guarded(lambda: self, function, how)

    # Beginning and end ----------------------------------------------------------------------------

    def begin(self) -> Self:
        """Report the start, once, and be the current run of this context."""
        self.report_start()
        self._tokens.append(_current.set(self))
        return self

    def report_start(self) -> None:
        """Report the start, once, without being the current run. Returns at once. INVARIANT: what a run is,
        and which one it is part of, is told before all else of it."""
        with self._lock:
            if not self._begun:
                said = self._metadata
                told = partial(event, "run.started", self.memory.behind, self.agent_id, event_id=new_id())
                line = {name: said[name] for name in ("parentRunId", "continuesRunId")}

                def plainer() -> ClientEvent:
                    return told(payloads.plainly(said), plainer=lambda: told(line))

                try:
                    made = told(said, plainer=plainer)
                except UnicodeError:  # half a character, which no request holds
                    made = plainer()
                self.core.report(made, self.memory.journal)
                self._begun = True

    def report_end(self, error: BaseException | None = None) -> None:
        """Report the end, once. Returns at once."""
        if not self._ended:
            self._ended = True
            why = None if error is None else payloads.whole(f"{type(error).__name__}: {error}"[:2_000])
            self.report("run.completed" if error is None else "run.failed", {"reason": why})

    def pause(self) -> None:
        """Report no end when the run is left: it goes on later, here or elsewhere, by its `run_id`."""
        self._ended = True

    @contextmanager
    def current(self) -> Iterator[Self]:
        """Be the current run of this context for a while; nothing is reported of that."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def ending(self, error: BaseException | None) -> Flow[None]:
        """Report the end, once, and send what is queued, as far as somebody takes it."""
        if self._tokens:
            try:
                _current.reset(self._tokens.pop())
            except ValueError:  # ended in another context than it began in
                _current.set(None)
        self.report_end(error)
        yield from self.core.flushing(self.memory.behind)


def _metadata(details: CallDetails) -> dict[str, Any]:
    """What `tool.called` says besides the call itself."""
    context, annotations = details.get("context"), details.get("annotations")
    return {
        "actionHint": details.get("action_hint"),
        "reason": details.get("reason"),
        "agentContext": None if context is None else dict(context),
        "toolAnnotations": None if annotations is None else dict(annotations),
    }


def seconds_to_wait(wait: bool | float) -> float | None:
    if wait is True:
        return None
    return max(float(wait), 0.0)


def _payload(arguments: Mapping[str, Any], details: CallDetails) -> str:
    plain_texts = details.get("plain_texts", False)
    told = as_declared(arguments, details.get("input_schema"), plain_texts=plain_texts)
    return payloads.arguments_json(told)


def _same(arguments: Mapping[str, Any], details: CallDetails, payload: str) -> bool:
    try:
        return _payload(arguments, details) == payload
    except _UNTELLABLE:
        return False


def _untold(question: Question, error: Exception) -> ToolDecision:
    if isinstance(error, UnfitArguments):
        return question.without_answer("invalid", str(error))
    return question.without_answer("invalid", f"its arguments cannot be told exactly: {error}")
