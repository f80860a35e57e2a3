"""What every agent SDK is put through: the same tools, the same script for its model, the same outcome.

A script is what the model asks for, step by step; behind its last step the model says `DONE`. A driver builds
the SDK's own agent around it, connected as the guide says, and tells what the model was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from governance_client import AsyncGovernance
from pydantic import BaseModel

Script = list[list[tuple[str, dict[str, Any]]]]
"""Steps; a step is the tool calls of one answer of the model."""

TASK = "pay the invoices of January"
MODEL = "scripted-1"
DONE = "that is all"


class OutOfOrder(Exception):
    """What the model of a script that is used up raises where it should fail."""


class Where(BaseModel):
    path: str


@dataclass
class Tools:
    """The functions that are the tools, and what has run."""

    ran: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def functions(self) -> list[Callable[..., str]]:
        def look(at: str) -> str:
            """Look at something."""
            self.ran.append(("look", {"at": at}))
            return f"seen: {at}"

        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.ran.append(("pay", {"to": to, "amount": amount}))
            return f"paid {amount} to {to}"

        def rent(to: str, amount: int) -> str:
            """Pay the rent."""
            self.ran.append(("rent", {"to": to, "amount": amount}))
            return f"paid {amount} of rent to {to}"

        def wire(to: str) -> str:
            """Wire everything there is."""
            self.ran.append(("wire", {"to": to}))
            return f"wired to {to}"

        def drop(table: str, really: bool = False, where: Where | None = None) -> str:
            """Drop a table, or what of it a condition names."""
            self.ran.append(("drop", {"table": table, "really": really}))
            return "dropped"

        def stumble(at: str) -> str:
            """Fail."""
            self.ran.append(("stumble", {"at": at}))
            raise ValueError(f"stumbled at {at}")

        return [look, pay, rent, wire, drop, stumble]


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    answers: list[str]
    """What the model was given as result of its calls, in the order of the calls."""
    text: str


def call_id(step: int, number: int) -> str:
    return f"call-{step}-{number}"


class Driver(Protocol):
    """One SDK."""

    name: str
    pauses: bool
    """Whether the SDK can interrupt a run and go on later."""
    survives: bool
    """Whether a tool's exception is told to the model, instead of ending the run."""
    knows_task: bool
    """Whether the adapter sees what the run is for."""

    async def run(
        self, governance: AsyncGovernance, script: Script, tools: Tools, *, breaks: bool = False
    ) -> Outcome:
        """The whole run, waiting for people; with `breaks` the model raises `OutOfOrder` behind the
        script."""

    async def pause(self, governance: AsyncGovernance, script: Script, tools: Tools) -> str:
        """Runs until somebody is waited for; the run as text, as a database would keep it."""

    async def resume(self, governance: AsyncGovernance, script: Script, tools: Tools, saved: str) -> Outcome:
        """Waits for people, and goes on with what `pause` gave, in what might be another process."""
