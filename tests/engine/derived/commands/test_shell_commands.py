"""`derived.shellCommands`: worked out from the payload, once per call, for field conditions alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from engine.conditions.compiled import compile_condition
from engine.conditions.operators import OPERATORS
from engine.derived import derivation
from engine.derived.commands.shell_commands import shell_commands, shell_reading
from engine.derived.facts import Facts
from engine.derived.tools import Tools
from engine.documents.policy import policy_from_json
from engine.errors import ConditionError
from engine.fields.computed import MEMBERS
from engine.fields.paths import parse
from engine.matching.counterfactual import counterfactual
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall, ToolDeclaration, ToolSet
from engine.shell.reading import ShellReading
from tests.engine.derived.declared import shown

PATH = parse("derived.shellCommands")
KNOWN = ", ".join(f"`derived.{member}`" for member in MEMBERS["derived"])


def call(payload: Any, **roots: Any) -> ToolCall:
    return ToolCall.of(toolName="Bash", inputPayload=payload, **roots)


def commands(payload: Any) -> tuple[str, ...]:
    return Facts(call(payload).document).at(PATH).texts()


@pytest.mark.parametrize(
    ("payload", "command"),
    [
        ({"command": "r''m x"}, "rm x"),
        ({"cmd": "r''m x"}, "rm x"),
        ({"anything": {"deep": [{"er": "r''m x"}]}}, "rm x"),
        ({"commands": ["ls", "r''m x"]}, "rm x"),
        ({"command": ["rm", "-r", "a b"]}, "rm -r 'a b'"),
        ({"command": ["X=rm", "$X -rf /"]}, "rm -rf /"),
        ({"args": ["A=r B=m", "$A$B -rf /"]}, "rm -rf /"),
        ({"commands": ["X=rm", ["$X", "-rf", "/"]]}, "rm -rf /"),
        ({"command": ["X=rm", ";", "$X -rf /"]}, "rm -rf /"),
        ({"command": ["echo", "x", "&&", "rm", "-rf", "/"]}, "rm -rf /"),
        ({"command": ["bash", "-lc", "r''m x"]}, "rm x"),
        ({"command": "rm", "args": ["-rf", "/"]}, "rm -rf /"),
        ({"Cmd": "rm", "Args": ["-rf", 7]}, "rm -rf 7"),
        ({"argv": ["kill", "-9", 1]}, "kill -9 1"),
        ({"steps": ["ls -l", "r''m x"]}, "rm x"),
        ({"code": "import os\nos.system('rm x')"}, "rm x"),
        ({"query": "subprocess.run(['rm', 'x'])"}, "rm x"),
        ({"command": "rm x", "Command": "ls"}, "rm x"),
        ({"command": "rm x", "COMMAND": 1}, "rm x"),
        ({"script": "rm x", "\u017fcript": "ls"}, "rm x"),
        ({"command": "ls", "program": "rm", "args": ["-rf", "/"]}, "rm -rf /"),
        ({"command": "true", "executable": "rm", "args": ["-rf", "/"]}, "rm -rf /"),
        ({"path": "/bin/rm", "args": ["-rf", "/"]}, "rm -rf /"),
        ({"command": "rm", "args": [], "argv": ["-rf", "/"]}, "rm -rf /"),
        ({"command": "rm", "Args": ["-rf", "/"], "args": ["x"]}, "rm -rf /"),
        ({"command": "rm", "args": "-rf /"}, "rm -rf /"),
        ({"command": "rm", "params": ["-rf", "/"]}, "rm -rf /"),
        ({"command": "rm", "parameters": ["-rf", "/"]}, "rm -rf /"),
        ({"command": ["rm"], "args": ["-rf", "/"]}, "rm -rf /"),
        ({"command": "sudo rm", "args": ["-rf", "/"]}, "rm -rf /"),
        ({"shell": "bash", "args": ["-c", "rm -rf /"]}, "rm -rf /"),
        ({"commands": [["rm", "-rf", "/"]]}, "rm -rf /"),
        ({"task": {"command": "rm -rf /"}}, "rm -rf /"),
        ({"instructions": [{"command": "rm -rf /"}]}, "rm -rf /"),
        ({"path": {"command": ["rm", "-rf", "/"]}}, "rm -rf /"),
        ({"note": ["first", {"run": "rm -rf /"}]}, "rm -rf /"),
        ({"goal": [["rm", "-rf", "/"]]}, "rm -rf /"),
        ({"task": '{"command": "rm -rf /"}'}, "rm -rf /"),
        ({"instructions": ['{"command": "rm -rf /"}']}, "rm -rf /"),
        ({"task": {"0": "rm -rf /"}}, "rm -rf /"),
        ({"lines": ["rm \\", "-rf /"]}, "rm -rf /"),
        ({"input": ["rm \\", "-rf /", {}]}, "rm -rf /"),
        ({"script": ["cat <<E | sh", "r\\", "m -rf /", "E"]}, "rm -rf /"),
        ({"lines": {"1": "-rf /", "0": "rm \\"}}, "rm -rf /"),
        ({"lines": ["subprocess.run(['rm',", "'-rf', '/'])"]}, "rm -rf /"),
        ({"command": ["rm", ["-rf", "/"]]}, "rm -rf /"),
        ({"command": [["rm"], ["-rf", ["/"]]]}, "rm -rf /"),
        ({"run": ["rm", ["-rf", "/"]]}, "rm -rf /"),
        ({"command": {"0": "rm", "1": "-rf", "2": "/"}}, "rm -rf /"),
        ({"command": "rm", "args": [["-rf", "/"]]}, "rm -rf /"),
        ({"command": "rm", "args": [{"value": "-rf"}, {"value": "/"}]}, "rm -rf /"),
        ({"command": "rm", "arguments": {"0": "-rf", "1": "/"}}, "rm -rf /"),
        ({"command": "rm", "arguments": {"-rf": "/"}}, "rm -rf /"),
        ({"command": "rm", "args": '["-rf", "/"]'}, "rm -rf /"),
        ({"command": {"name": "rm", "args": ["-rf", "/"]}}, "rm -rf /"),
        ({"commands": [{"name": "rm", "args": ["-rf", "/"]}]}, "rm -rf /"),
        ({"command": {"name": "rm"}, "args": ["-rf", "/"]}, "rm -rf /"),
    ],
)
def test_commands_are_found_wherever_a_tool_puts_them(payload: Any, command: str) -> None:
    assert command in commands(payload)


@pytest.mark.parametrize(
    "payload",
    [
        {"command": "ls", "description": "first; rm x"},
        {"command": "ls", "explanation": "rm x"},
        {"command": ["rg", "rm x", "src"]},
        {"command": "ls", "workdir": "rm x"},
        {"command": "ls", "instructions": ["rm x", "rm x y"]},
        {"command": "ls", "task": {"description": "rm x"}},
        {"command": "ls", "note": '["rm x"]'},
    ],
)
def test_prose_and_words_of_one_command_are_not_commands(payload: Any) -> None:
    assert not [found for found in commands(payload) if found.startswith("rm x")]


@pytest.mark.parametrize(
    ("tool", "payload", "command"),
    [
        ("run_gcloud_command", {"args": ["projects", "delete", "x"]}, "gcloud projects delete x"),
        ("mcp__k8s__kubectl", {"params": {"command": ["delete", "ns", "x"]}}, "kubectl delete ns x"),
        ("git", {"args": "push -f"}, "git push -f"),
        ("executeHelm", {"Command": "uninstall x"}, "helm uninstall x"),
        ("bash", {"args": ["-c", "rm -r x"]}, "rm -r x"),
        ("run_powershell", {"args": "-Command 'rm -r x'"}, "rm -r x"),
    ],
)
def test_a_tool_that_is_called_after_a_program_runs_it(tool: str, payload: Any, command: str) -> None:
    assert command in shell_commands({"toolName": tool, "inputPayload": payload})


@pytest.mark.parametrize("tool", ["execute_python", "python_repl", "mcp__x__runPythonCode", "NotebookEdit"])
def test_a_tool_that_is_called_after_python_is_given_no_text_of_a_shell(tool: str) -> None:
    code = "rest = set(names)\nif len(rest) > n:\n    rm (rest)"
    assert shell_commands({"toolName": tool, "inputPayload": {"code": code}}) == (code,)
    for text in ("x = 1\n!rm -r x", "%%bash\nrm -r x", "out = !rm -r x", "#!/bin/sh\nrm -r x"):
        assert "rm -r x" in shell_commands({"toolName": tool, "inputPayload": {"code": text}})
    for text in ("import os; os.system('rm -r x')", "subprocess.run(['rm', '-r', 'x'])"):
        assert "rm -r x" in shell_commands({"toolName": tool, "inputPayload": {"code": text}})
    assert "rm -r x" in shell_commands({"toolName": tool, "inputPayload": {"command": "cd a; rm -r x"}})


@pytest.mark.parametrize("tool", ["execute_python", "jupyter_execute"])
def test_a_line_alone_that_ipython_hands_to_a_shell_by_itself_is_one_of_a_shell(tool: str) -> None:
    """Its names of files' programs need no mark before them (`%automagic`); Python knows no such line."""
    for line in ("rm -r x", " cat ~/.aws/credentials\n", "mv a b"):
        assert line.strip() in shell_commands({"toolName": tool, "inputPayload": {"code": line}})


