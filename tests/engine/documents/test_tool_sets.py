"""Sets of tools as documents: what they say, and every mistake in one at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.derived.tools import Tools
from engine.documents.tool_sets import load_tool_set, tool_set_as_json
from engine.documents.yaml import read
from engine.errors import DocumentError
from engine.model import ToolDeclaration
from schemas.validation import violations
from tests.harness import places

HEAD = "apiVersion: governance/v1\nkind: ToolSet\ntoolSetId: t\nname: T\n"
LIBRARY = sorted((places.ROOT / "policies.d" / "tools").rglob("*.yaml"))


def problems(source: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_tool_set(source.encode(), "tools/t.yaml")
    return [str(each) for each in caught.value.problems]


def test_a_set_says_what_tools_are() -> None:
    source = HEAD + (
        "tools:\n"
        "  - names: [pay, send money]\n    kind: payments\n    effect: pay\n"
        "    output: {id: trusted, '*': untrusted}\n"
        "    targets: {where: [to], which: [id]}\n    sensitive: [amount]\n"
        "  - {names: [balance], kind: payments, effect: read, output: trusted}\n"
        "  - {names: [odd], kind: other, effect: write}\n"
    )
    tool_set = load_tool_set(source.encode(), "tools/t.yaml", organisation_id="acme")
    assert tool_set.tools == (
        ToolDeclaration(
            *(("pay", "send money"), "payments", "pay", "untrusted", {"id": "trusted"}),
            *(("to",), ("id",), ("amount",)),
        ),
        ToolDeclaration(("balance",), "payments", "read", "trusted"),
        ToolDeclaration(("odd",), "other", "write", "untrusted"),
    )
    assert (tool_set.tool_set_id, tool_set.organisation_id, tool_set.version) == ("t", "acme", 0)
    shape = tool_set_as_json(tool_set)
    assert [each.get("output") for each in shape["tools"]] == [
        {"*": "untrusted", "id": "trusted"},
        "trusted",
        "untrusted",
    ]
    assert not list(violations("documents/tool_set", shape["tools"][0], "/$defs/tool"))


def test_all_mistakes_are_told_at_their_places() -> None:
    assert problems(
        HEAD
        + "tools:\n  - {names: [a], kind: shell}\n  - {names: [], kind: shel, effect: execute, owner: me}\n"
    ) == [
        "tools/t.yaml:6:5: `effect` is missing; a tool needs it",
        "tools/t.yaml:7:13: `names` must have at least 1 entry",
        "tools/t.yaml:7:23: `kind` must be one of "
        + _kinds()
        + "; it is the text `shel`; did you mean `shell`?",
        "tools/t.yaml:7:46: `owner` is not a field of a tool; it may have `names`, `kind`, `effect`, "
        "`output`, `targets`, `sensitive`",
    ]


def test_a_pattern_names_a_tool_once() -> None:
    tools = "tools:\n  - {names: ['*', run command], kind: shell, effect: execute}\n"
    tools += "  - {names: [runCommand, =runCommand], kind: shell, effect: execute}\n"
    assert problems(HEAD + tools) == [
        "tools/t.yaml:6:14: `*` names no tool: it has no word in it",
        "tools/t.yaml:7:14: `runCommand` stands here already, as `run command`",
    ]


def test_examples_must_hold_by_the_set_alone() -> None:
    tools = "tools:\n  - {names: [bash], kind: shell, effect: execute}\nexamples:\n"
    good = "  - {toolName: runBash, kind: shell, effect: execute}\n  - {toolName: bashful, kind: unknown}\n"
    assert load_tool_set((HEAD + tools + good).encode(), "tools/t.yaml")
    bad = "  - {toolName: bashful, kind: shell}\n  - {toolName: Bash, kind: shell, effect: read}\n"
    assert problems(HEAD + tools + bad) == [
        "tools/t.yaml:8:31: this example must be `shell`, but the set says `unknown`",
        "tools/t.yaml:9:43: this example must be `read`, but the set says `execute`",
    ]


def _kinds() -> str:
    from engine.model import TOOL_KINDS

    return ", ".join(f"`{kind}`" for kind in TOOL_KINDS)


# ---- the shipped library --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_a_shipped_set_is_readable_and_has_examples(path: Path) -> None:
    load_tool_set(path.read_bytes(), path.name)
    examples = read(path.read_bytes(), path.name).root.value["examples"]
    assert len(examples) >= 4 and any(each["kind"] == "unknown" for each in examples)
    assert max(map(len, path.read_text().splitlines())) <= 160


def test_the_shipped_sets_agree() -> None:
    """What one set says of its examples, all of them together say too."""
    tools = Tools(load_tool_set(path.read_bytes(), path.name) for path in LIBRARY)
    for path in LIBRARY:
        for example in read(path.read_bytes(), path.name).root.value["examples"]:
            tool = tools.declared(example["toolName"])
            if example["kind"] != "unknown":
                said = (tool.kind, example.get("effect") and tool.effect)
                assert said == (example["kind"], example.get("effect")), example


@pytest.mark.parametrize(
    ("name", "kind", "effect"),
    [
        ("mcp__desktop-commander__execute_command", "shell", "execute"),
        ("run_terminal_cmd", "shell", "execute"),
        ("github_create_issue", "repository", "write"),
        ("mcp__mongodb__drop-collection", "sql", "delete"),
        ("gmail_send_message", "mail", "send"),
        ("slack_get_channel_history", "chat", "read"),
        ("stripe_create_refund", "payments", "pay"),
        ("update_password", "users", "write"),
        ("aws_delete_bucket", "cloud", "delete"),
        ("mcp__google-calendar__create_event", "calendar", "send"),
    ],
)
def test_the_shipped_sets_know_usual_names(name: str, kind: str, effect: str) -> None:
    tool = Tools(load_tool_set(path.read_bytes(), path.name) for path in LIBRARY).declared(name)
    assert (tool.kind, tool.effect) == (kind, effect)


def test_each_pattern_of_the_library_finds_itself() -> None:
    """However it is written, and glued together: no shortcut of the search leaves a pattern out."""
    sets = [load_tool_set(path.read_bytes(), path.name) for path in LIBRARY]
    tools = Tools(sets)
    for tool in (tool for each in sets for tool in each.tools):
        for name in tool.names:
            if "*" not in name:
                plain = name.removeprefix("=")
                for written in (
                    plain.replace(" ", "_"),
                    plain.title().replace(" ", ""),
                    plain.replace(" ", ""),
                ):
                    assert tools.declared(written).names, written
                assert tools.declared(plain.replace(" ", "-")) is tool, name
