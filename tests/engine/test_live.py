"""Live rules: watching, batches, one reference, following other writers, compaction."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine import live as live_module
from engine.errors import PolicyNotFound, Problem, StorageError
from engine.live import LiveRules
from engine.matching.ruleset import Ruleset
from engine.model import ToolCall
from engine.repository.archive import Change
from engine.worktree import watcher as watch_module
from engine.worktree.disk import Disk, Listing, Pause
from engine.worktree.watcher import Watcher
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, pack, preset


class Watched:
    """Live rules over a folder, and what they told."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.changes: list[Sequence[Change]] = []
        self.failures: list[Sequence[Problem]] = []
        repository = folder.open()
        self.live = LiveRules(repository, on_changed=self.changes.append, on_failed=self.failures.append)
        self.live.start()

    def until(self, condition: Callable[[], bool], seconds: float = 10) -> float:
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < seconds, "it never came true"
            time.sleep(0.002)
        return time.monotonic() - begun

    def blocks(self, tool: str) -> bool:
        return bool(self.live.ruleset("default").evaluate(ToolCall.of(toolName=tool)).matches)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "policies.d")
    made.write("policies/a.yaml", document("a"))
    return made


@contextlib.contextmanager
def watching(folder: Folder) -> Iterator[Watched]:
    watched = Watched(folder)
    watched.live.watch()
    try:
        yield watched
    finally:
        watched.live.close()


def test_a_change_of_a_file_comes_into_force_by_itself(folder: Folder) -> None:
    with watching(folder) as watched:
        assert watched.blocks("wire") and not watched.blocks("pay")
        watched.until(lambda: watched.live.repository.apply_files().changes == ())
        folder.write("policies/a.yaml", document("a", value="pay"))
        took = watched.until(lambda: watched.blocks("pay"))
        assert not watched.blocks("wire")
        assert took < 2, "usually 0.21 s; the machine may be busy"
        assert watched.live.health() == {"revision": 2, "count": 1, "stale": False, "errors": []}
        watched.until(lambda: len(watched.changes) == 2)


def test_a_batch_is_one_revision(folder: Folder) -> None:
    with watching(folder) as watched:
        for name in ("b", "c", "d"):
            folder.write(f"policies/team/{name}.yaml", document(name))
        shutil.move(folder.root / "policies/a.yaml", folder.root / "policies/team/a.yaml")
        watched.until(lambda: watched.live.snapshot.count == 4)
        assert watched.live.revision == 2
        shutil.rmtree(folder.root / "policies/team")
        watched.until(lambda: watched.live.snapshot.count == 0)
        assert watched.live.revision == 3


def test_a_broken_file_is_told_once_and_the_good_set_stays(folder: Folder) -> None:
    with watching(folder) as watched:
        before = watched.live.ruleset("default")
        aside = folder.root / "policies/.a.yaml.swp"
        aside.write_text("half a fi")
        aside.replace(folder.root / "policies/a.yaml")  # at once: an empty file would be another problem
        watched.until(lambda: bool(watched.live.health()["stale"]))
        assert watched.live.ruleset("default") is before
        assert watched.live.health()["errors"] == [
            {
                "file": "policies/a.yaml",
                "line": 1,
                "column": 1,
                "message": "this must be an object; it is the text `half a fi`",
            }
        ]
        watched.live.reload()
        assert watched.live.reload_failures == 1 and len(watched.failures) == 1
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"))
        assert not watched.live.health()["stale"]


def test_nothing_happens_while_git_works(folder: Folder) -> None:
    git = folder.root.parent / ".git"
    git.mkdir()
    with watching(folder) as watched:
        (git / "index.lock").touch()
        folder.write("policies/b.yaml", document("b"))
        time.sleep(0.8)
        assert watched.live.snapshot.count == 1
        folder.write("policies/c.yaml", document("c"))
        (git / "index.lock").unlink()
        watched.until(lambda: watched.live.snapshot.count == 3)
        assert watched.live.revision == 2


