"""The commands that `make` runs of a file of rules. Pure.

Read are the recipes of the goals and of what they need; where the file has conditions, both sides of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.shell.expansion import TooMuch

MOST_LINES: Final = 2_000
MOST_EXPANDED: Final = 65_536
_DEEPEST: Final = 16
_ASSIGNED: Final = re.compile(
    r"[ \t]*+(?:(?:export|override)[ \t]++)?([\w.-]{1,100})[ \t]*+([:?+!]{0,3})=[ \t]*+(.*)"
)
_RULE: Final = re.compile(r"([^\s#:=][^:=]{0,1000}?)[ \t]*::?(?!=)([^;=]*)(?:;(.*))?")
_REFERENCE: Final = re.compile(r"\$(?:(\$)|[({]([\w.-]{1,100})[)}]|([A-Za-z@<^*?+%])|\((?=shell )shell )")
_DOLLAR: Final = "\0"
"""What is left to the shell."""
_FUNCTION: Final = re.compile(r"\$\((?!shell )[a-z-]{2,16}+[ \t]++([^()$]*+)\)")
"""A call of a function; what its last argument says stands for it."""
_BUILT_IN: Final[Mapping[str, str]] = {
    "RM": "rm -f",
    "MAKE": "make",
    "CC": "cc",
    "SHELL": "sh",
    "CURDIR": ".",
}


@dataclass(slots=True)
class _Rule:
    targets: list[str]
    needs: str
    recipe: list[str] = field(default_factory=list)


class _Rules:
    """The rules and variables of a text."""

    def __init__(self, text: str, given: Mapping[str, str]) -> None:
        self.variables = dict(_BUILT_IN)
        self.rules: list[_Rule] = []
        self.scripts: list[str] = []
        self._room = MOST_EXPANDED
        lines = text.replace("\\\n", " ").split("\n", MOST_LINES)
        if len(lines) > MOST_LINES:
            raise TooMuch
        for line in lines:
            if line.startswith("\t"):
                if self.rules:
                    self.rules[-1].recipe.append(line)
            elif found := _ASSIGNED.match(line):
                name, how, value = found.groups()
                if how == "!":
                    self.scripts.append(value)
                elif how == "+" and name in self.variables:
                    self.variables[name] += f" {value}"
                elif how != "?" or name not in self.variables:
                    self.variables[name] = self._expanded(value, {}, 0) if ":" in how else value
            elif found := _RULE.match(line):
                targets = self.expanded(found[1]).split()
                self.rules.append(_Rule(targets, found[2], [found[3]] if found[3] else []))
        self.variables.update(given)
        self.exact: dict[str, list[_Rule]] = {}
        self.patterns: list[tuple[str, _Rule]] = []
        for rule in self.rules:
            for target in rule.targets:
                self.exact.setdefault(target, []).append(rule)
                if "%" in target:
                    self.patterns.append((target, rule))

    def expanded(self, text: str, own: Mapping[str, str] | None = None) -> str:
        """A text with the values of variables; of one that is not known its name, as the shell has it."""
        found = self._expanded(text, own or {}, 0)
        for _ in range(_DEEPEST):
            text, found = found, _FUNCTION.sub(lambda call: call[1].rpartition(",")[2], found)
            if text == found:
                break
        return found.replace(_DOLLAR, "$")

    def _expanded(self, text: str, own: Mapping[str, str], depth: int) -> str:
        self._room -= len(text) + 1
        if self._room < 0 or depth > _DEEPEST:
            raise TooMuch

        def value(found: re.Match[str]) -> str:
            name = found[2] or found[3]
            if not name:
                return _DOLLAR if found[1] else f"{_DOLLAR}("
            if name in own:
                self._room -= len(own[name])
                return own[name] if self._room > 0 else ""
            known = self.variables.get(name)
            return f"{_DOLLAR}{{{name}}}" if known is None else self._expanded(known, own, depth + 1)

        found = _REFERENCE.sub(value, text)
        if self._room < 0:
            raise TooMuch
        return found

    def recipes(self, goals: Sequence[str]) -> list[str]:
        first = next((rule.targets[:1] for rule in self.rules if rule.targets and _is_goal(rule)), [])
        open_goals, seen = list(goals or first), set[str]()
        found: list[str] = []
        while open_goals:
            goal = open_goals.pop()
            if goal in seen:
                continue
            seen.add(goal)
            self._room -= len(self.patterns)
            fitting = [(stem, rule) for target, rule in self.patterns if (stem := _stem(target, goal))]
            for stem, rule in [*((goal, rule) for rule in self.exact.get(goal, ())), *fitting]:
                needs = [need.replace("%", stem, 1) for need in self.expanded(rule.needs).split()]
                self._room -= sum(map(len, needs))
                open_goals += needs
                own = {"@": goal, "<": "".join(needs[:1]), "^": " ".join(needs), "*": stem}
                found += (self.expanded(line, own).strip().lstrip("@+-") for line in rule.recipe)
        return found


def _stem(target: str, goal: str) -> str | None:
    """What `%` of a target stands for in a goal; None where it does not fit."""
    begin, _, end = target.partition("%")
    fits = len(goal) > len(begin) + len(end) and goal.startswith(begin) and goal.endswith(end)
    return goal[len(begin) : len(goal) - len(end)] if fits else None


def _is_goal(rule: _Rule) -> bool:
    return not rule.targets[0].startswith(".") and "%" not in rule.targets[0]


def recipes(text: str, words: Sequence[str]) -> list[str]:
    """The scripts that `make` with `words` runs of the rules in a text."""
    given = dict(word.split("=", 1) for word in words if "=" in word and word[:1] != "-")
    rules = _Rules(text, given)
    goals = [word for word in words if word[:1] != "-" and "=" not in word]
    return [*rules.scripts, *rules.recipes([goal for goal in goals if goal in rules.exact])]
