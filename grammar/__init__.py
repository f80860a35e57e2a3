"""Hands out the text of the grammars kept beside it; knows nothing of what they are used for."""

from __future__ import annotations

from importlib.resources import files


def condition_grammar() -> str:
    """The Lark grammar of condition expressions."""
    return files(__name__).joinpath("condition.lark").read_text(encoding="utf-8")
