"""Policies and tool calls of a made-up company, as many as wanted, the same ones for the same seed.

Of the policies 60 % name a tool (and ask for something in its payload), 25 % look at payloads only, 15 % hold
a regular expression. Of the calls about 30 % are made to match one policy; the rest use the same tools, keys
and vocabulary with nothing wrong in them. Texts are 20 to 2,000 characters.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from engine.model import Condition, Policy, ToolCall

_VOCABULARY = """
account approve archive audit backup balance batch board branch budget build campaign cancel change
claim client cluster code commit config contract copy create credit customer data delete deliver
deploy design device discount document drive edit email employee export file finance folder forward
grant group image import index invoice issue item key label launch lead legal list log manager
market member merge message meeting metric migrate model module move network note notify order owner
partner password patch payment pipeline plan policy portal price print private process profile
project public publish purge query queue quote read rebuild record refund region release remove
rename report request reset restart restore result review role rollback route salary scan schedule
schema script search secret section send server service session share ship sign site snapshot sprint
stage status stock store stream submit supplier sync system table tag target task team template
tenant test ticket token trace transfer truncate update upload user vendor verify version view
volume wallet warehouse webhook wipe wire write zone
"""
_NAMES = {
    "verbs": "send get list create update delete run query upload share export pay refund deploy restart",
    "systems": "mail chat crm erp sql bucket shell wallet board wiki build cluster ticket drive hr",
    "regions": "eu-west eu-north us-east us-west ap-south ap-east sa-east af-south",
}
WORDS = _VOCABULARY.split()
VERBS, SYSTEMS, REGIONS = (names.split() for names in _NAMES.values())
TEXTS = ("body", "command", "query", "note")
ACTIONS = ("block", "require_approval", "require_approval", "warn", "allow")


@dataclass(frozen=True, slots=True)
class Sample:
    """A policy and a call (tool and payload) that it matches."""

    policy: Policy
    tool: str
    payload: dict[str, Any]


class Company:
    """A fixed number of policies and any number of calls, drawn from one seed."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.tools = [
            f"{system}.{verb}_{word}"
            for word in WORDS[: max(1, min(len(WORDS), size // 4_000 + 1))]
            for system in SYSTEMS
            for verb in VERBS
        ]
        self.random.shuffle(self.tools)
        self.tools = self.tools[: max(20, size // 20)]
        self.samples = [self._sample(number) for number in range(size)]

    @property
    def policies(self) -> list[Policy]:
        return [sample.policy for sample in self.samples]

    def calls(self, count: int, matching: float = 0.3) -> list[ToolCall]:
        """Calls, of which about the share `matching` match something."""
        return [self._call(self.random.random() < matching) for _ in range(count)]

    def _call(self, matching: bool) -> ToolCall:
        draw = self.random
        tool = draw.choice(self.tools)
        payload: dict[str, Any] = {
            draw.choice(TEXTS): self.text(),
            "amount": draw.randint(1, 900),
            "account": f"AC-{draw.randint(10**9, 2 * 10**9)}",
            "region": draw.choice(REGIONS),
            "to": f"{draw.choice(WORDS)}@{draw.choice(WORDS)}.example",
            "options": {"dryRun": draw.random() < 0.5, "labels": draw.sample(WORDS, 3)},
        }
        if matching:
            sample = draw.choice(self.samples)
            tool = sample.tool or tool
            payload |= sample.payload
            for key in TEXTS:
                if key in sample.payload:
                    before, after = self.text(), self.text()
                    payload[key] = (
                        f"{before[: len(before) // 2]} {sample.payload[key]} {after[: len(after) // 2]}"
                    )
        return ToolCall.of(
            toolName=tool,
            inputPayload=payload,
            agentId=f"agent-{draw.randint(1, 50)}",
            runId="r",
            toolCallId="t",
        )

    def text(self) -> str:
        """20 to 2,000 characters of ordinary words, short ones more often."""
        draw = self.random
        length = int(20 * 100 ** draw.random())
        words: list[str] = []
        while length > 0:
            word = draw.choice(WORDS)
            if draw.random() < 0.05:
                word = f"{word}-{draw.randint(1, 99)}"
            words.append(word)
            length -= len(word) + 1
        return " ".join(words)

    # ---- policies --------------------------------------------------------------------------------------

    def _sample(self, number: int) -> Sample:
        draw = self.random
        kind = draw.random()
        tool = ""
        conditions: list[Condition] = []
        if kind < 0.60:
            tool = draw.choice(self.tools)
            if draw.random() < 0.8:
                conditions.append(Condition("toolName", "equals", tool))
            else:
                conditions.append(Condition("toolName", "in", [tool, *draw.sample(self.tools, 2)]))
            condition, payload = draw.choice(
                (self._amount, self._phrase, self._account, self._region, self._domain)
            )(number)
            conditions += condition
        elif kind < 0.85:
            condition, payload = draw.choice(
                (self._phrase, self._account, self._path, self._domain, self._guarded)
            )(number)
            conditions += condition
        else:
            condition, payload = self._pattern(number)
            conditions += condition
        policy = Policy(f"policy-{number}", f"Policy {number}", draw.choice(ACTIONS), tuple(conditions))  # type: ignore[arg-type]
        return Sample(policy, tool, payload)

    def _amount(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        bound = self.random.randint(1_000, 900_000)
        return [Condition("inputPayload.amount", "greater_than", bound)], {"amount": bound + 1}

    def _phrase(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        key = self.random.choice(TEXTS)
        phrase = f"{self.random.choice(WORDS)} {self.random.choice(WORDS)} {number}"
        return [Condition(f"inputPayload.{key}", "contains", phrase)], {key: phrase}

    def _account(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        account = f"AC-{number}"
        return [Condition("inputPayload.account", "equals", account)], {"account": account}

    def _region(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        regions = self.random.sample(REGIONS, 2)
        bound = self.random.randint(1_000, 900_000)
        return [
            Condition("inputPayload.region", "in", regions),
            Condition("inputPayload.amount", "greater_than", bound),
        ], {"region": regions[0], "amount": bound + 1}

    def _domain(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        domain = f"@{self.random.choice(WORDS)}{number}.example"
        return [Condition("inputPayload.to", "ends_with", domain)], {"to": f"someone{domain}"}

    def _path(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        path = f"/srv/{self.random.choice(WORDS)}/{number}/"
        return [Condition("inputPayload.path", "starts_with", path)], {"path": f"{path}file.txt"}

    def _guarded(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        account = f"AC-{number}"
        text = f'has(inputPayload.account) && inputPayload.account == "{account}" && has(inputPayload.amount)'
        return [Condition(expression=text)], {"account": account}

    def _pattern(self, number: int) -> tuple[list[Condition], dict[str, Any]]:
        draw = self.random
        key = draw.choice(TEXTS)
        word, other = draw.choice(WORDS), draw.choice(WORDS)
        shape = draw.random()
        if shape < 0.4:
            pattern, text = rf"(?i)\b{word}\s+{other}_{number}\b", f"{word.upper()}  {other}_{number}"
        elif shape < 0.7:
            pattern, text = rf"(?:{word}|{other})-{number}[a-z]+", f"{other}-{number}abc"
        elif shape < 0.98:
            pattern, text = rf"{word}[=:]\s*['\"]?{number}['\"]?;", f"{word}='{number}';"
        else:
            pattern, text = (
                rf"\b[A-Z]{{{3 + number % 5}}}[0-9]{{{4 + number % 7}}}\b",
                "A" * (3 + number % 5) + "1" * (4 + number % 7),
            )
        return [Condition(f"inputPayload.{key}", "matches", pattern)], {key: text}
