"""What is wrong with sets of tools that load: patterns that decide nothing, and sets that disagree.

Each claim is tried on names that a pattern says in so many words: what all declarations together make of them
is asked of the same table that decides calls. It must not know files, nor how findings are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.derived.tools import Tools, named, of_tool
from engine.fields.words import WORD
from engine.model import ToolDeclaration, ToolSet
from schemas.lint_codes import TOOL_CODES, Level

_FILLER: Final = "zzq"
"""A word that no pattern has."""


@dataclass(frozen=True, slots=True)
class RankedToolSet:
    """A set that counts in an organisation. One of a higher rank is meant to win over those below it."""

    rank: int
    path: str
    tool_set: ToolSet
    examples: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """One thing about one set; `pointer` is a JSON pointer into its document."""

    code: str
    message: str
    path: str
    pointer: str

    @property
    def level(self) -> Level:
        return TOOL_CODES[self.code][0]


def lint_tools(ranked: Sequence[RankedToolSet]) -> Iterator[ToolFinding]:
    """Findings about the sets of one organisation, given in the order in which they count."""
    together = Tools(each.tool_set for each in ranked)
    owners = {id(tool): each for each in ranked for tool in each.tool_set.tools}
    for mine in ranked:
        for number, tool in enumerate(mine.tool_set.tools):
            for index, name in enumerate(tool.names):
                pointer = f"/tools/{number}/names/{index}"
                if problem := _of_name(name, tool, mine, together, owners):
                    yield ToolFinding(*problem, mine.path, pointer)
        yield from _of_examples(mine, together)


def _of_name(
    name: str,
    tool: ToolDeclaration,
    mine: RankedToolSet,
    together: Tools,
    owners: Mapping[int, RankedToolSet],
) -> tuple[str, str] | None:
    """What is wrong with a pattern: a code and words."""
    said = [each for each in _names(name) if named(name)(each)]
    if not said:
        return "idle-name", f"no tool can be called as `{name}` says"
    winners = [together.declared(each) for each in said]
    if any(winner is tool for winner in winners):
        return None
    other = owners[id(winners[0])]
    if other.rank > mine.rank or _same(winners[0], tool):
        return None
    if other is mine:
        return (
            "idle-name",
            f"`{name}` never counts: for `{said[0]}` another pattern of this set wins",
        )
    message = (
        f"of `{said[0]}` this set says {_told(tool)}, and `{other.tool_set.tool_set_id}` says"
        f" {_told(winners[0])}, which counts; let one of them declare it"
    )
    return "sets-disagree", message


def _names(pattern: str) -> list[str]:
    """The names that a pattern says, alone and, unless it is of whole names, among other words."""
    words = [_FILLER if word == "*" else word.lower() for word in WORD.findall(pattern)]
    plain = "_".join(words)
    glued = pattern.removeprefix("=").replace("*", "").strip()
    if pattern.startswith("="):
        return [plain, glued]
    return [plain, glued, f"{_FILLER}_{plain}", f"{plain}_{_FILLER}", f"{_FILLER}_{plain}_{_FILLER}"]


def _of_examples(mine: RankedToolSet, together: Tools) -> Iterator[ToolFinding]:
    for index, example in enumerate(mine.examples):
        for key in ("kind", "effect"):
            now = of_tool(together, example, key)
            # That this set alone does not know a tool says nothing of the others.
            if key in example and example[key] not in (now, "unknown"):
                message = f"by this example it is `{example[key]}`, but by all sets together `{now}`"
                yield ToolFinding("overruled-example", message, mine.path, f"/examples/{index}/{key}")


def _same(one: ToolDeclaration, other: ToolDeclaration) -> bool:
    return (one.kind, one.effect, one.output) == (other.kind, other.effect, other.output)


def _told(tool: ToolDeclaration) -> str:
    return f"`{tool.kind or 'other'}` that may `{tool.effect}`, output {tool.output}"
