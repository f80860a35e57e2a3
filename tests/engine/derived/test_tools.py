"""Tools by their names: words, however they are written, and what is declared of them."""

from __future__ import annotations

import pytest

from engine.derived.derivation import Derivation
from engine.derived.tools import NO_TOOLS, UNDECLARED, Tools, check_name, of_tool
from engine.fields.words import words_of
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall, ToolDeclaration, ToolSet
from tests.engine.derived.declared import SET, TOOLS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BashTool", "bash tool"),
        ("runBash", "run bash"),
        ("ExecuteBash", "execute bash"),
        ("run_command", "run command"),
        ("mcp__x__run_command", "mcp x run command"),
        ("send-email", "send email"),
        ("sendEMail", "send email"),
        ("HTTPRequest", "http request"),
        ("s3.putObject", "s 3 put object"),
        ("", ""),
        ("__", ""),
        ("日本語", "日本語"),
        ("a" * 10_000, "a" * 256),
    ],
)
def test_a_name_is_read_as_words(name: str, words: str) -> None:
    assert words_of(name) == words


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "shell") for name in ("BashTool", "runBash", "ExecuteBash", "bash", "BASH", "local_shell")),
        *((name, "shell") for name in ("run_command", "runcommand", "RunCommand", "mcp__x__run_command")),
        *((name, "mail") for name in ("sendEmail", "send-email", "send_e_mail", "gmail.send_email")),
        *((name, "code") for name in ("execute_python_code", "python_exec")),
        *((name, "files") for name in ("Read", "fs.read", "mcp__fs__read", "read_file")),
        *((name, None) for name in ("bashful", "thread", "mcp__read__it", "commandRun", "")),
    ],
)
def test_a_tool_is_found_by_the_words_of_its_name(name: str, kind: str | None) -> None:
    assert TOOLS.declared(name).kind == kind


def test_the_pattern_that_says_most_counts() -> None:
    general = ToolDeclaration(("mail",), "mail", "send")
    closer = ToolDeclaration(("read mail",), "mail", "read")
    whole = ToolDeclaration(("=mail",), "chat")
    for order in ((general, closer, whole), (whole, closer, general)):
        tools = Tools([ToolSet("x", "x", order)])
        assert tools.declared("send_mail") is general
        assert tools.declared("read_mail") is closer
        assert tools.declared("Mail") is whole
    mine, theirs = ToolDeclaration(("mail",), "mail"), ToolDeclaration(("mail",), "chat")
    later = Tools([ToolSet("shipped", "x", (theirs,)), ToolSet("own", "x", (mine,))])
    assert later.declared("mail") is mine


def test_an_undeclared_tool_writes_and_has_no_kind() -> None:
    assert TOOLS.declared("frobnicate") is UNDECLARED
    assert (UNDECLARED.kind, UNDECLARED.effect, UNDECLARED.output) == (None, "write", "untrusted")
    derived = Derivation({"toolName": "frobnicate", "inputPayload": {}}, TOOLS)
    assert derived.value("tool", "kind") == ("unknown", False)
    assert derived.value("tool", "effect") == ("write", False)


@pytest.mark.parametrize("pattern", ["", "*", "=", "__", "x" * 300])
def test_a_pattern_without_a_word_is_refused(pattern: str) -> None:
    assert check_name(pattern) is not None
    assert check_name("run command") is None


def test_hostile_names_cost_little() -> None:
    tools = Tools([ToolSet("x", "x", (ToolDeclaration(("a * b * c * d",), "shell"),))])
    for number in range(10_000):
        tools.declared(f"{'a b c ' * 40}{number}")
    assert len(tools._known) <= 4_096


def policy(field: str, value: str) -> Policy:
    return Policy(field, field, "block", (Condition(field, "equals", value),))


def test_the_ruleset_hands_the_declarations_in() -> None:
    policies = [policy("tool.kind", "shell"), policy("tool.effect", "execute")]
    call = ToolCall.of(toolName="runBash", tool={"kind": "mail"})
    for ruleset in (
        Ruleset.build(policies, tools=[SET]),
        Ruleset.build([], tools=[SET]).changed({each.policy_id: each for each in policies}, 2),
        Ruleset.build(policies, tools=[SET]).compacted(),
    ):
        assert [match.policy.policy_id for match in ruleset.evaluate(call).matches] == [
            "tool.effect",
            "tool.kind",
        ]
        assert ruleset.scan(call) == ruleset.evaluate(call)
        assert all(each.matched for each in ruleset.explain(call))
    assert Ruleset.build(policies).evaluate(call).matches == ()


def test_declarations_are_part_of_the_digest() -> None:
    policies = [policy("tool.kind", "shell")]
    plain, declared = Ruleset.build(policies), Ruleset.build(policies, tools=[SET])
    assert plain.digest != declared.digest
    assert declared.digest == Ruleset.build(policies, tools=[SET]).digest
    assert plain.digest == Ruleset.build(policies, tools=[]).digest


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mcp__x__runCommand", "mcp x run command"),
        ("drop-database", "drop database"),
        ("DeleteMany", "delete many"),
        ("send_e_mail", "send email"),
        ("", ""),
    ],
)
def test_a_tool_shows_its_name_in_words(name: str, words: str) -> None:
    assert of_tool(NO_TOOLS, {"toolName": name}, "words") == words
