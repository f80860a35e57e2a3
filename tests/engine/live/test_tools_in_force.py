"""Tools as part of what is in force: batches, versions, the last good set, organisations, the past."""

from __future__ import annotations

import pytest

from engine.derived.tools import NO_TOOLS, Tools
from engine.documents.presets import instantiate, load_preset
from engine.errors import DocumentError, RefusedToStart
from engine.live import LivePolicies
from engine.matching.ruleset import Ruleset
from engine.model import ToolCall
from engine.repository.cache import DocumentCache
from engine.repository.checkout import checkout
from engine.repository.repository import Repository
from tests.harness.policy_folder import ADMIN, Folder, messages

SHELL = "tools/library/shell.yaml"
HOLD = (
    "apiVersion: governance/v1\nkind: Policy\npolicyId: hold\nname: Hold shells\naction: block\n"
    "matchConditions:\n  - {field: tool.kind, operator: equals, value: shell}\n"
    "examples:\n  - {match: true, toolName: runBash}\n  - {match: false, toolName: frob}\n"
)


def tools(tool_set_id: str, *names: str, kind: str = "shell") -> str:
    return (
        f"apiVersion: governance/v1\nkind: ToolSet\ntoolSetId: {tool_set_id}\nname: T\n"
        f"tools:\n  - {{names: [{', '.join(names)}], kind: {kind}, effect: execute}}\n"
    )


@pytest.fixture
def live(folder: Folder) -> LivePolicies:
    folder.write(SHELL, tools("shell", "bash"))
    folder.write("policies/hold.yaml", HOLD)
    made = LivePolicies(folder.open())
    made.start()
    return made


def blocks(ruleset: Ruleset, name: str) -> bool:
    return bool(ruleset.evaluate(ToolCall.of(toolName=name)).matches)


def version(repository: Repository, path: str) -> tuple[int, int]:
    return repository.snapshot.files[path].version, repository.snapshot.tool_sets[path].version


def test_a_change_of_tools_is_a_revision_with_another_digest(folder: Folder, live: LivePolicies) -> None:
    before = live.ruleset("default")
    assert blocks(before, "runBash") and not blocks(before, "frobnicate")
    digest = live.snapshot.digest
    folder.write(SHELL, tools("shell", "bash", "frobnicate"))
    live.reload()
    after = live.ruleset("default")
    assert blocks(after, "frobnicate") and not blocks(before, "frobnicate")
    assert (after.revision, version(live.repository, SHELL)) == (2, (2, 2))
    assert after.digest != before.digest and live.snapshot.digest != digest
    assert after.rules["hold"].policy == before.rules["hold"].policy
    (folder.root / SHELL).unlink()
    folder.write("policies/hold.yaml", HOLD.split("examples")[0])
    live.reload()
    assert not blocks(live.ruleset("default"), "runBash")
    folder.write(SHELL, tools("shell", "bash"))
    live.reload()
    assert blocks(live.ruleset("default"), "runBash") and version(live.repository, SHELL) == (3, 3)


def test_tools_that_break_an_example_are_refused_and_the_last_good_set_stays(
    folder: Folder, live: LivePolicies
) -> None:
    folder.write(SHELL, tools("shell", "zsh"))
    live.reload()
    assert messages(live.repository) == [
        'policies/hold.yaml:9:5: this example must match, but condition 1, `tool.kind equals "shell"`, does '
        'not hold: `tool.kind` is "unknown", not equal to "shell"'
    ]
    assert live.revision == 1 and blocks(live.ruleset("default"), "runBash")
    folder.write(SHELL, tools("shell", "bash", "=frob"))
    live.reload()
    assert "policies/hold.yaml:10:5: this example must not match" in messages(live.repository)[0]
    folder.write(SHELL, "apiVersion: governance/v1\nkind: ToolSet\n")
    live.reload()
    assert {each.split(":")[0] for each in messages(live.repository)} == {SHELL}
    folder.write("policies/hold.yaml", HOLD.replace("toolName: frob", "toolName: other"))
    folder.write(SHELL, tools("shell", "bash", "=frob"))
    live.reload()
    assert live.revision == 2 and blocks(live.ruleset("default"), "frob")


def test_a_policy_whose_example_needs_a_tool_is_refused_through_the_api(live: LivePolicies) -> None:
    body = {
        "name": "No mail",
        "action": "block",
        "matchConditions": [{"field": "tool.kind", "operator": "equals", "value": "mail"}],
        "examples": [{"match": True, "toolName": "send_mail"}],
    }
    with pytest.raises(DocumentError) as caught:
        live.write(lambda policies: policies.create(body, author=ADMIN))
    assert [each.pointer for each in caught.value.problems] == ["/examples/0"]


