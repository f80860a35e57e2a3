"""Other engines under one shape: which policies they can express, load them, and say which match a call.

Each gets what it does best: policies compiled once, the call converted once per event. Each is a comparison
only as far as its answers agree, which `match.py` checks on every event it measures.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from engine.model import Policy, ToolCall

Test = tuple[str, str, Any]
"""Key (`tool`, or a key of the payload), operator, value."""


def tests_of(policy: Policy) -> list[Test]:
    """The policy's conditions, those of the workload's one kind of expression included."""
    tests: list[Test] = []
    for condition in policy.conditions:
        if condition.expression is not None:
            for term in condition.expression.split(" && "):
                if found := re.fullmatch(r"has\(inputPayload\.(\w+)\)", term):
                    tests.append((found[1], "exists", None))
                elif found := re.fullmatch(r'inputPayload\.(\w+) == "([^"]*)"', term):
                    tests.append((found[1], "equals", found[2]))
                else:
                    raise ValueError(term)
        else:
            key = (
                "tool"
                if condition.field == "toolName"
                else str(condition.field).removeprefix("inputPayload.")
            )
            tests.append((key, str(condition.operator), condition.value))
    return tests


class Peer(ABC):
    """An engine to compare with."""

    name: str
    module: str
    largest = 100_000
    """Policies beyond which it is not asked, since loading alone would take minutes."""

    def __init__(self) -> None:
        self.library: Any = importlib.import_module(self.module)

    def expresses(self, policy: Policy) -> bool:
        return True

    @abstractmethod
    def load(self, policies: list[Policy]) -> None: ...

    @abstractmethod
    def matched(self, call: ToolCall) -> set[str]: ...


def literal(value: Any) -> str:
    return json.dumps(value)


class Cedar(Peer):
    """Cedar (Rust, `cedarpy`): one `permit` per policy; those that determine the answer match. No regexes."""

    name, module = "Cedar (cedarpy)", "cedarpy"

    def expresses(self, policy: Policy) -> bool:
        return all(operator != "matches" for _, operator, _ in tests_of(policy))

    def load(self, policies: list[Policy]) -> None:
        self.ids = [policy.policy_id for policy in policies]
        bodies = (" && ".join(map(self._term, tests_of(policy))) for policy in policies)
        text = "\n".join(f"permit(principal, action, resource) when {{ {body} }};" for body in bodies)
        self.set = self.library.PolicySet.from_str(text)

    def _term(self, test: Test) -> str:
        key, operator, value = test
        if key == "tool":
            return (
                f"context.tool == {literal(value)}"
                if operator == "equals"
                else f"{literal(value)}.contains(context.tool)"
            )
        held = f"context.p has {key}"
        path = f"context.p.{key}"
        if operator == "exists":
            return held
        if operator in ("contains", "starts_with", "ends_with"):
            part = value.replace("*", "\\*")
            pattern = (
                f"{'' if operator == 'starts_with' else '*'}{part}{'' if operator == 'ends_with' else '*'}"
            )
            return f"{held} && {path} like {literal(pattern)}"
        if operator == "in":
            return f"{held} && {literal(value)}.contains({path})"
        return f"{held} && {path} {'==' if operator == 'equals' else '>'} {literal(value)}"

    def matched(self, call: ToolCall) -> set[str]:
        request = {
            "principal": 'U::"agent"',
            "action": 'A::"call"',
            "resource": 'R::"tool"',
            "context": {"tool": call.tool_name, "p": call.input_payload},
        }
        answer = self.library.is_authorized(request, self.set, [])
        return {self.ids[int(reason.removeprefix("policy"))] for reason in answer.diagnostics.reasons}


class Rego(Peer):
    """Rego (rego-cpp, `regopy`): one partial rule per policy. Its regexes know no flags."""

    name, module, largest = "Rego (regopy)", "regopy", 10_000

    def expresses(self, policy: Policy) -> bool:
        return not any(op == "matches" and "(?" in value for _, op, value in tests_of(policy))

    def load(self, policies: list[Policy]) -> None:
        bodies = ((policy.policy_id, "; ".join(map(self._term, tests_of(policy)))) for policy in policies)
        rules = "\n".join(
            f"matched contains {literal(policy_id)} if {{ {body} }}" for policy_id, body in bodies
        )
        self.interpreter = self.library.Interpreter()
        self.interpreter.add_module("policies", f"package policies\nimport rego.v1\n{rules}\n")

    def _term(self, test: Test) -> str:
        key, operator, value = test
        path = "input.tool" if key == "tool" else f"input.p.{key}"
        if operator == "exists":
            return f"{path} != null"
        if operator in ("contains", "starts_with", "ends_with"):
            return f"{operator.replace('_w', 'w').replace('_', '')}({path}, {literal(value)})"
        if operator == "matches":
            return f"regex.match({literal(value)}, {path})"
        if operator == "in":
            return f"{path} in {{{', '.join(map(literal, value))}}}"
        return f"{path} {'==' if operator == 'equals' else '>'} {literal(value)}"

    def matched(self, call: ToolCall) -> set[str]:
        self.interpreter.set_input({"tool": call.tool_name, "p": dict(call.input_payload)})
        output = json.loads(str(self.interpreter.query("data.policies.matched")))
        return set(output["expressions"][0])


class _Cel(Peer):
    def _text(self, policy: Policy) -> str:
        return " && ".join(map(self._term, tests_of(policy)))

    def _term(self, test: Test) -> str:
        key, operator, value = test
        path = "tool" if key == "tool" else f"p.{key}"
        held = "" if key == "tool" else f"has({path}) && "
        if operator == "exists":
            return f"has({path})"
        calls = {
            "contains": "contains",
            "starts_with": "startsWith",
            "ends_with": "endsWith",
            "matches": "matches",
        }
        if operator in calls:
            return f"{held}{path}.{calls[operator]}({literal(value)})"
        sign = {"equals": "==", "in": "in", "greater_than": ">"}[operator]
        return f"{held}{path} {sign} {literal(value)}"


class CelCpp(_Cel):
    """Google's CEL in C++ (`cel-expr-python`): one expression per policy."""

    name, module = "CEL, C++ (cel-expr-python)", "cel_expr_python.cel"

    def load(self, policies: list[Policy]) -> None:
        kinds = self.library.Type
        self.environment = self.library.NewEnv(variables={"tool": kinds.STRING, "p": kinds.DYN})
        self.rules = [(policy.policy_id, self.environment.compile(self._text(policy))) for policy in policies]

    def matched(self, call: ToolCall) -> set[str]:
        activation = self.environment.Activation({"tool": call.tool_name, "p": dict(call.input_payload)})
        return {policy_id for policy_id, rule in self.rules if rule.eval(activation).value() is True}


