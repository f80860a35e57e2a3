"""`governance audit`: what was noted earlier is held against the log, and the key can be noted."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from api import cli
from api.audit import rekey, verification
from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import installation_key
from api.bootstrap import prepare
from api.database.connection import Database
from api.settings import load
from tests.harness.command_line import DataShell


def sign(shell: DataShell, later: float = 0) -> None:
    """What a running service does once a second, so many seconds from now."""
    from api.clock import random_ids, system_clock
    from api.database.transaction import Transaction

    settings = load({}, data_dir=str(shell.data))
    store = Database(settings.database)
    try:
        with store.transaction():
            transaction = Transaction(store, system_clock() + later, random_ids, None)
            assert Checkpointer(installation_key(settings)).sign(transaction) is not None
            transaction.flush()
    finally:
        store.close()


def test_what_was_noted_is_expected(data_shell: DataShell, tmp_path: Path) -> None:
    data_shell.run("keys", "add", "one")
    noted = tmp_path / "noted.json"
    noted.write_text(json.dumps(data_shell.json("audit", "verify")))
    count, digest = (json.loads(noted.read_text())[0][name] for name in ("count", "lastHash"))
    data_shell.run("keys", "add", "two")
    for expected in (str(noted), str(count), digest):
        assert data_shell.run("audit", "verify", "--organisation", "default", "--expect", expected)[0] == 0
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("DELETE FROM audit WHERE sequence >= ?", (count,))
    for expected, problem in ((str(noted), "noted"), (str(count), "are gone"), (digest, "noted")):
        code, _, error = data_shell.run("audit", "verify", "--organisation", "default", "--expect", expected)
        assert code == 1 and problem in error, expected
    for wrong in ("many", str(tmp_path / "none.json"), str(tmp_path)):
        assert "--expect" in data_shell.refused("audit", "verify", "--expect", wrong, code=2)
    data_shell.run("organisations", "add", "acme")
    assert "--organisation" in data_shell.refused("audit", "verify", "--expect", "4", code=2)


def test_a_problem_that_quotes_an_agent_does_not_steer_the_terminal(
    data_shell: DataShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verification.verify

    def quoting(*arguments: Any) -> dict[str, Any]:
        problem = "the event `e\x1b[1A\x1b[2K` was never recorded by this log"
        return {**found(*arguments), "valid": False, "problems": [problem], "notes": ["\x9b2J"]}

    monkeypatch.setattr(verification, "verify", quoting)
    data_shell.run("keys", "add", "one")
    code, _, error = data_shell.run("audit", "verify")
    assert code == 1 and "the event `e\\u001b[1A\\u001b[2K` was" in error and "note: \\u009b2J" in error
    assert all(line.isprintable() for line in error.splitlines())


def test_an_organisation_that_was_removed_is_missed(data_shell: DataShell, tmp_path: Path) -> None:
    data_shell.run("organisations", "add", "acme")
    sign(data_shell)
    noted = tmp_path / "noted.json"
    noted.write_text(json.dumps(data_shell.json("audit", "verify")))
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        for table in ("audit", "organisations"):
            database.execute(f"DELETE FROM {table} WHERE organisation_id = 'acme'")
    code, _, error = data_shell.run("audit", "verify")
    assert code == 1 and "acme: the organisation `acme` is gone" in error and "are gone" in error
    assert data_shell.run("audit", "verify", "--organisation", "default")[0] == 0
    assert data_shell.run("audit", "verify", "--organisation", "acme")[0] == 1
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("DELETE FROM checkpoints")
    assert data_shell.run("audit", "verify")[0] == 0
    code, _, error = data_shell.run("audit", "verify", "--expect", str(noted))
    assert code == 1 and "acme: there are 0 records where 1 were noted" in error


def test_a_database_of_nobody_has_no_record_to_verify(data_shell: DataShell) -> None:
    """As where its name was mistyped, or its volume is not mounted; code 0 would say that all is well."""
    for path in data_shell.data.iterdir():
        path.unlink()
    path = data_shell.data / "governance.sqlite"
    path.touch()
    assert "is empty" in data_shell.refused("audit", "verify", code=2)
    with contextlib.closing(Database(f"sqlite:///{path}")) as store:
        store.migrate()
    assert "holds no organisation" in data_shell.refused("audit", "verify")
    assert "holds no organisation" in data_shell.refused("audit", "verify", "--format", "json")


def test_what_notes_nothing_is_refused(data_shell: DataShell, tmp_path: Path) -> None:
    empty, acme = tmp_path / "empty.json", tmp_path / "acme.json"
    empty.write_text("[]")
    acme.write_text(json.dumps([{"organisationId": "acme", "count": 1, "lastHash": "0" * 64}]))
    assert "notes nothing" in data_shell.refused("audit", "verify", "--expect", str(empty), code=2)
    of_default = ("audit", "verify", "--organisation", "default", "--expect", str(acme))
    assert "notes nothing of `default`" in data_shell.refused(*of_default, code=2)


def test_the_key_is_shown_and_used(data_shell: DataShell) -> None:
    assert "the first start makes it" in data_shell.refused("audit", "key")
    sign(data_shell)
    key = data_shell.json("audit", "key")[0]
    found = data_shell.json("audit", "verify")[0]
    assert (found["valid"], found["keyId"], found["unsigned"]) == (True, key["keyId"], 0)
    assert data_shell.json("audit", "verify", "--public-key", key["publicKey"])[0]["valid"]
    other = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    code, _, error = data_shell.run("audit", "verify", "--public-key", other)
    assert code == 1 and "signed with another key" in error
    assert "64 hexadecimal digits" in data_shell.refused("audit", "verify", "--public-key", "x", code=2)
    assert (data_shell.data / "audit-key").stat().st_mode & 0o777 == 0o600


def test_a_new_key_begins_and_the_chain_goes_on(data_shell: DataShell) -> None:
    assert "nothing is signed yet" in data_shell.refused("audit", "rekey")
    sign(data_shell)
    old = data_shell.json("audit", "key")[0]
    code, output, _ = data_shell.run("audit", "rekey")
    new = data_shell.json("audit", "key")[0]
    assert code == 0 and f"the key is `{new['keyId']}` now, before it was `{old['keyId']}`" in output
    assert data_shell.json("audit", "verify")[0]["valid"], "the new key has vouched for what was before"
    assert (data_shell.data / f"audit-key.{old['keyId']}").stat().st_mode & 0o777 == 0o600
    data_shell.run("keys", "add", "one")
    sign(data_shell, later=2)
    for known in (new, old):
        found = data_shell.json("audit", "verify", "--public-key", known["publicKey"])[0]
        assert (found["valid"], found["keyId"], found["unsigned"]) == (True, new["keyId"], 0)
        assert f"the key is `{new['keyId']}`, before it was `{old['keyId']}`" in found["notes"][0]
        assert "the key of before signed that" in found["notes"][0]
    code, _, error = data_shell.run("audit", "verify")
    assert code == 0 and "note: since checkpoint" in error


@pytest.mark.parametrize("before", ["create", "_put_in_place", "replace"])
def test_a_change_of_the_key_that_died_is_finished(
    before: str, data_shell: DataShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(data_shell)
    old = data_shell.json("audit", "key")[0]
    with monkeypatch.context() as patched:
        patched.setattr(Path if before == "replace" else rekey, before, _dies)
        with pytest.raises(_Died):
            data_shell.run("audit", "rekey")
    assert data_shell.json("audit", "verify")[0]["valid"]
    prepare(load({}, data_dir=str(data_shell.data)))
    new = data_shell.json("audit", "key")[0]
    assert (new == old) is (before == "create")
    assert (data_shell.data / f"audit-key.{old['keyId']}").exists() is (new != old)
    data_shell.run("keys", "add", "one")
    sign(data_shell, later=2)
    assert data_shell.run("audit", "rekey")[0] == 0
    assert data_shell.json("audit", "verify", "--public-key", old["publicKey"])[0]["valid"]
    assert not list(data_shell.data.glob("*.new"))


class _Died(BaseException):
    """Nothing is tidied up by it."""


def _dies(*_: object, **__: object) -> None:
    raise _Died


def test_of_two_changes_of_the_key_at_once_one_is_refused_and_no_key_is_lost(
    data_shell: DataShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(data_shell)
    made, others = rekey.create, [0]

    def also_another(path: Path, text: str) -> None:
        made(path, text)
        if others:
            others.clear()
            assert cli.main(["audit", "rekey", "--data-dir", str(data_shell.data)]) == 0

    monkeypatch.setattr(rekey, "create", also_another)
    assert "somebody else has just begun with a new key" in data_shell.refused("audit", "rekey")
    found, key = data_shell.json("audit", "verify")[0], data_shell.json("audit", "key")[0]
    assert (found["valid"], found["keyId"]) == (True, key["keyId"])
    assert len(list(data_shell.data.glob("audit-key*"))) == 2


def test_a_lost_key_is_given_up_only_when_that_is_said(data_shell: DataShell) -> None:
    sign(data_shell)
    old = data_shell.json("audit", "key")[0]
    (data_shell.data / "audit-key").unlink()
    assert "say --lost" in data_shell.refused("audit", "rekey")
    assert not list(data_shell.data.glob("audit-key*"))
    assert data_shell.run("audit", "rekey", "--lost")[0] == 0
    data_shell.run("keys", "add", "one")
    sign(data_shell, later=2)
    found = data_shell.json("audit", "verify")[0]
    assert (found["valid"], found["unsigned"]) == (True, 0)
    assert "the key of before was lost, so only the new one says so" in found["notes"][0]
    code, _, error = data_shell.run("audit", "verify", "--public-key", old["publicKey"])
    assert code == 1 and "signed with another key" in error


def test_a_key_that_lies_beside_is_not_lost(data_shell: DataShell, tmp_path: Path) -> None:
    """As where a backup of before a change of the key was put back."""
    sign(data_shell)
    key, copy = data_shell.data / "audit-key", tmp_path / "copy.sqlite"
    kept = key.with_name(f"audit-key.{data_shell.json('audit', 'key')[0]['keyId']}")
    assert data_shell.run("backup", str(copy))[0] == 0
    assert data_shell.run("audit", "rekey")[0] == 0
    copy.replace(data_shell.data / "governance.sqlite")
    for words in (["audit", "rekey"], ["audit", "rekey", "--lost"]):
        assert f"is `{kept}`; put it in the place of `{key}`" in data_shell.refused(*words)
    kept.replace(key)
    assert data_shell.run("audit", "rekey")[0] == 0


def test_without_a_key_file_it_is_said_what_was_compared(data_shell: DataShell) -> None:
    sign(data_shell)
    public = data_shell.json("audit", "key")[0]["publicKey"]
    assert data_shell.json("audit", "verify")[0]["notes"] == []
    (data_shell.data / "audit-key").unlink()
    code, _, error = data_shell.run("audit", "verify")
    assert code == 0 and "the public key that the database itself names" in error and "--public-key" in error
    assert data_shell.json("audit", "verify", "--public-key", public)[0]["notes"] == []


@pytest.mark.postgres
def test_a_restored_postgresql_is_not_said_to_hold_all(data_shell: DataShell, postgres_url: str) -> None:
    prepare(load({}, data_dir=str(data_shell.data), database_url=postgres_url))
    code, output, _ = data_shell.run("audit", "accept-restored", "--database-url", postgres_url)
    assert code == 0 and "nothing to accept" in output and "--expect noted.json" in output
