"""What the API writes: into files, one version each, and nothing where it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.errors import (
    DocumentError,
    PolicyExists,
    PolicyNotFound,
    PreconditionFailed,
    Problem,
    StorageError,
    VersionNotFound,
)
from engine.worktree.disk import Disk, Signature, unreadable
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, told


def test_create_update_delete_rollback(folder: Folder) -> None:
    repository = folder.started()
    made = repository.create(BODY, author=ADMIN).stored
    assert made is not None and made.policy.policy_id == "hold-wires" and made.policy.version == 1
    assert folder.read("policies/hold-wires.yaml") == (
        "apiVersion: governance/v1\nkind: Policy\npolicyId: hold-wires\nversion: 1\nname: Hold wires\n"
        "action: block\nenabled: true\nmatchConditions:\n"
        "  - {field: toolName, operator: equals, value: wire}\n"
    )
    changed = repository.update("default", "hold-wires", {"action": "warn"}, author=ADMIN).stored
    assert changed is not None and changed.policy.version == 2
    assert changed.file.created_at == made.file.created_at < changed.file.updated_at
    back = repository.rollback("default", "hold-wires", 1, author=ADMIN).stored
    assert back is not None and back.policy.action == "block" and back.policy.version == 3
    repository.delete("default", "hold-wires", author="bob@acme.example")
    assert not (folder.root / "policies/hold-wires.yaml").exists()
    assert told(repository, "hold-wires") == [
        (3, "api", ADMIN, "bob@acme.example", True),
        (2, "api", ADMIN, ADMIN, False),
        (1, "api", ADMIN, ADMIN, False),
    ]
    revived = repository.rollback("default", "hold-wires", 2, author=ADMIN).stored
    assert revived is not None and revived.policy.version == 4 and revived.policy.action == "warn"
    assert repository.apply_files().changes == ()
    assert folder.started().snapshot == repository.snapshot


def test_an_update_keeps_comments_and_puts_the_version_in(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    repository.update("default", "a", {"name": "New", "mode": "shadow"}, author=ADMIN)
    assert folder.read("policies/a.yaml") == (
        "# a comment\napiVersion: governance/v1\nkind: Policy\npolicyId: a\nversion: 2\n"
        "name: New  # said so\n"
        "action: block\nmode: shadow\n"
        "matchConditions:\n  - {field: toolName, operator: equals, value: wire}\n"
    )
    repository.update("default", "a", {"mode": None}, author=ADMIN)
    assert "mode" not in folder.read("policies/a.yaml")


def test_an_update_that_changes_nothing_is_no_version(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    written = repository.update(
        "default", "a", {"name": "Hold", "scope": "all", "description": None}, author=ADMIN
    )
    assert written.changes == () and written.stored is not None and written.stored.policy.version == 1
    assert folder.read("policies/a.yaml") == document("a")


def test_ids_are_made_from_names_and_never_used_again(folder: Folder) -> None:
    repository = folder.started()
    ids = []
    for _ in range(3):
        stored = repository.create(BODY, author=ADMIN).stored
        assert stored is not None and stored.policy.version == 1
        ids.append(stored.policy.policy_id)
        repository.delete("default", ids[-1], author=ADMIN)
    assert ids == ["hold-wires", "hold-wires-2", "hold-wires-3"]
    folder.write("policies/hold-wires-4.yaml", "a draft that does not load: [")
    made = repository.create(BODY, author=ADMIN).stored
    assert made is not None and made.policy.policy_id == "hold-wires-5"
    (folder.root / "policies/hold-wires-6.yaml").symlink_to("nothing")
    made = repository.create(BODY, author=ADMIN).stored
    assert made is not None and made.policy.policy_id == "hold-wires-7"


@pytest.mark.parametrize("of", ["default", "acme"])
def test_no_id_is_looked_for_in_a_folder_that_cannot_be_looked_at(
    folder: Folder, tmp_path: Path, of: str
) -> None:
    """Every name would seem taken, without end."""

    class Shut(Disk):
        def look(self, relative: str) -> Signature | Problem | None:
            return (
                unreadable(relative, PermissionError(13, "Permission denied"))
                if shut
                else super().look(relative)
            )

    shut = False
    repository = folder.started(disk=Shut(folder.root))
    shut = of == "default"
    (tmp_path / "elsewhere").mkdir()
    (folder.root / "organisations").mkdir()
    (folder.root / "organisations/acme").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot be looked at"):
        repository.create(BODY, author=ADMIN, organisation_id=of)
    assert repository.snapshot.count == 0


def test_ids_made_of_one_name_come_to_an_end(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.repository.repository.MOST_OF_ONE_NAME", 2)
    repository = folder.started()
    repository.create_many([BODY, BODY], author=ADMIN)
    with pytest.raises(PolicyExists, match="choose a `policyId`"):
        repository.create(BODY, author=ADMIN)


def test_a_chosen_id_goes_on_counting_but_is_not_taken_twice(folder: Folder) -> None:
    repository = folder.started()
    repository.create(BODY | {"policyId": "mine"}, author=ADMIN)
    with pytest.raises(PolicyExists):
        repository.create(BODY | {"policyId": "mine"}, author=ADMIN)
    repository.delete("default", "mine", author=ADMIN)
    again = repository.create(BODY | {"policyId": "mine"}, author=ADMIN).stored
    assert again is not None and again.policy.version == 2


def test_many_new_policies_come_all_or_none(folder: Folder) -> None:
    repository = folder.started()
    repository.create(BODY | {"policyId": "b"}, author=ADMIN)
    with pytest.raises(PolicyExists):
        repository.create_many([BODY | {"policyId": "a"}, BODY | {"policyId": "b"}], author=ADMIN)
    assert sorted(each.name for each in (folder.root / "policies").iterdir()) == ["b.yaml"]
    assert repository.snapshot.count == 1 and repository.snapshot.revision == 1
    assert repository.apply_files().changes == ()
    made = repository.create_many([BODY, BODY], author=ADMIN).stored
    assert [each.policy.policy_id for each in made] == ["hold-wires", "hold-wires-2"]


def test_policies_of_organisations_are_apart(folder: Folder) -> None:
    repository = folder.started()
    repository.create(BODY, author=ADMIN, organisation_id="acme")
    assert folder.read("organisations/acme/hold-wires.yaml")
    with pytest.raises(PolicyNotFound):
        repository.update("default", "hold-wires", {"name": "x"}, author=ADMIN)
    assert folder.started().snapshot.of("acme").keys() == {"hold-wires"}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"action": "stop"}, "/action"),
        ({"name": None}, "/name"),
        ({"policyId": "other"}, "/policyId"),
        ({"version": 7}, "/version"),
        ({"owner": "me"}, "/owner"),
        ({"examples": [{"match": False, "toolName": "wire"}]}, "/examples/0"),
        ({"name": "\ud800"}, ""),
    ],
)
def test_a_bad_change_changes_nothing(folder: Folder, changes: Mapping[str, Any], pointer: str) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    with pytest.raises(DocumentError) as caught:
        repository.update("default", "a", changes, author=ADMIN)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert folder.read("policies/a.yaml") == document("a")
    assert repository.snapshot.revision == 1


@pytest.mark.parametrize(
    "policy_id", ["../../evil", "a/b", "A", "", ".hidden", "x\0y", "x\ny", "con", "a_test"]
)
def test_ids_that_would_leave_the_folder_or_be_ignored(folder: Folder, policy_id: str) -> None:
    repository = folder.started()
    before = sorted(folder.root.parent.rglob("*"))
    with pytest.raises(DocumentError):
        repository.create(BODY | {"policyId": policy_id}, author=ADMIN)
    assert sorted(folder.root.parent.rglob("*")) == before


def test_if_match(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    etag = repository.policy("default", "a").etag
    repository.update("default", "a", {"name": "One"}, author=ADMIN, if_match=etag)
    for write in (
        lambda: repository.update("default", "a", {"name": "Two"}, author=ADMIN, if_match=etag),
        lambda: repository.delete("default", "a", author=ADMIN, if_match=etag),
        lambda: repository.rollback("default", "a", 1, author=ADMIN, if_match=etag),
    ):
        with pytest.raises(PreconditionFailed):
            write()
    repository.update("default", "a", {"name": "Two"}, author=ADMIN, if_match="*")


def test_what_is_not_there(folder: Folder) -> None:
    repository = folder.started()
    attempts: list[Callable[[], Any]] = [
        lambda: repository.policy("default", "a"),
        lambda: repository.versions("default", "a"),
        lambda: repository.update("default", "a", {}, author=ADMIN),
        lambda: repository.delete("default", "a", author=ADMIN),
        lambda: repository.rollback("default", "a", 1, author=ADMIN),
    ]
    for attempt in attempts:
        with pytest.raises(PolicyNotFound):
            attempt()
    repository.create(BODY | {"policyId": "a"}, author=ADMIN)
    with pytest.raises(VersionNotFound):
        repository.rollback("default", "a", 7, author=ADMIN)


def test_what_was_in_force_at_a_revision_or_time(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    repository.delete("default", "a", author=ADMIN)
    assert [
        (found[0], [policy.name for policy in found[1]])
        for moment in (1, 2, 3)
        if (found := repository.policies_at("default", moment))
    ] == [(1, ["Hold"]), (2, ["New"]), (3, [])]
    at = repository.versions("default", "a")[0].created_at
    assert (found := repository.policies_at("default", at)) and found[0] == 2
    assert repository.policies_at("default", 4) is None
    assert repository.policies_at("default", "2025-01-01T00:00:00.000000Z") is None
