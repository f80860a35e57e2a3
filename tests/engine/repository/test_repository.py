"""The policies folder and the API as two writers of one history, story by story."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.errors import (
    DocumentError,
    PolicyExists,
    PolicyFileInvalid,
    PolicyNotFound,
    PreconditionFailed,
    RefusedToStart,
    StorageError,
    VersionNotFound,
)
from engine.repository.cache import DocumentCache
from engine.repository.repository import Repository
from engine.worktree import git
from engine.worktree.disk import Disk
from tests.harness.policy_archive import MemoryArchive

ADMIN = "ada@acme.example"
BODY = {
    "name": "Hold wires",
    "action": "block",
    "enabled": True,
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "wire"}],
}


def document(policy_id: str, name: str = "Hold", value: str = "wire", extra: str = "") -> str:
    return (
        f"# a comment\napiVersion: governance/v1\nkind: Policy\npolicyId: {policy_id}\n"
        f"name: {name}  # said so\n"
        f"action: block\nmatchConditions:\n  - {{field: toolName, operator: equals, value: {value}}}\n{extra}"
    )


def preset(preset_id: str, category: str = "mail") -> str:
    return (
        f"apiVersion: governance/v1\nkind: Preset\npresetId: {preset_id}\ncategory: {category}\nname: P\n"
        "description: d\naction: warn\nmatchConditions: [toolName == 'x']\n"
        "examples: [{match: true, toolName: x}]\n"
    )


def pack(pack_id: str, *presets: str) -> str:
    listed = ", ".join(presets)
    return f"apiVersion: governance/v1\nkind: Pack\npackId: {pack_id}\nname: P\npresets: [{listed}]\n"


class Folder:
    """A policies folder, its archive, and the repositories over them."""

    def __init__(self, root: Path, archive: MemoryArchive | None = None) -> None:
        self.root = root
        self.archive = archive or MemoryArchive()
        self.times = itertools.count(1)
        (root / "policies").mkdir(parents=True)

    def clock(self) -> str:
        return f"2026-01-01T00:00:00.{next(self.times):06d}Z"

    def open(self, **options: Any) -> Repository:
        """A process that starts on the folder; every look at the disk reads it (the clock stands still)."""
        options.setdefault("authors", lambda root, paths: {})
        return Repository(self.root, self.archive, clock=self.clock, nanoseconds=lambda: 0, **options)

    def started(self, **options: Any) -> Repository:
        repository = self.open(**options)
        applied = repository.start()
        assert applied.problems == ()
        return repository

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def disk_has(self, path: str) -> bool:
        return (self.root / path).exists()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "policies.d")


def told(repository: Repository, policy_id: str, organisation_id: str = "default") -> list[tuple[Any, ...]]:
    """Versions newest first: number, source, created by, archived by, deleted."""
    return [
        (each.version, each.source, each.created_by, each.archived_by, each.deleted)
        for each in repository.versions(organisation_id, policy_id)
    ]


def messages(repository: Repository) -> list[str]:
    return [str(problem) for problem in repository.problems]


# ---- files ----------------------------------------------------------------------------------------------


def test_files_of_every_kind_come_into_force(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/deep/er/b.yaml", document("b"))
    folder.write("organisations/acme/x/a.yaml", document("a", name="Theirs"))
    folder.write("presets/mail/p.yaml", preset("p"))
    folder.write("packs/q.yaml", pack("q", "p"))
    folder.write("policies/_draft.yaml", "not: [a policy")
    folder.write("policies/.hidden.yaml", "not: [a policy")
    folder.write("policies/_drafts/c.yaml", "not: [a policy")
    folder.write("policies/a_test.yaml", "not: [a policy")
    folder.write("README.md", "# hello")
    snapshot = folder.started().snapshot
    assert {org: sorted(each) for org, each in snapshot.policies.items()} == {
        "default": ["a", "b"],
        "acme": ["a"],
    }
    assert snapshot.of("acme")["a"].policy.organisation_id == "acme"
    assert list(snapshot.presets) == ["p"] and list(snapshot.packs) == ["q"]
    assert snapshot.revision == 1 and snapshot.count == 3
    assert snapshot.of("default")["a"].policy.version == 1


def test_each_edit_of_a_file_is_a_version_and_the_file_is_not_touched(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    for name in ("Two", "Three"):
        folder.write("policies/a.yaml", document("a", name=name))
        applied = repository.apply_files()
        assert [change.new_version for change in applied.changes] == [True]
        assert folder.read("policies/a.yaml") == document("a", name=name)
    assert told(repository, "a") == [
        (3, "file", "file", None, False),
        (2, "file", "file", "file", False),
        (1, "file", "file", "file", False),
    ]
    assert repository.apply_files().changes == ()


def test_the_digest_of_a_set_knows_no_order(folder: Folder, tmp_path: Path) -> None:
    other = Folder(tmp_path / "other")
    for name in ("a", "b"):
        folder.write(f"policies/{name}.yaml", document(name))
    for name in ("b", "a"):
        other.write(f"policies/{name}.yaml", document(name))
    assert folder.started().snapshot.digest == other.started().snapshot.digest


def test_one_broken_file_refuses_the_whole_batch(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    repository = folder.started()
    before = repository.snapshot
    folder.write("policies/a.yaml", document("a", name="New"))
    folder.write("policies/b.yaml", document("b").replace("block", "blok"))
    (folder.root / "policies/c.yaml").write_bytes(b"\xff")
    applied = repository.apply_files()
    assert repository.snapshot is before and applied.changes == ()
    assert messages(repository) == [
        "policies/b.yaml:6:9: `action` must be one of `allow`, `warn`, `block`, `require_approval`; "
        "it is the text `blok`; did you mean `block`?",
        "policies/c.yaml:1:1: this is not UTF-8 text; save the file as UTF-8",
    ]
    folder.write("policies/b.yaml", document("b"))
    (folder.root / "policies/c.yaml").unlink()
    applied = repository.apply_files(["policies/b.yaml", "policies/c.yaml"])
    assert applied.problems == () and applied.snapshot.of("default")["a"].policy.name == "New"


def test_a_deleted_file_ends_the_policy_and_a_new_one_goes_on_counting(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    (folder.root / "policies/a.yaml").unlink()
    assert repository.apply_files().snapshot.count == 0
    folder.write("policies/a.yaml", document("a"))
    assert repository.apply_files().snapshot.of("default")["a"].policy.version == 2
    assert told(repository, "a") == [
        (2, "file", "file", None, False),
        (1, "file", "file", "file", True),
    ]


def test_a_moved_file_stays_the_same_version(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    (folder.root / "policies/team").mkdir()
    (folder.root / "policies/a.yaml").rename(folder.root / "policies/team/a.yaml")
    applied = repository.apply_files()
    stored = applied.snapshot.of("default")["a"]
    assert (stored.file.path, stored.policy.version) == ("policies/team/a.yaml", 1)
    folder.write("policies/b/a.yaml", document("a", name="New"))
    (folder.root / "policies/team/a.yaml").unlink()
    assert repository.apply_files().snapshot.of("default")["a"].policy.version == 2
    assert [each.deleted for each in repository.versions("default", "a")] == [False, False]


def test_the_same_id_twice_names_both_files(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    folder.write("policies/team/a.yaml", document("a"))
    repository.apply_files()
    assert messages(repository) == [
        "policies/team/a.yaml: `policies/a.yaml` and `policies/team/a.yaml` are the same policy `a`; "
        "keep one of them"
    ]
    (folder.root / "policies/a.yaml").unlink()
    assert repository.apply_files().problems == ()


def test_a_pack_needs_its_presets(folder: Folder) -> None:
    folder.write("presets/mail/p.yaml", preset("p"))
    folder.write("packs/q.yaml", pack("q", "p"))
    repository = folder.started()
    (folder.root / "presets/mail/p.yaml").unlink()
    repository.apply_files()
    assert messages(repository) == [
        "packs/q.yaml:5:11: there is no preset `p`; add it, or remove it from the pack"
    ]
    folder.write("packs/q.yaml", "# new\n" + pack("q", "r", "none"))
    repository.apply_files()
    assert "packs/q.yaml:6:14: there is no preset `none`" in "".join(messages(repository))
    folder.write("packs/q.yaml", pack("q", "r"))
    folder.write("presets/shell/r.yaml", preset("r", "shell"))
    assert repository.apply_files().problems == ()
    assert list(repository.snapshot.presets) == ["r"]


# ---- start ----------------------------------------------------------------------------------------------


def test_an_empty_folder_of_policies_is_a_wish_a_missing_one_is_not(folder: Folder) -> None:
    assert folder.started().snapshot.count == 0
    (folder.root / "policies").rmdir()
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert "there is no folder" in str(caught.value)


def test_invalid_files_and_no_history_refuse_to_start(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a") + "oops: 1\n")
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert "policies/a.yaml:9:1: `oops` is not a field of a policy" in str(caught.value)


def test_invalid_files_at_start_keep_the_last_good_set(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.started()
    folder.write("policies/a.yaml", "broken: [")
    repository = folder.open()
    applied = repository.start()
    assert applied.problems and applied.snapshot.of("default")["a"].policy.name == "Hold"


def test_a_folder_that_vanishes_keeps_the_last_good_set(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    shutil.move(folder.root, folder.root.with_name("elsewhere"))
    assert repository.apply_files().problems and repository.snapshot.count == 1
    assert folder.open().start().snapshot.count == 1
    shutil.move(folder.root.with_name("elsewhere"), folder.root)
    assert repository.apply_files().problems == ()


def test_an_edit_made_while_down_is_a_version(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.started()
    folder.write("policies/a.yaml", document("a", name="New"))
    assert folder.started().snapshot.of("default")["a"].policy.version == 2


def test_going_back_in_git_while_down_is_a_version_too(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    repository.apply_files()
    folder.write("policies/a.yaml", document("a"))
    assert [each[:2] for each in told(folder.started(), "a")] == [(3, "file"), (2, "api"), (1, "file")]


def test_a_restart_with_a_cache_parses_nothing(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("policies/a.yaml", document("a", extra="description: with a cache\n"))
    first = folder.started(cache=DocumentCache(tmp_path / "cache")).snapshot

    def no_reading(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a cached document was read again")

    monkeypatch.setattr("engine.repository.loader.load_policy", no_reading)
    second = folder.started(cache=DocumentCache(tmp_path / "cache")).snapshot
    assert second.policies == first.policies


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"x": 1}', b"\xff"])
def test_a_broken_cache_costs_nothing_but_time(folder: Folder, tmp_path: Path, content: bytes) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.started(cache=DocumentCache(tmp_path / "cache"))
    (kept,) = (tmp_path / "cache").glob("*.json")
    kept.write_bytes(content)
    assert folder.started(cache=DocumentCache(tmp_path / "cache")).snapshot.count == 1


# ---- the API --------------------------------------------------------------------------------------------


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


# ---- both at once ---------------------------------------------------------------------------------------


def test_an_edit_on_disk_is_loaded_first_as_its_own_version(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    folder.write("policies/a.yaml", document("a", value="pay"))
    written = repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert [(change.source, change.author) for change in written.changes] == [
        ("file", "file"),
        ("api", ADMIN),
    ]
    assert "value: pay" in folder.read("policies/a.yaml") and "name: New" in folder.read("policies/a.yaml")
    assert [each[:3] for each in told(repository, "a")] == [
        (3, "api", ADMIN),
        (2, "file", "file"),
        (1, "file", "file"),
    ]


def test_a_refused_write_still_keeps_the_edit_that_lay_on_disk(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    etag = repository.policy("default", "a").etag
    folder.write("policies/a.yaml", document("a", value="pay"))
    with pytest.raises(PreconditionFailed):
        repository.update("default", "a", {"name": "New"}, author=ADMIN, if_match=etag)
    assert repository.policy("default", "a").policy.version == 2
    (folder.root / "policies/a.yaml").unlink()
    with pytest.raises(PolicyNotFound):
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert repository.snapshot.count == 0


def test_a_write_to_a_policy_whose_file_has_just_moved(folder: Folder) -> None:
    """It must not be out of force for a moment."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    (folder.root / "policies/team").mkdir()
    (folder.root / "policies/a.yaml").rename(folder.root / "policies/team/a.yaml")
    stored = repository.update("default", "a", {"name": "New"}, author=ADMIN).stored
    assert stored is not None and (stored.file.path, stored.policy.version) == ("policies/team/a.yaml", 2)
    folder.write("policies/broken.yaml", "half a fi")
    (folder.root / "policies/team/a.yaml").unlink()
    with pytest.raises(PolicyFileInvalid) as caught:
        repository.update("default", "a", {"name": "Newer"}, author=ADMIN)
    assert "is gone, but the folder has problems" in str(caught.value)
    assert repository.policy("default", "a").policy.name == "New"


