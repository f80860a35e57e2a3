"""Secrets in the database: unreadable without the signing secret, and taken along when that is changed."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from api import bootstrap
from api.auth.signing_secret import open_vault, signing_secret
from api.clock import iso, random_ids, seconds, system_clock
from api.database.connection import Database
from api.database.secrets_at_rest import VAULT, SecretsLocked, Vault, close_to_others, new_data_key
from api.database.transaction import Transaction
from api.health import nodes
from api.settings import SettingsError
from api.store import accounts, data_key
from tests.harness.application import Service, settings_for
from tests.harness.command_line import run_command

OLD, NEW = "the old signing secret, 32 bytes long", "the new signing secret, 32 bytes long"
HOOK = {"url": "https://example.com/hook", "events": ["tool.blocked"]}
CHAT = {"name": "chat", "value": "https://chat.example.com/hooks/nobody-may-read-this"}
RULE = {"algorithm": "HS256", "key": "a secret of the organisation, quite long enough"}


def made(folder: Path) -> str:
    """A service that has a webhook and a rule for user tokens; the webhook's secret."""

    async def play() -> str:
        async with Service(folder, environment={"GOVERNANCE_JWT_SECRET": OLD}) as service:
            hook = await service.call("admin", "POST", "/v1/webhooks", HOOK)
            await service.call("admin", "POST", "/v1/notifications/secrets", CHAT)
            body = {"name": "Default", "userToken": RULE}
            assert (await service.call("admin", "PUT", "/v1/organisation", body)).status_code == 200
            return str(hook.json()["secret"])

    return asyncio.run(play())


def unlocked(folder: Path, secret: str, before: str = "") -> tuple[str, str]:
    """What a start with this signing secret finds: the webhook's secret and the key of user tokens."""
    settings = settings_for(folder, GOVERNANCE_JWT_SECRET=secret, GOVERNANCE_JWT_SECRET_BEFORE=before)
    store = Database(settings.database)
    try:
        store.migrate()
        with store.transaction():
            transaction = Transaction(store, system_clock(), random_ids, None)
            open_vault(transaction, settings, signing_secret(settings))
            ((kept,),) = store.rows("SELECT secret FROM webhooks")
            rule = accounts.user_token_rule("default")
        return VAULT.open(kept), rule["key"] if rule else ""
    finally:
        store.close()


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if "sqlite" in path.name)


def database_of(folder: Path) -> Path:
    return next(folder.rglob("governance.sqlite"))


def test_no_secret_lies_in_the_files_and_a_new_signing_secret_takes_them_along(tmp_path: Path) -> None:
    secret = made(tmp_path)
    found = everything(tmp_path)
    assert b"example.com/hook" in found
    assert secret.encode() not in found and RULE["key"].encode() not in found
    assert CHAT["value"].encode() not in found
    with pytest.raises(SettingsError, match="GOVERNANCE_JWT_SECRET_BEFORE"):
        unlocked(tmp_path, NEW)
    with pytest.raises(SettingsError, match="another signing secret"):
        unlocked(tmp_path, NEW, before="neither the old nor the new signing secret")
    assert unlocked(tmp_path, NEW, before=OLD) == (secret, RULE["key"])
    assert unlocked(tmp_path, NEW) == (secret, RULE["key"])
    with pytest.raises(SettingsError):
        unlocked(tmp_path, OLD)


def test_another_signing_secret_says_what_to_do_also_with_nothing_encrypted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(secret: str, before: str = "") -> None:
        settings = settings_for(tmp_path, GOVERNANCE_JWT_SECRET=secret, GOVERNANCE_JWT_SECRET_BEFORE=before)
        bootstrap.prepare(settings)

    start(OLD)
    with pytest.raises(SettingsError, match=r"^the signing secret is another one .* loses nothing$"):
        start(NEW)
    with pytest.raises(SettingsError, match=r"^GOVERNANCE_JWT_SECRET_BEFORE is not .* either; the signing"):
        start(NEW, before="neither the old nor the new signing secret")
    start(NEW, before=OLD)
    start(NEW, before=OLD)
    words = ("secrets", "forget", "--database-url", f"sqlite:///{database_of(tmp_path)}", "--yes")
    assert run_command(capsys, *words)[0] == 0
    start(OLD)
    with pytest.raises(SettingsError, match="governance secrets forget --yes"):
        start(NEW)


def test_what_was_kept_without_encryption_is_taken_along(tmp_path: Path) -> None:
    secret = made(tmp_path)
    with sqlite3.connect(database_of(tmp_path)) as database:
        database.execute("UPDATE webhooks SET secret = ?", (secret,))
        database.execute("UPDATE organisations SET user_token = ?", (json.dumps(RULE),))
        database.execute("DELETE FROM data_keys")
    database.close()
    assert unlocked(tmp_path, OLD) == (secret, RULE["key"])
    with sqlite3.connect(database_of(tmp_path)) as database:
        ((kept, rule),) = database.execute(
            "SELECT w.secret, o.user_token FROM webhooks w, organisations o"
            " WHERE o.organisation_id = 'default'"
        )
    database.close()
    assert kept.startswith("sealed:1:") and RULE["key"] not in rule


