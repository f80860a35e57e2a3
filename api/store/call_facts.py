"""What the decision on a call saw beside its payload, as its row keeps it: user, delegation, key, the agent's
words, facts of the run.

The facts of a run are the same for each of its calls, so they are kept once, in the run's row, and calls
refer to them. INVARIANT: once a run has facts, they do not change, so what is put together here is what the
decision saw. Rows of before hold the facts of their run themselves.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

OF_THE_RUN: Final = True
"""Stands for the facts of its run in the row of a call."""

ASSERTED: Final[tuple[str, ...]] = ("actionHint", "agentContext", "reason")
"""The agent's own words on an event."""

_decode = msgspec.json.decode


def facts_of_run(task: str | None, model: str | None, agent_context: str | None) -> dict[str, Any] | None:
    """The `run` root of a tool call document, from the columns of the run; None when it has told none."""
    facts: dict[str, Any] = {"task": task, "model": model}
    if agent_context is not None:
        facts["agentContext"] = _decode(agent_context)
    return {name: value for name, value in facts.items() if value is not None} or None


def whole(facts: dict[str, Any], run: dict[str, Any] | None) -> dict[str, Any]:
    """Facts of a call with those of its run in their place, if it refers to them."""
    return facts | {"run": run} if refers(facts) else facts


def refers(facts: dict[str, Any]) -> bool:
    return facts.get("run") is OF_THE_RUN
