"""Policies as people and the API write them: strict YAML or JSON <-> `Policy`.

Decides whether a document is a policy: its shape by `schemas/`, its conditions by compiling them, its
examples by running them. All problems are collected before failing, each with a JSON pointer and, for
files, line and column. It must not know where files live, versions beyond the declared one, HTTP or SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.conditions import examples
from engine.conditions.compiled import CompiledCondition, check_condition, check_policy, compile_condition
from engine.conditions.message import Message
from engine.conditions.settings import SAMPLES, in_force, sampled
from engine.derived.tools import NO_TOOLS, Tools
from engine.documents.approval_terms import terms_as_json, terms_from_json
from engine.documents.document import Defect, digest_of, read_document, shape_defects
from engine.documents.ids import refuse_id, slug
from engine.documents.sequence import after_as_json, after_from_json, rate_limit_from_json, sequence_defects
from engine.errors import ConditionError, DocumentError, Problem
from engine.model import Condition, Json, Policy, ToolCall

MOST_CONDITIONS: Final = 64

_LEFT_OUT: Final[Mapping[str, Json]] = {
    "name": "policy",
    "action": "block",
    "matchConditions": [{"field": "toolName", "operator": "exists"}],
}
"""Stands for what a change leaves out."""

_A_TEST: Final = "this is a `PolicyTest`, no policy: let the name of its file end in `_test.yaml`"


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A policy and the file that says so. `declared_version` is the file's `version:`, if it has one."""

    policy: Policy
    file: str
    digest: str
    declared_version: int | None = None


@dataclass(frozen=True, slots=True)
class CallTest:
    """One call and what the set must decide; `matched` and `shadow` are policy ids, None: not checked."""

    about: str
    call: ToolCall
    status: str
    matched: frozenset[str] | None
    shadow: frozenset[str] | None
    line: int


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """A `*_test.yaml` document. `policies` narrows the set that is tested; None: all of the organisation."""

    file: str
    about: str
    policies: frozenset[str] | None
    tests: tuple[CallTest, ...]


def policy_from_json(
    body: Mapping[str, Json],
    *,
    policy_id: str | None = None,
    organisation_id: str = "default",
    tools: Tools | None = None,
) -> Policy:
    """A policy from the shape of the API. `policy_id` wins over `policyId` of the body, else the name's slug.

    Without `tools`, examples that need to know the tools are not run. Raises DocumentError with every
    problem; pointers are into the body.
    """
    policy, findings = check_body(body, policy_id=policy_id, organisation_id=organisation_id, tools=tools)
    if policy is None or findings:
        raise DocumentError(each.problem() for each in findings)
    return policy


def check_body(
    body: Mapping[str, Json],
    *,
    policy_id: str | None = None,
    organisation_id: str = "default",
    tools: Tools | None = None,
) -> tuple[Policy | None, list[Defect]]:
    """The policy of a JSON body and everything that is wrong with it; None when the shape is wrong."""
    shape = shape_defects("documents/policy", body, "/$defs/body")
    return _check_meaning(body, shape, policy_id, organisation_id, tools)


def _check_meaning(
    body: Mapping[str, Json],
    shape: Iterable[Defect],
    policy_id: str | None,
    organisation_id: str,
    tools: Tools | None = None,
) -> tuple[Policy | None, list[Defect]]:
    """What only compiling and running can tell, on top of what is wrong with the shape."""
    findings = list(shape)
    filled, problems = sampled(body) if isinstance(body, Mapping) else ({}, [])
    findings += [Defect(each.pointer, each.message, each.code) for each in problems]
    wrong = [finding.pointer for finding in findings]
    conditions = _checked(body, filled.get("matchConditions"), wrong, findings)
    if not any(each.split("/")[1:2] == ["message"] for each in wrong):
        findings += _check_message(body, filled.get("message"))
    if wrong:
        return None, findings
    chosen = policy_id or body.get("policyId") or slug(body["name"])
    if message := refuse_id(chosen):
        findings.append(Defect("/policyId", message, "wrong_form"))
    entries = body["matchConditions"]
    good = len(conditions) == len(entries)
    as_written = good and filled["matchConditions"] is entries
    policy = _policy(body, chosen, organisation_id, conditions=conditions if as_written else None)
    if good:
        findings += (Defect(*each) for each in sequence_defects(policy, conditions))
        findings += _of_compiled(policy, conditions, tools)
    return policy, findings


