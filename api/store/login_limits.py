"""How soon somebody may try to log in again, counted exactly over all workers and nodes.

Failures slow down what follows and never lock anybody out: beyond a limit each try has to wait, longer after
each failure up to a bound that a person can wait for, also in the middle of an incident.

A try is counted before its password is checked, so that a thousand tries at once are no way around; a right
password takes its try back. Refused tries are not counted, so they prolong nothing. When a wait is over, the
next try is drawn by lot (`api/auth/login_draw.py`), so that who guesses without a pause keeps nobody out.

- `pair`, one e-mail from one address: the limit on guessing one password.
- `address`, any e-mail from one address: the limit on trying many e-mails.
- `email`, one e-mail from all addresses: the limit on guessing from many machines. An address from which this
  user has logged in during the last 30 days is exempt from the last two, so that nobody slows an admin down
  in their usual place by guessing from elsewhere, or by trying other e-mails behind the same proxy.

Buckets hold digests, never e-mails or addresses, and share the table of rate counts.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from api.database.connection import Database
from api.database.transaction import Transaction
from api.store.emails import same_email


@dataclass(frozen=True, slots=True)
class Limit:
    """After `tries` failures in the last `seconds` each try waits, at most `longest_wait` seconds."""

    tries: int
    seconds: int
    longest_wait: int

    def wait(self, failures: int) -> int:
        """Seconds between the newest of so many failures and the next try."""
        return min(self.longest_wait, FIRST_WAIT << (failures - self.tries)) if failures >= self.tries else 0


FIRST_WAIT: Final = 4
"""Seconds; each further failure doubles them."""
PAIR: Final = Limit(5, 900, 30)
ADDRESS: Final = Limit(30, 900, 30)
EMAIL: Final = Limit(50, 3600, 60)
MOST_DOUBLED: Final = 4
"""Failures beyond a limit after which every wait is the longest."""
KNOWN_FOR: Final = 30 * 86_400
"""Seconds that an address stays known for a user after a login."""
COLUMNS: Final = ("bucket", "at", "expires_at")


class TooManyTries(Exception):
    """Try again in `retry_after` seconds (a whole number, at least 1)."""

    code = "rate_limited"

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many logins have failed or are under way; try again in {retry_after} seconds")
        self.retry_after = retry_after


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def network(address: str) -> str:
    """What counts as one address: of IPv6 the /64, since one customer has all of it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One counted try. `counted_at` finds its rows again."""

    email: str
    address: str
    counted_at: float

    @classmethod
    def of(cls, email: str, address: str, now: float) -> Attempt:
        return cls(same_email(email), network(address), now)

    @property
    def pair(self) -> str:
        return f"login:pair:{_digest(self.email)}:{_digest(self.address)}"

    @property
    def known(self) -> str:
        return f"login:known:{_digest(self.email)}:{_digest(self.address)}"

    @property
    def limits(self) -> dict[str, Limit]:
        return {
            self.pair: PAIR,
            f"login:address:{_digest(self.address)}": ADDRESS,
            f"login:email:{_digest(self.email)}": EMAIL,
        }


def check(store: Database, attempt: Attempt) -> str | None:
    """Raises TooManyTries when the try may not be made; else the widest bucket that it is slowed by, if any:
    tries of one such bucket compete. Alone it is a cheap look ahead that takes no lock."""
    now = attempt.counted_at
    known = is_known(store, attempt)
    wait, slowed = 0.0, None
    for bucket, limit in attempt.limits.items():
        if known and bucket != attempt.pair:
            continue
        times = store.rows(
            "SELECT at FROM rate_hits WHERE bucket = ? AND at > ?"
            f" ORDER BY at DESC LIMIT {limit.tries + MOST_DOUBLED}",
            (bucket, now - limit.seconds),
        )
        if len(times) >= limit.tries:
            slowed = bucket
        if times:
            # A time to come is of before the clock was put back.
            wait = max(wait, min(times[0][0], now) + limit.wait(len(times)) - now)
    if wait > 0:
        raise TooManyTries(math.ceil(wait))
    return slowed


def is_known(store: Database, attempt: Attempt) -> bool:
    """Whether this user has logged in from this address lately."""
    found = store.rows(
        "SELECT 1 FROM rate_hits WHERE bucket = ? AND expires_at > ?", (attempt.known, attempt.counted_at)
    )
    return bool(found)


def begin(transaction: Transaction, email: str, address: str) -> Attempt:
    """Count a try; raises TooManyTries when it may not be made."""
    store, now = transaction.store, transaction.now
    attempt = Attempt.of(email, address, now)
    check(store, attempt)
    store.insert_many(
        "rate_hits", COLUMNS, [(bucket, now, now + limit.seconds) for bucket, limit in attempt.limits.items()]
    )
    return attempt


def succeeded(transaction: Transaction, attempt: Attempt) -> None:
    """The password was right: the try is taken back, the pair starts anew, the address is known."""
    store = transaction.store
    for bucket in attempt.limits:
        store.rows_changed(
            "DELETE FROM rate_hits WHERE hit_no IN"
            " (SELECT hit_no FROM rate_hits WHERE bucket = ? AND at = ? LIMIT 1)",
            (bucket, attempt.counted_at),
        )
    store.rows_changed("DELETE FROM rate_hits WHERE bucket IN (?, ?)", (attempt.pair, attempt.known))
    store.insert_many("rate_hits", COLUMNS, [(attempt.known, transaction.now, transaction.now + KNOWN_FOR)])


def forget(transaction: Transaction, email: str) -> int:
    """Forget the failures of an e-mail, as an admin or operator asks; returns how many there were."""
    digest = _digest(same_email(email))
    return transaction.store.rows_changed(
        "DELETE FROM rate_hits WHERE bucket = ? OR bucket LIKE ?",
        (f"login:email:{digest}", f"login:pair:{digest}:%"),
    )
