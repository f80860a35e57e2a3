"""What the service works out of one call: each member of `tool` and `derived`, when it is first asked for.

Decides what a member needs: recipients read no shell, and a call is read as shell once for all that ask.
Members are named in the table of `fields.computed`. Knows nothing of conditions.

INVARIANT: never raises for any JSON document. What goes beyond a bound of a reader is known in part: the
value ends with `UNREADABLE` (in records, with one all of whose members are that), and `value` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from engine.derived.amount import amount_of
from engine.derived.commands.commands import Command, commands_of, commands_there
from engine.derived.commands.shell_commands import shell_reading
from engine.derived.files.calls import RUNNING, files_of
from engine.derived.files.files import Files
from engine.derived.files.written import written_texts
from engine.derived.payload import DistinctTexts, Leaf, leaves, unwrapped
from engine.derived.places.calls import places_of
from engine.derived.places.places import Places
from engine.derived.provenance import (
    Arguments,
    TargetArgument,
    arguments_of,
    shown,
    targets_of,
    unasked,
    untrusted,
    with_recipients,
)
from engine.derived.recipients import domains_of, recipients_of
from engine.derived.sql.statements import statements_of
from engine.derived.sql.texts import sql_texts
from engine.derived.text import readable_texts
from engine.derived.tools import Tools, of_tool
from engine.fields.computed import DERIVED, MEMBERS, TOOL, UNREADABLE
from engine.fields.json_text import Unread, opened
from engine.fields.scalars import text_of
from engine.flow.memory import RunMemory, memory_of, untrusted_texts
from engine.model import BEFORE, Json, ToolDeclaration
from engine.shell.reading import ShellReading

T = TypeVar("T")

Value = tuple[Json, bool]
"""What a member has (None: it is missing), and whether that is only a part."""


class worked_out_once(Generic[T]):  # noqa: N801
    """A property that is worked out when it is first read; without the lock of `cached_property`, which
    takes longer than most of what is worked out here."""

    def __init__(self, function: Callable[[Derivation], T]) -> None:
        self._function = function
        self._name = function.__name__

    def __get__(self, holder: Derivation, kind: type[Derivation]) -> T:
        value = holder.__dict__[self._name] = self._function(holder)
        return value


class Derivation:
    """The computed members of one call."""

    def __init__(self, document: Mapping[str, Json], tools: Tools) -> None:
        self.document = document
        self.tools = tools
        self._values: dict[tuple[str, str], Value] = {}
        self._unread = Unread()

    def value(self, root: str, member: str) -> Value:
        """A member of `tool` or `derived`."""
        key = (root, member)
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = _MEMBERS[key](self)
        return found

    # ---- what several members need -----------------------------------------------------------------

    @property
    def tool_name(self) -> str:
        name = self.document.get("toolName")
        return name if isinstance(name, str) else ""

    @worked_out_once
    def tool(self) -> ToolDeclaration:
        return self.tools.declared(self.tool_name)

    @worked_out_once
    def leaves(self) -> list[Leaf]:
        return leaves(self.document, self._unread)

    @worked_out_once
    def leaves_are_partial(self) -> bool:
        """Whether JSON in a text of the payload is not opened."""
        return bool(self.leaves and self._unread)

    @worked_out_once
    def shell(self) -> ShellReading:
        return shell_reading(self.document, self.tool.kind)

    @worked_out_once
    def shell_is_partial(self) -> bool:
        return UNREADABLE in self.shell.entries

    @worked_out_once
    def commands(self) -> list[Command]:
        return commands_of(self.shell)

    @worked_out_once
    def run_commands(self) -> list[Command]:
        """The commands, if the tool runs any."""
        return self.commands if self.runs else []

    @worked_out_once
    def runs(self) -> bool:
        return self.tool.kind in RUNNING

    @worked_out_once
    def files(self) -> Files:
        there = commands_there(self.shell) if self.runs else []
        files = files_of(self.leaves, [*self.run_commands, *there], self.tool, self.tool_name)
        files.partial |= self.leaves_are_partial or (self.runs and self.shell_is_partial)
        return files

    @worked_out_once
    def places(self) -> Places:
        return places_of(self.leaves, self.run_commands, self.tool)

    @worked_out_once
    def recipients(self) -> DistinctTexts:
        found = recipients_of(self.leaves, self.tool)
        found.partial |= self.leaves_are_partial
        return found

    @worked_out_once
    def memory(self) -> RunMemory:
        """What the run went through before, as the service knows it or as people wrote it down."""
        before, run = self.document.get(BEFORE), self.document.get("run")
        if isinstance(before, RunMemory):
            return before
        task, labels = (run.get("task"), run.get("labels")) if isinstance(run, dict) else (None, None)
        steps = before if isinstance(before, list) else ()
        return memory_of(task, steps, self.tools.declared, labels if isinstance(labels, list) else ())

    @worked_out_once
    def arguments(self) -> Arguments:
        found = arguments_of(self.document, self.tool)
        # What stands in a request for a web service is that service's.
        sends = self.tool.effect == "send" and self.tool.kind != "http" and self.tool.where
        return with_recipients(found, self.recipients) if sends else found

    @worked_out_once
    def targets(self) -> list[TargetArgument]:
        return targets_of(self.arguments, self.memory.values) if self.arguments[0] else []

    @worked_out_once
    def money(self) -> tuple[Json, str | None]:
        return amount_of(self.leaves, self.tool, self.leaves_are_partial)

    # ---- the members -------------------------------------------------------------------------------

    def payload(self) -> Value:
        unread = Unread()
        found = unwrapped(self.document.get("inputPayload"), unread)
        return (found if isinstance(found, dict) else {}), bool(unread)

    def shell_commands(self) -> Value:
        return list(self.shell.entries), self.shell_is_partial

    def structured(self) -> Value:
        return _records("commands", [each.as_json() for each in self.commands], self.shell_is_partial)

    def placed(self, found: DistinctTexts) -> Value:
        partial = found.partial or self.leaves_are_partial or (self.runs and self.shell_is_partial)
        return _texts(found.texts(), partial)

    def written(self) -> Value:
        payload, writes = self.document.get("inputPayload"), bool(self.files.found["writes"].texts())
        return self.placed(written_texts(payload, self.run_commands, self.tool, writes))

    def sql(self) -> Value:
        statements, partial = statements_of(sql_texts(self.leaves, self.run_commands, self.tool))
        partial = partial or self.leaves_are_partial or (self.runs and self.shell_is_partial)
        return _records("sql", statements, partial)

    def untrusted_output(self) -> Value:
        found = DistinctTexts()
        for text in untrusted_texts(self.document.get("outputPayload"), self.tool):
            found.add(text)
        return _texts(found.texts(), found.partial)

    def all_targets(self) -> Value:
        found, all_of_them = self.arguments
        texts = {value if value.__class__ is str else text_of(value): None for _, value in found}
        return _texts(list(texts), not all_of_them)

    def untrusted_targets(self) -> Value:
        return _texts(untrusted(self.targets), not self.arguments[1])

    def unasked_targets(self) -> Value:
        return _texts(unasked(self.targets), not self.arguments[1])

    def text(self) -> Value:
        unread = Unread()
        texts, partial = readable_texts(_all_texts(self.document.get("inputPayload"), unread))
        return _texts(texts, partial or bool(unread))


def _texts(texts: list[str], partial: bool) -> Value:
    return ([*texts, UNREADABLE] if partial else texts), partial


def _records(member: str, records: list[Json], partial: bool) -> Value:
    if partial:
        shape = MEMBERS[DERIVED][member].shape
        records = [
            *records,
            {key: [UNREADABLE] if kind == "list" else UNREADABLE for key, kind in shape.items()},
        ]
    return records, partial


def _all_texts(payload: Json, unread: Unread) -> list[str]:
    """Every key and scalar, JSON in texts included."""
    texts: list[str] = []
    stack = [payload]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            texts += value
            stack.extend(reversed(value.values()))
        elif isinstance(value, list):
            stack.extend(reversed(value))
        elif isinstance(value, str):
            texts.append(value)
            inside = opened(value, unread)
            if inside is not None:
                stack.append(inside)
        elif value is not None:
            texts.append(text_of(value))
    return texts


_MEMBERS: Final[Mapping[tuple[str, str], Callable[[Derivation], Value]]] = {
    (TOOL, "kind"): lambda of: (of_tool(of.tools, of.document, "kind"), False),
    (TOOL, "effect"): lambda of: (of_tool(of.tools, of.document, "effect"), False),
    (TOOL, "words"): lambda of: (of_tool(of.tools, of.document, "words"), False),
    (DERIVED, "payload"): Derivation.payload,
    (DERIVED, "shellCommands"): Derivation.shell_commands,
    (DERIVED, "commands"): Derivation.structured,
    (DERIVED, "reads"): lambda of: _texts(*of.files.texts("reads")),
    (DERIVED, "writes"): lambda of: _texts(*of.files.texts("writes")),
    (DERIVED, "deletes"): lambda of: _texts(*of.files.texts("deletes")),
    (DERIVED, "files"): lambda of: _texts(*of.files.texts("files")),
    (DERIVED, "written"): Derivation.written,
    (DERIVED, "hosts"): lambda of: of.placed(of.places.hosts),
    (DERIVED, "urls"): lambda of: of.placed(of.places.urls),
    (DERIVED, "recipients"): lambda of: _texts(of.recipients.texts(), of.recipients.partial),
    (DERIVED, "recipientDomains"): lambda of: _texts(
        domains_of(of.recipients).texts(), of.recipients.partial
    ),
    (DERIVED, "sql"): Derivation.sql,
    (DERIVED, "amount"): lambda of: (of.money[0], of.money[0] == UNREADABLE),
    (DERIVED, "currency"): lambda of: (of.money[1], False),
    (DERIVED, "text"): Derivation.text,
    (DERIVED, "untrustedOutput"): Derivation.untrusted_output,
    (DERIVED, "targets"): Derivation.all_targets,
    (DERIVED, "untrustedTargets"): Derivation.untrusted_targets,
    (DERIVED, "unaskedTargets"): Derivation.unasked_targets,
    (DERIVED, "provenance"): lambda of: (shown(of.targets) or None, not of.arguments[1]),
}
