"""The snapshot: that the index is used and narrows, hostile calls, changes, statistics."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import DocumentError
from engine.matching.matcher import Matcher
from engine.matching.overlay import OverlayMapping
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Json, Policy, ToolCall
from tests.bench.near_misses import NearMisses
from tests.bench.workload import WORDS, Company
from tests.harness.effort import slowness

MIB = 1 << 20


def policy(policy_id: str, *conditions: tuple[str, str, Json] | str, **more: Any) -> Policy:
    return Policy(
        policy_id,
        policy_id,
        more.pop("action", "block"),
        tuple(Condition(expression=c) if isinstance(c, str) else Condition(*c) for c in conditions),
        **more,
    )


def candidates(ruleset: Ruleset, call: ToolCall) -> int:
    return len(ruleset._matcher.candidates(call))


# ---- the index is used, and narrows ----------------------------------------------------------------------


def test_evaluate_never_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    company = Company(300)
    ruleset = Ruleset.build(company.policies)
    monkeypatch.delattr(Matcher, "scan")
    assert any(ruleset.evaluate(call).matches for call in company.calls(20))


@pytest.mark.parametrize("kind", [Company, NearMisses])
def test_candidates_stay_few_however_many_policies(kind: type[Company]) -> None:
    for size in (1_000, 10_000):
        company = kind(size)
        ruleset = Ruleset.build(company.policies)
        asked = company.calls(200)
        assert sum(candidates(ruleset, call) for call in asked) / len(asked) < 10
        assert kind is NearMisses or ruleset.stats()["unindexed"] == []


def test_many_ends_and_beginnings_of_few_lengths_are_told_apart() -> None:
    ends = [policy(f"e{n}", ("inputPayload.to", "ends_with", f"@B{n:02}.example")) for n in range(40)]
    starts = [policy(f"s{n}", ("inputPayload.to", "starts_with", f"{n:02}")) for n in range(40)]
    ruleset = Ruleset.build(ends + starts)
    for to, among in (
        ("17x@B03.example", 2),
        ("17x@B03.example.org", 1),
        ("x@b03.example", 1),
        (["17x", "x@B03.example"], 2),
        ("ſ@B03.example", 1),
        (1739, 1),
        ("x17", 0),
    ):
        call = ToolCall.of(toolName="t", inputPayload={"to": to})
        assert ruleset.evaluate(call) == ruleset.scan(call)
        assert candidates(ruleset, call) >= among
        assert not (isinstance(to, str) and to.isascii()) or candidates(ruleset, call) == among


def test_near_misses_are_the_same_each_time_and_say_what_they_promise() -> None:
    one, two = NearMisses(2_000), NearMisses(2_000)
    assert (one.policies, one.calls(50)) == (two.policies, two.calls(50))
    patterns = {
        condition.value
        for policy in one.policies
        for condition in policy.conditions
        if condition.operator == "matches"
    }
    assert 0.2 < len(patterns) / 2_000 < 0.3


@pytest.mark.parametrize(
    ("conditions", "payload"),
    [
        ([("inputPayload.a", "in", ["x{n}", "y{n}"])], {"a": "y7"}),
        ([("inputPayload.a", "starts_with", "begin{n}:")], {"a": "begin7: and so on"}),
        ([("inputPayload.a", "ends_with", ":end{n}")], {"a": "so on:end7"}),
        ([("inputPayload.a", "matches", "(?i)[a-z]+word{n};")], {"a": "SOMEWORD7;"}),
        ([("inputPayload", "contains", "needle{n};")], {"deep": [{"er": "a needle7; here"}]}),
        ([("inputPayload.k{n}", "exists", None)], {"k7": None}),
        (['has(inputPayload.a) && inputPayload.a == "v{n}"'], {"a": "v7"}),
        (['toolName == "tool" && has(inputPayload.a) && inputPayload.a in ["v{n}", "w{n}"]'], {"a": "w7"}),
        (['agentId.matches("^part{n};") && toolName != "x"'], {}),
    ],
)
def test_every_kind_of_condition_is_indexed(conditions: list[Any], payload: dict[str, Json]) -> None:
    def numbered(part: Any, number: int) -> Any:
        return json.loads(json.dumps(part).replace("{n}", str(number)))

    ruleset = Ruleset.build(
        policy(f"p{n}", *(c if isinstance(c, str) else tuple(c) for c in numbered(conditions, n)))
        for n in range(200)
    )
    call = ToolCall.of(toolName="tool", agentId="part7;", inputPayload=payload)
    assert [match.policy.policy_id for match in ruleset.evaluate(call).matches] == ["p7"]
    assert candidates(ruleset, call) <= 3


def test_ranges_are_found_without_trying_all() -> None:
    ruleset = Ruleset.build(
        policy(f"p{n}", ("inputPayload.a", "greater_than", n), ("inputPayload.a", "less_than", n + 2))
        for n in range(5_000)
    )
    call = ToolCall.of(inputPayload={"a": 2_500.5})
    assert len(ruleset.evaluate(call).matches) == 2
    assert candidates(ruleset, call) < 200


def test_patterns_without_literals_go_together() -> None:
    ruleset = Ruleset.build(
        policy(f"p{n}", ("inputPayload.a", "matches", rf"\b[A-Z]{{{n // 26 + 2}}}{chr(97 + n % 26)}[^a-z]"))
        for n in range(100)
    )
    assert candidates(ruleset, ToolCall.of(inputPayload={"a": "nothing of the kind"})) == 0
    assert [
        m.policy.policy_id for m in ruleset.evaluate(ToolCall.of(inputPayload={"a": "XYb!"})).matches
    ] == ["p1"]


def test_equal_buckets_cannot_multiply_without_bound() -> None:
    wide = [("inputPayload.a", "in", list(range(1000))), ("inputPayload.b", "in", list(range(1000)))]
    started = time.process_time()
    ruleset = Ruleset.build(
        policy(f"p{n}", *wide, ("inputPayload.c", "in", list(range(1000)))) for n in range(20)
    )
    assert time.process_time() - started < 5
    assert len(ruleset.evaluate(ToolCall.of(inputPayload={"a": 1, "b": 2, "c": 3})).matches) == 20


def test_equal_policies_with_many_conditions_make_no_deep_tree() -> None:
    many = [("inputPayload.a", "contains", f"part{n};") for n in range(64)]
    long = ".*".join(f"word{n};" for n in range(400))
    ruleset = Ruleset.build(
        [
            *(policy(f"p{n}", *many) for n in range(20)),
            *(policy(f"q{n}", ("inputPayload.a", "matches", long)) for n in range(20)),
        ]
    )
    call = ToolCall.of(inputPayload={"a": "".join(f"part{n};" for n in range(64))})
    assert len(ruleset.evaluate(call).matches) == 20
    call = ToolCall.of(inputPayload={"a": "".join(f"word{n};" for n in range(400))})
    assert len(ruleset.evaluate(call).matches) == 20


# ---- hostile calls ---------------------------------------------------------------------------------------

NASTY = [
    policy("one-letter", ("inputPayload.body", "contains", "a")),
    policy("two-letters", ("inputPayload.body", "contains", "aa")),
    policy("anywhere", ("inputPayload", "contains", "secret")),
    policy("nested-repeats", ("inputPayload.body", "matches", "(a+)+$")),
    policy("ambiguous", ("inputPayload.body", "matches", "(?:a|aa)+b")),
    policy("shape", ("inputPayload", "matches", "[0-9]{16}")),
    policy("wide", ("inputPayload.body", "matches", "|".join(w + s for w in WORDS for s in ("", "x", "yz")))),
    policy("dots", ("inputPayload.body", "matches", ".*a.*b.*c")),
    policy("counted", ("inputPayload.body", "matches", "a.{0,100}b")),
    policy("negated", ("inputPayload.body", "not_contains", "zebra")),
    policy("above", ("inputPayload.items", "greater_than", 5)),
    policy("listed", ("inputPayload.items", "in", list(range(5_000)))),
    policy("of-objects", ("inputPayload.items.name", "equals", "x")),
    policy("macro", 'has(inputPayload.items) && inputPayload.items.exists(i, i == "zz")'),
]


def hostile_payloads() -> Mapping[str, dict[str, Json]]:
    draw = random.Random(3)
    deep: dict[str, Json] = {}
    for _ in range(64):
        deep = {"items": deep}
    return {
        "a": {"body": "a" * MIB},
        "ab": {"body": "ab" * (MIB // 2)},
        "words": {"body": " ".join(draw.choice(WORDS) for _ in range(MIB // 7))},
        "not ascii": {"body": "é" * (MIB // 2)},
        "kelvin": {"body": "\u212a\u017f" * (MIB // 6)},
        "nul": {"body": "\0" * MIB},
        "digits": {"body": "1234567890" * (MIB // 10)},
        "surrogates": {"body": "\ud800" * 10_000},
        "integers": {"items": list(range(10_000))},
        "strings": {"items": [f"item-{n}" for n in range(10_000)]},
        "objects": {"items": [{"name": f"n{n}"} for n in range(10_000)]},
        "keys": {f"k{n}": n for n in range(10_000)},
        "huge number": {"items": 10**5_000, "amount": 10**5_000, "account": 10**5_000},
        "deep": deep,
    }


@pytest.fixture(scope="module")
def large() -> Ruleset:
    return Ruleset.build([*Company(2_000).policies, *NASTY])


@pytest.mark.parametrize("name", hostile_payloads())
def test_a_hostile_call_takes_less_than_50_ms(large: Ruleset, name: str) -> None:
    call = ToolCall.of(toolName="shell.run_account", inputPayload=hostile_payloads()[name])
    best = 1.0
    for _ in range(40):
        started = time.process_time()
        large.evaluate(call)
        best = min(best, time.process_time() - started)
        if best < 0.05:
            break
    assert best < 0.05 * slowness(), f"{best * 1e3:.0f} ms"
    assert large.evaluate(call) == large.scan(call)


@pytest.mark.parametrize(
    ("document", "matched"),
    [
        ({"inputPayload": {"cmd": "RM\u2028-RF"}}, False),
        ({"inputPayload": {"cmd": "rm  -rf", "x": 1}}, True),
        ({"inputPayload": {"cmd": ["echo", "RM -RF"]}}, True),
        ({"inputPayload": {"cmd": {"rm -rf": None}}}, True),
        ({"inputPayload": {"cmd": "rm\0 -rf"}}, False),
        ({"inputPayload": {"cmd": "\ud800rm -rf"}}, True),
        ({"inputPayload": {"cmd": "x " * 35_000 + "rm -rf" + "x" * 70_000}}, True),
        ({"inputPayload": {"cmd": "x" * (65_536 - 3) + " rm -rf"}}, True),
        ({"inputPayload": {"cmd": "wipe di\u017f\u212a"}}, True),
        ({"inputPayload": {"cmd": "WIPE DISK"}}, True),
        ({"inputPayload": {"cmd": "wipe dısk"}}, False),
        ({"inputPayload": [{"cmd": "rm -rf"}]}, True),
    ],
)
def test_respelling_evades_no_literal(document: dict[str, Json], matched: bool) -> None:
    """What the pattern itself matches is found, whatever surrounds it, among many other patterns."""
    filler = [policy(f"f{n}", ("inputPayload.cmd", "matches", rf"(?i)filler\s+{n};")) for n in range(100)]
    ruleset = Ruleset.build(
        [
            *filler,
            policy("rm", ("inputPayload.cmd", "matches", r"(?i)\brm\s+-rf")),
            policy("wipe", ("inputPayload.cmd", "matches", r"(?i)wipe disk")),
        ]
    )
    call = ToolCall.of(**document)
    assert bool(ruleset.evaluate(call).matches) is matched
    assert ruleset.evaluate(call) == ruleset.scan(call)


# ---- building and changing -------------------------------------------------------------------------------


def test_every_policy_that_does_not_compile_is_named() -> None:
    bad = [policy("one", ("inputPayload.a", "matches", "(")), policy("two", ("payload.a", "equals", "x"))]
    with pytest.raises(DocumentError) as raised:
        Ruleset.build([*bad, policy("good", ("toolName", "equals", "x"))])
    assert ["`one`" in raised.value.problems[0].message, "`two`" in raised.value.problems[1].message] == [
        True,
        True,
    ]
    ruleset = Ruleset.build([])
    with pytest.raises(DocumentError):
        ruleset.changed({"one": bad[0]}, 1)
    assert len(ruleset.policies) == 0


def test_the_digest_stands_for_the_content() -> None:
    one, two = policy("one", ("toolName", "equals", "x")), policy("two", ("toolName", "equals", "x"))
    digest = Ruleset.build([one, two]).digest
    assert Ruleset.build([two, one], 9).digest == digest
    assert Ruleset.build([one]).digest != digest
    assert Ruleset.build([one]).changed({"two": two}, 1).digest == digest
    assert Ruleset.build([one, replace(two, enabled=False)]).digest != digest
    assert Ruleset.build([one, replace(two, version=2)]).digest != digest
    huge = policy("huge", ("inputPayload.a", "equals", 10**30))
    assert Ruleset.build([huge]).digest != Ruleset.build([]).digest


def test_roots_are_what_enabled_policies_look_at() -> None:
    asking = policy(
        "a", ("agentContext.context.env", "equals", "prod"), "has(reason) && reason.contains('x')"
    )
    ruleset = Ruleset.build([asking, policy("b", ("runId", "equals", "x"), enabled=False)])
    assert ruleset.roots == {"agentContext", "reason"}
    skipping = policy("c", ("tool.effect", "equals", "delete"), scope="action_only")
    assert Ruleset.build([skipping]).roots == {"tool", "toolAnnotations", "actionHint"}
    assert ruleset.changed({"a": None}, 1).roots == frozenset()


def test_changes_gather_until_a_compaction_is_due() -> None:
    ruleset = Ruleset.build(Company(500).policies)
    assert not ruleset.needs_compaction
    for number, extra in enumerate(Company(300, seed=5).policies):
        ruleset = ruleset.changed({f"extra-{number}": replace(extra, policy_id=f"extra-{number}")}, number)
    assert ruleset.needs_compaction and ruleset.stats()["overlay"] >= 300
    compacted = ruleset.compacted()
    assert not compacted.needs_compaction and compacted.stats()["overlay"] == 0
    assert (compacted.digest, compacted.revision) == (ruleset.digest, ruleset.revision)
    current = ruleset.changed({"extra-7": None}, 1_000)
    followed = compacted.following(current)
    assert (followed.digest, followed.revision) == (current.digest, 1_000)
    assert "extra-7" not in followed.policies and followed.stats()["overlay"] == 1
    other = Ruleset.build(followed.policies.values()).compacted().following(current)
    assert other.digest == current.digest, "also when both have been compacted meanwhile"


def test_one_update_costs_little_among_many() -> None:
    ruleset = Ruleset.build(Company(5_000).policies)
    taken = []
    for number, extra in enumerate(Company(100, seed=5).policies):
        started = time.process_time()
        ruleset = ruleset.changed({f"policy-{number}": extra}, number)
        taken.append(time.process_time() - started)
    assert sorted(taken)[50] < 0.001


def test_layers_behave_like_one_mapping() -> None:
    base = OverlayMapping({"a": 1, "b": 2})
    changed = base.changed({"b": None, "c": 3}).changed({"a": 4, "x": None})
    assert dict(changed) == {"a": 4, "c": 3} == changed.flat()
    assert (len(changed), "b" in changed, "x" in changed, changed.get("b")) == (2, False, False, None)
    assert dict(base) == {"a": 1, "b": 2}


def test_what_cannot_be_indexed_is_counted() -> None:
    ruleset = Ruleset.build(
        [
            policy("negation", ("inputPayload.a", "not_equals", "x")),
            policy("anything", ("inputPayload.a", "matches", ".+")),
            policy("indexed", ("inputPayload.a", "equals", "x")),
            policy("off", ("inputPayload.a", "not_equals", "x"), enabled=False),
        ]
    )
    stats = ruleset.stats()
    assert stats["unindexed"] == ["anything", "negation"]
    assert (stats["policies"], stats["enabled"], stats["overlay"]) == (4, 3, 0)
    changed = ruleset.changed({"negation": None, "new": policy("new", ("toolName", "not_contains", "x"))}, 1)
    assert changed.stats()["unindexed"] == ["anything", "new"]


@pytest.mark.parametrize(("tool", "matched"), [("pay", True), ("read", False)])
def test_what_is_known_only_in_part_is_an_error_of_its_term_alone(tool: str, matched: bool) -> None:
    """A term that is FALSE for sure stays so: the index relies on it, and so does whoever named a tool."""
    ruleset = Ruleset.build(
        [policy("large", 'toolName == "pay" && has(derived.amount) && derived.amount >= 1')]
    )
    call = ToolCall.of(toolName=tool, inputPayload={"amount": "wire"})
    assert ruleset.evaluate(call) == ruleset.scan(call)
    assert bool(ruleset.scan(call).matches) is matched