@pytest.mark.parametrize("tool", ["python_host", "python_subprocess"])
def test_what_is_declared_to_be_a_shell_is_one_whatever_it_is_called(tool: str) -> None:
    declared = Tools([ToolSet("t", "T", (ToolDeclaration((tool,), "shell", "execute"),))])
    asked = ToolCall.of(toolName=tool, inputPayload={"code": "cd a\nrm -r x"})
    assert "rm -r x" in Facts(asked.document, declared).at(PATH).texts()


@pytest.mark.parametrize("tool", ["run_python_or_shell", "python_terminal", "bash_python", "run_code", "x"])
def test_a_tool_that_may_run_a_shell_is(tool: str) -> None:
    assert "rm -r x" in shell_commands({"toolName": tool, "inputPayload": {"code": "cd a\nrm -r x"}})


@pytest.mark.parametrize(
    ("tool", "payload"),
    [
        ("git_log", {"args": ["delete", "x"]}),
        ("mcp__git__notes", {"args": ["delete", "x"]}),
        ("git", {"description": "delete x"}),
        ("git", {"args": "git delete x"}),
        ("git", {"args": []}),
        ("git", ["delete", "x"]),
        ("bash", {"command": "git delete x"}),
        (7, {"args": ["delete", "x"]}),
    ],
)
def test_other_tools_do_not(tool: Any, payload: Any) -> None:
    entries = shell_commands({"toolName": tool, "inputPayload": payload})
    assert not [each for each in entries if each.startswith("git ") and each != "git delete x"]


