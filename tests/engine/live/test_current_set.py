"""Writes are in force as soon as they are answered, and readers never see a mixture."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from engine.errors import PolicyNotFound, StorageError
from engine.matching.ruleset import Ruleset
from tests.harness.policy_folder import ADMIN, BODY, Folder, document
from tests.harness.watched_folder import Watched


def test_an_answered_write_is_in_force_here_and_after_catching_up_everywhere(folder: Folder) -> None:
    one, two = Watched(folder), Watched(folder)
    conditions = [{"field": "toolName", "operator": "equals", "value": "pay"}]
    changes = {"matchConditions": conditions}
    stored = one.live.write(lambda policies: policies.update("default", "a", changes, author=ADMIN))
    assert one.blocks("pay") and stored.policy.version == 2
    assert two.blocks("wire")
    two.live.catch_up(one.live.revision)
    assert two.blocks("pay") and not two.blocks("wire")
    with pytest.raises(StorageError):
        two.live.catch_up(99)


def test_all_writes_and_their_readings(folder: Folder) -> None:
    live = Watched(folder).live
    wires, acme = ("acme", "hold-wires"), {"author": ADMIN, "organisation_id": "acme"}
    made = live.write(lambda policies: policies.create(BODY, **acme))
    assert live.ruleset("acme").policies.keys() == {"hold-wires"}
    assert live.ruleset("nobody").policies == {}
    warn = {"action": "warn"}
    live.write(lambda policies: policies.update(*wires, warn, author=ADMIN, if_match=made.etag))
    assert live.write(lambda policies: policies.rollback(*wires, 1, author=ADMIN)).policy.version == 3
    assert [each.version for each in live.repository.versions(*wires)] == [3, 2, 1]
    live.write(lambda policies: policies.delete(*wires, author=ADMIN))
    assert live.ruleset("acme").policies == {}
    with pytest.raises(PolicyNotFound):
        live.write(lambda policies: policies.update(*wires, {}, author=ADMIN))
    with pytest.raises(PolicyNotFound):
        live.repository.versions("acme", "nothing")
    found = live.repository.policies_at("acme", 3)
    assert found is not None and [policy.action for policy in found[1]] == ["warn"]
    many = live.write(lambda policies: policies.create_many([BODY, BODY], **acme))
    assert [each.policy.policy_id for each in many] == ["hold-wires-2", "hold-wires-3"]
    revision = live.revision
    assert live.write(lambda policies: policies.create_many([], **acme)) == [] and live.revision == revision


def test_an_edit_found_by_a_refused_write_is_in_force(folder: Folder) -> None:
    watched = Watched(folder)
    (folder.root / "policies/a.yaml").unlink()
    with pytest.raises(PolicyNotFound):
        watched.live.write(lambda policies: policies.update("default", "a", {"name": "x"}, author=ADMIN))
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


def test_what_is_told_of_the_set_waits_for_no_disk(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the policies lie on a network that hangs, the event loop would wait, and with it everybody."""
    live = Watched(folder).live

    def hangs(*arguments: object, **named: object) -> None:
        raise AssertionError("the disk was asked")

    with monkeypatch.context() as patch:
        for name in ("stat", "lstat", "scandir", "listdir", "open"):
            patch.setattr(os, name, hangs)
        patch.setattr(Path, "resolve", hangs)
        health, replaced = live.health(), live.replaced()
    assert health["stale"] is False and replaced == []
