"""How the pages of the reference are written down: headings, tables, code. Knows nothing of what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NOTE: Final = "<!-- Made by `make guide` from the tables in the code; change those, not this page. -->"


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """With a capital and a full stop; it may begin with a mark."""
    return (text[:1].upper() + text[1:]).rstrip(".") + "."