def _of_compiled(policy: Policy, conditions: Sequence[Condition], tools: Tools | None) -> list[Defect]:
    """What is wrong with expressions that have no guard, and with examples; most policies have neither."""
    if not policy.examples and all(each.expression is None for each in conditions):
        return []
    compiled = list(map(compile_condition, conditions))
    findings: list[Defect] = []
    try:
        check_policy(compiled)
    except ConditionError as error:
        findings.append(Defect("/matchConditions", error.message, "unguarded"))
    if policy.examples and (tools is not None or not examples.reads_tools(policy)):
        findings += _failing(policy, compiled, tools or NO_TOOLS)
    return findings


def failing_examples(policy: Policy, tools: Tools) -> list[Defect]:
    """The examples of a good policy that do not hold by these declarations of tools."""
    conditions = in_force(policy, SAMPLES).conditions
    return _failing(policy, [compile_condition(each) for each in conditions], tools)


def _failing(policy: Policy, compiled: Sequence[CompiledCondition], tools: Tools) -> list[Defect]:
    return [
        Defect(f"/examples/{index}", message, "example_fails")
        for index, message in examples.failures(policy, compiled, tools)
    ]


def _checked(
    body: Mapping[str, Json], entries: Json, wrong: list[str], findings: list[Defect]
) -> list[Condition]:
    """The good ones, with samples in place of settings; offsets are told of those that are as written."""
    good: list[Condition] = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        pointer = f"/matchConditions/{index}"
        if wrong and any(each == pointer or each.startswith(pointer + "/") for each in wrong):
            continue
        condition = condition_from_json(entry)
        try:
            check_condition(condition)
            good.append(condition)
        except ConditionError as error:
            part = "" if isinstance(entry, str) else f"/{error.part}" if error.part in entry else ""
            offset = error.offset if entry == body["matchConditions"][index] else None
            findings.append(Defect(pointer + part, error.message, "invalid_condition", offset=offset))
    return good


def _check_message(body: Mapping[str, Json], filled: str | None) -> list[Defect]:
    try:
        Message(filled or "")
    except ConditionError as error:
        offset = error.offset if filled == body["message"] else None
        return [Defect("/message", error.message, "invalid_message", offset=offset)]
    return []


def condition_from_json(entry: Json) -> Condition:
    """A condition of the right shape; a bare text is short for an expression."""
    if isinstance(entry, str):
        return Condition(expression=entry)
    if "expression" in entry:
        return Condition(expression=entry["expression"])
    return Condition(entry["field"], entry["operator"], entry.get("value"))


def policy_from_state(state: Mapping[str, Json], organisation_id: str, version: int | None = None) -> Policy:
    """The policy of a state that `policy_as_json` made, unchecked. `version`: if not its own."""
    number = state.get("version", 0) if version is None else version
    return _policy(state, state["policyId"], organisation_id, number)


def _policy(
    body: Mapping[str, Json],
    policy_id: str,
    organisation_id: str,
    version: int = 0,
    conditions: Iterable[Condition] | None = None,
) -> Policy:
    if conditions is None:
        conditions = map(condition_from_json, body["matchConditions"])
    limit = body.get("rateLimit")
    return Policy(
        policy_id=policy_id,
        name=body["name"],
        action=body["action"],
        conditions=tuple(conditions),
        enabled=body.get("enabled", True),
        description=body.get("description"),
        message=body.get("message"),
        preset_id=body.get("presetId"),
        preset_parameters=body.get("presetParameters"),
        scope=body.get("scope", "all"),
        mode=body.get("mode", "enforce"),
        rate_limit=limit and rate_limit_from_json(limit),
        approval=terms_from_json(body.get("approval")),
        failure_policy=body.get("failurePolicy", "fail"),
        examples=tuple(map(examples.from_json, body.get("examples", ()))),
        version=version,
        organisation_id=organisation_id,
        on=body.get("on", "tool.called"),
        labels=tuple(sorted(set((body.get("labels") or {}).get("add", ())))),
        after=after_from_json(body.get("after")),
    )


