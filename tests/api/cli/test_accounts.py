"""Users, keys and organisations on the command line."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from api.auth import passwords
from api.bootstrap import prepare
from api.clock import iso, system_clock
from api.database.connection import Database
from api.settings import load
from api.store import accounts
from tests.harness.command_line import DataShell, run_command


def stored_password(data: Path, email: str) -> str:
    store = Database(f"sqlite:///{data / 'governance.sqlite'}")
    try:
        found = store.read_here(accounts.find_login, email)
    finally:
        store.close()
    assert found is not None
    return found[1]


def test_users_from_first_to_last(data_shell: DataShell) -> None:
    code, output, error = data_shell.run("users", "add", "Ada@Example.com", "--role", "admin")
    assert code == 0
    password = output.strip()
    assert "password of ada@example.com (admin), shown only now" in error
    assert passwords.matches(stored_password(data_shell.data, "ada@example.com"), password)
    users = {user["email"]: user for user in data_shell.json("users", "list")}
    assert users.keys() == {"ada@example.com", "admin@localhost"}
    assert "tokenGeneration" not in users["ada@example.com"]
    assert data_shell.json("users", "role", "ada@example.com", "viewer")[0]["role"] == "viewer"
    assert data_shell.json("users", "disable", "ADA@example.com")[0]["enabled"] is False
    assert data_shell.json("users", "enable", "ada@example.com")[0]["enabled"] is True
    changed = data_shell.json("users", "password", "ada@example.com")
    assert passwords.matches(stored_password(data_shell.data, "ada@example.com"), changed["password"])
    assert data_shell.run("users", "unlock", "ada@example.com")[0] == 0
    assert "ada@example.com" in data_shell.run("users", "list")[1]


def test_a_password_is_changed_in_the_database_that_is_named(
    data_shell: DataShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{data_shell.data / 'governance.sqlite'}"
    elsewhere = ("--data-dir", str(tmp_path / "elsewhere"), "--database-url", url)
    data_shell.run("users", "add", "ada@example.com", "--role", "admin")
    code, output, error = run_command(capsys, "users", "password", "ada@example.com", *elsewhere)
    assert code == 0, error
    assert passwords.matches(stored_password(data_shell.data, "ada@example.com"), output.strip())


def test_a_folder_that_is_named_goes_not_unseen_before_a_variable(
    data_shell: DataShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of production in this shell took what was asked of the folder, a backup of it say."""
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"
    own = data_shell.data / "governance.sqlite"
    assert data_shell.run("backup", tmp_path / "elsewhere.sqlite")[0] == 0
    monkeypatch.setenv("GOVERNANCE_DATABASE_URL", elsewhere)
    for words in (
        ("users", "list"),
        ("keys", "list"),
        ("audit", "verify"),
        ("backup", str(tmp_path / "copy.sqlite")),
    ):
        code, output, error = data_shell.run(*words)
        assert (code, output) == (2, ""), words
        assert f"`{own}` is there, but GOVERNANCE_DATABASE_URL names another database" in error
    assert not (tmp_path / "copy.sqlite").exists()
    assert data_shell.run("users", "list", "--database-url", f"sqlite:///{own}")[0] == 0
    monkeypatch.setenv("GOVERNANCE_DATABASE_URL", f"sqlite:///{own}")
    assert data_shell.run("users", "list")[0] == 0
    monkeypatch.setenv("GOVERNANCE_DATABASE_URL", elsewhere)
    Path(f"{own}.copied").write_text("db.example.com\n")
    assert "is there, but" not in data_shell.run("users", "list")[2]


def test_users_that_are_refused(data_shell: DataShell) -> None:
    assert "already" in data_shell.refused("users", "add", "ADMIN@localhost", "--role", "viewer")
    assert "not an e-mail" in data_shell.refused("users", "add", "nobody", "--role", "viewer")
    assert "last admin" in data_shell.refused("users", "disable", "admin@localhost")
    assert "last admin" in data_shell.refused("users", "role", "admin@localhost", "viewer")
    assert "no user `x@y.z`" in data_shell.refused("users", "password", "x@y.z")
    assert "no organisation `nowhere`" in data_shell.refused(
        "users", "add", "a@b.c", "--role", "viewer", "--organisation", "nowhere"
    )
    data_shell.refused("users", "add", "a@b.c", "--role", "root", code=2)


