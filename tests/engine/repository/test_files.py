"""Each edit of the files comes into force as a version, and a start finds what was edited meanwhile."""

from __future__ import annotations

import hmac
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DocumentError, PolicyFileInvalid, Problem, RefusedToStart
from engine.repository import loader
from engine.repository.cache import DocumentCache
from tests.harness.policy_folder import ADMIN, Folder, document, messages, pack, preset, told


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


@pytest.fixture
def stricter(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A newer version of the service, which refuses what says `ancient`."""

    def load_strictly(path: str, content: bytes) -> loader.Loaded:
        if b"ancient" in content:
            raise DocumentError([Problem("`ancient` is refused now", "", "wrong_form", path)])
        return load(path, content)

    load = loader.load
    return lambda: monkeypatch.setattr(loader, "load", load_strictly)


def test_what_a_newer_version_refuses_is_mended_in_its_file(
    folder: Folder, stricter: Callable[[], None]
) -> None:
    folder.write("policies/a.yaml", document("a", "ancient"))
    folder.write("policies/b.yaml", document("b"))
    folder.started()
    stricter()
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert "mend these files" in str(caught.value) and "policies/a.yaml: `ancient`" in str(caught.value)
    folder.write("policies/a.yaml", document("a", "New"))
    repository = folder.started()
    assert repository.snapshot.of("default")["a"].policy.name == "New"
    assert [version[:2] for version in told(repository, "a")] == [(2, "file"), (1, "file")]
    assert folder.started().snapshot.revision == 2


def test_what_a_newer_version_refuses_is_mended_in_a_deployed_folder(
    folder: Folder, stricter: Callable[[], None]
) -> None:
    folder.write("policies/a.yaml", document("a", "ancient"))
    folder.started()
    stricter()
    shutil.rmtree(folder.root / ".governance")
    folder.write("policies/a.yaml", document("a", "New"))
    assert folder.started().snapshot.of("default")["a"].policy.name == "New"


def test_a_deployed_file_of_before_is_left_alone_where_the_newer_one_does_not_load(
    folder: Folder, stricter: Callable[[], None]
) -> None:
    """Where nodes share a history, it may be older than what is in force: somebody has to mean it."""
    folder.write("policies/a.yaml", document("a", "New"))
    folder.started()
    folder.write("policies/a.yaml", document("a", "ancient"))
    folder.started()
    stricter()
    shutil.rmtree(folder.root / ".governance")
    folder.write("policies/a.yaml", document("a", "New"))
    for _ in range(2):
        with pytest.raises(RefusedToStart) as caught:
            folder.open().start()
        assert "policies/a.yaml: this file says what it said before" in str(caught.value)
        assert folder.read("policies/a.yaml") == document("a", "New")
    folder.write("policies/a.yaml", document("a", "New") + "# meant\n")
    assert folder.started().snapshot.of("default")["a"].policy.name == "New"


def test_a_mended_file_that_does_not_count_yet_refuses_to_start(
    folder: Folder, stricter: Callable[[], None]
) -> None:
    folder.write("policies/a.yaml", document("a", "ancient"))
    folder.started()
    stricter()
    folder.write("policies/a.yaml", document("a", "New"))
    folder.write("policies/b.yaml", "broken: [")
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert "policies/b.yaml:2:1" in str(caught.value)
    folder.write("policies/a.yaml", document("a", "ancient, still"))
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert "policies/a.yaml: `ancient` is refused now" in str(caught.value)
    (folder.root / "policies/a.yaml").unlink()
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert "put them there again" in str(caught.value)


def test_a_folder_that_vanishes_keeps_the_last_good_set(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    shutil.move(folder.root, folder.root.with_name("elsewhere"))
    assert repository.apply_files().problems and repository.snapshot.count == 1
    assert folder.open().start().snapshot.count == 1
    shutil.move(folder.root.with_name("elsewhere"), folder.root)
    assert repository.apply_files().problems == ()


def test_files_that_are_gone_all_at_once_keep_the_last_good_set(folder: Folder) -> None:
    names = ("policies/a.yaml", "policies/b.yaml", "organisations/acme/policies/c.yaml")
    for name in names:
        folder.write(name, document(name[-6]))
    repository = folder.started()
    for name in names[:2]:
        (folder.root / name).unlink()
    for again in (repository, folder.open()):
        problems = (again.apply_files() if again is repository else again.start()).problems
        assert [(each.code, each.file) for each in problems] == [("all_gone", "policies")]
        assert "all 2 policies of organisation `default` are gone at once" in problems[0].message
        assert again.snapshot.count == 3
    with pytest.raises(PolicyFileInvalid, match="gone at once"):
        repository.delete("default", "a", author=ADMIN)
    folder.write(names[1], document("b"))
    assert repository.apply_files().problems == () and repository.snapshot.count == 2
    (folder.root / names[1]).unlink()
    assert repository.apply_files().problems == () and not repository.snapshot.of("default")


@pytest.mark.parametrize("inner", ["", "x/"])
def test_a_folder_that_stands_emptied_beside_others_keeps_the_last_good_set(
    folder: Folder, inner: str
) -> None:
    """As where its volume is not mounted, or a submodule is not checked out."""
    folder.write("policies/a.yaml", document("a"))
    team = ("b", "c")
    for name in team:
        folder.write(f"policies/team/{inner}{name}.yaml", document(name))
    repository = folder.started()
    elsewhere = folder.root.with_name("elsewhere")
    shutil.move(folder.root / "policies/team", elsewhere)
    (folder.root / "policies/team").mkdir()
    for again in (repository, folder.open()):
        problems = (again.apply_files() if again is repository else again.start()).problems
        assert [(each.code, each.file) for each in problems] == [("all_gone", "policies/team")]
        assert again.snapshot.count == 3
    shutil.copytree(elsewhere, folder.root / "policies/team", dirs_exist_ok=True)
    assert repository.apply_files().problems == () and repository.snapshot.revision == 1
    shutil.rmtree(folder.root / "policies/team")
    assert repository.apply_files().problems == () and repository.snapshot.count == 1


def test_what_moved_out_of_a_folder_is_not_gone(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    for name in ("b", "c"):
        folder.write(f"policies/team/{name}.yaml", document(name))
    repository = folder.started()
    for name in ("b", "c"):
        (folder.root / f"policies/team/{name}.yaml").rename(folder.root / f"policies/{name}.yaml")
    assert repository.apply_files().problems == () and repository.snapshot.count == 3


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


@pytest.mark.parametrize("key", [b"", b"another key"])
def test_an_edited_cache_is_not_read(folder: Folder, tmp_path: Path, key: bytes) -> None:
    """It could say `allow` of a policy whose file, version and record all say `block`."""
    folder.write("policies/a.yaml", document("a", extra="description: harmless\n"))
    folder.started(cache=DocumentCache(tmp_path / "cache", b"a key"))
    (kept,) = (tmp_path / "cache").glob("*.json")
    _, _, content = kept.read_bytes().partition(b"\n")
    edited = content.replace(b"harmless", b"harmful!")
    assert edited != content
    kept.write_bytes(hmac.digest(key, edited, "sha256").hex().encode() + b"\n" + edited)
    snapshot = folder.started(cache=DocumentCache(tmp_path / "cache", b"a key")).snapshot
    assert snapshot.of("default")["a"].policy.description == "harmless"
