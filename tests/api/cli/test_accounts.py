"""The command line: accounts, audit, backup, and serving as a real process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api import bootstrap, cli
from api.auth import passwords
from api.cli import terminal
from api.cli.commands import backup
from api.database.connection import Database
from api.settings import load
from api.store import accounts
from tests.harness.places import ROOT
from tests.harness.running_service import write_policy

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("GOVERNANCE_")}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a service that has started once."""
    for name in list(os.environ):
        if name.startswith("GOVERNANCE_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "data"
    bootstrap.prepare(load({}, data_dir=str(folder)))
    return folder


class Shell:
    def __init__(self, data: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.data = data
        self.capture = capture

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and error text of a command on the data folder."""
        self.capture.readouterr()
        try:
            code = cli.main([*words, "--data-dir", str(self.data)])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        output = self.capture.readouterr()
        return code, output.out, output.err

    def json(self, *words: str) -> Any:
        code, output, error = self.run(*words, "--format", "json")
        assert code == 0, error
        return json.loads(output)

    def refused(self, *words: str, code: int = 1) -> str:
        got, output, error = self.run(*words)
        assert got == code, output + error
        assert "Traceback" not in error
        return error


@pytest.fixture
def shell(data: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(data, capsys)


def stored_password(data: Path, email: str) -> str:
    store = Database(f"sqlite:///{data / 'governance.sqlite'}")
    try:
        found = store.read_here(accounts.find_login, email)
    finally:
        store.close()
    assert found is not None
    return found[1]


# Help ---------------------------------------------------------------------------------------------


def commands(parser: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    parser = parser or cli.parser()
    yield words
    for action in parser._actions:
        if hasattr(action, "_parser_class"):
            for name, child in action.choices.items():
                yield from commands(child, (*words, name))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, "--help"])
    assert stopped.value.code == 0
    assert "usage: governance" in capsys.readouterr().out


def test_the_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    output = capsys.readouterr().out
    for code in ("0 ", "1 ", "2 ", "130"):
        assert re.search(rf"^  {code}", output, re.MULTILINE), code


@pytest.mark.parametrize("words", [[], ["nonsense"], ["users"], ["users", "add"], ["users", "add", "a@b.c"]])
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "usage: governance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["serv"], "usage: governance [", "there is no `serv`; did you mean `serve`?"),
        (["frobnicate"], "usage: governance [", "write one of audit, backtest,"),
        (["users", "lst"], "usage: governance users [", "did you mean `list`?"),
        (["users", "role", "a@b.c", "admn"], "usage: governance users role [", "did you mean `admin`?"),
        (["serve", "--prot", "1"], "usage: governance serve [", "did you mean `--port`?"),
        (["serve", "now"], "usage: governance serve [", "`now` is not understood here"),
        (["users", "list", "--dta-dir=x"], "usage: governance users list [", "did you mean `--data-dir`?"),
        (["keys", "revoke", "a", "b"], "usage: governance keys revoke [", "`b` is not understood here"),
    ],
)
def test_wrong_words_lead_to_the_right_ones(
    words: list[str], usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith(usage) and message in error


def test_the_command_line_loads_little_at_first() -> None:
    """Agents call it before each tool call, so that what it imports at once is kept in view."""
    script = "import sys, api.cli; api.cli.parser(); print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for heavy in ("peewee", "starlette", "uvicorn", "rich", "jsonschema", "argon2", "jwt", "lark", "httpx"):
        assert heavy not in output.split(), heavy


# Users --------------------------------------------------------------------------------------------


def test_users_from_first_to_last(shell: Shell) -> None:
    code, output, error = shell.run("users", "add", "Ada@Example.com", "--role", "admin")
    assert code == 0
    password = output.strip()
    assert "password of ada@example.com (admin), shown only now" in error
    assert passwords.matches(stored_password(shell.data, "ada@example.com"), password)
    users = {user["email"]: user for user in shell.json("users", "list")}
    assert users.keys() == {"ada@example.com", "admin@localhost"}
    assert "tokensValidFrom" not in users["ada@example.com"]
    assert shell.json("users", "role", "ada@example.com", "viewer")[0]["role"] == "viewer"
    assert shell.json("users", "disable", "ADA@example.com")[0]["enabled"] is False
    assert shell.json("users", "enable", "ada@example.com")[0]["enabled"] is True
    changed = shell.json("users", "password", "ada@example.com")
    assert passwords.matches(stored_password(shell.data, "ada@example.com"), changed["password"])
    assert shell.run("users", "unlock", "ada@example.com")[0] == 0
    assert "ada@example.com" in shell.run("users", "list")[1]


def test_users_that_are_refused(shell: Shell) -> None:
    assert "already" in shell.refused("users", "add", "ADMIN@localhost", "--role", "viewer")
    assert "not an e-mail" in shell.refused("users", "add", "nobody", "--role", "viewer")
    assert "last admin" in shell.refused("users", "disable", "admin@localhost")
    assert "last admin" in shell.refused("users", "role", "admin@localhost", "viewer")
    assert "no user `x@y.z`" in shell.refused("users", "password", "x@y.z")
    assert "no organisation `nowhere`" in shell.refused(
        "users", "add", "a@b.c", "--role", "viewer", "--organisation", "nowhere"
    )
    shell.refused("users", "add", "a@b.c", "--role", "root", code=2)


def test_a_password_is_read_from_the_input_and_never_an_argument(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("a password from a pipe\nnot this\n"))
    code, output, error = shell.run("users", "password", "admin@localhost", "--password-stdin")
    assert code == 0
    assert "a password from a pipe" not in output + error
    assert passwords.matches(stored_password(shell.data, "admin@localhost"), "a password from a pipe")
    monkeypatch.setattr(sys, "stdin", io.StringIO("short\n"))
    assert "at least 12" in shell.refused("users", "password", "admin@localhost", "--password-stdin")
    shell.refused("users", "password", "admin@localhost", "--password", "a long password", code=2)


def test_a_mistyped_folder_makes_no_database(tmp_path: Path, shell: Shell) -> None:
    shell.data = tmp_path / "dta"
    for words in (["users", "list"], ["keys", "list"], ["audit", "verify"], ["backup", str(tmp_path / "b")]):
        assert "there is no database" in shell.refused(*words, code=2)
    assert not shell.data.exists()


def test_wrong_settings_are_2(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOVERNANCE_PORT", "http")
    assert "GOVERNANCE_PORT is `http`" in shell.refused("users", "list", code=2)


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


def test_a_file_that_is_no_database_is_refused_in_words(shell: Shell, tmp_path: Path) -> None:
    for name, path in foreign(tmp_path, shell.data):
        for words in (["users", "list"], ["keys", "list"], ["audit", "verify"]):
            error = shell.refused(*words, "--database-url", f"sqlite:///{path}", code=2)
            assert f"`{path}` is no database or is damaged" in error, name
            assert "governance backup" in error
    assert not (tmp_path / "text.sqlite.lock").exists(), "nothing is put beside a file that is not ours"


def test_a_database_that_cannot_be_reached_says_which_and_why(shell: Shell) -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:1/records"
    error = shell.refused("users", "list", "--database-url", url, code=2)
    assert "`127.0.0.1:1/records`" in error and "refused" in error.lower()
    assert "hunter2" not in error


# Keys ---------------------------------------------------------------------------------------------


def test_keys_from_first_to_last(shell: Shell) -> None:
    made = shell.json("keys", "add", "mailer", "--agent", "a-1", "--scope", "mail", "--scope", "files")
    assert made["key"].startswith("agk_")
    assert (made["agentId"], made["scopes"]) == ("a-1", ["mail", "files"])
    assert made["createdBy"].startswith("cli")
    listed = shell.json("keys", "list")
    assert listed[0]["keyId"] == made["keyId"] and "key" not in listed[0]
    code, output, _ = shell.run("keys", "rotate", made["keyId"])
    assert code == 0 and output.strip().startswith("agk_") and output.strip() != made["key"]
    assert "revokedAt" in shell.json("keys", "revoke", made["keyId"])[0]
    assert "revoked" in shell.refused("keys", "rotate", made["keyId"])
    assert "no key `key_x`" in shell.refused("keys", "revoke", "key_x")
    assert "must not be empty" in shell.refused("keys", "add", "")


def test_a_name_that_keys_share_is_answered_with_their_ids(shell: Shell) -> None:
    ids = [shell.json("keys", "add", "mailer")["keyId"] for _ in range(2)]
    error = shell.refused("keys", "revoke", "mailer")
    assert "2 keys have this name" in error and all(each in error for each in ids)
    shell.run("keys", "revoke", ids[0])
    error = shell.refused("keys", "rotate", "mailer")
    assert "one key has this name" in error and ids[1] in error and ids[0] not in error


def test_ids_and_hashes_stay_on_one_line(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    key = shell.json("keys", "add", "a long name for people " * 4, "--scope", "s" * 60, "--agent", "a" * 60)
    last = shell.json("audit", "verify")[0]["lastHash"]
    assert re.search(rf"^{key['keyId']} .*{'s' * 60}", shell.run("keys", "list")[1], re.MULTILINE)
    assert last in shell.run("audit", "verify")[1]
    # On a narrow terminal other columns give way, ids do not.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output = shell.run("keys", "list")[1]
    assert key["keyId"] in output and "a" * 60 in output
    assert last in shell.run("audit", "verify")[1]


# Organisations ------------------------------------------------------------------------------------


def test_organisations_and_their_first_admin(shell: Shell, tmp_path: Path) -> None:
    assert shell.json("organisations", "add", "acme", "--name", "Acme & Söhne")[0]["name"] == "Acme & Söhne"
    assert "already" in shell.refused("organisations", "add", "acme")
    for bad in ("Acme", "a/b", "..", "", "ä", "a" * 64, "a b"):
        assert "is no id" in shell.refused("organisations", "add", bad)
    ids = [organisation["organisationId"] for organisation in shell.json("organisations", "list")]
    assert ids == ["acme", "default"]
    added = shell.json("users", "add", "boss@acme.example", "--role", "admin", "--organisation", "acme")
    assert added["organisationId"] == "acme"
    assert [user["email"] for user in shell.json("users", "list", "--organisation", "acme")] == [
        "boss@acme.example"
    ]
    key = tmp_path / "secret"
    key.write_text("a secret of 32 bytes at the least\n")
    words = ["organisations", "user-tokens", "acme", "--algorithm", "HS256", "--key-file", str(key)]
    assert shell.json(*words, "--issuer", "https://id.example")[0]["userToken"] == {
        "algorithm": "HS256",
        "issuer": "https://id.example",
    }
    store = Database(f"sqlite:///{shell.data / 'governance.sqlite'}")
    organisation = store.read_here(accounts.organisation, "acme")
    store.close()
    assert organisation is not None
    assert organisation["userToken"]["key"] == "a secret of 32 bytes at the least"
    assert shell.json("organisations", "user-tokens", "acme", "--none")[0]["userToken"] is None


def test_rules_that_are_refused(shell: Shell, tmp_path: Path) -> None:
    public = tmp_path / "public.pem"
    public.write_text("-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n")
    words = ["organisations", "user-tokens", "default"]
    assert "not a secret" in shell.refused(*words, "--algorithm", "HS256", "--key-file", str(public))
    assert "PEM" in shell.refused(*words, "--algorithm", "RS256", "--key-file", str(public))
    missing = shell.refused(*words, "--algorithm", "RS256", "--key-file", str(tmp_path / "none"))
    assert "cannot be read" in missing
    assert "--key-file" in shell.refused(*words, "--algorithm", "RS256", code=2)
    shell.refused(*words, "--algorithm", "none", "--key-file", str(public), code=2)


# Audit and backup ---------------------------------------------------------------------------------


def test_the_record_is_verified_and_exported(shell: Shell, tmp_path: Path) -> None:
    shell.run("keys", "add", "one")
    result = shell.json("audit", "verify")
    assert result[0]["valid"] is True and result[0]["count"] == 4
    code, output, _ = shell.run("audit", "export")
    records = [json.loads(line) for line in output.splitlines()]
    assert code == 0 and [record["sequence"] for record in records] == [1, 2, 3, 4]
    target = tmp_path / "audit.jsonl"
    assert shell.run("audit", "export", "--output", str(target))[0] == 0
    assert target.read_text() == output
    assert shell.run("audit", "export", "--since", "2999-01-01")[1] == ""
    assert "ISO 8601" in shell.refused("audit", "export", "--since", "yesterday", code=2)
    with sqlite3.connect(shell.data / "governance.sqlite") as database:
        database.execute("UPDATE audit SET record = replace(record, 'one', 'two') WHERE sequence = 4")
    code, output, _ = shell.run("audit", "verify", "--format", "json")
    assert code == 1
    broken = json.loads(output)[0]
    assert (broken["valid"], broken["count"], broken["firstBroken"]) == (False, 3, records[3]["auditId"])


def test_a_backup_is_whole_closed_and_never_in_the_way(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"
    old = os.umask(0)
    try:
        code, output, _ = shell.run("backup", str(target))
    finally:
        os.umask(old)
    assert code == 0 and "checked" in output
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(target)) as copy:
        assert copy.execute("SELECT email FROM users").fetchall() == [("admin@localhost",)]
    assert "--force" in shell.refused("backup", str(target))
    assert shell.run("backup", str(target), "--force")[0] == 0
    assert "cannot be written" in shell.refused("backup", str(tmp_path / "no" / "folder"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.sqlite", "data"]


_WRITES = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
for number in range(60_000):
    database.execute("UPDATE filler SET n = ? WHERE rowid = 1", (number,))
    time.sleep(0.0005)
"""


def test_a_backup_ends_while_another_process_writes_without_a_pause(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run("users", "list")
    source = next((tmp_path / "data").glob("*.sqlite"))
    with contextlib.closing(sqlite3.connect(source)) as database, database:
        database.execute("CREATE TABLE filler (n, text)")
        database.executemany("INSERT INTO filler VALUES (0, ?)", [("x" * 8_000,)] * 3_000)
    monkeypatch.setattr(backup, "PAGES_AT_ONCE", 20)
    steps: list[int] = []
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda self, task, **told: steps.append(told["total"])
    )
    writes = subprocess.Popen([sys.executable, "-c", _WRITES, str(source)])
    try:
        code, _, _ = shell.run("backup", str(tmp_path / "copy.sqlite"))
        assert writes.poll() is None, "it wrote all the time"
    finally:
        writes.kill()
        writes.wait()
    assert code == 0
    assert len(steps) <= max(steps) / 20 + 2, "it never began again"


def test_backup_of_postgres_says_what_to_use(shell: Shell, tmp_path: Path) -> None:
    words = ["backup", str(tmp_path / "x"), "--database-url", "postgresql://db/x"]
    assert "pg_dump" in shell.refused(*words, code=2)


def test_the_api_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out)["openapi"].startswith("3.1")


# Serving ------------------------------------------------------------------------------------------


class Served:
    """A service of its own, as one starts it."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        write_policy(folder / "policies.d")
        self.output = (folder / "output").open("w+")
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "api.cli", "serve", "--port", "0", *words],
            cwd=folder,
            env={**CLEAN, "PYTHONPATH": str(ROOT)}
            | {f"GOVERNANCE_{name}": value for name, value in environment.items()},
            stdout=self.output,
            stderr=self.errors,
        )

    def said(self, file: Any) -> str:
        file.flush()
        return Path(file.name).read_text()

    def url(self) -> str:
        """Where it serves, once it answers."""
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"service +(\S+)", self.said(self.output))
            with contextlib.suppress(httpx.HTTPError):
                if found and httpx.get(found[1] + "/health/ready", trust_env=False).status_code == 200:
                    return found[1]
            time.sleep(0.05)
        raise AssertionError(self.said(self.output) + self.said(self.errors))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextlib.contextmanager
def served(folder: Path, *words: str, **environment: str) -> Iterator[Served]:
    service = Served(folder, *words, **environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()
        service.output.close()
        service.errors.close()


def secret(text: str, name: str) -> str:
    found = re.search(rf"^ +{name} +(\S+)$", text, re.MULTILINE)
    assert found, text
    return found[1]


def test_serve_prints_what_one_needs_and_serves(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        url = service.url()
        text = service.said(service.output)
        email, password, key = (secret(text, name) for name in ("admin", "password", "API key"))
        with httpx.Client(base_url=url, trust_env=False) as http:
            login = http.post("/auth/login", json={"email": email, "password": password})
            assert login.status_code == 200
            event = {
                "eventId": "e-1",
                "runId": "r-1",
                "agentId": "a-1",
                "timestamp": "2026-01-31T09:30:00Z",
                "eventType": "tool.called",
                "metadata": {"toolCallId": "c-1", "toolName": "launch", "inputPayload": {}},
            }
            answer = http.post("/v1/events", headers={"X-API-Key": key}, json=event)
            assert answer.json()["toolCallStatus"] == "blocked"
            assert "server" not in answer.headers
        assert secret(text, "console") == f"{url}/approvals"
        assert service.stop() == 0
    with served(tmp_path) as again:
        again.url()
        text = again.said(again.output)
        assert "password  " not in text and "agk_" not in text
        assert re.search(r"\? \S*/governance users password EMAIL$", text, re.MULTILINE)
        assert again.stop(signal.SIGINT) == 0
        assert "Traceback" not in again.said(again.errors)


def test_serve_with_two_workers_shares_keys_and_logins(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", API_KEY="k" * 24, ADMIN_PASSWORD="a fine password") as service:
        url = service.url()
        text = service.said(service.output)
        assert "k" * 24 not in text and "a fine password" not in text
        answers = []
        for number in range(20):
            # A new connection each time, so that both workers answer some.
            event = {
                "eventId": f"e-{number}",
                "runId": f"r-{number}",
                "agentId": "a-1",
                "timestamp": "2026-01-31T09:30:00Z",
                "eventType": "custom.note",
            }
            answer = httpx.post(
                f"{url}/v1/events", headers={"X-API-Key": "k" * 24}, json=event, trust_env=False
            )
            answers.append(answer.status_code)
        assert answers == [200] * 20
        login = {"email": "admin@localhost", "password": "a fine password"}
        tokens = [httpx.post(f"{url}/auth/login", json=login, trust_env=False).json() for _ in range(4)]
        admin = {"Authorization": f"Bearer {tokens[0]['accessToken']}"}
        made = httpx.post(f"{url}/v1/api-keys", headers=admin, json={"name": "x"}, trust_env=False).json()
        key = {"X-API-Key": made["key"]}
        reads = [httpx.get(f"{url}/v1/runs", headers=key, trust_env=False).status_code for _ in range(12)]
        assert reads == [200] * 12
        ended = httpx.delete(f"{url}/v1/api-keys/{made['keyId']}", headers=admin, trust_env=False)
        assert ended.status_code == 204
        reads = [httpx.get(f"{url}/v1/runs", headers=key, trust_env=False).status_code for _ in range(12)]
        assert reads == [401] * 12
        posts = [
            httpx.post(
                f"{url}/v1/events", headers=key, json=event | {"eventId": f"x-{number}"}, trust_env=False
            )
            for number in range(12)
        ]
        assert [answer.status_code for answer in posts] == [401] * 12
        wrong = login | {"password": "not the password"}
        tries = [httpx.post(f"{url}/auth/login", json=wrong, trust_env=False).status_code for _ in range(8)]
        assert tries == [401] * 5 + [429] * 3
        assert service.stop() == 0


def test_a_stop_does_not_wait_for_long_polls(tmp_path: Path) -> None:
    with served(tmp_path, API_KEY="k" * 24) as service:
        url = service.url()
        key = {"X-API-Key": "k" * 24}
        event = {
            "eventId": "e",
            "runId": "r",
            "agentId": "a",
            "timestamp": "2026-01-31T09:30:00Z",
            "eventType": "run.started",
        }
        assert httpx.post(f"{url}/v1/events", headers=key, json=event, trust_env=False).status_code == 200
        answers: list[int] = []

        def wait() -> None:
            answer = httpx.get(f"{url}/v1/runs/r?wait=60", headers=key, timeout=70, trust_env=False)
            answers.append(answer.status_code)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.5)
        started = time.monotonic()
        assert service.stop() == 0
        thread.join()
        assert time.monotonic() - started < 8
        assert answers == [200]


def test_the_demo_brings_its_own_credentials_and_ends_them(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        url = service.url()
        words = [sys.executable, "-m", "api.cli"]
        options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60}
        environment = {**CLEAN, "PYTHONPATH": str(ROOT)}
        played = subprocess.run([*words, "demo", "--url", url], env=environment, **options)
        assert played.returncode == 0, played.stderr
        assert re.search(r"\d{3} events of \d+ runs", played.stdout)
        again = subprocess.run([*words, "demo", "--url", url], env=environment, **options)
        assert again.returncode == 0, again.stderr
        listed = [*words, "users", "list", "--format", "json"]
        users = json.loads(subprocess.run(listed, env=environment, **options).stdout)
        assert {user["email"]: user["enabled"] for user in users} == {
            "admin@localhost": True,
            "demo-reviewer@localhost": False,
        }
        listed = [*words, "keys", "list", "--format", "json"]
        keys = json.loads(subprocess.run(listed, env=environment, **options).stdout)
        assert [(key["name"], "revokedAt" in key) for key in keys] == [
            ("demo", True),
            ("demo", True),
            ("first agent key", False),
        ]
        half = subprocess.run([*words, "demo", "--email", "a@b.c"], env=environment, **options)
        assert half.returncode == 2 and "together" in half.stderr
    gone = subprocess.run([*words, "demo", "--url", url], env=environment, **options)
    assert gone.returncode == 1 and "Traceback" not in gone.stderr
    assert "no service answers" in gone.stderr


def test_the_program_is_named_as_it_can_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder" / "bin"
    folder.mkdir(parents=True)
    called = folder / "governance"
    called.write_text("#!/bin/sh\n")
    called.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(called)])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert terminal.program() == "'a folder/bin/governance'"
    monkeypatch.chdir(folder.parent)
    assert terminal.program() == "bin/governance"
    monkeypatch.setenv("PATH", str(folder))
    assert terminal.program() == "governance"
    # Another one of this name comes first.
    (tmp_path / "governance").write_text("#!/bin/sh\n")
    (tmp_path / "governance").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{folder}")
    assert terminal.program() == "bin/governance"
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert terminal.program().endswith(("/governance", " -m api.cli"))


def refused_to_serve(folder: Path, *words: str, **environment: str) -> str:
    with served(folder, *words, **environment) as service:
        assert service.process.wait(40) == 2, service.said(service.output)
        text = service.said(service.errors)
        assert service.said(service.output) == "", "no address of what does not serve"
    assert "Traceback" not in text, text
    assert all(line.startswith("governance: ") for line in text.splitlines()), text
    return text


def test_serve_refuses_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        text = refused_to_serve(tmp_path, "--port", port)
    assert f"port {port} of 127.0.0.1 is in use" in text
    assert not (tmp_path / "data").exists(), "a start that is refused makes nothing"


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        ((), {"ENV": "production"}, "GOVERNANCE_JWT_SECRET: must be set"),
        (("--workers", "many"), {}, "--workers is `many`"),
        (("--host", "host.invalid"), {}, "`host.invalid` is no address of this machine"),
        (("--host", "192.0.2.1"), {}, "`192.0.2.1` is no address of this machine"),
        (("--policies-dir", "nowhere"), {}, "there is no policies folder `nowhere`"),
        ((), {"ADMIN_PASSWORD": "short"}, "GOVERNANCE_ADMIN_PASSWORD: a password needs"),
        (
            (),
            {"DATABASE_URL": "postgresql://127.0.0.1:1/none"},
            "the database `127.0.0.1:1/none` cannot be used",
        ),
        ((), {"PROT": "1"}, "did you mean GOVERNANCE_PORT?"),
        (("--database-url", "sqlite:///nope/x.sqlite"), {}, "there is no folder `nope`"),
    ],
)
def test_serve_refuses_in_words(
    tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    with served(tmp_path, *words, **environment) as service:
        code = service.process.wait(40)
        text = service.said(service.errors)
    assert message in text
    assert "Traceback" not in text
    assert code == 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_refuses_broken_policies_naming_every_place(tmp_path: Path, workers: str) -> None:
    folder = tmp_path / "policies.d" / "policies"
    folder.mkdir(parents=True)
    (folder / "broken.yaml").write_text("apiVersion: governance/v1\nkind: Policy\nnmae: x\n")
    (folder / "worse.yaml").write_text("apiVersion: [\n")
    text = refused_to_serve(tmp_path, "--workers", workers)
    assert "refused to start" in text
    assert re.search(r"broken\.yaml:3:1: .*nmae", text)
    assert re.search(r"worse\.yaml:\d+:\d+: ", text)
    assert text.count("refused to start") == 1
    # Nothing was made that is shown only once: the next start, mended, shows it.
    for file in folder.iterdir():
        file.unlink()
    with served(tmp_path, "--workers", workers) as mended:
        mended.url()
        assert secret(mended.said(mended.output), "API key").startswith("agk_")
        assert mended.stop() == 0
    (folder / "broken.yaml").write_text("apiVersion: [\n")
    with served(tmp_path, "--workers", workers) as later:
        later.url()
        assert later.stop() == 0
        assert "Traceback" not in later.said(later.errors)
