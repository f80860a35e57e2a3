"""The interrupts by which a call waits for its approval in LangGraph.

LangGraph gives the interrupts of a node their answers by number, each time that it goes on; a call that was
approved does not interrupt any more, so the first interrupt of its tool would be given the answer to ours.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from langgraph._internal._constants import CONFIG_KEY_SCRATCHPAD, CONFIG_KEY_SEND, RESUME
from langgraph.config import get_config
from langgraph.types import interrupt


class Interrupts:
    """Those of one call. INVARIANT: each keeps two numbers: that it was asked, which is noted among the
    answers, and its answer."""

    def __init__(self, call_id: str | None) -> None:
        self._asked = {"governance_asked": call_id}
        self._passed = 0
        self._pad: Any = None
        self._send: Any = None
        with suppress(RuntimeError):  # outside of every graph
            told = get_config().get("configurable", {})
            self._pad, self._send = told.get(CONFIG_KEY_SCRATCHPAD), told.get(CONFIG_KEY_SEND)

    def wait(self, request: dict[str, Any]) -> None:
        """Interrupt the run, unless that was answered; what was answered decides nothing."""
        if self._pad is None or self._send is None:
            interrupt(request)  # which tells what is missing
            return
        answers = self._pad.resume
        at = self._next()
        while at is not None and at + 1 < len(answers):
            self._pass(2)
            at = self._next()
        if at is None:
            answers.append(self._asked)
            self._send([(RESUME, list(answers))])
        self._pass(1)
        interrupt(request)

    def leave(self) -> None:
        """The call goes on; what its tool asks comes behind all that was asked for it."""
        begun = self._passed
        while (at := self._next()) is not None:
            answers = self._pad.resume
            if at + 1 == len(answers):
                answers.append(self._pad.get_null_resume(True) or {"type": "none"})
            self._pass(2)
        if self._passed > begun:
            self._send([(RESUME, list(self._pad.resume))])

    def _next(self) -> int | None:
        """Where it is noted that one was asked that was not passed yet."""
        answers = self._pad.resume if self._pad is not None else ()
        noted = [at for at, each in enumerate(answers) if each == self._asked]
        return noted[self._passed] if self._passed < len(noted) else None

    def _pass(self, numbers: int) -> None:
        self._passed += 1
        for _ in range(numbers):
            self._pad.interrupt_counter()
