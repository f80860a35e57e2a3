"""Fixtures that several test modules use."""

from __future__ import annotations

from tests.harness.postgres import database_url, postgres, postgres_url

__all__ = ["database_url", "postgres", "postgres_url"]
