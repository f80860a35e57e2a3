"""Everything that is wrong with a policy that the API is sent, also with one whose shape is wrong already.

Decides what is told of the meaning beside the shape: conditions, message, samples. What is sent to change a
policy has less, and nothing is told of what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.documents.policy import MOST_CONDITIONS, check_body
from engine.errors import Problem
from engine.model import Json

_LEFT_OUT: Final[Mapping[str, Json]] = {
    "name": "policy",
    "action": "block",
    "matchConditions": [{"field": "toolName", "operator": "exists"}],
}
"""Stands for what a change leaves out."""


def body_problems(body: Json) -> list[Problem]:
    """Everything that is wrong with a JSON body, its shape and its meaning; only of one that is small enough
    to be a policy."""
    entries = body.get("matchConditions") if isinstance(body, dict) else None
    if not isinstance(entries, list) or len(entries) > MOST_CONDITIONS:
        return []
    return [Problem(each.message, each.pointer, each.code) for each in check_body(body)[1]]


def change_problems(body: Json) -> list[Problem]:
    """What is wrong with the conditions and the message that a change sends."""
    if not isinstance(body, dict):
        return []
    sent = {key: value for key, value in body.items() if value is not None}
    told = ("/matchConditions", "/message")
    return [each for each in body_problems({**_LEFT_OUT, **sent}) if each.pointer.startswith(told)]
