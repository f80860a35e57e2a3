"""`after` of a policy: it takes effect only after something else happened in the run; and what a set of
policies wants to be remembered of its runs.

Decides which marks a call leaves for later ones. How marks are kept is the business of `flow.steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from engine.derived.facts import Facts
from engine.derived.tools import named
from engine.flow.steps import key_of
from engine.model import After, Policy

OF_VALUES: Final = frozenset({"untrustedTargets", "unaskedTargets", "provenance"})
"""Members of `derived` that need to know which values a run has seen."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledAfter:
    """`after`, with the pattern of a tool ready."""

    after: After
    matches: Callable[[str], bool]

    @classmethod
    def of(cls, after: After) -> CompiledAfter:
        return cls(after, named(after.name) if after.kind == "tool" else lambda name: False)

    def holds(self, facts: Facts) -> bool:
        return facts.memory.steps.holds(self.after, self.matches)

    @property
    def text(self) -> str:
        """What has to have happened, in words."""
        after = self.after
        what = {
            "tool": f"a call of `{after.name}`",
            "label": f"the label `{after.name}`",
            "policy": f"a match of `{after.name}`",
        }[after.kind]
        within = after.within_calls
        if within is None:
            return f"{what} earlier in the run"
        return f"{what} {'one call' if within == 1 else f'at most {within:,} calls'} before"


@dataclass(frozen=True, slots=True)
class FlowNeeds:
    """What the policies of a set want to know of runs. `reports`: some are asked about outcomes; `values`:
    some ask where values were first seen; `bounds`: the marks that are asked for (see `flow.steps`)."""

    reports: bool = False
    labels: bool = False
    values: bool = False
    bounds: Mapping[str, float] = field(default_factory=dict)
    tools: tuple[tuple[str, Callable[[str], bool]], ...] = ()
    """The marks of tools, each with what compares a name."""
    memory: bool = field(init=False)
    """Whether a call's decision may depend on more of its run than its facts and labels."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", self.values or bool(self.bounds))

    def marks(self, tool_name: str, labels: Iterable[str], policies: Iterable[Policy]) -> Iterator[str]:
        """What happened at a call, as far as anybody asks. `tool_name` is empty for one that was blocked."""
        if not self.bounds:
            return
        yield from (key for key, matches in self.tools if tool_name and matches(tool_name))
        yield from (f"label:{label}" for label in labels)
        yield from (f"policy:{policy.policy_id}" for policy in policies)


NO_NEEDS: Final = FlowNeeds()


def needs_of(policies: Iterable[tuple[Policy, CompiledAfter | None, bool]]) -> FlowNeeds:
    """Of the enabled policies of a set: each with its `after`, and whether it asks for values."""
    chosen = [each for each in policies if each[0].enabled]
    if not chosen:
        return NO_NEEDS
    bounds: dict[str, float] = {}
    tools: dict[str, Callable[[str], bool]] = {}
    for _, after, _ in chosen:
        if after is None:
            continue
        key, within = key_of(after.after), after.after.within_calls or 0
        known = bounds.get(key)
        if known is None:
            bounds[key] = within
        else:
            # Some ask within so many calls, others at any time: it is counted, and never forgotten.
            bounds[key] = max(known, within) if bool(known) is bool(within) else inf
        if after.after.kind == "tool":
            tools[key] = after.matches
    return FlowNeeds(
        reports=any(policy.on == "tool.completed" for policy, _, _ in chosen),
        labels=any(policy.labels for policy, _, _ in chosen),
        values=any(values for _, _, values in chosen),
        bounds=bounds,
        tools=tuple(tools.items()),
    )