def policy_as_json(policy: Policy) -> dict[str, Json]:
    """The shape of the contract; optional members without a value are absent, `version` while it is 0."""
    limit = policy.rate_limit
    shape: dict[str, Json] = {
        "policyId": policy.policy_id,
        "version": policy.version or None,
        "name": policy.name,
        "description": policy.description,
        "message": policy.message,
        "presetId": policy.preset_id,
        "presetParameters": policy.preset_parameters or None,
        "action": policy.action,
        "scope": policy.scope,
        "enabled": policy.enabled,
        "mode": policy.mode,
        "matchConditions": [condition.as_json() for condition in policy.conditions],
        "rateLimit": limit
        and {"limit": limit.limit, "windowSeconds": limit.window_seconds, "per": list(limit.per)},
        "approval": policy.approval and terms_as_json(policy.approval),
        "failurePolicy": policy.failure_policy,
        "on": None if policy.on == "tool.called" else policy.on,
        "labels": {"add": list(policy.labels)} if policy.labels else None,
        "after": after_as_json(policy.after),
        "examples": [examples.as_json(example) for example in policy.examples] or None,
    }
    return {key: value for key, value in shape.items() if value is not None}


def load_policy(source: bytes, file: str = "", *, organisation_id: str = "default") -> PolicyDocument:
    """The policy of a YAML file. Raises DocumentError with every problem, at file:line:column."""
    document = read_document(source, file, "documents/policy", "policyId")
    if isinstance(document.value, dict) and document.value.get("kind") == "PolicyTest":
        document.refuse([Defect("/kind", _A_TEST, "wrong_file_name")])
    policy, findings = _check_meaning(document.value, document.defects, None, organisation_id)
    document.refuse(findings)
    assert policy is not None
    return PolicyDocument(policy, file, digest_of(source), document.version)


def load_policy_test(source: bytes, file: str = "") -> PolicyTest:
    """The tests of a `*_test.yaml` file. Raises DocumentError with every problem, at file:line:column."""
    document = read_document(source, file, "documents/policy_test")
    document.refuse(document.defects)
    value = document.value
    cases = tuple(
        CallTest(
            about=entry["about"],
            call=ToolCall.of(**entry["call"]),
            status=entry["expect"]["status"],
            matched=_ids(entry["expect"].get("matched")),
            shadow=_ids(entry["expect"].get("shadow")),
            line=document.reading.find(f"/tests/{index}")[0].line,
        )
        for index, entry in enumerate(value["tests"])
    )
    return PolicyTest(file, value["about"], _ids(value.get("policies")), cases)


def _ids(entries: Json) -> frozenset[str] | None:
    return None if entries is None else frozenset(entries)


def body_problems(body: Json) -> list[Problem]:
    """Everything that is wrong with a JSON body that the API is sent, its shape and its meaning; only of one
    that is small enough to be a policy."""
    entries = body.get("matchConditions") if isinstance(body, dict) else None
    if not isinstance(entries, list) or len(entries) > MOST_CONDITIONS:
        return []
    return [each.problem() for each in check_body(body)[1]]


def change_problems(body: Json) -> list[Problem]:
    """What is wrong with the conditions and the message that a change sends; nothing is told of what it
    leaves out."""
    if not isinstance(body, dict):
        return []
    sent = {key: value for key, value in body.items() if value is not None}
    told = ("/matchConditions", "/message")
    return [each for each in body_problems({**_LEFT_OUT, **sent}) if each.pointer.startswith(told)]
