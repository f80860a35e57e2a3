"""Logins: how many tries there are, what goes on record, and that nobody else waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.auth import login_draw, passwords
from api.http.problems import ApiError
from api.store import accounts, expiry, login_limits
from tests.harness.application import PASSWORD, event
from tests.harness.postgres import postgres, postgres_url  # noqa: F401
from tests.harness.running_service import Served, bearer


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """A service of one's own, since these tests count and move the clock."""
    with Served(tmp_path) as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries of one place come together soon, for tests that try many."""
    monkeypatch.setattr(login_draw, "SECONDS", 0.02)


def test_a_password_that_was_changed_while_the_clock_was_ahead_locks_nobody_out(
    quick: None, fresh: Served
) -> None:
    user = fresh.user("viewer")
    fresh.clock.ahead = 86_400 / 4
    stolen = fresh.log_in(user["email"]).json()["accessToken"]
    new = {"password": "another long password"}
    assert fresh.call("admin", "PATCH", f"/v1/users/{user['userId']}", new).status_code == 200
    fresh.clock.ahead = 0
    token = fresh.log_in(user["email"], "another long password").json()["accessToken"]
    assert fresh.me(token).status_code == 200
    fresh.clock.ahead = 86_400 / 4 + 1
    assert fresh.me(stolen).status_code == 401, "of before the change, when its time comes again"


def test_a_token_expires(quick: None, fresh: Served) -> None:
    token = fresh.user("viewer")["token"]
    fresh.clock.ahead = fresh.settings.token_seconds - 5
    assert fresh.me(token).status_code == 200
    fresh.clock.ahead = fresh.settings.token_seconds + 1
    answer = fresh.me(token)
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]


def test_a_password_changed_while_a_login_is_checked_wins(
    quick: None, fresh: Served, monkeypatch: Any
) -> None:
    user = fresh.user("viewer")
    hasher = fresh.context.credentials.passwords
    check = hasher.matches

    async def slow(stored: str | None, password: str, *where: Any) -> bool:
        fits = await check(stored, password, *where)
        hashed = await hasher.hashed("another password")
        await fresh.context.writer.write(
            lambda t: accounts.change_user(t, "default", user["userId"], "a test", password_hash=hashed)
        )
        return fits

    monkeypatch.setattr(hasher, "matches", slow)
    assert fresh.log_in(user["email"], PASSWORD).status_code == 401


def test_logins_are_on_record_without_what_was_typed(quick: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    fresh.log_in(user["email"], PASSWORD)
    fresh.log_in(user["email"], "not the password")
    fresh.log_in("my-password-in-the-wrong-field@x", "somebody")
    good, bad = fresh.audit("login"), fresh.audit("login.failed")
    assert [record["actor"] for record in good] == [user["email"]]
    assert [record["actor"] for record in bad] == [user["email"], "nobody"]
    assert bad[0]["details"] == {"address": "192.0.2.1"}
    text = json.dumps(good + bad)
    for secret in (PASSWORD, "not the password", "my-password-in-the-wrong-field", "eyJ"):
        assert secret not in text


def statuses(service: Served, tries: int, email: str, address: str = "192.0.2.1") -> list[int]:
    return [service.log_in(email, "not the password", address).status_code for _ in range(tries)]


def test_after_five_wrong_passwords_from_one_address_the_next_try_waits(quick: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    assert statuses(fresh, 6, user["email"]) == [401] * 5 + [429]
    answer = fresh.log_in(user["email"], PASSWORD)
    assert answer.status_code == 429
    assert answer.json()["code"] == "rate_limited"
    assert 0 < int(answer.headers["Retry-After"]) <= login_limits.FIRST_WAIT
    assert fresh.log_in(user["email"], PASSWORD, "192.0.2.2").status_code == 200
    fresh.clock.ahead = login_limits.FIRST_WAIT
    assert fresh.log_in(user["email"], PASSWORD).status_code == 200


def test_wrong_passwords_slow_down_and_never_lock_out(quick: None, fresh: Served) -> None:
    """However often somebody has guessed, the right password waits no longer than half a minute."""
    user = fresh.user("viewer")
    assert statuses(fresh, 5, user["email"]) == [401] * 5
    waits = []
    for _ in range(8):
        waits.append(int(fresh.log_in(user["email"], "not the password").headers["Retry-After"]))
        fresh.clock.ahead += waits[-1]
        assert statuses(fresh, 1, user["email"]) == [401]
    assert waits[:3] == [4, 8, 16] and set(waits[3:]) == {login_limits.PAIR.longest_wait}
    fresh.clock.ahead += login_limits.PAIR.longest_wait
    assert fresh.log_in(user["email"], PASSWORD).status_code == 200


def test_an_unknown_email_is_limited_alike(quick: None, fresh: Served) -> None:
    assert statuses(fresh, 6, "nobody@example.com") == [401] * 5 + [429]


def test_refused_tries_do_not_prolong_the_wait(quick: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    assert statuses(fresh, 5, user["email"]) == [401] * 5
    assert statuses(fresh, 20, user["email"]) == [429] * 20
    fresh.clock.ahead = login_limits.FIRST_WAIT
    assert fresh.log_in(user["email"], PASSWORD).status_code == 200


def test_a_right_password_starts_anew(quick: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    for _ in range(3):
        assert statuses(fresh, 4, user["email"]) == [401] * 4
        assert fresh.log_in(user["email"], PASSWORD).status_code == 200


def test_many_emails_from_one_address_are_limited(quick: None, fresh: Served) -> None:
    answers = [
        fresh.log_in(f"somebody{number}@example.com", "not the password").status_code
        for number in range(login_limits.ADDRESS.tries + 1)
    ]
    assert answers == [401] * login_limits.ADDRESS.tries + [429]


def test_an_ipv6_network_counts_as_one_address(quick: None, fresh: Served) -> None:
    assert login_limits.network("2001:db8:1:2::1") == login_limits.network("2001:db8:1:2:ffff::9")
    assert login_limits.network("2001:db8:1:2::1") != login_limits.network("2001:db8:1:3::1")
    assert login_limits.network("::ffff:192.0.2.1") == login_limits.network("192.0.2.1") == "192.0.2.1"
    assert login_limits.network("unix") == "unix"
    assert login_limits.network("fe80::1%eth0")
    user = fresh.user("viewer")
    answers = [
        fresh.log_in(user["email"], "not the password", f"2001:db8::{number}").status_code
        for number in range(6)
    ]
    assert answers == [401] * 5 + [429]


def test_nobody_slows_an_admin_down_in_their_usual_place(quick: None, fresh: Served) -> None:
    admin = fresh.user("admin")
    assert fresh.log_in(admin["email"], PASSWORD, "192.0.2.9").status_code == 200
    guesses = [
        fresh.log_in(admin["email"], "not the password", f"198.51.{number}.1").status_code
        for number in range(login_limits.EMAIL.tries + 2)
    ]
    assert guesses == [401] * login_limits.EMAIL.tries + [429] * 2
    assert fresh.log_in(admin["email"], PASSWORD, "198.51.200.1").status_code == 429
    assert fresh.log_in(admin["email"], PASSWORD, "192.0.2.9").status_code == 200
    # And it passes by itself, for the other places too.
    fresh.clock.ahead = login_limits.FIRST_WAIT
    assert fresh.log_in(admin["email"], PASSWORD, "198.51.200.1").status_code == 200


def test_an_operator_can_forget_failures(quick: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    assert statuses(fresh, 6, user["email"])[-1] == 429
    assert fresh.write(lambda transaction: login_limits.forget(transaction, user["email"].upper())) > 0
    assert fresh.log_in(user["email"], PASSWORD).status_code == 200


def test_tries_at_once_are_no_way_around(dear_passwords: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    answers: list[int] = []

    def guess() -> None:
        answers.append(fresh.log_in(user["email"], "not the password").status_code)

    threads = [threading.Thread(target=guess) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(401) == login_limits.PAIR.tries
    assert answers.count(429) == 20 - login_limits.PAIR.tries


def test_events_go_on_while_many_log_in(dear_passwords: None, fresh: Served) -> None:
    """Passwords are checked on a thread of their own: a storm of logins does not hold up an event."""
    users = [fresh.user("viewer")["email"] for _ in range(12)]

    def storm(number: int) -> None:
        fresh.log_in(users[number], "not the password", f"203.0.113.{number}")

    threads = [threading.Thread(target=storm, args=(number,)) for number in range(len(users))]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for number in range(20):
        ping = event(number, "custom.ping", "2026-01-01T00:00:00Z", {})
        fresh.answered("agent", "POST", "/v1/events", ping)
    took = time.perf_counter() - started
    for thread in threads:
        thread.join()
    storms = time.perf_counter() - started
    assert took < storms / 2, "the events waited for the passwords"


def test_too_many_at_once_are_told_to_come_back(
    dear_passwords: None, fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "MOST_WAITING", 3)
    answers: list[Any] = []

    def storm(number: int) -> None:
        answers.append(fresh.log_in(f"u{number}@example.com", "not the password", f"203.0.113.{number}"))

    threads = [threading.Thread(target=storm, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {401, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert (refused.json()["code"], refused.headers["Retry-After"]) == ("rate_limited", "5")
    assert fresh.log_in("later@example.com", "not the password", "203.0.113.99").status_code == 401


def test_what_a_proxy_says_is_kept_short(quick: None, fresh: Served) -> None:
    fresh.log_in("nobody@example.com", "not the password", "x" * 5_000)
    assert len(fresh.audit("login.failed")[-1]["details"]["address"]) <= 64


@pytest.mark.postgres
def test_logins_and_keys_on_postgres(quick: None, tmp_path: Path, postgres_url: str) -> None:  # noqa: F811
    with Served(tmp_path, GOVERNANCE_DATABASE_URL=postgres_url) as service:
        user = service.user("admin")
        answers: list[int] = []

        def guess() -> None:
            answers.append(service.log_in(user["email"], "not the password").status_code)

        threads = [threading.Thread(target=guess) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers.count(401) == login_limits.PAIR.tries
        assert service.write(lambda transaction: login_limits.forget(transaction, user["email"])) > 0
        token = service.log_in(user["email"], PASSWORD).json()["accessToken"]
        assert service.me(token).status_code == 200
        headers = bearer(token)
        first = service.call(headers, "GET", "/v1/users?limit=1")
        path = first.headers["Link"].partition(">")[0].removeprefix("<")
        assert service.call(headers, "GET", path).json() != first.json()
        made = service.call(headers, "POST", "/v1/api-keys", {"name": "x"}).json()
        key = {"X-API-Key": made["key"]}
        assert service.call(key, "GET", "/v1/runs").status_code == 200
        path = f"/v1/api-keys/{made['keyId']}"
        assert service.call(headers, "DELETE", path).status_code == 204
        assert service.call(key, "GET", "/v1/runs").status_code == 401
        me_path = f"/v1/users/{user['userId']}"
        assert service.call(headers, "PATCH", me_path, {"enabled": False}).status_code == 200
        assert service.me(token).status_code == 401


@pytest.mark.parametrize("password", [" " * 12, "aaaaaaaaaaaa", "Ada.Lovelace@example.com"])
def test_what_is_guessed_first_is_no_password(fresh: Served, password: str) -> None:
    body = {"email": "ada.lovelace@example.com", "role": "viewer", "password": password}
    assert fresh.call("admin", "POST", "/v1/users", body).status_code == 422


def test_failures_of_a_time_to_come_lock_nobody_out(quick: None, fresh: Served) -> None:
    user = fresh.user("viewer")
    fresh.clock.ahead = 86_400
    assert statuses(fresh, 5, user["email"]) == [401] * 5
    fresh.clock.ahead = 0
    answer = fresh.log_in(user["email"], PASSWORD)
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= login_limits.PAIR.longest_wait
    assert fresh.write(lambda transaction: expiry.pull_back(transaction, fresh.clock() + 60, 500)) > 0
    fresh.clock.ahead = login_limits.PAIR.longest_wait
    assert fresh.log_in(user["email"], PASSWORD).status_code == 200


def test_a_login_does_not_stand_behind_all_the_users_that_somebody_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    monkeypatch.setattr(passwords, "hashed", lambda password: made.append(password) or "a hash")
    monkeypatch.setattr(passwords, "matches", lambda stored, password: True)

    async def play() -> int:
        hasher = passwords.PasswordHasher()
        assert await hasher.matches("a hash", PASSWORD)
        made.clear()
        users = [asyncio.create_task(hasher.hashed("a long password", "usr_busy")) for _ in range(40)]
        await asyncio.sleep(0)
        assert await hasher.matches("a hash", PASSWORD)
        before = len(made)
        await asyncio.gather(*users)
        hasher.close()
        return before

    assert asyncio.run(play()) <= 3 and len(made) == 40


async def test_who_logs_in_where_they_have_before_waits_for_no_crowd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither that of one who knows a password, nor that of many addresses that try others."""
    checked: list[str] = []
    monkeypatch.setattr(passwords, "hashed", lambda password: "a hash")
    monkeypatch.setattr(passwords, "matches", lambda stored, password: checked.append(password) is None)
    hasher = passwords.PasswordHasher()
    assert await hasher.matches("a hash", "first")
    crowd = [asyncio.create_task(hasher.matches("a hash", "known", "here", "mallory")) for _ in range(30)]
    crowd += [
        asyncio.create_task(hasher.matches("a hash", "guess", f"there {number % 10}"))
        for number in range(300)
    ]
    await asyncio.sleep(0)
    assert await hasher.matches("a hash", "admin", "here", "admin")
    assert checked.index("admin") <= 5
    assert await hasher.matches("a hash", "new", "elsewhere")
    assert len(checked) <= 45, "addresses take turns"
    await asyncio.gather(*crowd)
    hasher.close()


