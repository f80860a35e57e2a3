"""The first start makes what is missing, once, and says the secrets once."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from api import bootstrap
from api.audit.installation_key import new_key
from api.audit.verification import verify
from api.auth import passwords
from api.auth.credentials import key_digest
from api.auth.private_file import create, is_open, kept
from api.auth.signing_secret import FILE, signing_secret
from api.bootstrap import FirstStart
from api.database.connection import Database
from api.settings import SettingsError, load
from api.store import accounts


def prepare(folder: Path, **flags: str) -> FirstStart:
    return bootstrap.prepare(load({}, data_dir=str(folder / "data"), **flags))


@pytest.fixture
def store(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'data' / 'governance.sqlite'}")


def test_the_first_start_makes_an_admin_and_a_key(tmp_path: Path, store: Database) -> None:
    made = prepare(tmp_path)
    assert made.admin_email == "admin@localhost"
    assert made.admin_password is not None and len(made.admin_password) >= 20
    assert made.api_key is not None and made.api_key.startswith("agk_")
    found = store.read_here(accounts.find_login, "admin@localhost")
    assert found is not None
    user, stored = found
    assert user["role"] == "admin" and user["organisationId"] == "default" and user["enabled"]
    assert stored.startswith("$argon2id$")
    assert passwords.matches(stored, made.admin_password)
    _, keys = store.read_here(accounts.active_keys)
    assert list(keys) == [key_digest(made.api_key)]
    assert store.read_here(verify, store, "default")["valid"] is True


def test_no_secret_is_kept_or_shown_in_text(tmp_path: Path) -> None:
    made = prepare(tmp_path)
    assert made.admin_password is not None and made.api_key is not None
    assert made.admin_password not in repr(made) and made.api_key not in repr(made)
    for file in (tmp_path / "data").iterdir():
        content = file.read_bytes()
        assert made.admin_password.encode() not in content
        assert made.api_key.encode() not in content


def test_later_starts_make_nothing(tmp_path: Path) -> None:
    assert prepare(tmp_path).made_anything
    again = prepare(tmp_path)
    assert again == FirstStart()
    assert not again.made_anything


def test_the_configured_first_admin_and_key(tmp_path: Path, store: Database) -> None:
    made = prepare(
        tmp_path, admin_email="Ada@Example.com", admin_password="a fine password", api_key="k" * 20
    )
    assert made.admin_email == "ada@example.com"
    assert made.made_key
    assert made.admin_password is None and made.api_key is None, "whoever set them knows them"
    found = store.read_here(accounts.find_login, "ada@example.com")
    assert found is not None and passwords.matches(found[1], "a fine password")
    keys, _ = store.read_here(accounts.list_keys, "default")
    assert keys[0]["prefix"] == "kkk", "a short key is not given away by its beginning"


def test_configured_secrets_are_for_the_first_start_only(tmp_path: Path, store: Database) -> None:
    prepare(tmp_path)
    again = prepare(tmp_path, admin_email="eve@example.com", admin_password="p" * 12, api_key="k" * 20)
    assert not again.made_anything
    assert [note.split(" ")[0] for note in again.notes] == ["GOVERNANCE_ADMIN_EMAIL", "GOVERNANCE_API_KEY"]
    assert store.read_here(accounts.find_login, "eve@example.com") is None
    assert key_digest("k" * 20) not in store.read_here(accounts.active_keys)[1]


@pytest.mark.skipif(os.name == "nt", reason="no such limit")
def test_a_start_says_that_it_may_run_out_of_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a thread cannot begin for want of them, all of the service may wait for it for ever."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1 << 30, resource.RLIM_INFINITY))
    (note,) = prepare(tmp_path).notes
    assert "1024 MiB of addresses only (`ulimit -v`" in note and "MemoryMax=" in note
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    assert prepare(tmp_path).notes == ()


def test_a_start_says_that_a_changed_secret_of_the_first_start_changes_nothing(tmp_path: Path) -> None:
    told = {"admin_password": "a fine password", "api_key": "k" * 20}
    prepare(tmp_path, **told)
    assert prepare(tmp_path, **told) == FirstStart()
    first, second = prepare(tmp_path, admin_password="another password", api_key="j" * 20).notes
    assert "is not the password of `admin@localhost`, and does not change it" in first
    assert "is no API key in force, and makes none nor revokes one" in second


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"admin_password": "short"}, "GOVERNANCE_ADMIN_PASSWORD: a password needs at least 12 characters"),
        ({"admin_password": "x" * 1025}, "GOVERNANCE_ADMIN_PASSWORD: a password may have at most 1024 bytes"),
        ({"admin_email": "nobody"}, "GOVERNANCE_ADMIN_EMAIL: this is not an e-mail address"),
        ({"admin_email": "a@b.c\r\nX: y"}, "--admin-email is .* has blanks at its ends or characters"),
    ],
)
def test_unsafe_first_credentials_are_refused(tmp_path: Path, flags: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        prepare(tmp_path, **flags)


def test_an_organisation_without_an_admin_gets_one(tmp_path: Path, store: Database) -> None:
    prepare(tmp_path)
    with store.transaction():
        store.rows_changed("UPDATE users SET role = 'viewer'")
    made = prepare(tmp_path, admin_email="ada@example.com")
    assert made.admin_email == "ada@example.com" and not made.made_key
    with store.transaction():
        store.rows_changed("UPDATE users SET role = 'viewer'")
    with pytest.raises(SettingsError, match="is the e-mail of a user who is no admin"):
        prepare(tmp_path, admin_email="ada@example.com")


# The data folder and the signing secret -----------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_secret_are_closed_to_others(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        prepare(tmp_path)
    finally:
        os.umask(old)
    assert mode(tmp_path / "data") == 0o700
    assert mode(tmp_path / "data" / FILE) == 0o600
    assert [file.name for file in (tmp_path / "data").iterdir() if file.name[0] == "."] == [".gitignore"]


def test_git_takes_no_secrets_and_no_database_along(tmp_path: Path) -> None:
    """Neither with `git add -A` nor with `git stash -u`; a folder that was there already is its owner's."""
    prepare(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "other").touch()
    listed = ["git", "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(listed, cwd=tmp_path, capture_output=True, text=True).stdout == "?? other\n"
    (tmp_path / "theirs/data").mkdir(parents=True)
    prepare(tmp_path / "theirs")
    assert not (tmp_path / "theirs/data/.gitignore").exists()


def test_the_secret_stays_the_same(tmp_path: Path) -> None:
    settings = load({}, data_dir=str(tmp_path / "data"))
    first = signing_secret(settings)
    assert len(first) >= 32
    assert signing_secret(settings) == first


def test_a_configured_secret_makes_no_file(tmp_path: Path) -> None:
    settings = load({}, data_dir=str(tmp_path / "data"), jwt_secret="0123456789abcdef" * 3)
    assert signing_secret(settings) == b"0123456789abcdef" * 3
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o644, 0o660, 0o777])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, bits: int) -> None:
    prepare(tmp_path)
    (tmp_path / "data" / FILE).chmod(bits)
    with pytest.raises(
        SettingsError, match=r"may be read by other users .* `chmod 600 .*GOVERNANCE_JWT_SECRET$"
    ):
        prepare(tmp_path)


