"""What lint may find, each under its code; below the engine, which the help of commands must not load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Level = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")

CODES: Final[Mapping[str, tuple[Level, str]]] = {
    "dead": ("error", "the conditions can never all hold"),
    "value-never": ("error", "it asks a field for a value that the field never has"),
    "sequence-never": ("error", "what it comes after can never happen before it"),
    "shadowed": ("warning", "another policy decides every call that this one matches"),
    "contradictory": ("warning", "it allows what another policy stops"),
    "duplicate": ("warning", "another policy has the same conditions and the same effect"),
    "only-lists": ("warning", "no single value satisfies all conditions on a field"),
    "one-evades": (
        "warning",
        "of several recipients, hosts or paths one that it allows is enough to evade it",
    ),
    "redundant-condition": ("warning", "another condition of the policy implies it"),
    "missing-triggers": ("warning", "a call without the field matches"),
    "unseen-characters": ("warning", "a value holds what nobody sees, or typographic quotes"),
    "placeholder-left": ("warning", "a value holds a placeholder that nobody has filled"),
    "text-for-json": ("warning", "a value is a text where `true`, `false` or `null` is meant"),
    "literal-star": ("warning", "it compares the name of a tool with a text that has a `*`"),
    "no-examples": ("warning", "nothing says what it is for, so a mistake in it goes unnoticed"),
    "approval-is-void": ("warning", "`approval` says how calls are approved, and it holds none"),
    "needs-setting": ("warning", "it is inactive, since a setting that it reads has no value"),
    "label-nobody-adds": ("warning", "it asks for a label that no policy in force adds"),
    "label-loosens": ("warning", "it holds less of a run that has a label, which its agent can give it"),
    "after-unknown": ("warning", "it comes after a policy or tool that there is not"),
    "report-lacks": ("warning", "it asks for what the outcome of a call has not"),
    "repeated": ("note", "a long part stands twice in its conditions"),
    "unindexed": ("note", "every call has to be tested against it"),
    "one-sided": ("note", "its examples only match, or only do not"),
    "missing-evades": ("note", "a call that omits or renames the field does not match"),
    "allow-is-void": ("note", "an `allow` loosens nothing"),
    "label-nobody-asks": ("note", "it adds a label that no policy asks for"),
    "within-far": ("note", "it looks further back than runs are long"),
    "disabled": ("note", "it is switched off"),
    "not-compared": ("note", "too many policies match its calls to compare it with each of them"),
}
"""Of policies: the level, and what a finding says in general."""
TOOL_CODES: Final[Mapping[str, tuple[Level, str]]] = {
    "idle-name": ("warning", "a pattern of names decides nothing: no tool has such a name"),
    "sets-disagree": ("warning", "another tool set says something else of the same names"),
    "overruled-example": ("warning", "what an example of a tool set says is not so by all sets"),
}
"""Of tool sets, the same."""
