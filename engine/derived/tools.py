"""Tools by their names: what is declared of a tool, however its name is written.

A name is read as words: `BashTool`, `runBash`, `Execute-Bash`, `mcp__server__run_command` are `bash tool`,
`run bash`, `execute bash`, `mcp server run command`. A pattern is words too, written in any of these ways,
and matches where they stand in the name one after another, also glued together (`runcommand`). In a pattern

    *       at the end or beginning of a word stands for the rest of it, alone for any words
    =read   matches only the tool that is called just this, as in `Read`, `fs.read`, `mcp__fs__read`;
            `=mcp__fs__read`, which names a server, only that server's

Of several declarations the one counts whose pattern says most: a whole name before a part, more letters
before fewer, then the later one. Knows nothing of calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Final

from engine.fields.pattern import Pattern, compile_pattern
from engine.fields.words import LONGEST_NAME, WORD, words_of
from engine.model import UNKNOWN_KIND, Json, ToolDeclaration, ToolSet

MOST_REMEMBERED: Final = 4_096
"""Names of tools whose declarations are remembered."""

_OWNER: Final = re.compile(r"__|[./:]")

ANNOTATIONS: Final = "toolAnnotations"
"""The root of a call that holds what the tool's server says of it, as MCP has it. No condition names it."""

UNDECLARED: Final = ToolDeclaration(())
"""What is known of a tool that nobody declared."""


class Tools:
    """The declarations of an organisation. Never changes; `declared` may be asked from any thread."""

    __slots__ = ("_known", "_patterns", "sets")

    def __init__(self, sets: Iterable[ToolSet] = ()) -> None:
        self.sets = tuple(sets)
        patterns = [
            ((_strength(name), number), *_read(name), tool)
            for number, tool in enumerate(tool for each in self.sets for tool in each.tools)
            for name in tool.names
        ]
        patterns.sort(key=itemgetter(0), reverse=True)
        self._patterns = [entry[1:] for entry in patterns]
        self._known: dict[str, ToolDeclaration] = {}

    def declared(self, tool_name: str) -> ToolDeclaration:
        """What is declared of a tool; `UNDECLARED` when nothing is."""
        found = self._known.get(tool_name)
        if found is None:
            found = next(self._matching(tool_name), UNDECLARED)
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[tool_name] = found
        return found

    def _matching(self, tool_name: str) -> Iterator[ToolDeclaration]:
        words, alone = words_of(tool_name), words_of(_OWNER.split(tool_name[-LONGEST_NAME:])[-1])
        for word, pattern, is_alone, tool in self._patterns:
            # A pattern holds nowhere where its longest word is not, and asking for that is far cheaper.
            if word in words and pattern.search(alone if is_alone else words) is True:
                yield tool


NO_TOOLS: Final = Tools()
"""Where nothing is declared."""


def of_tool(tools: Tools, document: Mapping[str, Json], member: str) -> str:
    """What `tool.kind`, `tool.effect` and `tool.words` show."""
    name = document.get("toolName")
    if member == "words":
        return words_of(name) if isinstance(name, str) else ""
    tool = tools.declared(name) if isinstance(name, str) else UNDECLARED
    if member == "effect":
        return "delete" if tool is UNDECLARED and _is_destructive(document) else tool.effect
    return tool.kind or (UNKNOWN_KIND if tool is UNDECLARED else "other")


def _is_destructive(document: Mapping[str, Json]) -> bool:
    """Whether the tool's server says that it destroys. Annotations are the agent's word, so they fill in only
    what nobody declared, and only to what is stricter: that a tool just reads is not believed."""
    said = document.get(ANNOTATIONS)
    return isinstance(said, dict) and said.get("destructiveHint") is True


def named(pattern: str) -> Callable[[str], bool]:
    """Whether a tool is called as a pattern says."""
    test, alone = _pattern(pattern), _is_alone(pattern)

    def matches(tool_name: str) -> bool:
        name = _OWNER.split(tool_name[-LONGEST_NAME:])[-1] if alone else tool_name
        return test.search(words_of(name)) is True

    return matches


def check_name(pattern: str) -> str | None:
    """What is wrong with a name pattern; None when nothing is."""
    words = words_of(pattern).replace("*", "").split()
    if not words:
        return "it has no word in it"
    return None if len(pattern) <= LONGEST_NAME else f"it is longer than {LONGEST_NAME} characters"


@lru_cache(maxsize=16_384)
def _strength(pattern: str) -> tuple[bool, int]:
    return pattern.startswith("="), sum(map(str.isalnum, pattern))


def _is_alone(pattern: str) -> bool:
    """Whether it is compared with a name without the server that stands before it."""
    return pattern.startswith("=") and _OWNER.search(pattern) is None


def _longest_word(pattern: str) -> str:
    return max((token.lower() for token in WORD.findall(pattern) if token != "*"), key=len, default="")


@lru_cache(maxsize=16_384)
def _read(pattern: str) -> tuple[str, Pattern, bool]:
    """The longest word, the pattern and whether it is alone: the same patterns are read with each ruleset."""
    return _longest_word(pattern), _pattern(pattern), _is_alone(pattern)


def _pattern(pattern: str) -> Pattern:
    """A pattern over the words of a name; linear, however many `*` it has."""
    body, before = "", None
    for token in WORD.finditer(pattern):
        glued = before is not None and before.end() == token.start() and "*" in (before[0], token[0])
        if token[0] != "*":
            piece = re.escape(token[0].lower())
        else:
            alone = (
                pattern[token.start() - 1 : token.start()].isalnum() or pattern[token.end() :][:1].isalnum()
            )
            piece = "[^ ]*" if alone else ".*"
        body += piece if glued or before is None else f" ?{piece}"
        before = token
    return compile_pattern(f"^{body}$" if pattern.startswith("=") else f"(?:^| ){body}(?: |$)")
