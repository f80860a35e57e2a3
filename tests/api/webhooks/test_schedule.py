"""Schedule, signatures and addresses of deliveries: the pure parts."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from api.webhooks import address, schedule, signing

NOW = 1_790_000_000.0


def test_schedule_is_that_of_the_design() -> None:
    minute, hour = 60, 3600
    expected = (
        0,
        5,
        5 * minute,
        30 * minute,
        2 * hour,
        5 * hour,
        10 * hour,
        14 * hour,
        20 * hour,
        24 * hour,
    )
    assert expected == schedule.DELAYS
    assert 5 * 24 * hour == schedule.DISABLE_AFTER


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_every_delay_is_jittered_by_a_fifth_at_most(chance: float, factor: float) -> None:
    for attempts, seconds in enumerate(schedule.DELAYS):
        assert schedule.delay(schedule.DELAYS, attempts, chance) == pytest.approx(seconds * factor)


def test_after_the_last_attempt_there_is_none() -> None:
    assert schedule.delay(schedule.DELAYS, len(schedule.DELAYS), 0.5) is None
    assert schedule.next_attempt(schedule.DELAYS, len(schedule.DELAYS), NOW, 0.5, "7") is None
    assert schedule.delay((1, 2), 2, 0.5) is None


def test_retry_after_puts_an_attempt_off_but_never_brings_it_forward() -> None:
    delays = (0.0, 10.0)
    assert schedule.next_attempt(delays, 1, NOW, 0.5) == NOW + 10
    assert schedule.next_attempt(delays, 1, NOW, 0.5, "60") == NOW + 60
    assert schedule.next_attempt(delays, 1, NOW, 0.5, "2") == NOW + 10
    assert schedule.next_attempt(delays, 1, NOW, 0.5, "99999999999999999999") == NOW + 86400


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        (format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True), 90),
        (format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True), 0),
        (format_datetime(datetime.fromtimestamp(NOW + 10**7, UTC), usegmt=True), 86400),
        ("Wed, 21 Oct 2026 07:28:00", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_an_http_date(header: str | None, seconds: float | None) -> None:
    assert schedule.retry_after(header, NOW) == seconds


@given(st.text(max_size=60))
def test_no_retry_after_raises_or_exceeds_a_day(header: str) -> None:
    found = schedule.retry_after(header, NOW)
    assert found is None or 0 <= found <= schedule.MOST_RETRY_AFTER


# Signatures ------------------------------------------------------------------------------------------


def test_secret_has_the_prefix_and_all_its_bits() -> None:
    random = bytes(range(32))
    secret = signing.secret_of(random)
    assert secret.startswith("whsec_")
    assert base64.b64decode(secret.removeprefix("whsec_")) == random


def test_signature_agrees_with_the_published_vector() -> None:
    # From the test suite of the Standard Webhooks reference libraries.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signed = signing.signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=24, max_size=64), st.dictionaries(st.text(), st.text()))
def test_independent_library_verifies_what_we_sign(random: bytes, data: dict[str, str]) -> None:
    secret = signing.secret_of(random)
    body = json.dumps(data, ensure_ascii=True).encode()
    now = datetime.now(UTC).timestamp()
    headers = signing.headers([secret], "dlv_1", now, body)
    assert standardwebhooks.Webhook(secret).verify(body, headers) == data
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(body + b" ", headers)


def test_after_a_rotation_both_secrets_verify() -> None:
    new, old, other = (signing.secret_of(bytes([n]) * 32) for n in (1, 2, 3))
    headers = signing.headers([new, old], "dlv_1", datetime.now(UTC).timestamp(), b"{}")
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (new, old):
        assert standardwebhooks.Webhook(secret).verify(b"{}", headers) == {}
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(other).verify(b"{}", headers)


# Addresses -------------------------------------------------------------------------------------------

REFUSED = """
    0.0.0.0 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
    169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1
    198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    168.63.129.16
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 ::ffff:a9fe:a9fe 64:ff9b::7f00:1
    64:ff9b::8.8.8.8 64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:20::1
    2001:db8::1 2002:7f00:1:: 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fd12:3456::1
    fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
"""
ACCEPTED = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1
    192.167.255.255 192.169.0.1 168.63.129.15 223.255.255.255 93.184.216.34
    2606:4700:4700::1111 2001:4860:4860::8888 2a00:1450:4001:80b::200e 2003::1
"""


@pytest.mark.parametrize("ip", REFUSED.split())
def test_address_that_is_not_public_is_refused_with_its_reason(ip: str) -> None:
    why = address.refusal(ip)
    assert why is not None and why.startswith(f"`{ip}` is ")


@pytest.mark.parametrize("ip", ACCEPTED.split())
def test_public_address_is_accepted(ip: str) -> None:
    assert address.refusal(ip) is None


@pytest.mark.parametrize("text", ["", "example.com", "127.1", "0x7f000001", "2130706433", "1.2.3.4.5"])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert address.refusal(text) is not None


@given(st.ip_addresses())
def test_nothing_that_is_accepted_is_special_for_the_standard_library(ip: object) -> None:
    if address.refusal(str(ip)) is None:
        assert ip.is_global and not ip.is_multicast  # type: ignore[attr-defined]


ALLOWED = address.places(["127.0.0.1:8080", "[::1]:9090", "Hooks.Corp.Example:443"])


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://example.com:8443/hook?token=1",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]/",
        "https://xn--bcher-kva.example/",
        "http://127.0.0.1:8080/hook",
        "https://127.0.0.1:8080/hook",
        "http://[::1]:9090/",
        "https://hooks.corp.example/x",
        "https://my_host.example/",
    ],
)
def test_address_that_may_be_registered(url: str) -> None:
    assert address.problem_with(url, ALLOWED) is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "ASCII"),
        ("example.com", "not an https address"),
        ("ftp://example.com/", "not an https address"),
        ("https://", "not an https address"),
        ("https:///x", "not an https address"),
        ("http://example.com/", "must be https"),
        ("http://127.0.0.1:8081/", "must be https"),
        ("https://user:pw@example.com/", "user name"),
        ("https://@example.com/", "user name"),
        ("https://example.com/#x", "fragment"),
        ("https://example.com/#", "fragment"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "not an address"),
        ("https://example.com:x/", "not an address"),
        ("https://[::1/", "not an address"),
        ("https://127.0.0.1/", "loopback"),
        ("https://[::1]/", "loopback"),
        ("https://10.1.2.3/", "private"),
        ("https://169.254.169.254/latest/meta-data", "cloud metadata"),
        ("https://[fd00:ec2::254]/", "private"),
        ("https://[::ffff:127.0.0.1]/", "disguise"),
        ("https://2130706433/", "not an IP address"),
        ("https://localhost/", "local name"),
        ("https://LOCALHOST./", "local name"),
        ("https://db.internal/", "local name"),
        ("https://printer.local/", "local name"),
        ("https://exa mple.com/", "ASCII"),
        ("https://bücher.example/", "ASCII"),
        ("https://example.com\\@evil.example/", "ASCII"),
        ("https://example.com/\n", "ASCII"),
        ("https://exa$mple.com/", "not a host name"),
        ("https://a..b/", "not a host name"),
        ("https://example.com/" + "a" * 2048, "longer than"),
    ],
)
def test_address_that_may_not_be_registered(url: str, words: str) -> None:
    problem = address.problem_with(url, ALLOWED)
    assert problem is not None and words in problem


@given(st.text(max_size=80))
def test_no_text_makes_the_check_raise(text: str) -> None:
    address.problem_with(text, ALLOWED)
    address.problem_with("https://" + text, ALLOWED)
