"""`governance serve` as a real process: what it prints, serves, and refuses to start with."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.cli.commands.serve import GRACE
from tests.harness import nodes
from tests.harness.application import PASSWORD, event
from tests.harness.nodes import CLEAN, KEY, Anew, called, free_port, printed

serve = partial(nodes.serve, kind=Anew)
ADMIN = {"GOVERNANCE_ADMIN_PASSWORD": PASSWORD}
AT = "2026-01-31T09:30:00Z"


def test_serve_prints_what_one_needs_and_serves(tmp_path: Path) -> None:
    with serve(tmp_path) as service:
        url = service.url()
        text = service.output
        email, password, key = (printed(service, name) for name in ("admin", "password", "API key"))
        assert "keys add NAME --agent ID" in text, "a key is better bound"
        login = service.http.post("/auth/login", json={"email": email, "password": password})
        assert login.status_code == 200
        answer = service.http.post("/v1/events", headers={"X-API-Key": key}, json=called(1, "launch"))
        assert answer.json()["toolCallStatus"] == "blocked"
        assert "server" not in answer.headers
        assert printed(service, "console") == f"{url}/approvals"
        assert service.stop() == 0
    with serve(tmp_path) as again:
        again.url()
        text = again.output
        assert "password  " not in text and "agk_" not in text
        assert re.search(r"\? \S*/governance users password EMAIL$", text, re.MULTILINE)
        assert again.stop(signal.SIGINT) == 0
        assert "Traceback" not in again.errors


def test_stopping_it_twice_is_no_fault(tmp_path: Path) -> None:
    """As whoever presses Ctrl-C again since a call waits for a person; their log showed a traceback."""
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY, **ADMIN) as service:
        http = service.ready().http
        login = {"email": "admin@localhost", "password": PASSWORD}
        token = http.post("/auth/login", json=login).json()["accessToken"]
        with http.stream("GET", "/v1/stream", headers={"Authorization": f"Bearer {token}"}) as stream:
            assert stream.status_code == 200
            service.process.send_signal(signal.SIGINT)
            time.sleep(0.05)  # two at once are one
            assert service.stop(signal.SIGINT) == 0
        assert "Traceback" not in service.errors


def test_every_file_of_ours_is_for_its_owner_in_a_folder_that_is_open(tmp_path: Path) -> None:
    data = tmp_path / "data"
    old = os.umask(0)
    try:
        data.mkdir(mode=0o777)
        with serve(tmp_path, GOVERNANCE_API_KEY=KEY, **ADMIN) as service:
            http = service.ready().http
            sent = http.post("/v1/events", headers={"X-API-Key": KEY}, json=called(1, "launch"))
            assert sent.status_code == 200
            deadline = time.monotonic() + 60
            while not (data / "audit-mark").exists():
                assert time.monotonic() < deadline, "nothing is signed"
                time.sleep(0.05)
            files = [path for path in data.rglob("*") if path.is_file()]
            modes = {path.name: path.stat().st_mode & 0o777 for path in files}
            assert {"governance.sqlite", "governance.sqlite-wal", "jwt-secret", "audit-key"} <= modes.keys()
            assert set(modes.values()) == {0o600}, modes
    finally:
        os.umask(old)


@pytest.mark.parametrize(
    ("proxies", "address"), [("", "127.0.0.1"), ("10.0.0.0/8", "127.0.0.1"), ("127.0.0.1", "192.0.2.7")]
)
def test_only_a_proxy_that_is_named_says_who_calls(tmp_path: Path, proxies: str, address: str) -> None:
    with serve(tmp_path, GOVERNANCE_TRUSTED_PROXIES=proxies, **ADMIN) as service:
        login = {"email": "admin@localhost", "password": PASSWORD}
        http = service.ready().http
        token = http.post("/auth/login", json=login, headers={"X-Forwarded-For": "192.0.2.7"})
        headers = {"Authorization": f"Bearer {token.json()['accessToken']}"}
        (record,) = http.get("/v1/audit?type=login", headers=headers).json()
        assert record["details"] == {"address": address}


def test_serve_with_two_workers_shares_keys_and_logins(tmp_path: Path) -> None:
    with serve(tmp_path, "--workers", "2", GOVERNANCE_API_KEY=KEY, **ADMIN) as service:
        url = service.url()
        text = service.output
        assert KEY not in text and PASSWORD not in text
        answers = []
        for number in range(20):
            # A new connection each time, so that both workers answer some.
            note = event(number, "custom.note", AT, {"runId": f"r-{number}"})
            answer = httpx.post(f"{url}/v1/events", headers={"X-API-Key": KEY}, json=note, trust_env=False)
            answers.append(answer.status_code)
        assert answers == [200] * 20
        login = {"email": "admin@localhost", "password": PASSWORD}
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
                f"{url}/v1/events", headers=key, json=note | {"eventId": f"x-{number}"}, trust_env=False
            )
            for number in range(12)
        ]
        assert [answer.status_code for answer in posts] == [401] * 12
        wrong = login | {"password": "not the password"}
        tries = [httpx.post(f"{url}/auth/login", json=wrong, trust_env=False).status_code for _ in range(8)]
        assert tries == [401] * 5 + [429] * 3
        assert service.stop() == 0


def test_a_stop_does_not_wait_for_long_polls(tmp_path: Path) -> None:
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        url = service.url()
        key = {"X-API-Key": KEY}
        started = event(1, "run.started", AT, {"runId": "r"})
        assert httpx.post(f"{url}/v1/events", headers=key, json=started, trust_env=False).status_code == 200
        answers: list[int] = []

        def wait() -> None:
            answer = httpx.get(f"{url}/v1/runs/r?wait=60", headers=key, timeout=70, trust_env=False)
            answers.append(answer.status_code)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.5)
        begun = time.monotonic()
        assert service.stop() == 0
        thread.join()
        assert time.monotonic() - begun < GRACE
        assert answers == [200]


def test_the_demo_brings_its_own_credentials_and_ends_them(tmp_path: Path) -> None:
    with serve(tmp_path) as service:
        url = service.url()
        words = [sys.executable, "-m", "api.cli"]
        options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60}
        played = subprocess.run([*words, "demo", "--url", url], env=CLEAN, **options)
        assert played.returncode == 0, played.stderr
        assert re.search(r"\d{3} events of \d+ runs", played.stdout)
        again = subprocess.run([*words, "demo", "--url", url], env=CLEAN, **options)
        assert again.returncode == 0, again.stderr
        listed = [*words, "users", "list", "--format", "json"]
        users = json.loads(subprocess.run(listed, env=CLEAN, **options).stdout)
        assert {user["email"]: user["enabled"] for user in users} == {
            "admin@localhost": True,
            "demo-reviewer@localhost": False,
        }
        listed = [*words, "keys", "list", "--format", "json"]
        keys = json.loads(subprocess.run(listed, env=CLEAN, **options).stdout)
        assert [(key["name"], "revokedAt" in key) for key in keys] == [
            ("demo", True),
            ("demo", True),
            ("first agent key", False),
        ]
        half = subprocess.run([*words, "demo", "--email", "a@b.c"], env=CLEAN, **options)
        assert half.returncode == 2 and "together" in half.stderr
    gone = subprocess.run([*words, "demo", "--url", url], env=CLEAN, **options)
    assert gone.returncode == 1 and "Traceback" not in gone.stderr
    assert "no service answers" in gone.stderr


def refused_to_serve(folder: Path, *words: str, **environment: str) -> str:
    with serve(folder, *words, **environment) as service:
        assert service.process.wait(40) == 2, service.output
        text = service.errors
        assert service.output == "", "no address of what does not serve"
    assert "Traceback" not in text, text
    assert all(line.startswith("governance: ") for line in text.splitlines()), text
    return text


def test_serve_refuses_a_port_in_use(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "api.cli", "serve"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        options: Any = {"env": CLEAN | {"GOVERNANCE_PORT": port}, "cwd": tmp_path, "timeout": 60}
        done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert list(tmp_path.iterdir()) == [], "a start that is refused makes nothing"


def test_no_two_policies_folders_undo_one_another_in_one_embedded_database(tmp_path: Path) -> None:
    """As where two clones share a data folder: each took its own files for edits, every two seconds."""
    one, two = tmp_path / "one", tmp_path / "two"
    with serve(one) as service:
        service.url()
        text = refused_to_serve(two, "--data-dir", str(one / "data"))
        assert f"with the policies folder `{one / 'policies.d'}`" in text and "--policies-dir" in text
        (two / "link").symlink_to(one / "policies.d")
        with serve(two, "--data-dir", str(one / "data"), "--policies-dir", "link") as beside:
            beside.url()
            assert beside.stop() == 0
        assert service.stop() == 0
    with serve(two, "--data-dir", str(one / "data")) as moved:
        moved.url()
        assert moved.stop() == 0


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        ((), {"GOVERNANCE_ENV": "production"}, "GOVERNANCE_JWT_SECRET: must be set"),
        (("--workers", "many"), {}, "--workers is `many`"),
        (("--host", "host.invalid"), {}, "`host.invalid` is no address of this machine"),
        (("--host", "192.0.2.1"), {}, "`192.0.2.1` is no address of this machine"),
        (("--policies-dir", "nowhere"), {}, "there is no policies folder `nowhere`"),
        ((), {"GOVERNANCE_ADMIN_PASSWORD": "short"}, "GOVERNANCE_ADMIN_PASSWORD: a password needs"),
        (
            (),
            {"GOVERNANCE_DATABASE_URL": "postgresql://127.0.0.1:1/none"},
            "the database `127.0.0.1:1/none` cannot be used",
        ),
        ((), {"GOVERNANCE_PROT": "1"}, "did you mean GOVERNANCE_PORT?"),
        (("--database-url", "sqlite:///nope/x.sqlite"), {}, "there is no folder `nope`"),
    ],
)
def test_serve_refuses_in_words(
    tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    with serve(tmp_path, *words, **environment) as service:
        code = service.process.wait(40)
        text = service.errors
    assert message in text
    assert "Traceback" not in text
    assert code == 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [("audit-key", b"no key", "32 bytes in hexadecimal"), ("governance.sqlite", b"\xa5" * 8192, "damaged")],
)
def test_a_start_that_is_refused_says_nothing_else(
    tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    with serve(tmp_path) as service:
        service.url()
        assert service.stop() == 0
    (path,) = tmp_path.rglob(file)
    path.write_bytes(path.read_bytes()[:4096] * (file != "audit-key") + content)
    with serve(tmp_path) as service:
        assert service.process.wait(40) == 2
        assert message in service.errors
        assert service.output == ""


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
    with serve(tmp_path, "--workers", workers) as mended:
        mended.url()
        assert printed(mended, "API key").startswith("agk_")
        assert mended.stop() == 0
    (folder / "broken.yaml").write_text("apiVersion: [\n")
    with serve(tmp_path, "--workers", workers) as later:
        later.url()
        assert later.stop() == 0
        assert "Traceback" not in later.errors


def test_whoever_reads_the_first_lines_may_go(tmp_path: Path) -> None:
    """`governance serve | head -1`, or a terminal's pager; and `2>&-`, whose number nobody else may get."""
    url = f"http://127.0.0.1:{free_port()}"
    line = f"{shlex.join([sys.executable, '-m', 'api.cli', 'serve', '--port', url.rpartition(':')[2]])} 2>&-"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(["sh", "-c", f"exec {line}"], cwd=tmp_path, env=CLEAN, stdout=writer)
    os.close(writer)
    try:
        deadline, ready = time.monotonic() + 60, 0
        while ready != 200 and time.monotonic() < deadline:
            assert process.poll() is None, process.returncode
            with contextlib.suppress(httpx.HTTPError):
                ready = httpx.get(f"{url}/health/ready", trust_env=False).status_code
            time.sleep(0.05)
        assert ready == 200
        assert Path(f"/proc/{process.pid}/fd/2").readlink() == Path(os.devnull)
    finally:
        process.terminate()
    assert process.wait(60) == 0
