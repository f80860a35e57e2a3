"""Buckets and windows of rate limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.matching.rate_limit import bucket, is_over, window_start, within
from engine.model import RATE_LIMIT_KEYS, Policy, RateLimit, ToolCall
from tests.harness.values import values


def policy(*per: str, policy_id: str = "p", organisation: str = "default") -> Policy:
    limit = RateLimit(5, 60, per or ("agentId",))
    return Policy(policy_id, "P", "block", (), rate_limit=limit, organisation_id=organisation)


def same(rule: Policy, one: dict[str, Any], two: dict[str, Any]) -> bool:
    return bucket(rule, ToolCall.of(**one)) == bucket(rule, ToolCall.of(**two))


def test_calls_are_counted_by_what_the_limit_names() -> None:
    assert same(policy("agentId"), {"agentId": "a", "runId": "1"}, {"agentId": "a", "runId": "2"})
    assert not same(policy("agentId"), {"agentId": "a"}, {"agentId": "b"})
    assert not same(
        policy("agentId", "runId"), {"agentId": "a", "runId": "1"}, {"agentId": "a", "runId": "2"}
    )
    assert not same(policy("toolName"), {"toolName": "a"}, {"toolName": "b"})
    assert same(policy("apiKeyId"), {"key": {"id": "k"}}, {"key": {"id": "k", "scopes": ["x"]}})
    assert not same(policy("apiKeyId"), {"key": {"id": "k"}}, {"key": {"id": "l"}})


def test_neighbouring_parts_do_not_run_into_each_other() -> None:
    rule = policy("agentId", "runId")
    assert not same(rule, {"agentId": "ab", "runId": "c"}, {"agentId": "a", "runId": "bc"})
    assert not same(rule, {"agentId": "a", "runId": ""}, {"agentId": "", "runId": "a"})


def test_the_order_of_per_does_not_matter() -> None:
    call = ToolCall.of(agentId="a", runId="r")
    assert bucket(policy("agentId", "runId"), call) == bucket(policy("runId", "agentId"), call)


def test_policies_and_organisations_count_apart() -> None:
    call = ToolCall.of(agentId="a")
    names = {
        bucket(policy(), call),
        bucket(policy(policy_id="q"), call),
        bucket(policy(organisation="o"), call),
    }
    assert len(names) == 3
    assert all(len(name) == 64 for name in names)


def test_payloads_are_equal_whatever_the_order_of_keys() -> None:
    rule = policy("payload")
    assert same(rule, {"inputPayload": {"a": 1, "b": [2]}}, {"inputPayload": {"b": [2], "a": 1}})
    assert not same(rule, {"inputPayload": {"a": 1}}, {"inputPayload": {"a": "1"}})
    assert not same(rule, {"inputPayload": {"a": 1}}, {"inputPayload": {"a": True}})
    assert not same(rule, {"inputPayload": {"a": [1, 2]}}, {"inputPayload": {"a": [2, 1]}})


def test_the_verified_user_counts_before_the_asserted_one() -> None:
    rule = policy("userId")
    verified = {"user": {"id": "u1"}}
    assert same(rule, verified, verified | {"agentContext": {"userId": "somebody-else"}, "agentId": "other"})
    # What an agent asserts never uses up the limit of the user whom the service verified.
    assert not same(rule, verified, {"agentContext": {"userId": "u1"}})
    assert same(rule, {"agentContext": {"userId": 7}}, {"agentContext": {"userId": "7"}})
    assert same(rule, {}, {"agentContext": {"goal": "x"}})
    assert same(rule, {}, {"agentContext": {"userId": None}})
    assert not same(rule, verified, {})


@given(values)
def test_any_payload_and_user_has_a_bucket(value: Any) -> None:
    call = ToolCall.of(inputPayload={"v": value}, agentContext={"userId": value}, agentId="\ud800")
    assert len(bucket(policy(*RATE_LIMIT_KEYS), call)) == 64


def test_a_payload_of_absurd_depth_has_a_bucket() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert len(bucket(policy("payload"), ToolCall.of(inputPayload={"a": deep}))) == 64


def test_a_call_exactly_one_window_old_is_out() -> None:
    limit = RateLimit(2, 60)
    assert window_start(limit, 100.0) == 40.0
    assert within(limit, [39.0, 40.0, 40.001, 100.0], 100.0) == 2
    assert within(limit, [], 100.0) == 0
    assert [is_over(limit, counted) for counted in (0, 1, 2, 3)] == [False, False, True, True]


@given(st.integers(1, 5), st.integers(1, 20), st.lists(st.integers(0, 100), max_size=60))
def test_exactly_the_limit_passes_in_any_window(limit: int, window: int, arrivals: list[int]) -> None:
    rule = RateLimit(limit, window)
    passed: list[float] = []
    for now in sorted(arrivals):
        if not is_over(rule, within(rule, passed, now)):
            passed.append(now)
    for end in range(121):
        inside = [at for at in passed if end - window < at <= end]
        assert len(inside) <= limit
        refused = sorted(arrivals).count(end) - passed.count(end)
        assert not refused or len(inside) == limit, "a call was refused although the limit was not used up"
