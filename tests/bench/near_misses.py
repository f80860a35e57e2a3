"""Policies that nearly match, as many as wanted, the same ones for the same seed: what an index likes least.

Calls and policies speak the same words, so that a call meets conditions of many policies and all conditions
of hardly any:

    40 %   the tool and the region of many calls, and an identifier that no call carries
    24 %   three or four conditions that each hold for many calls, and together for hardly any
    26 %   a pattern of its own each: with a number no call has, of common words alone, or without any literal
    10 %   an expression with the same near misses inside

Of the calls some 15 % are made to match one policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.model import Condition, Policy, ToolCall
from tests.bench.workload import ACTIONS, REGIONS, TEXTS, WORDS, Company, Sample

PROJECTS = tuple(f"{word}-{number}" for word in WORDS[:20] for number in range(3))
"""Of these the policies know all, the calls only every other."""

Made = tuple[list[Condition], dict[str, Any]]
"""Conditions, and the payload that they want."""


class NearMisses(Company):
    """Like `Company`, but with policies that nearly match."""

    def calls(self, count: int, matching: float = 0.15) -> list[ToolCall]:
        return super().calls(count, matching)

    def _call(self, matching: bool) -> ToolCall:
        draw = self.random
        call = super()._call(matching)
        payload = {
            draw.choice(TEXTS): self.text(),
            "project": draw.choice(PROJECTS[::2]),
            "priority": draw.randint(1, 5),
            **call.input_payload,
        }
        return ToolCall.of(**{**call.document, "inputPayload": payload})

    # ---- policies --------------------------------------------------------------------------------------

    def _sample(self, number: int) -> Sample:
        draw = self.random
        kind = draw.random()
        tool = draw.choice(self.tools)
        make: Callable[[int, str], Made]
        if kind < 0.40:
            make = self._near_miss
        elif kind < 0.64:
            make = self._rare_together
        elif kind < 0.90:
            make = self._own_pattern
        else:
            make = self._expression
        conditions, payload = make(number, tool)
        named = any(
            condition.field == "toolName" or "toolName" in (condition.expression or "")
            for condition in conditions
        )
        policy = Policy(f"policy-{number}", f"Policy {number}", draw.choice(ACTIONS), tuple(conditions))  # type: ignore[arg-type]
        return Sample(policy, tool if named else "", payload)

    def _tool(self, tool: str) -> Condition:
        if self.random.random() < 0.7:
            return Condition("toolName", "equals", tool)
        return Condition("toolName", "in", [tool, *self.random.sample(self.tools, 4)])

    def _near_miss(self, number: int, tool: str) -> Made:
        draw = self.random
        regions = draw.sample(REGIONS, 3)
        conditions, payload = draw.choice((self._account, self._shared, self._project, self._ticket))(number)
        region = Condition("inputPayload.region", "in", regions)
        return [self._tool(tool), region, *conditions], {"region": regions[0], **payload}

    def _shared(self, number: int) -> Made:
        customer = f"customer-{number // 40}"  # of forty policies, and of no call
        return [Condition("inputPayload.account", "equals", customer)], {"account": customer}

    def _project(self, number: int) -> Made:
        project = PROJECTS[number % len(PROJECTS)]
        return [Condition("inputPayload.project", "equals", project)], {"project": project}

    def _ticket(self, number: int) -> Made:
        key = self.random.choice(TEXTS)
        ticket = f"{self.random.choice(WORDS)}-{number + 100}"  # calls have the word, with up to two digits
        return [Condition(f"inputPayload.{key}", "contains", ticket)], {key: ticket}

    def _rare_together(self, number: int, tool: str) -> Made:
        draw = self.random
        label, domain, word, dry = (
            draw.choice(WORDS),
            draw.choice(WORDS),
            draw.choice(WORDS),
            draw.random() < 0.5,
        )
        key, region, amount = draw.choice(TEXTS), draw.choice(REGIONS), draw.randint(1, 900)
        options = {"options": {"dryRun": dry, "labels": [label]}}
        labelled = (Condition("inputPayload.options.labels", "equals", label), options)
        addressed = (
            Condition("inputPayload.to", "ends_with", f"@{domain}.example"),
            {"to": f"a@{domain}.example"},
        )
        named: tuple[Condition, dict[str, Any]] = (self._tool(tool), {})
        common: list[tuple[Condition, dict[str, Any]]] = [
            (Condition("inputPayload.region", "equals", region), {"region": region}),
            (Condition("inputPayload.amount", "greater_than", amount), {"amount": amount + 1}),
            (Condition("inputPayload.priority", "greater_than", draw.randint(1, 3)), {"priority": 5}),
            (Condition("inputPayload.options.dryRun", "equals", dry), options),
            (Condition(f"inputPayload.{key}", "contains", word), {key: word}),
        ]
        pairs = ((labelled, addressed), (named, labelled), (named, addressed))
        chosen = [*draw.sample(common, 2), *draw.choice(pairs)]
        payload: dict[str, Any] = {}
        for _, wanted in chosen:
            payload |= wanted
        return [condition for condition, _ in chosen], payload

    def _own_pattern(self, number: int, tool: str) -> Made:
        draw = self.random
        key = draw.choice(TEXTS)
        word, other, third = (draw.choice(WORDS) for _ in range(3))
        shape = draw.random()
        tooled = 0.6
        if shape < 0.4:
            pattern, text = rf"(?i)\b{word}\s+{other}_{number}\b", f"{word.upper()}  {other}_{number}"
        elif shape < 0.75:
            digits = 3 + number % 6
            pattern = rf"\b{word}\s+(?:{other}|{third})\s+[a-z]+-[0-9]{{{digits}}}\b"
            text, tooled = f"{word} {other} x-{'1' * digits}", 0.99
        elif shape < 0.9:
            digits, letters = 3 + number % 7, 2 + number // 7 % 60
            pattern, text = rf"{word}-[0-9]{{{digits}}}[a-z]{{{letters}}}", ""
            text, tooled = f"{word}-{'1' * digits}{'a' * letters}", 0.99
        else:
            capitals, digits, letters = 2 + number % 11, 2 + number // 11 % 13, 1 + number // 143 % 40
            pattern = rf"\b[A-Z]{{{capitals}}}[0-9]{{{digits}}}[a-z]{{{letters}}}\b"
            text, tooled = f"{'A' * capitals}{'1' * digits}{'a' * letters}", 0.8
        conditions = [Condition(f"inputPayload.{key}", "matches", pattern)]
        if draw.random() < tooled:
            conditions.insert(0, self._tool(tool))
        return conditions, {key: text}

    def _expression(self, number: int, tool: str) -> Made:
        draw = self.random
        region, word, account = draw.choice(REGIONS), draw.choice(WORDS), f"AC-{number}"
        if draw.random() < 0.5:
            text = (
                f'toolName == "{tool}" && has(inputPayload.region) && inputPayload.region == "{region}"'
                f' && has(inputPayload.account) && inputPayload.account == "{account}"'
            )
            return [Condition(expression=text)], {"region": region, "account": account}
        amount = draw.randint(1, 900)
        text = (
            f'toolName == "{tool}" && has(inputPayload.to) && inputPayload.to.contains("{word}")'
            f" && has(inputPayload.amount) && inputPayload.amount > {amount}"
        )
        return [Condition(expression=text)], {"to": f"{word}@x.example", "amount": amount + 1}
