"""Parts that stand more than once in a policy's conditions: what one has to compare letter by letter.

Decides what counts as a part (a bracketed piece of a pattern, a sub-expression) and which are long enough to
matter. Knows nothing of what the parts mean.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from engine.analysis.findings import Finding
from engine.cel.ast import Expr, Literal, parts
from engine.cel.parser import parse
from engine.model import Condition, Policy

LEAST: Final = 60
"""Characters from which a part is worth naming once."""

SHOWN: Final = 60

_BRACKET: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)


def repeated(policy: Policy) -> Iterator[Finding]:
    """The longest part that stands twice or more, with how often."""
    found: Counter[str] = Counter()
    for condition in policy.conditions:
        found.update(_parts(condition))
    twice = [part for part, times in found.items() if times > 1]
    if twice:
        longest = max(twice, key=len)
        shown = longest if len(longest) <= SHOWN else longest[: SHOWN - 3] + "..."
        message = (
            f"`{shown}` stands {found[longest]} times in its conditions; say it once, with a computed"
            " field, a setting, or `exists` over what is asked about"
        )
        yield Finding("repeated", message, policy, "/matchConditions")


def _parts(condition: Condition) -> Iterable[str]:
    if condition.expression is not None:
        return _of_tree(condition.expression, parse(condition.expression))
    if condition.operator in ("matches", "not_matches") and isinstance(condition.value, str):
        return _brackets(condition.value)
    return ()


def _of_tree(text: str, node: Expr) -> Iterator[str]:
    """The sub-expressions, and the brackets of patterns among them."""
    part = " ".join(text[node.start : node.end].split())
    if isinstance(node, Literal) and isinstance(node.value, str):
        yield from _brackets(node.value)
    if len(part) >= LEAST:
        yield part
    for each in parts(node):
        yield from _of_tree(text, each)


def _brackets(pattern: str) -> Iterator[str]:
    opened: list[int] = []
    for found in _BRACKET.finditer(pattern):
        if found[0] == "(":
            opened.append(found.start())
        elif found[0] == ")" and opened:
            start = opened.pop()
            if found.end() - start >= LEAST:
                yield pattern[start : found.end()]
