"""The page of the reference about the Python client, made from its signatures and docstrings.

What the two clients and their two kinds of runs have in common is said once, of those for threads.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, Final

from governance_client import AgentRun, ClientSettings, Governance, Refused, ToolDecision
from governance_client.decision import STATUSES
from governance_client.governance import RunDetails
from governance_client.guard import CallDetails, GuardDetails

from api.guide.markdown import code, page, table

OF_CLIENT: Final = ("from_env", "run", "start", "guard", "request", "close")
OF_RUN: Final = (
    "check",
    "wait",
    "completed",
    "failed",
    "postponed",
    "guard",
    "said",
    "report",
    "begin",
    "end",
    "pause",
    "current",
)


def client() -> str:
    return page(
        "Python client",
        "`pip install ./api/client` brings `governance_client`; [Govern an agent](../how-to/agents.md) shows "
        "it at work, [Govern agents of an SDK](../how-to/agent-sdks.md) its adapters. What stands here is "
        "for threads; `AsyncGovernance` and its runs have the same names, with `async with` and `await`.",
        "## `Governance`",
        "One for a process is enough; whoever asks waits, and the end of the process sends what is queued.",
        table(("Method", "What it does"), _methods(Governance, OF_CLIENT)),
        "### `ClientSettings`",
        "`Governance(ClientSettings(...))`, where the environment is not asked. " + _about(ClientSettings),
        table(("Field", "Default"), _fields(ClientSettings)),
        "## A run",
        "`with governance.run(task=...) as run:` begins it, ends it, and makes it the current run. "
        + _about(RunDetails),
        table(("Method", "What it does"), _methods(AgentRun, OF_RUN)),
        "### Details of a tool, for `guard`",
        _about(GuardDetails),
        "### Details of a call, for `check`",
        _about(CallDetails),
        "## `ToolDecision`",
        _about(ToolDecision) + f" `Refused`, which a guarded tool raises, has it as `decision`: "
        f"{_about(Refused)[0].lower()}{_about(Refused)[1:]}",
        table(("Field", "Default"), _fields(ToolDecision)),
        "### `status`",
        table(("Status", "What it means"), ((code(name), text) for name, text in STATUSES.items())),
    )


def _text(text: str) -> str:
    return " ".join(text.split())


def _about(thing: object) -> str:
    return _text(inspect.getdoc(thing) or "").removeprefix("See the module. ")


def _methods(kind: type, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        yield code(_signature(name, getattr(kind, name))), _about(getattr(kind, name))


def _signature(name: str, method: Any) -> str:
    shown = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            shown.append(f"**{parameter.name}")
        elif parameter.name != "self":
            given = parameter.default is not parameter.empty
            shown.append(f"{parameter.name}={parameter.default!r}" if given else parameter.name)
    return f"{name}({', '.join(shown)})"


def _fields(kind: Any) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            default = code(repr(field.default))
        else:
            default = "" if field.default_factory is not dataclasses.MISSING else "required"
        yield code(field.name), default
