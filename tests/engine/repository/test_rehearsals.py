"""What takes long is done before the transaction of a write or of edited files, in which all others wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.conditions import examples
from engine.documents import yaml
from engine.errors import DocumentError
from engine.model import Policy
from engine.repository.definitions import TOOLS, put_settings
from engine.repository.repository import Repository
from tests.harness.policy_folder import ADMIN, BODY, Folder

EXAMPLES = [
    {"match": True, "toolName": "wire", "inputPayload": {}},
    {"match": False, "toolName": "other", "inputPayload": {}},
]
BY_TOOLS = {
    "policyId": "hold-mail",
    "name": "Hold mail",
    "action": "block",
    "enabled": True,
    "matchConditions": [{"field": "tool.kind", "operator": "equals", "value": "mail"}],
    "examples": [{"match": True, "toolName": "post_letter", "inputPayload": {}}],
}


@pytest.fixture
def inside(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was read or evaluated while a transaction was open."""
    found: list[str] = []

    def noted(module: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        def note(*arguments: Any, **options: Any) -> Any:
            if folder.archive.busy:
                found.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, note)

    noted(examples, "outcome")
    noted(yaml, "decode")
    yield found


def test_policies_are_checked_before(folder: Folder, inside: list[str]) -> None:
    repository = folder.started()
    stored = repository.create({**BODY, "examples": EXAMPLES}, author=ADMIN).stored
    assert stored.policy.version == 1
    for changes in ({"description": "x"}, {"action": "warn"}, {"examples": EXAMPLES[:1]}):
        repository.update("default", "hold-wires", changes, author=ADMIN)
    assert repository.rollback("default", "hold-wires", 1, author=ADMIN).stored.policy.version == 5
    assert inside == []
    assert repository.apply_files().changes == ()


def test_what_reads_tools_is_checked_before(folder: Folder, inside: list[str]) -> None:
    repository = folder.started()
    declared = {"name": "Ours", "tools": [{"names": ["post letter"], "kind": "mail", "effect": "send"}]}
    TOOLS.create(repository, "default", "ours", declared, author=ADMIN)
    repository.create(BY_TOOLS, author=ADMIN)
    repository.update("default", "hold-mail", {"action": "warn"}, author=ADMIN)
    TOOLS.change(repository, "default", "ours", {"description": "x"}, author=ADMIN)
    put_settings(repository, "default", {"companyDomains": ["acme.example"]}, author=ADMIN)
    assert inside == []


def test_a_refusal_begins_no_transaction(folder: Folder, inside: list[str]) -> None:
    repository = folder.started()
    repository.create(BODY, author=ADMIN)
    with pytest.raises(DocumentError, match="must match"):
        repository.update(
            "default", "hold-wires", {"examples": [{**EXAMPLES[1], "match": True}]}, author=ADMIN
        )
    assert inside == []


OURS = (
    "apiVersion: governance/v1\nkind: ToolSet\ntoolSetId: ours\nname: Ours\n"
    "tools: [{names: [post letter], kind: mail, effect: send}]\n"
)
HOLD_MAIL = (
    "apiVersion: governance/v1\nkind: Policy\npolicyId: %s\nname: Hold mail\naction: block\n"
    "matchConditions: [{field: tool.kind, operator: equals, value: mail}]\n"
    "examples: [{match: true, toolName: post_letter, inputPayload: {}}]\n"
)


def declared_and_held(folder: Folder) -> Repository:
    folder.write("tools/ours.yaml", OURS)
    folder.write("policies/hold-mail.yaml", HOLD_MAIL % "hold-mail")
    folder.write("policies/hold-post.yaml", HOLD_MAIL % "hold-post")
    return folder.started()


