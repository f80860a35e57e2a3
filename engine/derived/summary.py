"""What a call is about, in a line and in its parts, for people who have to decide on it.

    sentence      "send mail to bob@acme.example and 2 more", "run `rm -rf /srv`", "pay 640 EUR to PL61..."
    kind, effect  of the tool
    recipients, amount, currency, commands, hosts, deletes, writes, statements   as far as the call has them
    targets       the arguments that matter: `path`, `value`, and `source` where the run's values are at hand

Decides what of a call says most; it is worked out when a call is held, once, and kept with the approval.
Lists and texts are bounded, `more` says how many of each were left out. Knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.derived.amount import names_amount
from engine.derived.commands.shell_commands import ARGUMENTS, PROSE, shell_commands
from engine.derived.derivation import Derivation
from engine.derived.evaluated import asked_as
from engine.derived.provenance import TargetArgument
from engine.derived.tools import Tools, of_tool
from engine.fields.computed import DERIVED, UNREADABLE
from engine.fields.scalars import number_of, shorten, text_of
from engine.fields.words import word_set
from engine.flow.memory import WORST, RunMemory
from engine.model import BEFORE, Json, ToolCall

MOST_LISTED: Final = 20
LONGEST_PART: Final = 300
LONGEST_SENTENCE: Final = 240
LONGEST_COMMAND: Final = 200
LONGEST_OTHERS: Final = 120
"""Characters of all that stands behind what a call does first."""
_TITLES: Final = ("subject", "title", "summary", "name", "query", "text", "message", "content")
"""Arguments that say best what a call is about whose targets do not."""
_LISTS: Final = ("recipients", "hosts", "deletes", "writes")
_SCRIPTS: Final = word_set("command cmd commands cmds cmdline argv script scripts code program shell bash")
"""Keys of what is run, in any case; a call with several of them does not say which one counts."""
_FED: Final = frozenset({"input", "stdin"})
"""Keys of what a command reads."""
_SYNTAX: Final = frozenset(" \t\n;|&$<>()`")
"""What makes a text that stands elsewhere look like a command, not like an id or a mode."""
LINE_BREAK: Final = " ⏎ "
"""Stands where another line begins, which a shell or a reader takes for another command."""


def summary_of(call: ToolCall, tools: Tools) -> dict[str, Any]:
    """The parts that the module names; never raises."""
    derivation = Derivation(call.document, tools)
    more: dict[str, int] = {}

    def listed(name: str, texts: Sequence[Json]) -> list[str]:
        found = [_one_line(text_of(text)) for text in texts if text != UNREADABLE]
        if len(found) > MOST_LISTED:
            more[name] = len(found) - MOST_LISTED
        return found[:MOST_LISTED]

    def of(member: str) -> Any:
        return derivation.value(DERIVED, member)[0] or []

    parts: dict[str, Any] = {name: listed(name, of(name)) for name in _LISTS}
    kind = of_tool(tools, call.document, "kind")
    parts["commands"] = listed("commands", of("shellCommands")) if kind in ("shell", "code") else []
    parts["statements"] = listed("statements", [_statement(each) for each in of("sql")])
    amount, currency = derivation.money
    if amount is not None:
        parts |= {"amount": amount, "currency": currency and _one_line(currency)}
    parts["targets"] = _targets(derivation, more)
    parts = {name: part for name, part in parts.items() if part not in ([], None)}
    parts |= {"kind": kind, "effect": of_tool(tools, call.document, "effect")}
    if more:
        parts["more"] = more
    sentence = shorten(_sentence(call, parts), LONGEST_SENTENCE) + asked_as(call)
    return {"sentence": sentence, **parts}


def _targets(derivation: Derivation, more: dict[str, int]) -> list[dict[str, str]]:
    memory = derivation.document.get(BEFORE)
    known = isinstance(memory, RunMemory) and memory.loaded is not None
    arguments, _ = derivation.arguments
    if len(arguments) > MOST_LISTED:
        more["targets"] = len(arguments) - MOST_LISTED
    if not known:
        return [_target(path, value) for path, value in arguments[:MOST_LISTED]]
    return [
        _target(each.path, each.value) | {"source": each.source}
        for each in _most_doubtful(derivation.targets)
    ]


def _most_doubtful(targets: Sequence[TargetArgument]) -> list[TargetArgument]:
    """Those that are listed, in their order. INVARIANT: none whose value only outsiders named, or nobody, is
    left out for one that the task or a trusted output named."""
    worst = sorted(range(len(targets)), key=lambda at: -WORST[targets[at].source])[:MOST_LISTED]
    return [targets[at] for at in sorted(worst)]


def _target(path: Sequence[str], value: Json) -> dict[str, str]:
    return {"path": _one_line(".".join(path)), "value": _one_line(text_of(value))}


def _statement(entry: Json) -> str:
    assert isinstance(entry, dict)
    tables = entry.get("tables") or []
    names = ", ".join(text_of(each) for each in tables) if isinstance(tables, list) else ""
    verb = text_of(entry.get("verb", "")).upper()
    everything = verb in ("DELETE", "UPDATE") and entry.get("where") is False
    return f"{verb} {names}".strip() + (" without WHERE" if everything else "")


# The sentence -------------------------------------------------------------------------------------


def _sentence(call: ToolCall, parts: dict[str, Any]) -> str:
    """What says most first. INVARIANT: no other argument takes the place of whom it pays or tells, of what it
    deletes, or of what it asks a database: what of these is not first stands behind it, whatever is cut."""
    if "commands" in parts:
        return _runs(call.input_payload, parts["commands"][0])
    kind = parts["kind"]
    known = [
        (says, text) for says in (_BY_ARGUMENTS if kind == "unknown" else _BY_KIND) if (text := says(parts))
    ]
    if not known:
        return (uses := _uses(call, parts)) + _titled(call, uses)
    (says, first), *rest = known
    title = "" if says in (_asks_a_database, _deletes) else _titled(call, first)  # which say it all
    others = [text for says, text in rest if says in _NEVER_LEFT_OUT or says is _ALSO.get(kind)]
    if parts["effect"] == "delete" and not parts.keys() & {"deletes", "statements"}:
        others.append(_uses(call, parts))
    if not others:
        return first + title
    also = "".join(f", also {shorten(text, LONGEST_OTHERS // len(others))}" for text in others)
    return shorten(first, LONGEST_SENTENCE - len(also)) + also + title


def _uses(call: ToolCall, parts: dict[str, Any]) -> str:
    targets = [target["value"] for target in parts.get("targets", ())]
    return f"use {call.tool_name}" + (f" on {_some(targets)}" if targets else "")


def _pays(parts: dict[str, Any]) -> str | None:
    if "amount" not in parts:
        return None
    amount = parts["amount"]
    money = "an amount that cannot be read" if amount == UNREADABLE else f"{amount:,}"
    if parts.get("currency"):
        money += f" {parts['currency']}"
    payees, others = [], []
    for target in parts.get("targets", ()):
        value, number = target["value"], number_of(target["value"])
        if value == parts.get("currency") or number == amount:
            continue
        if not names_amount(target["path"].split(".")):
            payees.append(value)
        elif number is None:  # else it is counted in
            others.append(value)
    targets = [*payees, *others]
    return f"pay {money}" + (f" to {_some(targets)}" if targets else "")


def _sends(parts: dict[str, Any]) -> str | None:
    if "recipients" not in parts:
        return None
    verbs = {"mail": "send mail to", "chat": "write to", "calendar": "invite", "files": "share with"}
    return f"{verbs.get(parts['kind'], 'send to')} {_some(parts['recipients'])}"


def _runs(payload: Json, first: str) -> str:
    """What stands where tools look for a command comes before all else that may be one. INVARIANT: whoever
    reads it sees that there is more than what it shows."""
    members = payload.items() if isinstance(payload, dict) else ()
    meant = {name: member for name, member in members if name.casefold() in _SCRIPTS | ARGUMENTS and member}
    is_meant = any(name.casefold() in _SCRIPTS and not isinstance(meant[name], dict) for name in meant)
    arguments = [name for name in meant if name.casefold() in ARGUMENTS - _SCRIPTS] if is_meant else []
    if is_meant and (alone := shell_commands({"inputPayload": meant})):
        whole = (each for each in alone if arguments and each.startswith(f"{alone[0]} "))
        first = _one_line(next(whole, alone[0]))
    found: dict[str, Json] = {}
    stack: list[tuple[str, Json]] = [("", payload)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack.extend((name.casefold(), member) for name, member in value.items())
        elif key in _SCRIPTS and value not in (None, "", []):
            found[repr(value)] = value
        elif isinstance(value, list):
            stack.extend((key, member) for member in value)
        elif isinstance(value, str) and _may_be_run(key, value) and not (arguments and key in ARGUMENTS):
            found[repr(value)] = value
    texts = [_one_line(each) for each in found.values() if isinstance(each, str)]
    is_shown = is_meant or first in texts or len(texts) < len(found)
    others = len(found) - is_shown + max(0, len(arguments) - 1)
    return f"run `{shorten(first, LONGEST_COMMAND)}`" + (f" and {others} more" if others > 0 else "")


def _may_be_run(key: str, text: str) -> bool:
    """Whether a text that stands elsewhere may be a command, or be read by one."""
    return text != "" and key not in PROSE and (key in _FED or not _SYNTAX.isdisjoint(text.strip()))


def _of_a_list(member: str, verb: str) -> Callable[[dict[str, Any]], str | None]:
    return lambda parts: f"{verb} {_some(parts[member])}" if member in parts else None


_asks_a_database = _of_a_list("statements", "run SQL:")
_deletes = _of_a_list("deletes", "delete")
_writes = _of_a_list("writes", "write")
_goes = _of_a_list("hosts", "call")
_BY_KIND: Final = (_asks_a_database, _deletes, _pays, _sends, _writes, _goes)
_BY_ARGUMENTS: Final = (_pays, _sends, _asks_a_database, _deletes, _writes, _goes)
"""Of a tool that nobody has declared: any text of it is read as a command or as SQL."""
_NEVER_LEFT_OUT: Final = (_asks_a_database, _deletes, _pays, _sends)
_ALSO: Final = {"files": _writes, "http": _goes, "browser": _goes}
"""What is not left out either of a tool of this kind."""


def _titled(call: ToolCall, sentence: str) -> str:
    """What the call says it is about, unless the sentence has it."""
    payload = call.input_payload
    for name in _TITLES:
        text = payload.get(name)
        if isinstance(text, str) and text.strip() and _one_line(text) not in sentence:
            return f": “{shorten(_one_line(text), 80)}”"
    return ""


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:2])
    return shown if len(texts) <= 2 else f"{shown} and {len(texts) - 2} more"


def _one_line(text: str) -> str:
    """Blanks in a row are one. INVARIANT: where a line ends is seen, and also that something was left out."""
    begin, rest = text[: 2 * LONGEST_PART], text[2 * LONGEST_PART :]
    lines = (" ".join(line.split()) for line in begin.splitlines())
    shown = LINE_BREAK.join(line for line in lines if line)
    return shorten(shown + " …" if rest.strip() else shown, LONGEST_PART)