def test_an_audit_key_without_modes_may_lie_elsewhere(tmp_path: Path) -> None:
    """`chmod` does nothing on exFAT, NTFS and some shares."""
    prepare(tmp_path)
    path = tmp_path / "data" / "audit-key"
    create(path, new_key())
    path.chmod(0o777)
    with pytest.raises(SettingsError, match=r"`chmod 600 .* where .* no modes, .*GOVERNANCE_AUDIT_KEY_FILE$"):
        prepare(tmp_path)


@pytest.mark.parametrize("name", [FILE, "audit-key"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_secret(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    prepare(tmp_path)
    path = tmp_path / "data" / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(SettingsError, match=f"`{path}` cannot be used: it is no file; take it away"):
        prepare(tmp_path)


@pytest.mark.parametrize(
    ("mode", "owner", "user", "found"),
    [
        (0o600, 7, 7, False),
        (0o640, 7, 7, True),
        (0o440, 0, 7, False),
        (0o444, 0, 7, True),
        (0o460, 0, 7, True),
        (0o440, 0, 0, True),
    ],
)
def test_what_root_hands_to_a_group_is_not_open(mode: int, owner: int, user: int, found: bool) -> None:
    assert is_open(mode, owner, user) is found


def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    create(tmp_path / "secret", "first")
    create(tmp_path / "secret", "second")
    assert (tmp_path / "secret").read_text() == "first\n"
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_a_secret_that_is_there_needs_no_folder_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a mounted one, where nothing can be written."""
    create(tmp_path / "secret", "x" * 48)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert kept(tmp_path / "secret", "the secret", lambda: "", "") == "x" * 48
    with pytest.raises(SettingsError, match="cannot be written"):
        kept(tmp_path / "another", "the secret", lambda: "", "")


@pytest.mark.parametrize("content", ["", "short", "\n"])
def test_a_damaged_secret_is_refused(tmp_path: Path, content: str) -> None:
    prepare(tmp_path)
    (tmp_path / "data" / FILE).write_text(content)
    with pytest.raises(SettingsError, match="is shorter than 32 bytes"):
        prepare(tmp_path)


def test_a_data_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"the data folder `.*` cannot be made"):
        bootstrap.prepare(load({}, data_dir=str(tmp_path / "file" / "data")))


def test_a_mistyped_address_of_a_database_starts_no_new_service(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nope/dir/x.sqlite"
    with pytest.raises(SettingsError, match=r"there is no folder `.*nope/dir` for the database"):
        prepare(tmp_path, database_url=url)
    assert not list(tmp_path.iterdir())
    prepare(tmp_path, database_url=f"sqlite:///{tmp_path}/x.sqlite")
    assert (tmp_path / "x.sqlite").is_file()


@pytest.mark.postgres
def test_an_empty_server_under_the_key_of_another_database_is_refused(
    tmp_path: Path, postgres_url: str
) -> None:
    """It would have forgotten every halt. With no key, or one that a setting names, it is a first start."""
    data = tmp_path / "data"
    data.mkdir()
    create(data / "audit-key", new_key())
    with pytest.raises(SettingsError, match=r"is empty, but `.*audit-key` is there, .* backup\. To begin"):
        prepare(tmp_path, database_url=postgres_url)
    (data / "governance.sqlite").touch()
    with pytest.raises(SettingsError, match="governance copy --to URL"):
        prepare(tmp_path, database_url=postgres_url)
    assert not (data / FILE).exists()
    (data / "audit-key").rename(tmp_path / "named")
    made = prepare(tmp_path, database_url=postgres_url, audit_key_file=str(tmp_path / "named"))
    assert made.made_anything
    (tmp_path / "named").rename(data / "audit-key")
    assert not prepare(tmp_path, database_url=postgres_url).made_anything


def test_tables_that_are_empty_under_the_key_of_what_was_there_are_refused(
    tmp_path: Path, store: Database
) -> None:
    """Whoever made them. The signing secret alone says nothing: a first start that died has made it, too."""
    store.migrate()
    create(tmp_path / "data" / "audit-key", new_key())
    with pytest.raises(SettingsError, match=r"governance.sqlite` is empty, but `.*audit-key` is there"):
        prepare(tmp_path)
    (tmp_path / "data" / "audit-key").unlink()
    kept(tmp_path / "data" / FILE, "secret", lambda: "0123456789abcdef" * 4, "")
    assert prepare(tmp_path).made_anything


# Many at once -------------------------------------------------------------------------------------

ONE = """
import json, sys
from api import bootstrap
from api.settings import load
made = bootstrap.prepare(load({}, data_dir=sys.argv[1], database_url=sys.argv[2]))
print(json.dumps([made.admin_password, made.api_key]))
"""


def start_many(count: int, folder: Path, url: str = "") -> list[list[str | None]]:
    processes = [
        subprocess.Popen([sys.executable, "-c", ONE, str(folder), url], stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    answers = []
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        answers.append(json.loads(output))
    return answers


def test_of_many_first_starts_one_makes_it_all(tmp_path: Path, store: Database) -> None:
    answers = start_many(4, tmp_path / "data")
    made = [answer for answer in answers if answer != [None, None]]
    assert len(made) == 1 and None not in made[0]
    assert store.read_here(accounts.list_users, "default")[1] == 1
    assert store.read_here(accounts.list_keys, "default")[1] == 1
    assert store.read_here(verify, store, "default")["valid"] is True


@pytest.mark.postgres
def test_of_many_nodes_on_postgres_one_makes_it_all(tmp_path: Path, postgres_url: str) -> None:
    answers = start_many(3, tmp_path / "data", postgres_url)
    assert len([answer for answer in answers if answer != [None, None]]) == 1