class CelRust(_Cel):
    """CEL in Rust (`common-expression-language`)."""

    name, module = "CEL, Rust (common-expression-language)", "cel"

    def load(self, policies: list[Policy]) -> None:
        self.rules = [(policy.policy_id, self.library.compile(self._text(policy))) for policy in policies]

    def matched(self, call: ToolCall) -> set[str]:
        context = self.library.Context({"tool": call.tool_name, "p": dict(call.input_payload)})
        return {policy_id for policy_id, rule in self.rules if rule.execute(context) is True}


class CelPython(_Cel):
    """CEL in Python (`cel-python`)."""

    name, module, largest = "CEL, Python (cel-python)", "celpy", 1_000

    def load(self, policies: list[Policy]) -> None:
        environment = self.library.Environment()
        self.rules = [
            (policy.policy_id, environment.program(environment.compile(self._text(policy))))
            for policy in policies
        ]

    def matched(self, call: ToolCall) -> set[str]:
        activation = {
            "tool": self.library.json_to_cel(call.tool_name),
            "p": self.library.json_to_cel(dict(call.input_payload)),
        }
        return {policy_id for policy_id, rule in self.rules if bool(rule.evaluate(activation))}


class RuleEngine(Peer):
    """`rule-engine`, typed rules in Python."""

    name, module = "rule-engine", "rule_engine"

    def load(self, policies: list[Policy]) -> None:
        context = self.library.Context(default_value=None)
        self.rules = [
            (
                policy.policy_id,
                self.library.Rule(" and ".join(map(self._term, tests_of(policy))), context=context),
            )
            for policy in policies
        ]

    def _term(self, test: Test) -> str:
        key, operator, value = test
        held = "" if key == "tool" else f"{key} != null and "
        if operator == "exists":
            return f"{key} != null"
        if operator in ("starts_with", "ends_with"):
            return f"{held}{key}.{operator}({literal(value)})"
        if operator == "contains":
            return f"{held}{literal(value)} in {key}"
        sign = {"equals": "==", "in": "in", "greater_than": ">", "matches": "=~~"}[operator]
        return f"{held}{key} {sign} {literal(value)}"

    def matched(self, call: ToolCall) -> set[str]:
        values = {"tool": call.tool_name, **call.input_payload}
        return {policy_id for policy_id, rule in self.rules if rule.matches(values)}


class Zen(Peer):
    """`zen-engine` (Rust): one compiled expression per policy. Its texts have no escapes."""

    name, module = "zen-engine", "zen"

    def expresses(self, policy: Policy) -> bool:
        return not any(op == "matches" and '"' in value for _, op, value in tests_of(policy))

    def load(self, policies: list[Policy]) -> None:
        self.rules = [
            (
                policy.policy_id,
                self.library.compile_expression(" and ".join(map(self._term, tests_of(policy)))),
            )
            for policy in policies
        ]

    def _term(self, test: Test) -> str:
        key, operator, value = test
        path = "tool" if key == "tool" else f"p.{key}"
        held = "" if key == "tool" else f"{path} != null and "
        calls = {
            "contains": "contains",
            "starts_with": "startsWith",
            "ends_with": "endsWith",
            "matches": "matches",
        }
        if operator == "exists":
            return f"{path} != null"
        if operator in calls:
            return f"{held}{calls[operator]}({path}, {self._literal(value)})"
        sign = {"equals": "==", "in": "in", "greater_than": ">"}[operator]
        return f"{held}{path} {sign} {self._literal(value)}"

    @staticmethod
    def _literal(value: Any) -> str:
        if isinstance(value, list):
            return "[" + ", ".join(map(Zen._literal, value)) + "]"
        return f'"{value}"' if isinstance(value, str) else literal(value)

    def matched(self, call: ToolCall) -> set[str]:
        values = {"tool": call.tool_name, "p": dict(call.input_payload)}
        return {policy_id for policy_id, rule in self.rules if rule.evaluate(values) is True}


PEERS: tuple[type[Peer], ...] = (Cedar, Rego, CelCpp, CelRust, CelPython, RuleEngine, Zen)


def installed() -> Iterable[tuple[type[Peer], Peer | str]]:
    """Each peer, or why it is not there."""
    logging.disable(logging.WARNING)
    for kind in PEERS:
        try:
            yield kind, kind()
        except ImportError as error:
            yield kind, f"not installed ({error})"
