"""What Python raises as if it were a fault of the program, where the machine gives a process too little."""

from __future__ import annotations

from typing import Final

MEMORY: Final = (
    "there is not enough memory for this process; free some, or raise its limit: `MemoryMax=` or `LimitAS=` "
    "of systemd, `--memory` of a container, `ulimit -v` of a shell"
)
TASKS: Final = (
    "this process may start no more threads or processes; raise its limit: `TasksMax=` or `LimitNPROC=` of "
    "systemd, `--pids-limit` of a container, `ulimit -u` of a shell; or the one of its memory (`ulimit -v`)"
)


def scarcity(error: BaseException) -> str | None:
    """Of what there is too little, and what to do; None: this error says nothing of the kind."""
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return TASKS
    if isinstance(error, BlockingIOError) and error.filename is None:  # of `fork`
        return TASKS
    text, kind = str(error), type(error).__name__
    unmapped = isinstance(error, ImportError) and "failed to map segment" in text
    unhashed = kind == "HashingError" and "Memory allocation" in text  # of `argon2`
    return MEMORY if isinstance(error, MemoryError) or unmapped or unhashed else None