def test_a_file_that_is_broken_on_disk_is_never_overwritten(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    repository = folder.started()
    folder.write("policies/a.yaml", "half a fi")
    for write in (
        lambda: repository.update("default", "a", {"name": "New"}, author=ADMIN),
        lambda: repository.delete("default", "a", author=ADMIN),
        lambda: repository.rollback("default", "a", 1, author=ADMIN),
    ):
        with pytest.raises(PolicyFileInvalid) as caught:
            write()
        assert caught.value.problems[0].line == 1
    assert folder.read("policies/a.yaml") == "half a fi"
    repository.update("default", "b", {"name": "New"}, author=ADMIN)
    assert repository.policy("default", "b").policy.version == 2
    assert repository.policy("default", "a").policy.name == "Hold"


def test_a_write_does_not_make_a_vanished_folder_again(folder: Folder) -> None:
    """Else all other policies would look deleted."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    shutil.rmtree(folder.root)
    with pytest.raises(StorageError):
        repository.create(BODY, author=ADMIN)
    with pytest.raises(StorageError):
        repository.delete("default", "a", author=ADMIN)
    repository.apply_files()
    assert not folder.root.exists() and repository.snapshot.count == 1


def test_a_write_keeps_the_mode_of_the_file(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    (folder.root / "policies/a.yaml").chmod(0o600)
    folder.started().update("default", "a", {"name": "New"}, author=ADMIN)
    assert (folder.root / "policies/a.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("organisation_id", ["..", "a/b", "", "A", "x\n"])
def test_organisations_that_would_leave_the_folder(folder: Folder, organisation_id: str) -> None:
    repository = folder.started()
    with pytest.raises(DocumentError):
        repository.create(BODY, author=ADMIN, organisation_id=organisation_id)
    assert repository.apply_files().changes == ()


def test_the_api_does_not_replace_links(folder: Folder) -> None:
    folder.write("policies/_shared/a.txt", document("a"))
    (folder.root / "policies/a.yaml").symlink_to("_shared/a.txt")
    repository = folder.started()
    with pytest.raises(StorageError):
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert (folder.root / "policies/a.yaml").is_symlink()
    assert repository.apply_files().problems == () and repository.snapshot.count == 1


# ---- several processes and nodes ------------------------------------------------------------------------


def test_workers_on_one_folder_follow_each_other(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    one, two = folder.started(), folder.started()
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    assert two.follow().of("default")["a"].policy.name == "One"
    assert two.apply_files().changes == ()
    two.update("default", "a", {"name": "Two"}, author=ADMIN)
    stored = one.update("default", "a", {"action": "warn"}, author=ADMIN).stored
    assert stored is not None and (stored.policy.name, stored.policy.version) == ("Two", 4)


def nodes(tmp_path: Path, folder: Folder) -> tuple[Folder, Repository, Repository]:
    """A second node: its own folder (a clone), the same archive."""
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    other = Folder(tmp_path / "node2", folder.archive)
    other.times = folder.times
    shutil.copytree(folder.root, other.root, dirs_exist_ok=True)
    return other, one, other.started()


def test_a_node_brings_its_own_files_up_to_date(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    assert two.follow().count == 2
    assert "name: One" not in other.read("policies/a.yaml"), "deciding does not wait for the disk"
    assert two.apply_files(()).changes == ()
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")
    assert other.read("policies/b.yaml") == folder.read("policies/b.yaml")
    one.delete("default", "b", author=ADMIN)
    two.follow()
    two.apply_files(())
    assert not (other.root / "policies/b.yaml").exists()


def test_a_node_that_was_down_catches_up(folder: Folder, tmp_path: Path) -> None:
    other, one, _ = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    two = other.started()
    assert two.snapshot == one.snapshot
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")


def test_a_new_node_with_an_older_clone_and_no_memory_catches_up(folder: Folder, tmp_path: Path) -> None:
    other, one, _ = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    shutil.rmtree(other.root / ".governance")
    two = other.started()
    assert two.snapshot.of("default")["a"].policy.name == "One"
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")


def test_the_same_git_pull_on_two_nodes_is_one_version(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    for each in (folder, other):
        each.write("policies/a.yaml", document("a", name="Pulled"))
    one.apply_files()
    assert two.apply_files().changes == ()
    assert two.snapshot.of("default")["a"].policy.version == 2


def test_a_divergence_is_reported_and_nothing_is_overwritten(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    theirs = document("a", name="Mine")
    other.write("policies/a.yaml", theirs)
    two.follow()
    assert two.apply_files().problems
    assert messages(two) == [
        "policies/a.yaml: this file was changed here, but the policy is at version 2 through the API since; "
        "take over what you need and write `version: 2` into the file, or undo your changes"
    ]
    assert other.read("policies/a.yaml") == theirs
    assert two.snapshot.of("default")["a"].policy.name == "One", "what was acknowledged is in force"
    with pytest.raises(PolicyFileInvalid):
        two.update("default", "a", {"name": "Two"}, author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Merged", extra="version: 2\n"))
    assert two.apply_files().problems == ()
    one.follow()
    one.apply_files(())
    assert one.snapshot.of("default")["a"].policy.version == 3
    assert "Merged" in folder.read("policies/a.yaml")


def test_undoing_a_divergent_change_settles_it(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Mine"))
    two.follow()
    assert two.apply_files().problems
    other.write("policies/a.yaml", document("a"))
    assert two.apply_files().problems == ()
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")


def test_a_file_edited_here_but_deleted_there_is_a_conflict(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.delete("default", "a", author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Mine"))
    two.follow()
    two.apply_files()
    assert "was deleted through the API" in messages(two)[0]
    assert two.snapshot.count == 0
    (other.root / "policies/a.yaml").unlink()
    assert two.apply_files().problems == ()


def test_a_database_that_was_replaced_is_not_mistaken_for_the_old_one(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    repository.apply_files()
    folder.archive = MemoryArchive()
    fresh = folder.started()
    assert fresh.snapshot.revision == 1 and fresh.snapshot.of("default")["a"].policy.name == "New"


# ---- what careless and hostile people do -----------------------------------------------------------------


def unlike(folder: Folder, path: str, make: Callable[[Path], object], message: str) -> None:
    """A thing that is no file of ours is reported, and everything stays in force."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    make(folder.root / path)
    repository.apply_files()
    assert messages(repository) == [message]
    assert repository.snapshot.count == 1


def test_a_folder_named_like_a_document(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        Path.mkdir,
        "policies/b.yaml: this is a folder, but named like a document; rename it",
    )


def test_a_pipe_named_like_a_document(folder: Folder) -> None:
    unlike(folder, "policies/b.yaml", os.mkfifo, "policies/b.yaml: this is not a regular file; remove it")


def test_a_link_to_nothing(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.symlink_to("nothing"),
        "policies/b.yaml: this cannot be read: no such file or directory",
    )


def test_a_link_to_itself(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.symlink_to("b.yaml"),
        "policies/b.yaml: this cannot be read: too many levels of symbolic links",
    )


def test_a_link_out_of_the_folder(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: x")
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.symlink_to(tmp_path / "secret.yaml"),
        "policies/b.yaml: this link leads out of the policies folder; put the file itself here",
    )


def test_a_linked_folder_even_to_its_own_parent(folder: Folder) -> None:
    unlike(
        folder,
        "policies/loop",
        lambda path: path.symlink_to(".."),
        "policies/loop: linked folders are not followed; put the files themselves here",
    )


def test_a_link_within_the_folder_is_a_file(folder: Folder) -> None:
    """As Kubernetes mounts configuration."""
    (folder.root / "..data").mkdir()
    folder.write("..data/a.yaml", document("a"))
    (folder.root / "policies/a.yaml").symlink_to("../..data/a.yaml")
    assert folder.started().snapshot.count == 1


def test_a_huge_file(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.write_bytes(b"x" * 10_000_000),
        "policies/b.yaml: the file is too big; a document may have at most 1048576 bytes",
    )


def test_a_name_with_a_line_break(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b\nc.yaml",
        Path.touch,
        "policies/b\\nc.yaml: the name of a file or folder has unprintable characters; rename it",
    )


def test_a_name_that_is_no_text(folder: Folder) -> None:
    unlike(
        folder,
        os.fsdecode(b"policies/\xff.yaml"),
        Path.touch,
        "policies/\\xff.yaml: the name of a file or folder has unprintable characters; rename it",
    )


def test_a_name_in_capitals(folder: Folder) -> None:
    """On a disk that ignores case, `A.yaml` would be `a.yaml`."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    folder.write("policies/A.yaml", document("A"))
    repository.apply_files()
    assert repository.problems[0].message.startswith("`policyId` must start and end with a lower-case letter")


def test_a_file_that_cannot_be_read(folder: Folder) -> None:
    class Unreadable(Disk):
        def read(self, relative: str) -> bytes | None:
            if relative == "policies/b.yaml":
                raise PermissionError(13, "Permission denied")
            return super().read(relative)

    folder.write("policies/a.yaml", document("a"))
    repository = folder.started(disk=Unreadable(folder.root))
    folder.write("policies/b.yaml", document("b"))
    repository.apply_files()
    assert messages(repository) == ["policies/b.yaml: this cannot be read: permission denied"]


def test_a_folder_that_cannot_be_read_deletes_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("policies/team/a.yaml", document("a"))
    repository = folder.started()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("team"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    repository.apply_files()
    assert messages(repository) == [
        "policies/team: the folder `policies/team` cannot be read: permission denied"
    ]
    assert repository.snapshot.count == 1


def test_temporary_files_of_a_crash_are_cleared_away(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/.a.yaml.123.tmp", "half")
    folder.started()
    assert not (folder.root / "policies/.a.yaml.123.tmp").exists()


# ---- git ------------------------------------------------------------------------------------------------


def run_git(folder: Path, *arguments: str, author: str = "Gil <gil@acme.example>") -> None:
    name, _, email = author.rstrip(">").partition(" <")
    identity = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email}
    identity |= {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
    subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        env=os.environ | identity,
        timeout=30,
    )


def test_committed_files_are_of_their_author_others_of_file(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    run_git(folder.root.parent, "init", "-q")
    run_git(folder.root.parent, "add", ".")
    run_git(folder.root.parent, "commit", "-qm", "first")
    repository = folder.started(authors=git.authors)
    folder.write("policies/a.yaml", document("a", name="Two"))
    folder.write("policies/b.yaml", document("b", name="Two"))
    run_git(folder.root, "commit", "-qm", "second", "policies/a.yaml", author="Hal <hal@acme.example>")
    repository.apply_files()
    assert [each[2:4] for each in told(repository, "a")] == [
        ("hal@acme.example", None),
        ("gil@acme.example", "hal@acme.example"),
    ]
    assert [each[2:4] for each in told(repository, "b")] == [("file", None), ("gil@acme.example", "file")]


def test_an_api_write_commits_just_its_file_as_the_caller(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    run_git(folder.root.parent, "init", "-q")
    run_git(folder.root.parent, "add", ".")
    run_git(folder.root.parent, "commit", "-qm", "first")
    repository = folder.started(commit=git.commit)
    folder.write("policies/b.yaml", document("b", name="Not yet"))
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    repository.create(BODY, author=ADMIN)
    repository.delete("default", "a", author=ADMIN)
    log = subprocess.run(
        ["git", "log", "--format=%ae %s", "--name-status"], cwd=folder.root, capture_output=True, text=True
    ).stdout
    lines = [line for line in log.splitlines() if line]
    assert lines[:6] == [
        f"{ADMIN} policy a: deleted",
        "D\tpolicies.d/policies/a.yaml",
        f"{ADMIN} policy hold-wires: version 1",
        "A\tpolicies.d/policies/hold-wires.yaml",
        f"{ADMIN} policy a: version 2",
        "M\tpolicies.d/policies/a.yaml",
    ]
    status = subprocess.run(
        ["git", "status", "--short"], cwd=folder.root, capture_output=True, text=True
    ).stdout
    assert status.split() == ["M", "policies/b.yaml"], "our own notes are not in the way of git"


@pytest.mark.parametrize("staged", [True, False])
def test_the_commit_of_a_moved_policy_takes_its_old_place_away(folder: Folder, staged: bool) -> None:
    """A commit that held it in both places would not load."""
    for name in ("a", "b"):
        folder.write(f"policies/{name}.yaml", document(name))
    run_git(folder.root.parent, "init", "-q")
    run_git(folder.root.parent, "add", ".")
    run_git(folder.root.parent, "commit", "-qm", "first")
    repository = folder.started(commit=git.commit)
    (folder.root / "policies/pay").mkdir()
    (folder.root / "policies/b.yaml").unlink()
    if staged:
        run_git(folder.root, "mv", "policies/a.yaml", "policies/pay/a.yaml")
    else:
        (folder.root / "policies/a.yaml").rename(folder.root / "policies/pay/a.yaml")
    repository.apply_files()
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    names = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=folder.root, capture_output=True, text=True
    ).stdout
    assert names.split() == ["policies/b.yaml", "policies/pay/a.yaml"], "and only its own"


def test_what_git_does_not_commit_is_logged_with_the_reason(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "PATIENCE", 0.1)
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started(commit=git.commit)
    repository.update("default", "a", {"name": "Two"}, author=ADMIN)
    assert "did not commit `policies/a.yaml`: the folder is in no git work tree" in caplog.text
    run_git(folder.root.parent, "init", "-q")
    run_git(folder.root.parent, "add", ".")
    run_git(folder.root.parent, "commit", "-qm", "first")
    lock = folder.root.parent / ".git/index.lock"
    lock.touch()
    caplog.clear()
    repository.update("default", "a", {"name": "Three"}, author=ADMIN)
    assert "index.lock" in caplog.text
    lock.unlink()
    (folder.root.parent / ".gitignore").write_text("hold-*\n")
    caplog.clear()
    repository.create(BODY, author=ADMIN)
    assert "did not commit `policies/hold-wires.yaml`: " in caplog.text
    caplog.clear()
    repository.update("default", "a", {"name": "Four"}, author=ADMIN)
    assert not caplog.text


def test_a_commit_waits_a_moment_for_others_who_use_git(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    run_git(folder.root.parent, "init", "-q")
    run_git(folder.root.parent, "add", ".")
    run_git(folder.root.parent, "commit", "-qm", "first")
    repository = folder.started(commit=git.commit)
    lock = folder.root.parent / ".git/index.lock"
    lock.touch()
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    repository.update("default", "a", {"name": "Two"}, author=ADMIN)
    timer.join()
    said = subprocess.run(["git", "log", "--format=%s"], cwd=folder.root, capture_output=True, text=True)
    assert said.stdout.split("\n")[0] == "policy a: version 2"


def test_a_git_lock_is_seen(folder: Folder) -> None:
    run_git(folder.root.parent, "init", "-q")
    assert not git.locked(folder.root)
    (folder.root.parent / ".git/index.lock").touch()
    assert git.locked(folder.root)
