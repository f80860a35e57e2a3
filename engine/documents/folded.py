"""Comments of expressions that YAML makes longer than they look.

In a text that YAML folds (`>`, or over several lines without `|`) the line ends become blanks, so that `//`
comments out all lines that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.cel.parser import comments
from engine.documents.yaml import YamlNode, YamlReading


def folded_comments(reading: YamlReading) -> Iterator[tuple[str, str, str]]:
    """Pointer, message and code for each expression in which a comment goes on over the end of its line."""
    conditions, _ = reading.find("/matchConditions")
    for index, entry in enumerate(conditions.items or ()):
        node, part = entry, ""
        if entry.entries is not None and "expression" in entry.entries:
            node, part = entry.entries["expression"][1], "/expression"
        comment = _folded(reading.text, node)
        if comment:
            message = (
                "YAML joins the lines of this text, so all that stands behind `//` is a comment: "
                f"`{_begin(comment)}`; write the expression as `|-`, whose lines stay apart"
            )
            yield f"/matchConditions/{index}{part}", message, "folded_comment"


def _folded(text: str, node: YamlNode) -> str:
    """The first comment that is not written so, in one line."""
    written = text[node.start : node.end]
    if node.style == "|" or "\n" not in written or not isinstance(node.value, str) or "//" not in node.value:
        return ""
    found = (each.rstrip() for each in comments(node.value))
    return next((each for each in found if not _is_written(each, written, node.style)), "")


def _is_written(comment: str, written: str, style: str | None) -> bool:
    """Whether it stands there in one line, perhaps with what quoted texts write for some characters."""
    if style != '"':
        return comment in (written.replace("''", "'") if style == "'" else written)
    escape = r"\\(?:x..|u.{4}|U.{8}|[^xuU])"
    each = (escape if char == "\\" else f"(?:{re.escape(char)}|{escape})" for char in comment)
    return re.search("".join(each), written) is not None


def _begin(comment: str) -> str:
    return comment if len(comment) <= 60 else f"{comment[:57]}..."
