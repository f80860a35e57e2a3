"""What takes long is done before the transaction of an API write, in which everybody else waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.conditions import examples
from engine.documents import yaml
from engine.errors import DocumentError
from engine.repository.definitions import TOOLS, put_settings
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
