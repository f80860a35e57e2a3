"""Logging in from a terminal: the token is kept for its service alone, closed to others, until it expires."""

from __future__ import annotations

import getpass
import io
import json
import stat
import sys
from pathlib import Path

import pytest

from api.cli import logins
from tests.api.cli.running.conftest import Operator
from tests.harness.application import PASSWORD

ADMIN = "admin@example.com"


@pytest.fixture
def stranger(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Somebody without a token."""
    monkeypatch.delenv("GOVERNANCE_TOKEN")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    return operator


def test_a_login_is_kept_for_its_service_and_forgotten(stranger: Operator) -> None:
    email = stranger.service.user("admin")["email"]
    assert "nobody is logged in here; log in with `governance login" in stranger.refused("halts", code=2)
    said = stranger.done("login", "--email", email, "--password-stdin")
    assert said == f"logged in to {stranger.url} as {email} (admin) for 12 h\n"
    file = logins.path()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert PASSWORD not in file.read_text()
    assert stranger.done("halts") == "nothing is halted\n"
    assert "nobody is logged in here" in stranger.refused("halts", "--url", "http://127.0.0.1:9", code=2)
    assert stranger.done("halts", "--url", f"{stranger.url}/") == "nothing is halted\n"
    assert stranger.done("logout") == f"logged out of {stranger.url}\n"
    assert stranger.done("logout") == f"nobody was logged in to {stranger.url}\n"
    assert "nobody is logged in here" in stranger.refused("halts", code=2)


def test_the_password_is_asked_for_on_a_terminal(stranger: Operator) -> None:
    email = stranger.service.user("reviewer")["email"]
    assert "give --password-stdin" in stranger.refused("login", "--email", email, code=2)
    stranger.environment.setattr(getpass, "getpass", lambda prompt: PASSWORD)
    stranger.types(f"{email}\n")
    assert stranger.json("login")["role"] == "reviewer"


def test_a_wrong_password_is_refused_and_keeps_nothing(stranger: Operator) -> None:
    email = stranger.service.user("admin")["email"]
    stranger.environment.setattr(sys, "stdin", io.StringIO("not the password\n"))
    error = stranger.refused("login", "--email", email, "--password-stdin")
    assert "the service refuses (401): the e-mail or the password is wrong" in error
    assert "log in again" not in error and not logins.path().exists()
    assert "--password-stdin needs --email" in stranger.refused("login", "--password-stdin", code=2)


def test_a_login_that_is_over_or_that_others_can_read_is_refused(stranger: Operator) -> None:
    logins.keep(stranger.url, logins.Login("x.y.z", "a@b.example", "admin", 1.0))
    assert "the login of a@b.example is over; log in with" in stranger.refused("halts", code=2)
    logins.path().chmod(0o644)
    assert "may be read by other users of this machine (mode 0644)" in stranger.refused("halts", code=2)
    logins.path().chmod(0o600)
    whole = {"token": "x", "email": "a@b.example", "role": "admin", "expires": "never"}
    for text in ("{", "[]", *(json.dumps({stranger.url: each}) for each in ({"token": "x"}, whole))):
        logins.path().write_text(text)
        assert "remove it and log in again" in stranger.refused("halts", code=2)


def test_who_has_no_home_folder_is_told_before_anything_is_asked(
    stranger: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as in a container that runs as any user."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    for words in (("halts",), ("login", "--email", "a@b.example", "--password-stdin")):
        assert "set XDG_STATE_HOME, or GOVERNANCE_TOKEN" in stranger.refused(*words, code=2)


def test_a_token_that_is_not_accepted_says_so(stranger: Operator, tmp_path: Path) -> None:
    stranger.environment.setenv("GOVERNANCE_TOKEN", "x.y.z")
    error = stranger.refused("halts")
    assert (
        "the service refuses (401)" in error
        and "unset GOVERNANCE_TOKEN, which goes before a login, and "
        f"log in again: governance login --url {stranger.url}"
        in error
    )
    stranger.environment.delenv("GOVERNANCE_TOKEN")
    error = stranger.refused("halts", "--token", "x.y.z")
    assert f"\nlog in again: governance login --url {stranger.url}" in error.replace("governance: ", "")
    token = tmp_path / "token"
    token.write_text(stranger.service.credentials["viewer"]["Authorization"].removeprefix("Bearer "))
    assert stranger.done("halts", "--token-file", token) == "nothing is halted\n"
    assert "give either" in stranger.refused("halts", "--token-file", token, "--token", "x", code=2)


def test_exit_codes_tell_refusals_usage_and_absence_apart(operator: Operator) -> None:
    assert operator.run("halts")[0] == 0
    operator.become("viewer")
    assert "the service refuses (403)" in operator.refused("halt", "--yes")
    for url in ("127.0.0.1", "http://127.0.0.1:87OO", "http://a:8700:8700", "http://a..b", "http://[::1"):
        assert "is no address" in operator.refused("halts", "--url", url, code=2)
    error = operator.refused("halts", "--url", "http://127.0.0.1:9", code=3)
    assert "does not answer" in error and "is this its address?" in error
    operator.environment.setenv("GOVERNANCE_TOKEN", "agk_of_the_agent")
    assert "the service refuses (401)" in operator.refused("halt", "--yes")
