"""What happened in a run how many calls ago, as far as `after` of a policy asks for it.

A mark is the number of the latest call at which something happened: `label:<label>`, `policy:<id>`, or
`tool:<pattern>`. Calls are counted from the first mark on, and only while a mark has a bound. Knows nothing
of tools' names: whoever marks a call has compared it with the patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from engine.model import After


class Steps(msgspec.Struct, frozen=True, omit_defaults=True):
    """`calls` were counted so far."""

    calls: int = 0
    marks: dict[str, int] = {}
    tools: tuple[tuple[str, int], ...] = ()
    """Each call by name, where people wrote them down."""

    def advanced(self, keys: Iterable[str], bounds: Mapping[str, float]) -> Steps:
        """After one more call, at which `keys` happened. `bounds`: what is asked for, and within how many
        calls at most; 0: at any time; infinity: at any time, and by somebody else within some calls."""
        marks = self.marks
        counting = any(bounds.get(key) for key in marks)
        calls = self.calls + counting
        if fresh := [key for key in keys if key in bounds]:
            calls += not counting
            marks = {**marks, **dict.fromkeys(fresh, calls)}
        if counting:
            marks = {
                key: at for key, at in marks.items() if not (most := bounds.get(key, 0)) or calls - at < most
            }
        return self if marks is self.marks and calls == self.calls else Steps(calls if marks else 0, marks)

    def marked(self, keys: Iterable[str], bounds: Mapping[str, float]) -> Steps:
        """After `keys` happened at no call of their own: with the latest one."""
        fresh = [key for key in keys if key in bounds]
        if not fresh:
            return self
        return Steps(max(1, self.calls), {**self.marks, **dict.fromkeys(fresh, max(1, self.calls))})

    def told(self, keys: Iterable[str], tool_name: str) -> Steps:
        """After one more call of which everything is remembered."""
        calls = self.calls + 1
        tools = (*self.tools, (tool_name, calls)) if tool_name else self.tools
        return Steps(calls, {**self.marks, **dict.fromkeys(keys, calls)}, tools)

    def holds(self, after: After, matches: Callable[[str], bool]) -> bool:
        """Whether it happened, and not too long ago, for a call that comes next."""
        at = self.marks.get(key_of(after), 0)
        if after.kind == "tool":
            at = max([at, *(number for name, number in self.tools if matches(name))])
        return at > 0 and (after.within_calls is None or self.calls - at < after.within_calls)


def key_of(after: After) -> str:
    return f"{after.kind}:{after.name}"


NO_STEPS: Final = Steps()


def begun_with(labels: Iterable[str]) -> Steps:
    """Those of a run that had these labels at its beginning, before any call that is counted."""
    marks = {f"label:{label}": 1 for label in labels}
    return Steps(1, marks) if marks else NO_STEPS


_decode: Final = msgspec.json.Decoder(Steps).decode


def steps_of(stored: str | None) -> Steps:
    """Those of a JSON text; None: there are none."""
    return NO_STEPS if stored is None else _decode(stored)
