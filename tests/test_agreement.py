"""The index only narrows: `evaluate` answers what `scan` answers, always.

Every example is told twice: with the sizes of production, and with sizes so small that a handful of policies
makes a deep tree, many shards, blocks, pieces and tiers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from engine.conditions.operators import OPERATORS
from engine.matching import index, lookups, matcher, multi_search, selectivity
from engine.matching.decision import decide
from engine.matching.ruleset import Ruleset
from engine.model import ACTIONS, STRENGTH, After, Condition, Policy, ToolCall, ToolDeclaration, ToolSet
from tests.bench.near_misses import NearMisses
from tests.bench.workload import Company
from tests.engine.fields.test_required_literals import patterns
from tests.harness.effort import examples
from tests.harness.values import compiles


def often(share: float) -> settings:
    """Examples of one property; over 20,000 in all of a long run."""
    return examples(int(600 * share), int(9_000 * share))


TINY = (
    (index, "FULL", 1),
    (lookups, "BLOCK", 2),
    (lookups, "MANY_KEYS", 1),
    (selectivity, "LEARN_FROM", 2),
    (selectivity, "PHRASED", 1000),
    (selectivity, "PHRASE_COST", 0.0),
    (index, "MOST_COPIES", 8),
    (multi_search, "FEW", 0),
    (multi_search, "SHARD", 2),
    (multi_search, "PIECE", 3),
    (multi_search, "TAIL", 1),
    (multi_search, "ALIKE", 1),
    (multi_search, "SET", 2),
    (matcher, "RECENT", 1),
    (matcher, "TIER", 3),
)


def in_both_sizes(check: Callable[..., None]) -> Callable[..., None]:
    """To draw an example takes far longer than to check it, so each is checked in both sizes."""

    @wraps(check)
    def checked(*arguments: Any, **named: Any) -> None:
        note("the sizes of production")
        check(*arguments, **named)
        with pytest.MonkeyPatch.context() as patch:
            for module, name, size in TINY:
                patch.setattr(module, name, size)
            note("tiny sizes")
            check(*arguments, **named)

    return checked


# ---- what to draw ----------------------------------------------------------------------------------------

FIELDS = (
    "toolName",
    "agentId",
    "reason",
    "inputPayload",
    "inputPayload.a",
    "inputPayload.a.b",
    "inputPayload.a.0",
    "inputPayload.b",
    "inputPayload.0",
    'inputPayload["x.y"]',
    "agentContext.goal",
    "user.scopes",
    "run.task",
    "derived.shellCommands",
    "derived.commands.program",
    "derived.commands.0.pipedInto",
    "derived.deletes",
    "derived.files",
    "derived.written",
    "derived.hosts",
    "derived.recipients",
    "derived.recipientDomains",
    "derived.sql.verb",
    "derived.sql.where",
    "derived.amount",
    "derived.text",
    "tool.kind",
    "tool.effect",
    "run.labels",
    "outputPayload",
    "outputPayload.a",
    "derived.untrustedOutput",
    "derived.targets",
    "derived.untrustedTargets",
    "derived.unaskedTargets",
    "derived.provenance.to",
)
WORDS = (
    *("wire", "Wire", "WIRE", "rm -rf /", "k", "K", "\u212a", "s", "S", "\u017f", "ß", "ẞ", "ss", "SS"),
    *("İ", "i̇", "ı", "σ", "ς", "Σ", "ﬁ", "fi", "a\0b", "a\nb", "\x1f", "", " ", "é", "e\u0301", "😀"),
    *("aa", "aaa", "ab", "ba", "100", "1e2", "1.0", "1", "-0", "0", "0x10", " 1", "١", "1_0", "true"),
    *("null", "NaN", "inf", "1e400", "9" * 30),
    *('{"a": "k\\u006b rm -rf /"}', '["wire", {"to": "k@s.example"}]', "a@b, k", "drop table k", "shell"),
    *("r''m -rf /", "k=wire; $k | s", "sudo k", "echo wire | sh", "unreadable", "eval " * 20),
)
NUMBERS = (
    0,
    1,
    -1,
    100,
    1.0,
    100.0,
    -0.0,
    0.1,
    1e-7,
    1e22,
    2**53 + 1,
    2**63,
    10**30,
    1e308,
    -(10**30),
    10**400,
)
words = st.sampled_from(WORDS)
numbers = st.sampled_from(NUMBERS)
scalars = st.one_of(words, numbers, st.booleans(), st.none())
surrogates = st.sampled_from(["\ud800", "k\udfffk", "\ud83d\ude00"])
values = st.recursive(
    scalars | surrogates,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "0", "x.y", "wire", "k"]), inner, max_size=3),
    ),
    max_leaves=5,
)

EXPRESSIONS = (
    'toolName == "wire"',
    'toolName in ["k", "wire", "s"]',
    'toolName.startsWith("wi") && inputPayload.a > 1',
    'toolName == "wire" && inputPayload.a.contains("k")',
    'toolName == "wire" && inputPayload.b.matches("(?i)k+")',
    'toolName == "k" && (inputPayload.a == "s" || inputPayload.b < 100)',
    'toolName.matches("(?i)k") && !(inputPayload.a == 1)',
    'toolName != "wire" && has(inputPayload.a)',
    'has(inputPayload.a) && inputPayload.a == "ss"',
    'has(inputPayload.a) && inputPayload.a in ["1", "k"]',
    "has(inputPayload.a) && inputPayload.a >= 1",
    "has(inputPayload.a) && 1 < inputPayload.a && inputPayload.a <= 100.0",
    'has(inputPayload.a) && has(inputPayload.b) && inputPayload.a.contains("aa") && inputPayload.b == true',
    'has(inputPayload.a.b) && inputPayload.a.b.endsWith("K")',
    'has(inputPayload.b) && inputPayload.b.startsWith("k")',
    'has(inputPayload.a) && inputPayload.a.matches("(?i)rm\\\\s+-rf|k{3}")',
    'has(inputPayload.a) && (inputPayload.a.contains("S") || inputPayload.a.endsWith("ss"))',
    "has(inputPayload.b) && (inputPayload.b > 9007199254740993 || inputPayload.b < 0.1)",
    "has(inputPayload.a) && 100 >= inputPayload.a && has(inputPayload.b) && inputPayload.b < 1e22",
    'has(inputPayload.b) && size(inputPayload.b) > 1',
    'has(inputPayload.b) && inputPayload.b.exists(x, x == "k")',
    'agentId == "k" || toolName == "s"',
    'agentId.contains("s")',
    'tool.kind == "shell"',
    'tool.kind in ["shell", "mail"] && derived.recipients.exists(r, r.contains("k"))',
    'tool.kind != "unknown" && derived.commands.exists(c, c.program == "rm" && "-rf" in c.options)',
    'toolName == "wire" && has(derived.amount) && derived.amount >= 1',
    'has(run.labels) && "k" in run.labels && size(derived.unaskedTargets) > 0',
    'toolName == "wire" && has(derived.provenance.to) && derived.provenance.to != "task"',
    'size(derived.files) > 0 && tool.effect == "write"',
)  # fmt: skip


@cache  # hypothesis looks each strategy over anew that it has not seen
def with_operator(operator: str) -> st.SearchStrategy[Condition]:
    value: st.SearchStrategy[Any]
    base = operator.removeprefix("not_")
    if base == "exists":
        value = st.none()
    elif base == "in":
        value = st.lists(scalars, min_size=1, max_size=4)
    elif base == "equals":
        value = scalars | values
    elif base == "matches":
        value = patterns
    elif base in ("contains", "starts_with", "ends_with"):
        value = words
    else:
        value = numbers
    return st.builds(Condition, st.sampled_from(FIELDS), st.just(operator), value)


field_conditions = st.sampled_from(sorted(OPERATORS)).flatmap(with_operator)
tool_conditions = st.builds(Condition, st.just("toolName"), st.sampled_from(["equals", "contains"]), words)
conditions = st.one_of(
    field_conditions,
    field_conditions,
    tool_conditions,
    st.builds(Condition, expression=st.sampled_from(EXPRESSIONS)),
)


TOOLS = (
    ToolSet(
        "t",
        "T",
        (
            ToolDeclaration(("wire",), "shell", "execute", "trusted", {"b": "untrusted"}, ("to", "a")),
            ToolDeclaration(("k",), "mail", "send", which=("b", "to")),
        ),
    ),
)


policies = st.builds(
    Policy,
    policy_id=st.integers(0, 30).map(lambda n: f"p{n}"),
    name=st.sampled_from(["one", "two", "three"]),
    action=st.sampled_from(ACTIONS),
    conditions=st.lists(conditions, min_size=1, max_size=3).map(tuple),
    enabled=st.sampled_from([True] * 9 + [False]),
    scope=st.sampled_from(["all", "all", "action_only"]),
    mode=st.sampled_from(["enforce", "enforce", "shadow"]),
    failure_policy=st.sampled_from(["fail", "fail", "ignore"]),
    on=st.sampled_from(["tool.called"] * 4 + ["tool.completed"]),
    labels=st.sampled_from([(), ("k",)]),
    after=st.none()
    | st.none()
    | st.builds(
        After,
        st.sampled_from(["tool", "label", "policy"]),
        st.sampled_from(["k", "wire"]),
        st.sampled_from([None, 1]),
    ),
).filter(compiles)
policy_sets = st.lists(policies, min_size=1, max_size=12)

keys = st.sampled_from(["a", "b", "0", "x.y", "a", "b", "command", "to", "path", "url", "query", "amount"])
payloads = st.dictionaries(keys, values, max_size=4)
steps = st.fixed_dictionaries(
    {"toolName": st.sampled_from(["wire", "k", "x"])},
    optional={
        "inputPayload": payloads,
        "outputPayload": values,
        "approved": st.booleans(),
        "blocked": st.booleans(),
        "labels": st.just(["k"]),
        "policies": st.just(["wire"]),
    },
)
calls = st.builds(
    ToolCall.of,
    toolName=words | st.sampled_from(["wire", "k"]),
    inputPayload=payloads | payloads | values,
    agentId=words,
    reason=st.none() | words,
    agentContext=st.none() | st.dictionaries(st.just("goal"), values, max_size=1) | values,
    user=st.none() | st.fixed_dictionaries({"scopes": st.lists(words, max_size=3) | values}),
    run=st.none() | st.fixed_dictionaries({"task": scalars, "labels": st.lists(words, max_size=2)}) | values,
    outputPayload=st.none() | st.none() | values,
    before=st.none() | st.lists(steps, max_size=2),
    actionHint=st.sampled_from([None, None, "read", " List "]),
)


def same(ruleset: Ruleset, call: ToolCall) -> None:
    found, wanted = ruleset.evaluate(call), ruleset.scan(call)
    assert found == wanted, (
        [
            match.policy
            for match in (*wanted.matches, *wanted.shadow)
            if match not in (*found.matches, *found.shadow)
        ],
        call,
    )


def block(*found: Condition) -> list[Policy]:
    return [Policy("p", "p", "block", found)]


# ---- properties ------------------------------------------------------------------------------------------


@often(1.0)
@given(policy_sets, st.lists(calls, min_size=1, max_size=4))
@example(block(Condition("inputPayload.a", "matches", "(?i)k")), [ToolCall.of(inputPayload={"a": "\u212a"})])
@example(
    block(Condition("inputPayload.a", "matches", "(?i)strasse")),
    [ToolCall.of(inputPayload={"a": "\u017ftraße"})],
)
@example(
    block(Condition("inputPayload.a", "contains", "a\nb")), [ToolCall.of(inputPayload={"a": ["a", "b"]})]
)
@example(block(Condition("inputPayload", "contains", "k")), [ToolCall.of(inputPayload={"a": {"k": None}})])
@example(block(Condition("inputPayload.a", "equals", 100)), [ToolCall.of(inputPayload={"a": "1e2"})])
@example(block(Condition("inputPayload.a", "greater_than", 5)), [ToolCall.of(inputPayload={"a": ["x"]})])
@in_both_sizes
def test_index_equals_scan(found: list[Policy], asked: list[ToolCall]) -> None:
    ruleset = Ruleset.build(found, tools=TOOLS)
    for call in asked:
        same(ruleset, call)


changes = st.one_of(
    st.tuples(st.just("put"), st.lists(policies, min_size=1, max_size=4)),
    st.tuples(st.just("remove"), st.integers(0, 30).map(lambda n: f"p{n}")),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("compact meanwhile"), policies),
)


@often(0.5)
@given(policy_sets, st.lists(changes, max_size=10), st.lists(calls, min_size=1, max_size=3))
@in_both_sizes
def test_index_equals_scan_after_changes(
    found: list[Policy], sequence: list[tuple[str, Any]], asked: list[ToolCall]
) -> None:
    ruleset = Ruleset.build(found, tools=TOOLS)
    plain = {policy.policy_id: policy for policy in found}
    for revision, (kind, what) in enumerate(sequence, 1):
        before, answers = ruleset, [ruleset.evaluate(call) for call in asked]
        if kind == "put":
            ruleset = ruleset.changed({policy.policy_id: policy for policy in what}, revision)
            plain |= {policy.policy_id: policy for policy in what}
        elif kind == "remove":
            ruleset = ruleset.changed({what: None}, revision)
            plain.pop(what, None)
        elif kind == "compact":
            ruleset = ruleset.compacted().following(ruleset)
        else:
            current = ruleset.changed({what.policy_id: what}, revision)
            ruleset = ruleset.compacted().following(current)
            plain[what.policy_id] = what
            assert ruleset.revision == revision
        for call in asked:
            same(ruleset, call)
        assert dict(ruleset.policies) == plain and len(ruleset.policies) == len(plain)
        assert ruleset.digest == Ruleset.build(plain.values(), tools=TOOLS).digest
        assert [before.evaluate(call) for call in asked] == answers, "an old snapshot changed"


@often(0.3)
@given(policy_sets, policies, calls, st.randoms())
@in_both_sizes
def test_load_order_changes_nothing(
    found: list[Policy], extra: Policy, call: ToolCall, shuffled: random.Random
) -> None:
    unique = list({policy.policy_id: policy for policy in [*found, extra]}.values())
    other = unique.copy()
    shuffled.shuffle(other)
    one, two = Ruleset.build(unique), Ruleset.build(other)
    assert one.evaluate(call) == two.evaluate(call)
    assert one.digest == two.digest


@often(0.5)
@given(policy_sets, policies.filter(lambda policy: policy.action != "allow"), calls, st.frozensets(words))
@in_both_sizes
def test_adding_a_policy_that_does_not_allow_never_loosens(
    found: list[Policy], extra: Policy, call: ToolCall, over: frozenset[str]
) -> None:
    ruleset = Ruleset.build(policy for policy in found if policy.policy_id != extra.policy_id)
    before = decide(ruleset.evaluate(call), lambda policy: True)
    after = decide(ruleset.changed({extra.policy_id: extra}, 1).evaluate(call), lambda policy: True)
    assert STRENGTH[after.action] <= STRENGTH[before.action]
    assert after.status == before.status or before.status != "blocked"


@often(0.02)
@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([Company, NearMisses]))
@in_both_sizes
def test_index_equals_scan_on_many_policies(seed: int, size: int, kind: type[Company]) -> None:
    """Fewer traps, but sets large enough for real buckets, and many calls that match or nearly do."""
    company = kind(size, seed)
    ruleset = Ruleset.build(company.policies)
    for call in company.calls(20, matching=0.7):
        same(ruleset, call)
    extra = kind(30, seed + 1)
    ruleset = ruleset.changed({policy.policy_id: policy for policy in extra.policies}, 1)
    for call in [*company.calls(10, matching=0.7), *extra.calls(10, matching=0.7)]:
        same(ruleset, call)