def test_programs_and_arguments_are_combined_within_bounds() -> None:
    def spellings(name: str) -> list[str]:
        return ["".join(chars) for chars in product(*({char, char.upper()} for char in name))]

    payload = dict.fromkeys(spellings("command"), "p") | {name: ["x" * 600] for name in spellings("args")}
    found = commands(payload)
    assert found[-1] == "unreadable"
    assert sum(map(len, found)) < 20_000
    assert "p x" in commands({"command": "p", "args": ["x"], "rest": payload})


@pytest.mark.parametrize(
    "nest",
    [
        lambda inner: {"command": "p", "args": inner},
        lambda inner: {"command": "p", "args": {"a": "x" * 90, "b": inner}},
        lambda inner: {"command": [inner, "x"]},
        lambda inner: ["x", inner],
    ],
)
def test_arguments_within_arguments_are_put_together_within_bounds(nest: Callable[[Any], Any]) -> None:
    payload: Any = "rm x"
    for _ in range(5_000):
        payload = nest(payload)
    begun = time.process_time()
    found = commands({"command": payload})
    assert time.process_time() - begun < 3
    assert found[-1] == "unreadable"


def test_nothing_in_the_payload_is_missing_not_empty() -> None:
    facts = Facts(call({"n": 1, "empty": ""}).document)
    assert facts.at(PATH).ends == ()
    assert compile_condition(Condition("derived.shellCommands", "not_exists")).evaluate(facts) is True