def test_an_organisations_own_tools_go_before_the_common_ones(folder: Folder, live: LivePolicies) -> None:
    folder.write("tools/all.yaml", tools("all", "bash", kind="code"))
    folder.write("organisations/acme/tools/shell.yaml", tools("shell", "bash", kind="mail"))
    folder.write("policies/hold.yaml", HOLD.split("examples")[0])
    live.reload()

    def kinds(organisation_id: str) -> str | None:
        return live.ruleset(organisation_id).tools.declared("runBash").kind

    assert [kinds(each) for each in ("default", "acme", "nobody")] == ["code", "mail", "code"]
    assert "shell" not in live.snapshot.of("acme")
    folder.write("organisations/acme/policies/hold.yaml", HOLD)
    live.reload()
    assert '`tool.kind` is "mail"' in messages(live.repository)[0]


def test_a_restart_and_the_past_have_the_tools_of_then(folder: Folder, live: LivePolicies) -> None:
    folder.write(SHELL, tools("shell", "bash", "frobnicate"))
    live.reload()
    cached = DocumentCache(folder.root.parent / "cache")
    again = LivePolicies(folder.open(cache=cached))
    again.start()
    assert (again.revision, blocks(again.ruleset("default"), "frobnicate")) == (2, True)
    assert again.ruleset("default").digest == live.ruleset("default").digest
    for revision, known in ((1, False), (2, True)):
        past = again.repository.policies_at("default", revision)
        assert past is not None
        ruleset = Ruleset.build(past.policies, past.revision, past.tool_sets)
        assert blocks(ruleset, "frobnicate") is known
    found = again.repository.policies_at("acme", 2)
    assert found is not None and found.policies == [] and len(found.tool_sets) == 1


def test_another_process_follows(folder: Folder, live: LivePolicies) -> None:
    other = LivePolicies(folder.open())
    other.start()
    folder.write(SHELL, tools("shell", "bash", "frobnicate"))
    live.reload()
    other.catch_up(2)
    assert blocks(other.ruleset("default"), "frobnicate")


def test_one_set_stands_in_one_file(folder: Folder, live: LivePolicies) -> None:
    folder.write("tools/shell.yaml", tools("shell", "zsh"))
    live.reload()
    assert messages(live.repository) == [
        "tools/shell.yaml: `tools/library/shell.yaml` and `tools/shell.yaml` are the same tool set `shell`; "
        "keep one of them"
    ]


def test_a_first_start_with_a_broken_set_is_refused(folder: Folder) -> None:
    folder.write("policies/hold.yaml", HOLD)
    with pytest.raises(RefusedToStart) as caught:
        folder.started()
    assert '`tool.kind` is "unknown"' in str(caught.value.problems[0])


def test_the_commands_read_tools_too(folder: Folder) -> None:
    contents = {SHELL: tools("shell", "bash").encode(), "policies/hold.yaml": HOLD.encode()}
    found = checkout(contents)
    assert found.problems == () and blocks(found.ruleset("default"), "runBash")
    assert Tools(found.tools_of("acme")).declared("bash").kind == "shell"
    broken = checkout(contents | {SHELL: tools("shell", "zsh").encode()})
    assert [str(each).split(": this")[0] for each in broken.problems] == ["policies/hold.yaml:9:5"]


def test_presets_are_held_against_the_common_tools(folder: Folder, live: LivePolicies) -> None:
    made = HOLD.replace(
        "kind: Policy\npolicyId: hold", "kind: Preset\npresetId: p\ncategory: x\ndescription: d"
    )
    folder.write("presets/x/p.yaml", made)
    live.reload()
    assert messages(live.repository) == [] and live.revision == 2
    folder.write("policies/hold.yaml", HOLD.split("examples")[0])
    folder.write(SHELL, tools("shell", "zsh"))
    live.reload()
    assert [each.split(": this")[0] for each in messages(live.repository)] == ["presets/x/p.yaml:11:5"]


def test_a_policy_from_a_preset_keeps_the_examples_that_hold_where_it_is(live: LivePolicies) -> None:
    preset = HOLD.replace(
        "kind: Policy\npolicyId: hold", "kind: Preset\npresetId: p\ncategory: x\ndescription: d"
    )
    loaded = load_preset(preset.encode(), "p.yaml")
    for declared, kept in ((live.ruleset("default").tools, [True, False]), (NO_TOOLS, [False])):
        body = instantiate(loaded, {}, "p", declared)
        assert [each["match"] for each in body["examples"]] == kept


def test_tool_sets_that_are_gone_all_at_once_stay_in_force(folder: Folder, live: LivePolicies) -> None:
    folder.write("policies/hold.yaml", HOLD)  # its example fails without tools, which is not what is told
    folder.write("tools/own.yaml", tools("own", "frobnicate"))
    live.reload()
    revision = live.revision
    for path in (SHELL, "tools/own.yaml"):
        (folder.root / path).unlink()
    live.reload()
    assert messages(live.repository) == [
        "tools: the files of all 2 tool sets of organisation `default` are gone at once, and without them no "
        "tool would be known; put them back. If you mean it, keep one until the others are out of force, and "
        "then remove that one"
    ]
    assert live.revision == revision and blocks(live.ruleset("default"), "runBash")
