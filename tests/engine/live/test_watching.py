"""A change of the files comes into force by itself; a broken one is told once, and the good set stays."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import live as live_module
from engine.errors import ArchiveUnavailable, StorageError
from engine.live import LivePolicies
from tests.harness.policy_folder import ADMIN, Folder, document, preset
from tests.harness.watched_folder import Watched, watching


def test_a_change_of_a_file_comes_into_force_by_itself(folder: Folder) -> None:
    with watching(folder) as watched:
        assert watched.blocks("wire") and not watched.blocks("pay")
        watched.until(lambda: watched.live.repository.apply_files().changes == ())
        folder.write("policies/a.yaml", document("a", value="pay"))
        took = watched.until(lambda: watched.blocks("pay"))
        assert not watched.blocks("wire")
        assert took < 2, "usually 0.21 s; the machine may be busy"
        assert watched.live.health() == {
            "revision": 2,
            "count": 1,
            "stale": False,
            "inactive": [],
            "errors": [],
            "warnings": [],
        }
        watched.until(lambda: len(watched.changes) == 2)


def test_a_batch_is_one_revision(folder: Folder) -> None:
    with watching(folder) as watched:
        for name in ("team/b", "team/c", "team/d", "stays"):
            folder.write(f"policies/{name}.yaml", document(name.removeprefix("team/")))
        shutil.move(folder.root / "policies/a.yaml", folder.root / "policies/team/a.yaml")
        watched.until(lambda: watched.live.snapshot.count == 5)
        assert watched.live.revision == 2
        shutil.rmtree(folder.root / "policies/team")
        watched.until(lambda: watched.live.snapshot.count == 1)
        assert watched.live.revision == 3


def test_a_switched_config_map_is_heard_of(folder: Folder) -> None:
    """All of its files are links through one that is hidden, which alone changes."""
    place = folder.root / "policies"
    (place / "a.yaml").unlink()

    def switch(version: str, tool: str) -> None:
        (place / version).mkdir()
        (place / version / "a.yaml").write_text(document("a", value=tool))
        (place / "..data_tmp").symlink_to(version)
        (place / "..data_tmp").replace(place / "..data")

    switch("..one", "wire")
    (place / "a.yaml").symlink_to("..data/a.yaml")
    with watching(folder) as watched:
        watched.until(lambda: watched.live._rescans == 1)
        assert watched.blocks("wire")
        switch("..two", "pay")
        watched.until(lambda: watched.blocks("pay"))


def test_a_broken_file_is_told_once_and_the_good_set_stays(folder: Folder) -> None:
    with watching(folder) as watched:
        before = watched.live.ruleset("default")
        aside = folder.root / "policies/.a.yaml.swp"
        aside.write_text("half a fi")
        aside.replace(folder.root / "policies/a.yaml")  # at once: an empty file would be another problem
        watched.until(lambda: bool(watched.failures))
        assert watched.live.health()["stale"]
        assert watched.live.ruleset("default") is before
        assert watched.live.health()["errors"] == [
            {
                "file": "policies/a.yaml",
                "line": 1,
                "column": 1,
                "message": "this must be an object; it is text",
            }
        ]
        watched.live.reload()
        assert watched.live.reload_failures == 1 and len(watched.failures) == 1
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"))
        assert not watched.live.health()["stale"]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates not allowed"), "UnicodeEncodeError"),
        (StorageError("the database is not the one"), "the database is not the one"),
    ],
)
def test_when_looking_fails_the_set_is_stale(
    failure: Exception, told: str, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.1)
    with watching(folder) as watched:
        look = folder.archive.view

        def fail(work: Any) -> Any:
            raise failure

        folder.archive.view = fail  # type: ignore[method-assign]
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: bool(watched.live.health()["stale"]))
        (error,) = watched.live.health()["errors"]
        assert error["message"].startswith(f"looking at the policy files failed ({told});")
        folder.archive.view = look  # type: ignore[method-assign]
        watched.until(lambda: watched.blocks("pay") and not watched.live.health()["stale"])


def test_while_the_archive_is_away_one_line_says_so(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.1)
    with watching(folder) as watched:
        look, tried = folder.archive.view, []

        def fail(work: Any) -> Any:
            tried.append(work)
            error = ArchiveUnavailable("the database cannot be reached; try again shortly")
            error.operator_message = "the database `there` cannot be used: it is away"
            raise error

        folder.archive.view = fail  # type: ignore[method-assign]
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: len(tried) > 1)
        folder.archive.view = look  # type: ignore[method-assign]
        watched.until(lambda: watched.blocks("pay") and not watched.live.health()["stale"])
        told = [record for record in caplog.records if "looking at" in record.message]
        assert [record.message for record in told] == [
            "looking at the policy files waits: the database `there` cannot be used: it is away",
            "looking at the policy files goes on",
        ]
        assert not any(record.exc_info for record in caplog.records)


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
    # As `cp -r` does: the service may write its marker meanwhile.
    shutil.copytree(root.with_name("copy"), root, dirs_exist_ok=True)


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


def test_what_files_changed_is_logged(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="governance.policies")
    folder.write("organisations/acme/theirs.yaml", document("theirs"))
    folder.write("policies/seen.yaml", document("seen", extra="mode: shadow\n"))
    folder.write("policies/off.yaml", document("off", extra="enabled: false\n"))
    for name, more in (("labels", "labels: {add: [secret]}\n"), ("allows", "")):
        text = document(name, extra=more).replace("action: block", "action: allow")
        folder.write(f"policies/{name}.yaml", text)
    folder.write("presets/mail/p.yaml", preset("p"))
    watched = Watched(folder)

    def told() -> list[tuple[str, str]]:
        lines = [(each.levelname, each.getMessage()) for each in caplog.records]
        caplog.clear()
        return lines

    in_force, made = (
        "is in force, from the policy files",
        "`a`, `acme/theirs`, `allows`, `labels`, `off`, `seen`",
    )
    assert told() == [
        ("INFO", f"revision 1 {in_force}: created {made}, preset `p`"),
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
        ("INFO", f"revision 4 {in_force}: deleted {made}"),
        (
            "WARNING",
            "revision 4: the files of policies that were enforced are gone, and with them the policies: "
            "`a`, `acme/theirs`, `labels`",
        ),
    ]
    folder.write("policies/team/b.yaml", document("b", name="Edited"))
    watched.live.write(lambda policies: policies.update("default", "b", {"description": "d"}, author=ADMIN))
    assert told() == [
        ("INFO", f"revision 5 {in_force}: changed `b`"),
        ("INFO", "revision 6 is in force, through the API, by ada@acme.example: changed `b`"),
    ], "the edit a write came upon, and the write"


def test_tools_and_detectors_that_go_with_their_files_are_warned_of(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """As by `git clean`, of what the API wrote and nobody committed: a policy that asks for the kind of a
    tool does not find it any more."""
    head = "apiVersion: governance/v1\nkind: ToolSet\nname: T\n"
    for name in ("ours", "others"):
        tool = f"toolSetId: {name}\ntools: [{{names: [{name}], kind: mail, effect: send}}]\n"
        folder.write(f"tools/{name}.yaml", head + tool)
    watched = Watched(folder)
    (folder.root / "tools/ours.yaml").unlink()
    watched.live.reload()
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "revision 2: the files of tool sets or detectors are gone" in warning and "`ours`" in warning


def test_what_is_mended_is_stale_until_it_decides(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, swap = Watched(folder), LivePolicies._swap
    folder.write("policies/a.yaml", "half a fi")
    watched.live.reload()
    assert watched.live.health()["stale"]
    seen: list[tuple[bool, bool]] = []

    def looked_at_before(live: LivePolicies) -> None:
        if live.repository.snapshot is not live.snapshot:
            seen.append((live.health()["stale"], watched.blocks("pay")))
        swap(live)

    monkeypatch.setattr(LivePolicies, "_swap", looked_at_before)
    folder.write("policies/a.yaml", document("a", value="pay"))
    watched.live.reload()
    assert seen == [(True, False)]
    assert not watched.live.health()["stale"] and watched.blocks("pay")
