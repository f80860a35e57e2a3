"""Passwords that cost next to nothing: argon2 is slow on purpose, and tests log in hundreds of times.

The fixture `dear_passwords` is for what holds only of those that cost as much as in production.
"""

from __future__ import annotations

import argon2
import pytest

from api.auth import passwords

DEAR = passwords._hasher
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def use() -> None:
    """In this process, from now on."""
    passwords._hasher = CHEAP


@pytest.fixture
def dear_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_hasher", DEAR)
