"""No preset is dodged by how a shell is told the same words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from engine.model import ToolCall
from tests.corpus.score import EVERYTHING, outcome, presets, ruleset

PLAIN = re.compile(r"[\w ./:@,+~|&-]*")
WORD = re.compile(r"(?<![\w./:@=,+~-])[a-z][\w./:@,+-]*(?![\w=])")
SPELLINGS: dict[str, Callable[[str], str]] = {
    "quotes": lambda word: f"{word[:1]}''{word[1:]}",
    "a backslash": lambda word: f"{word[:-1]}\\{word[-1:]}",
    "codes": lambda word: "$'" + "".join(f"\\x{ord(char):02x}" for char in word) + "'",
}


def commands() -> Iterator[str]:
    """The examples that a preset matches, as far as they are words alone."""
    for preset in presets().values():
        for example in preset.template.get("examples", []):
            payload = example["inputPayload"]
            if (
                example["toolName"] == "Bash"
                and example["match"]
                and PLAIN.fullmatch(payload.get("command", "'"))
            ):
                yield payload["command"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_quoting_hides_nothing(spelling: str) -> None:
    rules, count = ruleset(EVERYTHING), 0
    for command in commands():
        respelled = WORD.sub(lambda found: SPELLINGS[spelling](found[0]), command)
        plain, hidden = (
            outcome(rules, ToolCall.of(toolName="Bash", inputPayload={"command": each}))
            for each in (command, respelled)
        )
        assert set(plain[1]) <= set(hidden[1]), respelled
        count += 1
    assert count > 100
