"""Values that a computed field never has, such as a kind of tool that there is not: whoever asks for one asks
in vain, and nothing else would say so.

Knows nothing of policies, nor of who is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.conditions.compiled import CompiledCondition
from engine.conditions.operands import show
from engine.fields.computed import MEMBERS
from engine.model import EFFECTS, TOOL_KINDS, UNKNOWN_KIND
from schemas.suggestion import closest

KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "tool.kind": (*TOOL_KINDS, UNKNOWN_KIND),
    "tool.effect": EFFECTS,
}
"""Fields of which all values are known."""


def _host(text: str) -> str:
    return text.rpartition("://")[2].partition("/")[0].lower()


def _domain(text: str) -> str:
    return text.rpartition("@")[2].lower()


def _currency(text: str) -> str:
    return text if text == "mixed" else text.upper()


WRITTEN: Final[Mapping[str, Callable[[str], str]]] = {
    "tool.kind": str.lower,
    "tool.effect": str.lower,
    "tool.words": str.lower,
    "derived.commands.program": str.lower,
    "derived.hosts": _host,
    "derived.recipientDomains": _domain,
    "derived.sql.verb": str.lower,
    "derived.sql.tables": str.lower,
    "derived.sql.object": str.lower,
    "derived.currency": _currency,
}
"""How the values of a field are written: what this gives is the text itself."""

_WHOLE: Final = frozenset({"equals", "not_equals", "in", "not_in"})
_PARTS: Final = frozenset(
    f"{no}{name}" for no in ("", "not_") for name in ("contains", "starts_with", "ends_with")
)


def never(condition: CompiledCondition) -> str | None:
    """Why a field never has a value that the condition asks it for; None if nothing is known against it."""
    path, operator = condition.path, condition.operator
    if path is None or operator is None or path.root not in MEMBERS:
        return None
    whole = operator.name in _WHOLE
    if not whole and operator.name not in _PARTS:
        return None
    value = condition.condition.value
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str) and (why := _against(path.text, each, whole)):
            return why
    return None


def _against(field: str, text: str, whole: bool) -> str | None:
    known, written = KNOWN.get(field) if whole else None, WRITTEN.get(field)
    if known is not None and text not in known:
        near = closest(text, known)
        advice = (
            f"did you mean `{near}`?" if near else f"it is one of {', '.join(f'`{each}`' for each in known)}"
        )
        return f"`{field}` is never {show(text)}; {advice}"
    if written is not None and (meant := written(text)) != text:
        has = "is never" if whole else "never has"
        return f"`{field}` {has} {show(text)}" + (f"; write {show(meant)}" if meant else "")
    return None
