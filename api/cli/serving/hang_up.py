"""What signals do that do not stop a serving process: with SIGHUP the policy files are read anew and the file
that the log goes to is opened anew; SIGUSR1 and SIGUSR2 do nothing.

A terminal that is closed sends SIGHUP as well, and takes the service that was started from it along, unless
`nohup` says otherwise.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from types import FrameType
from typing import Final

OUTPUTS: Final = (1, 2)
"""The descriptors of what is said and of the log."""
TERMINAL: Final = "/dev/tty"


class HangUp:
    """The handler of SIGHUP; `look_again` is called by it, on the main thread, once there are policies."""

    def __init__(self, *, follows_terminal: bool) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._follows_terminal = follows_terminal and not ignored and _has_terminal()
        self._files = {each: path for each in OUTPUTS if (path := _file_of(each)) is not None}
        """Where they went at the start: whoever turns the log over gives its file another name."""
        self.look_again: Callable[[], None] = lambda: None
        self.tell: Callable[[str], None] = lambda text: None
        """Called by it with what went wrong, on the main thread."""

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_end():
            signal.raise_signal(signal.SIGTERM)
            return
        for problem in self.reopen():
            self.tell(problem)
        self.look_again()

    def is_end(self) -> bool:
        """Whether the terminal is closed that the process was started from."""
        return self._follows_terminal and not _has_terminal()

    def reopen(self) -> list[str]:
        """Go on writing to the files of the same names; one that cannot be opened is left as it is, and said
        to be."""
        problems: list[str] = []
        for descriptor, path in self._files.items():
            try:
                mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
            except OSError as error:
                what = "the log goes" if descriptor == 2 else "what is printed goes"
                problems.append(
                    f"{what} on in the file of before, since `{path}` cannot be opened: {error.strerror}; "
                    "let the user of the service write there, and send SIGHUP again"
                )
                continue
            os.dup2(opened, descriptor)
            os.close(opened)
        return problems


def installed(*, follows_terminal: bool = False) -> HangUp | None:
    """The handler of this process, put in place unless it is; None where there are no such signals. On the
    main thread only."""
    if not hasattr(signal, "SIGHUP"):
        return None
    found = signal.getsignal(signal.SIGHUP)
    if isinstance(found, HangUp):
        return found
    made = HangUp(follows_terminal=follows_terminal)
    signal.signal(signal.SIGHUP, made)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    return made


def _has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _file_of(descriptor: int) -> str | None:
    """The name of the file behind a descriptor, where it is one and the system tells."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path would be made of it in vain
    except OSError:
        pass
    return None