def test_edited_files_are_checked_before(folder: Folder, inside: list[str]) -> None:
    repository = declared_and_held(folder)
    folder.write("tools/ours.yaml", OURS + "description: x\n")
    assert len(repository.apply_files().changes) == 1
    folder.write("policies/hold-mail.yaml", HOLD_MAIL % "hold-mail" + "description: x\n")
    folder.write("organisations/acme/hold-mail.yaml", HOLD_MAIL % "hold-mail" + "description: x\n")
    assert len(repository.apply_files().changes) == 2
    assert inside == []


def test_an_edit_beneath_an_api_write_is_checked_before(folder: Folder, inside: list[str]) -> None:
    repository = declared_and_held(folder)
    folder.write("tools/ours.yaml", OURS + "description: x\n")
    result = TOOLS.change(repository, "default", "ours", {"name": "Our own"}, author=ADMIN)
    assert (result.stored.file.version, len(result.changes)) == (3, 2)
    assert inside == []


def test_what_another_policy_became_meanwhile_is_checked_alone(
    folder: Folder, inside: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = declared_and_held(folder)
    view, times = folder.archive.view, iter(range(9))

    def overtaken(work: Callable[..., Any]) -> Any:
        found = view(work)
        if next(times) == 0:
            repository.update("default", "hold-post", {"action": "warn"}, author="bob@acme.example")
            inside.clear()
        return found

    monkeypatch.setattr(folder.archive, "view", overtaken)
    TOOLS.change(repository, "default", "ours", {"description": "x"}, author=ADMIN)
    assert inside == ["outcome"]


def test_the_same_bytes_are_checked_once_for_all_organisations(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = declared_and_held(folder)
    for number in range(3):
        folder.write(f"organisations/o{number}/hold-mail.yaml", HOLD_MAIL % "hold-mail")
    folder.write("organisations/o2/tools/theirs.yaml", OURS.replace("toolSetId: ours", "toolSetId: theirs"))
    repository.apply_files()
    found: list[str] = []
    outcome = examples.outcome

    def noted(policy: Policy, *arguments: Any) -> Any:
        found.append(f"{policy.organisation_id} {policy.policy_id}")
        return outcome(policy, *arguments)

    monkeypatch.setattr(examples, "outcome", noted)
    folder.write("tools/ours.yaml", OURS.replace("kind: mail", "kind: chat"))
    problems = repository.apply_files().problems
    assert sorted(each.file for each in problems) == [
        "organisations/o0/hold-mail.yaml",
        "organisations/o1/hold-mail.yaml",
        "policies/hold-mail.yaml",
        "policies/hold-post.yaml",
    ]
    assert sorted(found) == ["default hold-mail", "default hold-post", "o2 hold-mail"]


def test_what_others_changed_meanwhile_is_looked_at_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = folder.started()
    repository.create(BODY, author=ADMIN)
    view, times = folder.archive.view, iter(range(9))

    def overtaken(work: Callable[..., Any]) -> Any:
        found = view(work)
        if next(times) == 0:
            repository.update("default", "hold-wires", {"name": "Other"}, author="bob@acme.example")
        return found

    monkeypatch.setattr(folder.archive, "view", overtaken)
    stored = repository.update("default", "hold-wires", {"action": "warn"}, author=ADMIN).stored
    assert (stored.policy.version, stored.policy.name, stored.policy.action) == (3, "Other", "warn")
    assert repository.apply_files().changes == ()


def test_examples_of_one_policy_are_bounded_together(folder: Folder) -> None:
    repository = folder.started()
    condition = "inputPayload.a.all(x, inputPayload.a.all(y, inputPayload.a.all(z, x + y + z > 0)))"
    dear = {"match": True, "toolName": "wire", "inputPayload": {"a": [1] * 100}}
    body = {**BODY, "matchConditions": [*BODY["matchConditions"], {"expression": condition}]}
    with pytest.raises(DocumentError, match="more than 1,000,000 steps together"):
        repository.create({**body, "examples": [dear] * 6}, author=ADMIN)
    repository.create({**body, "examples": [dear] * 2}, author=ADMIN)
