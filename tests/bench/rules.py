"""Rules and calls that every rival can be asked: a tool's name and an amount in its payload.

A rule holds a call of its tool whose amount is above its bound. Of the calls about 30 % are held by some
rule; the others name the same tools with amounts below every bound. Apart from tool and amount a call is one
of the made-up company's, with a payload of some 600 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.workload import Company

TOOLS = Company(4_000).tools
CALLS = 500
HELD = 0.3


@dataclass(frozen=True, slots=True)
class Rule:
    """Holds calls of `tool` with an amount above `bound`; `action` is `block` or `require_approval`."""

    name: str
    tool: str
    bound: int
    action: str

    def holds(self, call: Call) -> bool:
        return call.tool == self.tool and call.payload["amount"] > self.bound


@dataclass(frozen=True, slots=True)
class Call:
    """What an agent wants to do."""

    tool: str
    payload: dict[str, Any]


def rules(count: int) -> list[Rule]:
    """The first `count` rules, the same ones every time."""
    draw = random.Random(11)
    return [
        Rule(
            f"rule-{number}",
            draw.choice(TOOLS),
            draw.randint(1_000, 900_000),
            draw.choice(("block", "require_approval")),
        )
        for number in range(count)
    ]


def calls(given: Sequence[Rule], count: int = CALLS) -> list[Call]:
    """Calls, of which about the share `HELD` is held by some rule (none where there is no rule)."""
    draw = random.Random(13)
    made = []
    for each in Company(100).calls(count, matching=0):
        tool, amount = draw.choice(TOOLS), draw.randint(1, 900)
        if given and draw.random() < HELD:
            rule = draw.choice(given)
            tool, amount = rule.tool, rule.bound + 1
        made.append(Call(tool, dict(each.input_payload) | {"amount": amount}))
    return made


def held(given: Sequence[Rule], call: Call) -> bool:
    return any(rule.holds(call) for rule in given)