@pytest.mark.parametrize("payload", [None, "rm x", ["rm", "x"], 7, {"a": None}, {"a": [[["x"]]]}])
def test_any_payload_can_be_read(payload: Any) -> None:
    assert isinstance(shell_commands({"inputPayload": payload}), tuple)
    Facts({"inputPayload": payload}).at(PATH).texts()


def test_a_payload_of_any_depth_can_be_read() -> None:
    payload: Any = "rm x"
    for _ in range(50_000):
        payload = [payload]
    assert "rm x" in Facts({"inputPayload": {"a": payload}}).at(PATH).texts()


def test_a_caller_can_neither_send_nor_shadow_it() -> None:
    sent = call(
        {"command": "ls", "derived": {"shellCommands": ["rm x"]}}, derived={"shellCommands": ["git status"]}
    )
    assert "git status" not in Facts(sent.document).at(PATH).texts()
    assert "ls" in Facts(sent.document).at(PATH).texts()
    policy = Policy("p", "p", "block", (Condition("derived.shellCommands", "equals", "git status"),))
    assert Ruleset.build([policy]).evaluate(sent).matches == ()


def test_it_is_worked_out_once_and_only_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    def counted(document: Any, kind: str | None) -> ShellReading:
        times.append(1)
        return shell_reading(document, kind)

    monkeypatch.setattr(derivation, "shell_reading", counted)
    rules = [
        Policy(
            f"p{number}",
            f"p{number}",
            "block",
            (
                Condition("toolName", "matches", "(?i)shell|Bash"),
                Condition("derived.shellCommands", "matches", f"^rm x{number}"),
            ),
        )
        for number in range(40)
    ]
    ruleset = Ruleset.build(rules)
    assert ruleset.evaluate(ToolCall.of(toolName="Write", inputPayload={"content": "rm x1"})).matches == ()
    assert times == []
    found = ruleset.evaluate(call({"command": "r''m x1"}))
    assert [match.policy.policy_id for match in found.matches] == ["p1"]
    assert len(times) == 1


@pytest.mark.parametrize(
    ("operator", "value", "holds"),
    [
        ("equals", "rm -rf /", True),
        ("not_equals", "rm -rf /", False),
        ("in", ["x", "rm -rf /"], True),
        ("not_in", ["x"], True),
        ("contains", "rm -rf", True),
        ("not_contains", "rm -rf", False),
        ("starts_with", "rm ", True),
        ("ends_with", " -rf /", True),
        ("matches", "^rm .*/$", True),
        ("not_matches", "^rm .*/$", False),
        ("exists", None, True),
        ("not_exists", None, False),
    ],
)
def test_operators_test_each_command(operator: str, value: Any, holds: bool) -> None:
    condition = compile_condition(Condition("derived.shellCommands", operator, value))
    assert condition.evaluate(Facts(call({"command": "X=rm; $X -rf /"}).document)) is holds


