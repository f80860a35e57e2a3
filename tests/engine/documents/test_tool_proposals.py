"""What is declared of proposed tools: only what nobody has declared, never looser, each name for itself."""

from __future__ import annotations

import pytest

from engine.derived.tools import UNDECLARED, Tools
from engine.documents.edit import dump
from engine.documents.ids import refuse_id
from engine.documents.tool_proposals import ServerTool, declarations, merged, pattern_of, tool_set_id_of
from engine.documents.tool_sets import load_tool_set
from engine.model import ToolDeclaration, ToolSet

SHELLS = ToolDeclaration(("run command",), kind="shell", effect="execute", which=("command",))
TOOLS = Tools([ToolSet("shell", "Shells", (SHELLS,))])


def test_a_servers_word_makes_nothing_looser() -> None:
    proposed = [ServerTool("run_command"), ServerTool("frob"), ServerTool("wipe", destructive=True)]
    assert declarations(TOOLS, proposed, {}) == [
        {"names": ["=frob"], "kind": "other", "effect": "write"},
        {"names": ["=wipe"], "kind": "other", "effect": "delete"},
    ]


def test_what_an_admin_says_of_a_declared_tool_changes_only_that() -> None:
    found = declarations(
        TOOLS, [ServerTool("mcp__x__run_command")], {"mcp__x__run_command": {"effect": "delete"}}
    )
    (entry,) = found
    assert entry["names"] == ["=mcp__x__run_command"]
    assert (entry["kind"], entry["effect"], entry["targets"]) == ("shell", "delete", {"which": ["command"]})


@pytest.mark.parametrize("name", ["*", "a*", "=read", "--", "日本*"])
def test_a_name_that_would_say_more_than_itself_is_not_declared(name: str) -> None:
    assert pattern_of(name) is None
    assert declarations(TOOLS, [ServerTool(name)], {}) == []


@pytest.mark.parametrize("name", ["frob", "Frob", "frob_it", "mcp__x__frob", "x.frob", "x/frob", "frob2"])
def test_what_is_declared_is_found_by_the_name_of_the_tool(name: str) -> None:
    entries = declarations(TOOLS, [ServerTool(name)], {name: {"kind": "mail", "effect": "send"}})
    head = {"apiVersion": "governance/v1", "kind": "ToolSet", "toolSetId": "s", "name": "S"}
    written = load_tool_set(dump({**head, "tools": entries}).encode())
    assert Tools([*TOOLS.sets, written]).declared(name).kind == "mail"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("mcp__x__get", "mcp__x__get_and_wipe"),
        ("mcp__x__get", "mcp__x__get__wipe"),
        ("x.get", "y.x.get"),
        ("x.get", "x.get.wipe"),
        ("x/get", "get"),
    ],
)
def test_a_tool_that_is_called_more_is_another_one(name: str, other: str) -> None:
    """A server that adds a tool later gets nothing from the one that was admitted."""
    entries = declarations(TOOLS, [ServerTool(name)], {name: {"kind": "files", "effect": "read"}})
    head = {"apiVersion": "governance/v1", "kind": "ToolSet", "toolSetId": "s", "name": "S"}
    tools = Tools([*TOOLS.sets, load_tool_set(dump({**head, "tools": entries}).encode())])
    assert tools.declared(name).effect == "read"
    assert tools.declared(other) is UNDECLARED


def test_names_that_read_alike_are_declared_once() -> None:
    (entry,) = declarations(TOOLS, [ServerTool("frobIt"), ServerTool("frob_it"), ServerTool("x")], {})
    assert entry["names"] == ["=frobIt", "=x"]


def test_an_entry_that_is_added_takes_its_names_from_the_others() -> None:
    before = [{"names": ["=a", "=b"], "kind": "mail"}, {"names": ["=c"], "kind": "chat"}]
    added = [{"names": ["=A", "=c"], "kind": "sql"}]
    assert merged(before, added) == [{"names": ["=b"], "kind": "mail"}, *added]


def test_each_server_has_a_set_of_its_own() -> None:
    servers = ["files", "Files", "files!", "@scope/files", "a" * 150, "a" * 149, "日本", "-"]
    found = [tool_set_id_of(server) for server in servers]
    assert len(set(found)) == len(servers)
    assert all(refuse_id(each, "toolSetId") is None and len(each) <= 100 for each in found)
