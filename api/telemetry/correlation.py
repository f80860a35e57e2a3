"""Which request the running code is at work for, so that a line of the log can say it.

What a request has done - a job of the writer, a step after its commit - runs in a copy of its context, on
whatever thread, and so says the same. Nothing here reads headers or writes lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")


class Correlation(NamedTuple):
    request_id: str = ""
    trace_id: str = ""
    """Of the W3C trace that the caller goes on with; empty: none was named."""


NONE: Final = Correlation()
_CURRENT: ContextVar[Correlation] = ContextVar("correlation", default=NONE)


def current() -> Correlation:
    return _CURRENT.get()


@contextmanager
def of(request_id: str, trace_id: str = "") -> Iterator[None]:
    """What runs inside belongs to this request."""
    before = _CURRENT.set(Correlation(request_id, trace_id))
    try:
        yield
    finally:
        _CURRENT.reset(before)


def kept(function: Callable[..., T]) -> Callable[..., T]:
    """The function as work for the current request, wherever it is called; itself when there is none."""
    if _CURRENT.get() is NONE:
        return function
    run: Any = copy_context().run
    return partial(run, function)