async def test_the_first_logins_of_a_process_stand_behind_no_crowd_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an unknown e-mail is held against is made once, whoever comes first."""
    made: list[str] = []
    checked: list[str] = []

    def hashed(password: str) -> str:
        made.append(password)
        return "a hash"

    def matches(stored: str, password: str) -> bool:
        time.sleep(0.002)
        checked.append(password)
        return True

    monkeypatch.setattr(passwords, "hashed", hashed)
    monkeypatch.setattr(passwords, "matches", matches)
    hasher = passwords.PasswordHasher()
    crowd = [
        asyncio.create_task(hasher.matches(None, "guess", f"there {number % 10}")) for number in range(300)
    ]
    await asyncio.sleep(0)
    assert await hasher.matches("a hash", "admin", "here", "admin")
    assert checked.index("admin") <= 10
    assert not any(await asyncio.gather(*crowd)) and len(made) == 1
    hasher.close()


def test_one_who_knows_a_password_leaves_room_for_other_logins() -> None:
    hasher = passwords.PasswordHasher()
    with contextlib.ExitStack() as waiting:
        for _ in range(passwords.MOST_OF_PAIR):
            waiting.enter_context(hasher.login_slot("mallory"))
        with pytest.raises(ApiError):
            waiting.enter_context(hasher.login_slot("mallory"))
        waiting.enter_context(hasher.login_slot("admin"))
    assert not hasher._waiting
    hasher.close()