def test_a_password_is_read_from_the_input_and_never_an_argument(
    data_shell: DataShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("a password from a pipe\nnot this\n"))
    code, output, error = data_shell.run("users", "password", "admin@localhost", "--password-stdin")
    assert code == 0
    assert "a password from a pipe" not in output + error
    assert passwords.matches(stored_password(data_shell.data, "admin@localhost"), "a password from a pipe")
    monkeypatch.setattr(sys, "stdin", io.StringIO("short\n"))
    assert "at least 12" in data_shell.refused("users", "password", "admin@localhost", "--password-stdin")
    data_shell.refused("users", "password", "admin@localhost", "--password", "a long password", code=2)


def test_what_is_not_utf_8_is_told_in_words(data_shell: DataShell, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    words = ("users", "password", "admin@localhost", "--password-stdin")
    utf_16 = ["correct horse battery".encode(each) for each in ("utf-16", "utf-16-le", "utf-16-be")]
    for source in (b"b\xe9ton, correct horse\n", *utf_16):
        for errors in ("strict", "surrogateescape"):
            text = io.TextIOWrapper(io.BytesIO(source), encoding="utf-8", errors=errors)
            monkeypatch.setattr(sys, "stdin", text)
            assert "the input is not text in UTF-8" in data_shell.refused(*words, code=2)
    marked = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfcorrect horse battery\r\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", marked)
    assert data_shell.run(*words)[0] == 0
    assert passwords.matches(stored_password(data_shell.data, "admin@localhost"), "correct horse battery")
    for words in (("keys", "add", "b\udce9ton"), ("organisations", "add", "a", "--name", "b\udce9ton")):
        assert "`b\\udce9ton` is not text in UTF-8" in data_shell.refused(*words, code=2)


def test_a_mistyped_folder_makes_no_database(tmp_path: Path, data_shell: DataShell) -> None:
    data_shell.data = tmp_path / "dta"
    for words in (["users", "list"], ["keys", "list"], ["audit", "verify"], ["backup", str(tmp_path / "b")]):
        assert "there is no database" in data_shell.refused(*words, code=2)
    assert not data_shell.data.exists()


def test_a_home_that_nobody_has_is_told(
    data_shell: DataShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run_command(capsys, "users", "list", "--data-dir", "~nobody-has-this/data")
    assert code == 2 and "--data-dir is `~nobody-has-this/data`: begins with `~`" in error
    monkeypatch.setenv("GOVERNANCE_POLICIES_DIR", "~nobody-has-this/p")
    error = data_shell.refused("users", "list", code=2)
    assert "GOVERNANCE_POLICIES_DIR is `~nobody-has-this/p`: begins with `~`" in error
    words = ("hook", "install", "claude-code", "--key-file", "~nobody-has-this/key")
    code, _, error = run_command(capsys, *words)
    assert code == 2 and "set HOME, or write it out" in error


def test_wrong_settings_are_2(data_shell: DataShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOVERNANCE_PORT", "http")
    assert "GOVERNANCE_PORT is `http`" in data_shell.refused("users", "list", code=2)


def foreign(folder: Path, data: Path) -> Iterator[tuple[str, Path]]:
    """Files that are no database, or not any more."""
    whole = (data / "governance.sqlite").read_bytes()
    for name, content in (
        ("text", b"# A read-me file\n" * 100),
        ("random", bytes(range(7, 256)) * 40),
        ("short", whole[:50]),
        ("truncated", whole[: len(whole) // 3]),
        ("scrambled", whole[:8192] + b"\x5a" * 120_000 + whole[128_192:]),
    ):
        path = folder / f"{name}.sqlite"
        path.write_bytes(content)
        yield name, path


def test_a_file_that_is_no_database_is_refused_in_words(data_shell: DataShell, tmp_path: Path) -> None:
    for name, path in foreign(tmp_path, data_shell.data):
        for words in (["users", "list"], ["keys", "list"], ["audit", "verify"]):
            error = data_shell.refused(*words, "--database-url", f"sqlite:///{path}", code=2)
            assert f"`{path}` is no database or is damaged" in error, name
            assert "governance backup" in error
    assert not (tmp_path / "text.sqlite.lock").exists(), "nothing is put beside a file that is not ours"


def test_a_database_that_cannot_be_reached_says_which_and_why(data_shell: DataShell) -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:1/records"
    error = data_shell.refused("users", "list", "--database-url", url, code=2)
    assert "`127.0.0.1:1/records`" in error and "refused" in error.lower()
    assert "hunter2" not in error


# Keys ---------------------------------------------------------------------------------------------


def test_keys_from_first_to_last(data_shell: DataShell) -> None:
    made = data_shell.json("keys", "add", "mailer", "--agent", "a-1", "--scope", "mail", "--scope", "files")
    assert made["key"].startswith("agk_")
    assert (made["agentId"], made["scopes"]) == ("a-1", ["mail", "files"])
    assert made["createdBy"].startswith("cli")
    listed = data_shell.json("keys", "list")
    assert listed[0]["keyId"] == made["keyId"] and "key" not in listed[0]
    code, output, _ = data_shell.run("keys", "rotate", made["keyId"])
    assert code == 0 and output.strip().startswith("agk_") and output.strip() != made["key"]
    assert "revokedAt" in data_shell.json("keys", "revoke", made["keyId"])[0]
    assert "revoked" in data_shell.refused("keys", "rotate", made["keyId"])
    assert "no key `key_x`" in data_shell.refused("keys", "revoke", "key_x")
    assert "must not be empty" in data_shell.refused("keys", "add", "")


def test_a_key_may_end_by_itself(data_shell: DataShell) -> None:
    made = data_shell.json("keys", "add", "trial", "--days", "30")
    days = datetime.fromisoformat(made["expiresAt"]) - datetime.fromisoformat(made["createdAt"])
    assert round(days.total_seconds() / 86_400) == 30
    assert "give 1 to 36500" in data_shell.refused("keys", "add", "trial", "--days", "0")


def test_a_key_is_better_bound(data_shell: DataShell) -> None:
    assert "--agent ID" in data_shell.run("keys", "add", "any")[2]
    assert "--agent ID" not in data_shell.run("keys", "add", "one", "--agent", "a-1")[2]


def test_a_key_of_somebody_is_told_where_nobody_is_meant_and_where_they_are_disabled(
    data_shell: DataShell,
) -> None:
    data_shell.run("users", "add", "ada@example.com", "--role", "reviewer")
    said = data_shell.run("keys", "add", "wrong", "--agent", "a", "--user", "ada@exmaple.com")[2]
    assert "nobody here has the id or e-mail `ada@exmaple.com`" in said
    made = [
        data_shell.json("keys", "add", "hers", "--agent", "a", "--user", name)["keyId"]
        for name in (data_shell.json("users", "list")[0]["userId"], "Ada@example.com", "ada@example.com")
    ]
    assert "nobody here" not in data_shell.run("keys", "add", "own", "--user", "ada@example.com")[2]
    assert data_shell.run("keys", "revoke", made[1])[0] == 0
    said = data_shell.run("users", "disable", "ada@example.com")[2]
    assert "API keys that are bound to them go on" in said
    assert [key_id in said for key_id in made] == [True, False, True]
    assert "go on" not in data_shell.run("users", "enable", "ada@example.com")[2]


def test_a_name_that_keys_share_is_answered_with_their_ids(data_shell: DataShell) -> None:
    ids = [data_shell.json("keys", "add", "mailer")["keyId"] for _ in range(2)]
    error = data_shell.refused("keys", "revoke", "mailer")
    assert "2 keys have this name" in error and all(each in error for each in ids)
    data_shell.run("keys", "revoke", ids[0])
    error = data_shell.refused("keys", "rotate", "mailer")
    assert "one key has this name" in error and ids[1] in error and ids[0] not in error


def test_ids_and_hashes_stay_on_one_line(
    data_shell: DataShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    key = data_shell.json(
        "keys", "add", "a long name for people " * 4, "--scope", "s" * 60, "--agent", "a" * 60
    )
    last = data_shell.json("audit", "verify")[0]["lastHash"]
    assert re.search(rf"^{key['keyId']} .*{'s' * 60}", data_shell.run("keys", "list")[1], re.MULTILINE)
    assert last in data_shell.run("audit", "verify")[1]
    # On a narrow terminal other columns give way, ids do not.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output = data_shell.run("keys", "list")[1]
    assert key["keyId"] in output and "a" * 60 in output
    assert last in data_shell.run("audit", "verify")[1]


# Organisations ------------------------------------------------------------------------------------


def test_organisations_and_their_first_admin(data_shell: DataShell, tmp_path: Path) -> None:
    assert (
        data_shell.json("organisations", "add", "acme", "--name", "Acme & Söhne")[0]["name"] == "Acme & Söhne"
    )
    assert "already" in data_shell.refused("organisations", "add", "acme")
    for bad in ("acme-", "Acme", "a/b", "..", "", "ä", "a" * 64, "a b"):
        assert "is no id" in data_shell.refused("organisations", "add", bad)
    ids = [organisation["organisationId"] for organisation in data_shell.json("organisations", "list")]
    assert ids == ["acme", "default"]
    added = data_shell.json("users", "add", "boss@acme.example", "--role", "admin", "--organisation", "acme")
    assert added["organisationId"] == "acme"
    assert [user["email"] for user in data_shell.json("users", "list", "--organisation", "acme")] == [
        "boss@acme.example"
    ]
    key = tmp_path / "secret"
    key.write_text("a secret of 32 bytes at the least\n")
    words = ["organisations", "user-tokens", "acme", "--algorithm", "HS256", "--key-file", str(key)]
    assert data_shell.json(*words, "--issuer", "https://id.example")[0]["userToken"] == {
        "algorithm": "HS256",
        "issuer": "https://id.example",
    }
    store = Database(f"sqlite:///{data_shell.data / 'governance.sqlite'}")
    rule = store.read_here(accounts.user_token_rule, "acme")
    store.close()
    assert rule is not None
    assert rule["key"] == "a secret of 32 bytes at the least"
    assert data_shell.json("organisations", "user-tokens", "acme", "--none")[0]["userToken"] is None


def test_rules_that_are_refused(data_shell: DataShell, tmp_path: Path) -> None:
    public = tmp_path / "public.pem"
    public.write_text("-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n")
    words = ["organisations", "user-tokens", "default"]
    assert "not a secret" in data_shell.refused(*words, "--algorithm", "HS256", "--key-file", str(public))
    assert "PEM" in data_shell.refused(*words, "--algorithm", "RS256", "--key-file", str(public))
    missing = data_shell.refused(*words, "--algorithm", "RS256", "--key-file", str(tmp_path / "none"))
    assert "cannot be read" in missing
    assert "--key-file" in data_shell.refused(*words, "--algorithm", "RS256", code=2)
    data_shell.refused(*words, "--algorithm", "none", "--key-file", str(public), code=2)


def test_a_newer_version_changes_no_tables_below_a_service_that_runs(data_shell: DataShell) -> None:
    row = "n", "host-7", 4711, "0.0.1", 1, "d", False, "2026-01-31T09:30:00Z", "[]"
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("DELETE FROM schema_migration WHERE name LIKE '0021%'")
        database.execute(
            "INSERT INTO nodes (node_id, host, process_id, version, policy_revision, policy_digest, stale,"
            " started_at, points, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '2100-01-01T00:00:00Z')",
            row,
        )
    database.close()
    said = data_shell.refused("users", "list", code=2)
    assert "process 4711 on `host-7`" in said and "0021_partitions" in said and "older version runs" in said
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        assert not database.execute("SELECT 1 FROM schema_migration WHERE name LIKE '0021%'").fetchall()
        database.execute("DELETE FROM nodes")
    database.close()
    assert data_shell.run("users", "list")[0] == 0


@pytest.mark.postgres
def test_a_clock_that_is_ahead_makes_no_node_of_the_database_silent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command on another machine, by whose clock nobody has been seen for an hour."""
    prepare(load({}, data_dir=str(tmp_path), database_url=postgres_url))
    store = Database(postgres_url)
    with store.transaction():
        store.rows_changed("DELETE FROM schema_migration WHERE name LIKE ?", ("0024%",))
        store.rows_changed(
            "INSERT INTO nodes (node_id, host, process_id, version, policy_revision, policy_digest, stale,"
            " started_at, points, seen_at) VALUES ('n', 'host-7', 4711, '0.0.1', 1, 'd', false, ?, '[]', ?)",
            (iso(system_clock()), iso(system_clock())),
        )
    store.close()
    monkeypatch.setattr("api.clock.system_clock", lambda: system_clock() + 3_600)
    words = ["users", "list", "--data-dir", str(tmp_path), "--database-url", postgres_url]
    code, _, said = run_command(capsys, *words)
    assert code == 2 and "process 4711 on `host-7`" in said and "older version runs" in said


def test_a_command_takes_along_what_was_before_services_told_that_they_run(data_shell: DataShell) -> None:
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("DELETE FROM schema_migration WHERE name LIKE '0019%'")
        database.execute("DROP TABLE nodes")
        database.execute("CREATE TABLE nodes (node_no INTEGER PRIMARY KEY, name TEXT, seen_at TEXT)")
    database.close()
    assert data_shell.run("users", "list")[0] == 0


def test_rotating_a_key_that_ends_by_itself_says_that_it_still_does(data_shell: DataShell) -> None:
    data_shell.run("keys", "add", "mailer", "--days", "1")
    (made,) = [each for each in data_shell.json("keys", "list") if each["name"] == "mailer"]
    code, _, told = data_shell.run("keys", "rotate", made["keyId"])
    assert code == 0 and f"it ends at {made['expiresAt']}, as the one before" in told