def test_what_is_lost_is_given_up_only_when_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    words = ("secrets", "forget", "--database-url", f"sqlite:///{database_of(tmp_path)}")
    assert run_command(capsys, *words)[0] == 2
    code, output, _ = run_command(capsys, *words, "--yes")
    assert (code, output) == (
        0,
        "forgotten: secrets of 1 webhooks, 1 secrets of channels, keys of 1 organisations\n"
        "channels tell nobody of approvals until their secrets are set again\n",
    )
    with sqlite3.connect(database_of(tmp_path)) as database:
        assert database.execute("SELECT enabled, secret FROM webhooks").fetchall() == [(0, "")]
        assert database.execute("SELECT * FROM notification_secrets").fetchall() == []
    database.close()


def test_what_can_be_read_is_not_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = made(tmp_path)
    words = ("secrets", "forget", "--database-url", f"sqlite:///{database_of(tmp_path)}", "--yes")
    for name in ("GOVERNANCE_JWT_SECRET", "GOVERNANCE_JWT_SECRET_BEFORE"):
        monkeypatch.setenv("GOVERNANCE_JWT_SECRET", NEW)
        monkeypatch.setenv(name, OLD)
        code, _, error = run_command(capsys, *words)
        assert code == 1 and "nothing was forgotten" in error
    assert unlocked(tmp_path, OLD) == (secret, RULE["key"])
    monkeypatch.setenv("GOVERNANCE_JWT_SECRET_BEFORE", NEW)
    monkeypatch.setenv("GOVERNANCE_JWT_SECRET", NEW)
    assert run_command(capsys, *words)[0] == 0


def test_nothing_is_given_up_while_the_service_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path)
    words = ("secrets", "forget", "--database-url", f"sqlite:///{database_of(tmp_path)}", "--yes")

    def tell(seconds_ago: float) -> None:
        store = Database(f"sqlite:///{database_of(tmp_path)}")
        now = time.time() - seconds_ago
        node = dict.fromkeys(("version", "policyDigest"), "x") | {"policyRevision": 1, "stale": False}
        node |= {"nodeId": "n", "host": "h", "processId": 7, "startedAt": iso(now), "seenAt": iso(now)}
        with store.transaction():
            transaction = Transaction(store, now, random_ids, None)
            nodes.tell(transaction, node, "[]")
            transaction.flush()
        store.close()

    tell(0)
    code, output, errors = run_command(capsys, *words)
    assert code == 1 and output == "" and "the service runs: process 7 on `h`" in errors
    with sqlite3.connect(database_of(tmp_path)) as database:
        assert database.execute("SELECT COUNT(*) FROM data_keys").fetchone() == (1,)
    database.close()
    tell(-9e8)  # and died while its clock was years ahead
    code, _, errors = run_command(capsys, *words)
    assert code == 1 and "the service runs: process 7 on `h`" in errors
    with sqlite3.connect(database_of(tmp_path)) as database:
        ((seen_at,),) = database.execute("SELECT seen_at FROM nodes")
    database.close()
    assert seconds(seen_at) <= time.time(), "so a minute later it is silent"
    tell(nodes.SILENT_SECONDS + 1)
    assert run_command(capsys, *words)[0] == 0


async def test_a_webhook_without_a_secret_is_not_switched_on(tmp_path: Path) -> None:
    """Its deliveries would be signed with an empty key."""
    async with Service(tmp_path) as service:
        hook = (await service.call("admin", "POST", "/v1/webhooks", HOOK)).json()
        path = f"/v1/webhooks/{hook['webhookId']}"
        await service.context.writer.write(lambda transaction: data_key.forget(transaction, "test"))
        change, rotate = ("PATCH", path, {"enabled": True}), ("POST", f"{path}/rotate")
        answers = [await service.call("admin", *each) for each in (change, rotate, change)]
        assert [each.status_code for each in answers] == [409, 200, 200]
        assert "rotate it first" in answers[0].text


def test_a_value_that_was_changed_is_an_error() -> None:
    vault = Vault()
    with pytest.raises(SecretsLocked):
        vault.seal("x")
    vault.unlock(new_data_key())
    kept = vault.seal("a secret")
    assert vault.open(kept) == "a secret" and vault.open("of before") == "of before"
    for broken in (kept[:-4] + "AAA=", "sealed:1:", "sealed:1:%%%"):
        with pytest.raises(SecretsLocked):
            vault.open(broken)


@pytest.mark.skipif(os.name == "nt", reason="no modes of files")
def test_every_file_is_for_its_owner_whatever_the_folder(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = tmp_path / "open"
        folder.mkdir(mode=0o777)
        store = Database(f"sqlite:///{folder / 'g.sqlite'}")
        store.migrate()
        store.read_here(store.rows, "SELECT 1")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert set(modes.values()) == {0o600}, modes
        (folder / "g.sqlite").chmod(0o644)
        store.migrate()
        assert stat.S_IMODE((folder / "g.sqlite").stat().st_mode) == 0o600
        store.close()
    finally:
        os.umask(old)


@pytest.mark.skipif(os.name == "nt", reason="no modes of files")
def test_a_file_that_cannot_be_closed_is_not_called_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without modes in the file system `chmod` does nothing; of somebody else's file it is refused."""
    path = tmp_path / "g.sqlite"
    path.touch()

    def refused(self: Path, mode: int) -> None:
        raise PermissionError

    for chmod in (lambda self, mode: None, refused):
        path.chmod(0o644)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "chmod", chmod)
            close_to_others(path)
        assert "cannot be closed to them" in caplog.text and "closed to them now" not in caplog.text
        caplog.clear()
    close_to_others(path)
    assert "closed to them now" in caplog.text