def test_a_folder_that_goes_and_comes_back(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.3)
    with watching(folder) as watched:
        shutil.move(folder.root, folder.root.with_name("away"))
        watched.until(lambda: bool(watched.live.health()["stale"]))
        assert watched.blocks("wire")
        shutil.move(folder.root.with_name("away"), folder.root)
        watched.until(lambda: not watched.live.health()["stale"])


def away_and_back(root: Path) -> None:
    shutil.move(root, root.with_name("away"))
    shutil.move(root.with_name("away"), root)


def slowly_away_and_back(root: Path) -> None:
    shutil.move(root, root.with_name("away"))
    time.sleep(1.5)
    shutil.move(root.with_name("away"), root)


def made_anew(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"))
    shutil.rmtree(root)
    shutil.copytree(root.with_name("copy"), root)


def swapped(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"))
    shutil.move(root, root.with_name("away"))
    shutil.move(root.with_name("copy"), root)


@pytest.mark.parametrize("disturb", [away_and_back, slowly_away_and_back, made_anew, swapped])
def test_watching_goes_on_after_the_folder_was_replaced(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, disturb: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    with watching(folder) as watched:
        disturb(folder.root)
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"), 5)
        watched.until(lambda: not watched.live.health()["stale"], 5)
        time.sleep(1.5)
        folder.write("policies/b.yaml", document("b", value="mail"))
        watched.until(lambda: watched.blocks("mail"), 3)


def test_a_root_that_is_a_link_is_watched_where_it_leads(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    one, two = folder.root.with_name("one"), folder.root.with_name("two")
    shutil.move(folder.root, one)
    shutil.copytree(one, two)
    (two / "policies/a.yaml").write_text(document("a", value="pay"))
    folder.root.symlink_to("one")
    with watching(folder) as watched:
        folder.root.unlink()
        folder.root.symlink_to("two")
        watched.until(lambda: watched.blocks("pay"), 5)
        time.sleep(1.5)
        folder.write("policies/a.yaml", document("a", value="mail"))
        watched.until(lambda: watched.blocks("mail"), 3)


def test_a_folder_that_has_gone_is_soon_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    with watching(folder) as watched:
        shutil.move(folder.root, folder.root.with_name("away"))
        watched.until(lambda: bool(watched.live.health()["stale"]), 2)
        assert watched.blocks("wire")


def a_copy(folder: Folder) -> Iterator[None]:
    folder.write("policies/team/a.yaml", document("a"))
    yield
    (folder.root / "policies/team/a.yaml").unlink()


def a_copy_that_is_to_stay(folder: Folder) -> Iterator[None]:
    folder.write("policies/team/a.yaml", document("a"))
    yield
    (folder.root / "policies/a.yaml").unlink()


def two_copies_in_folders(folder: Folder) -> Iterator[None]:
    folder.write("policies/one/a.yaml", document("a"))
    folder.write("policies/two/a.yaml", document("a"))
    yield
    shutil.rmtree(folder.root / "policies/one")
    (folder.root / "policies/two").rename(folder.root / "policies/_two")


def another_case(folder: Folder) -> Iterator[None]:
    folder.write("policies/A.yaml", document("a"))
    yield
    (folder.root / "policies/A.yaml").unlink()


def a_folder_named_like_a_document(folder: Folder) -> Iterator[None]:
    folder.write("policies/x.yaml/b.yaml", document("b"))
    yield
    (folder.root / "policies/x.yaml").rename(folder.root / "policies/x")


def a_linked_folder(folder: Folder) -> Iterator[None]:
    (folder.root / "policies/link").symlink_to("../../elsewhere")
    folder.root.with_name("elsewhere").mkdir()
    yield
    (folder.root / "policies/link").unlink()


def a_misplaced_folder(folder: Folder) -> Iterator[None]:
    folder.write("team/b.yaml", document("b"))
    yield
    (folder.root / "team").rename(folder.root / "policies/team")


def a_pack_before_its_preset(folder: Folder) -> Iterator[None]:
    folder.write("packs/q.yaml", pack("q", "p"))
    yield
    folder.write("presets/mail/p.yaml", preset("p"))


PROBLEMS = [
    *(a_copy, a_copy_that_is_to_stay, two_copies_in_folders, another_case, a_folder_named_like_a_document),
    *(a_linked_folder, a_misplaced_folder, a_pack_before_its_preset),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.__name__)
def test_a_problem_between_files_is_over_as_soon_as_it_is_mended(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, problem: Callable[[Folder], Iterator[None]]
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    with watching(folder) as watched:
        told = problem(folder)
        next(told)
        watched.until(lambda: bool(watched.live.health()["stale"]), 3)
        assert watched.blocks("wire")
        assert list(told) == []
        watched.until(lambda: not watched.live.health()["stale"], 3)
        assert watched.blocks("wire")


def test_a_folder_that_cannot_be_read_is_tried_again_though_nothing_tells_of_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    folder.write("policies/team/b.yaml", document("b", value="pay"))
    scandir, closed = os.scandir, [True]

    def refuse(path: Any) -> Any:
        if str(path).endswith("team") and closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with watching(folder) as watched:
        monkeypatch.setattr(os, "scandir", refuse)
        watched.live.reload()
        assert watched.live.health()["errors"] == [
            {
                "file": "policies/team",
                "message": "the folder `policies/team` cannot be read: permission denied",
            }
        ]
        closed.clear()
        watched.until(lambda: not watched.live.health()["stale"], 3)
        assert watched.blocks("pay")


def test_notes_that_cannot_be_listed_hold_nothing_up(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.governance` may belong to another user, who started the service once."""

    def refuse(path: Path, *arguments: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    watched = Watched(folder)
    monkeypatch.setattr(Path, "iterdir", refuse)
    monkeypatch.setattr(Path, "glob", refuse)
    folder.write("policies/a.yaml", document("a", value="pay"))
    watched.live.reload()
    assert watched.blocks("pay")


def test_a_file_that_became_a_link_to_nothing_stays_in_force(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    with watching(folder) as watched:
        (folder.root / "policies/a.yaml").unlink()
        (folder.root / "policies/a.yaml").symlink_to("nowhere")
        watched.until(lambda: bool(watched.live.health()["stale"]))
        time.sleep(1)
        assert watched.live.health()["stale"] and watched.blocks("wire")
        assert watched.live.health()["errors"] == [
            {"file": "policies/a.yaml", "message": "this cannot be read: no such file or directory"}
        ], "a line that is not known is not told"


def test_what_files_changed_is_logged(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="governance.policies")
    folder.write("organisations/acme/theirs.yaml", document("theirs"))
    folder.write("policies/seen.yaml", document("seen", extra="mode: shadow\n"))
    folder.write("policies/off.yaml", document("off", extra="enabled: false\n"))
    folder.write("presets/mail/p.yaml", preset("p"))
    watched = Watched(folder)

    def told() -> list[tuple[str, str]]:
        lines = [(each.levelname, each.getMessage()) for each in caplog.records]
        caplog.clear()
        return lines

    in_force = "is in force, from the policy files"
    assert told() == [
        ("INFO", f"revision 1 {in_force}: created `a`, `acme/theirs`, `off`, `seen`, preset `p`")
    ]
    folder.write("policies/a.yaml", document("a", value="pay"))
    folder.write("policies/b.yaml", document("b"))
    watched.live.reload()
    assert told() == [("INFO", f"revision 2 {in_force}: created `b`; changed `a`")]
    (folder.root / "policies/team").mkdir()
    shutil.move(folder.root / "policies/b.yaml", folder.root / "policies/team/b.yaml")
    watched.live.reload()
    assert told() == [("INFO", f"revision 3 {in_force}: moved `b`")]
    shutil.rmtree(folder.root / "organisations")
    for path in (folder.root / "policies").glob("*.yaml"):
        path.unlink()
    watched.live.reload()
    assert told() == [
        ("INFO", f"revision 4 {in_force}: deleted `a`, `acme/theirs`, `off`, `seen`"),
        (
            "WARNING",
            "revision 4: the files of policies that were enforced are gone, and with them the policies: "
            "`a`, `acme/theirs`",
        ),
    ]
    folder.write("policies/team/b.yaml", document("b", name="Edited"))
    watched.live.update("default", "b", {"description": "d"}, author=ADMIN)
    assert told() == [("INFO", f"revision 5 {in_force}: changed `b`")], "the edit a write came upon"


def test_the_rescan_finds_what_no_event_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.3)
    monkeypatch.setattr(Watcher, "_listen", lambda self: None)
    with watching(folder) as watched:
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"))


def test_a_change_right_after_the_start_is_heard(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 1000.0)
    for number in range(5):
        with watching(folder) as watched:
            folder.write("policies/a.yaml", document("a", value=f"tool{number}"))
            watched.until(lambda watched=watched, number=number: watched.blocks(f"tool{number}"), 3)  # type: ignore[misc]


def test_a_change_between_the_start_and_the_watching_is_found(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 1000.0)
    watched = Watched(folder)
    folder.write("policies/a.yaml", document("a", value="pay"))
    watched.live.watch()
    try:
        watched.until(lambda: watched.blocks("pay"), 3)
    finally:
        watched.live.close()


def test_a_rescan_gives_way_to_a_change_and_is_done_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, begun, done = Disk.scan, threading.Event(), threading.Event()

    def slowly(self: Disk, pause: Pause = lambda: None) -> Listing:
        for _ in range(30):
            begun.set()
            pause()
            time.sleep(0.1)
        done.set()
        return scan(self)

    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.5)
    with watching(folder) as watched:
        watched.until(lambda: watched.live.repository.apply_files().changes == ())
        monkeypatch.setattr(Disk, "scan", slowly)
        assert begun.wait(5)
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"), 2)
        assert not done.is_set()
        assert done.wait(15)


def test_a_rescan_waits_until_git_is_done(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.2)
    monkeypatch.setattr(Watcher, "_listen", lambda self: None)
    monkeypatch.setattr(watch_module, "SETUP_SECONDS", 0.0)
    git = folder.root.parent / ".git"
    git.mkdir()
    with watching(folder) as watched:
        watched.until(lambda: watched.live.revision == 1)
        (git / "index.lock").touch()
        time.sleep(0.5)
        folder.write("policies/b.yaml", document("b"))
        time.sleep(1)
        assert watched.live.snapshot.count == 1
        (git / "index.lock").unlink()
        watched.until(lambda: watched.live.snapshot.count == 2)


def test_a_database_that_is_away_is_asked_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    with watching(folder) as watched:
        transact = folder.archive.transact

        def away(work: Any) -> Any:
            raise RuntimeError("the database is away")

        folder.archive.transact = away  # type: ignore[method-assign]
        folder.write("policies/a.yaml", document("a", value="pay"))
        time.sleep(1)
        assert watched.blocks("wire")
        folder.archive.transact = transact  # type: ignore[method-assign]
        watched.until(lambda: watched.blocks("pay"))


def test_an_answered_write_is_in_force_here_and_after_catching_up_everywhere(folder: Folder) -> None:
    one, two = Watched(folder), Watched(folder)
    conditions = [{"field": "toolName", "operator": "equals", "value": "pay"}]
    stored = one.live.update("default", "a", {"matchConditions": conditions}, author=ADMIN)
    assert one.blocks("pay") and stored.policy.version == 2
    assert two.blocks("wire")
    two.live.catch_up(one.live.revision)
    assert two.blocks("pay") and not two.blocks("wire")
    with pytest.raises(StorageError):
        two.live.catch_up(99)


def test_all_writes_and_their_readings(folder: Folder) -> None:
    live = Watched(folder).live
    made = live.create("acme", BODY, author=ADMIN)
    assert live.ruleset("acme").policies.keys() == {"hold-wires"}
    assert live.ruleset("nobody").policies == {}
    live.update("acme", "hold-wires", {"action": "warn"}, author=ADMIN, if_match=made.etag)
    assert live.rollback("acme", "hold-wires", 1, author=ADMIN).policy.version == 3
    assert [each.version for each in live.versions("acme", "hold-wires")] == [3, 2, 1]
    live.delete("acme", "hold-wires", author=ADMIN)
    assert live.ruleset("acme").policies == {}
    with pytest.raises(PolicyNotFound):
        live.update("acme", "hold-wires", {}, author=ADMIN)
    assert live.versions("acme", "nothing") == []
    found = live.policies_at("acme", 3)
    assert found is not None and [policy.action for policy in found[1]] == ["warn"]
    assert [each.policy.policy_id for each in live.create_many("acme", [BODY, BODY], author=ADMIN)] == [
        "hold-wires-2",
        "hold-wires-3",
    ]
    assert live.create_many("acme", [], author=ADMIN) == []


def test_an_edit_found_by_a_refused_write_is_in_force(folder: Folder) -> None:
    watched = Watched(folder)
    (folder.root / "policies/a.yaml").unlink()
    with pytest.raises(PolicyNotFound):
        watched.live.update("default", "a", {"name": "x"}, author=ADMIN)
    assert not watched.blocks("wire")


def test_the_rule_sets_always_say_what_a_fresh_build_would(folder: Folder) -> None:
    watched = Watched(folder)
    for number in range(20):
        watched.folder.write(
            f"policies/p{number % 7}.yaml", document(f"p{number % 7}", value=f"tool{number}")
        )
        if number % 5 == 4:
            (folder.root / f"policies/p{number % 7}.yaml").unlink()
        watched.live.reload()
        live = watched.live
        fresh = Ruleset.build([stored.policy for stored in live.snapshot.of("default").values()])
        assert live.ruleset("default").digest == fresh.digest
        assert live.ruleset("default").revision == live.revision


def test_compaction_loses_no_change_made_meanwhile(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(folder)
    monkeypatch.setattr(Ruleset, "needs_compaction", property(lambda self: True))
    compacted = Ruleset.compacted
    may_go_on = threading.Event()

    def slowly(self: Ruleset) -> Ruleset:
        made = compacted(self)
        may_go_on.wait(5)
        return made

    monkeypatch.setattr(Ruleset, "compacted", slowly)
    folder.write("policies/b.yaml", document("b", value="pay"))
    watched.live.reload()
    folder.write("policies/a.yaml", document("a", value="mail"))
    watched.live.reload()
    monkeypatch.setattr(Ruleset, "needs_compaction", property(lambda self: False))
    may_go_on.set()
    watched.until(lambda: not watched.live._compacting)
    assert watched.blocks("mail") and watched.blocks("pay") and not watched.blocks("wire")
    assert watched.live.ruleset("default").revision == watched.live.revision == 3


def test_readers_never_see_a_mixture(folder: Folder) -> None:
    """Two policies that only ever change together are always seen together."""
    folder.write("policies/b.yaml", document("b"))
    watched = Watched(folder)
    seen: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            policies = watched.live.ruleset("default").policies
            if policies["a"].name != policies["b"].name:
                seen.append("a mixture")

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        for name in ("a", "b"):
            folder.write(f"policies/{name}.yaml", document(name, name=f"N{number}"))
        watched.live.reload()
    stop.set()
    reader.join()
    assert seen == []
