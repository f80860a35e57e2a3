"""Reaching an event loop from other threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call this on the loop, from any thread; a loop that has closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