def test_every_operator_can_be_given_it() -> None:
    for name, operator in OPERATORS.items():
        value: Any = (
            1 if "than" in name else ["a"] if name.endswith("in") else "a" if operator.takes_value else None
        )
        facts = Facts(call({"command": "ls"}).document)
        compile_condition(Condition("derived.shellCommands", name, value)).describe(facts)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("derived", f"`derived` alone is not a field; name one of {KNOWN}"),
        (
            "derived.shellComands",
            "unknown field `derived.shellComands`; did you mean `derived.shellCommands`?",
        ),
        ("derived.x", f"unknown field `derived.x`; there is {KNOWN}"),
        ("derived.sql.verbs", "unknown field `derived.sql.verbs`; did you mean `derived.sql.verb`?"),
        ("derived.hosts.name", "`derived.hosts` is a list of texts and has no `name`; write it alone"),
        ("tool.kinds", "unknown field `tool.kinds`; did you mean `tool.kind`?"),
        (
            "derive.shellCommands",
            "unknown field `derive.shellCommands`; did you mean `derived.shellCommands`?",
        ),
    ],
)
def test_unknown_members_are_refused(field: str, message: str) -> None:
    with pytest.raises(ConditionError) as refusal:
        parse(field)
    assert (refusal.value.part, refusal.value.message) == ("field", message)


def test_expressions_read_it_too() -> None:
    condition = compile_condition(Condition(expression='derived.shellCommands.exists(c, c == "rm x")'))
    assert condition.evaluate(Facts(call({"command": "sudo r''m x"}).document)) is True
    assert condition.evaluate(Facts(call({"command": "ls"}).document)) is False
    assert condition.evaluate(Facts(call({}).document)) is False


def test_examples_of_documents_work_it_out_alike() -> None:
    policy = policy_from_json(
        {
            "name": "No rm",
            "action": "block",
            "enabled": True,
            "matchConditions": [{"field": "derived.shellCommands", "operator": "matches", "value": "^rm "}],
            "examples": [
                {"match": True, "toolName": "Bash", "inputPayload": {"command": "sudo r\\m x"}},
                {"match": False, "toolName": "Bash", "inputPayload": {"command": "echo rm x"}},
            ],
        }
    )
    assert len(policy.examples) == 2


def test_the_reason_names_the_command_that_was_found() -> None:
    rule = CompiledPolicy.of(
        Policy("p", "p", "block", (Condition("derived.shellCommands", "matches", "^rm "),))
    )
    text = rule.conditions[0].describe(Facts(call({"command": "cd x && r''m -rf y"}).document))
    assert text == '`derived.shellCommands` has "rm -rf x/y", matching "^rm "'


@pytest.mark.parametrize("payload", [{"command": "ls"}, {"cmd": "rm -rf / x"}, {}, {"command": ["ls"]}])
@pytest.mark.parametrize(
    "condition",
    [
        Condition("derived.shellCommands", "matches", "^rm -rf /"),
        Condition("derived.shellCommands", "equals", "rm -rf / x"),
        Condition("derived.shellCommands", "not_contains", "rm"),
        Condition("derived.shellCommands", "exists"),
    ],
)
def test_a_flip_changes_the_payload_and_does_flip(condition: Condition, payload: Any) -> None:
    compiled = compile_condition(condition)
    document = call(payload).document
    found = counterfactual(compiled, document)
    assert found.changes
    changed = dict(document["inputPayload"])
    for change in found.changes:
        assert change.field.startswith("inputPayload.")
        key = change.field.removeprefix("inputPayload.")
        changed.pop(key, None)
        if not change.removed:
            changed[key] = change.value
    before = compiled.evaluate(Facts(document))
    assert compiled.evaluate(Facts(call(changed).document)) is not before


@pytest.mark.parametrize("key", ["command", "cmd", "argv"])
def test_words_of_which_the_first_is_more_than_a_program_may_be_joined_for_a_shell(key: str) -> None:
    assert "/" in shown("bash", {key: ["rm -rf", "/"]}, "deletes")
    assert "/" not in shown("bash", {key: ["echo rm", "-rf", "/"]}, "deletes")
