"""Hypothesis strategies for JSON, tool calls and conditions with everything that trips engines up."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from engine.errors import ConditionError
from engine.matching.matcher import CompiledPolicy
from engine.model import Policy

WORDS = (
    "a",
    "b",
    "secret",
    "SECRET",
    "ſecret",
    "K",
    "\u212a",
    "ß",
    "SS",
    "İ",
    "i̇",
    "1",
    "1.0",
    "01",
    "1e2",
    "-0.0",
)
WORDS += (
    "true",
    "null",
    "100",
    "9007199254740993",
    "",
    " ",
    "\n",
    "\0",
    "\ud800",
    "\ufffd",
    "🚀",
    "x.y",
    "0",
    "a" * 90,
)
NUMBERS = (0, -0.0, 1, 1.0, 100, 1e2, 0.1, 2**53 + 1, float(2**53), 10**30, 1e300, -5)
KEYS = ("a", "b", "0", "1", "x.y", "", "é")

texts = st.one_of(st.sampled_from(WORDS), st.text(max_size=6))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), texts), inner, max_size=4),
    ),
    max_leaves=8,
)
payloads = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)
calls = st.builds(
    lambda name, payload, context: {
        "toolName": name,
        "inputPayload": payload,
        "agentId": "agent",
        "runId": "run",
        "toolCallId": "call",
        **({} if context is None else {"agentContext": context}),
    },
    texts,
    payloads,
    st.none() | payloads,
)
FIELDS = (
    "toolName",
    "inputPayload",
    "inputPayload.a",
    "inputPayload.b",
    "inputPayload.a.b",
    "inputPayload.a.0",
    "inputPayload.a.0.b",
    'inputPayload["x.y"]',
    'inputPayload[""].a',
    "agentContext",
    "agentContext.a",
    "user.claims.a",
)
PATTERNS = (
    "a",
    "(?i)secret",
    "(?i)k",
    "(?i)ss",
    "^1",
    r"\d+$",
    "^$",
    ".",
    "(?s).+",
    "[^a]",
    r"a{20}",
    r"(?:a|b){0,50}c",
    "\ufffd",
    "(secret|true|null)",
    r"\x00",
    r"\b",
)
plain_texts = texts.filter(lambda text: text != "" and not any("\ud800" <= c <= "\udfff" for c in text))


def condition_values(operator: str) -> st.SearchStrategy[Any]:
    """Values that the operator takes."""
    name = operator.removeprefix("not_")
    if name == "exists":
        return st.none()
    if name == "in":
        return st.lists(values, min_size=1, max_size=4)
    if name in ("contains", "starts_with", "ends_with"):
        return plain_texts
    if name == "matches":
        return st.sampled_from(PATTERNS)
    if name == "equals":
        return values
    return st.one_of(
        st.sampled_from(NUMBERS), st.integers(-(10**20), 10**20), st.floats(-1e300, 1e300, allow_nan=False)
    )


def compiles(policy: Policy) -> bool:
    try:
        CompiledPolicy.of(policy)
    except ConditionError:
        return False
    return True
