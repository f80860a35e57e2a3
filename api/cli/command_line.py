"""The commands, parsed: one file of `commands/` per command (or group of commands).

A command's file has `register(commands)`, which adds its parser and sets `run`, a function of the parsed
arguments that returns the exit code. Files are found by themselves; they import what is heavy only inside
`run`, since `governance --help` imports them all and agents call `governance` before each tool call.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

from api.cli import commands as command_files
from api.cli.scarcity import scarcity
from api.cli.terminal import (
    AWAY,
    FAILED,
    INTERRUPTED,
    USAGE,
    WAITS,
    CommandError,
    drop_output,
    print_json,
    say_error,
    whole_output,
)
from api.version import VERSION
from schemas.suggestion import suggestion

EPILOG = f"""\
exit codes:
  0    done
  {FAILED}    it could not be done, or the answer is no (a refusal of the service, a broken audit chain)
  {USAGE}    wrong usage, settings, policies or database; nothing was started or changed
  {AWAY}    the service that was asked does not answer; what was asked may have been done
  {WAITS}    nothing was done yet: another admin must agree, with `governance changes approve`
  {INTERRUPTED}  interrupted

Settings come from GOVERNANCE_* environment variables; flags go before them.
"""

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What writing to an open file fails with; such an error names no file."""

UNUSABLE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE),
)
"""What even looking for a file fails with, whatever the program does."""


def parser(first: str = "") -> argparse.ArgumentParser:
    """The whole command line; where the first word is a command or `--version`, no other command."""
    made = _Parser(
        prog="governance",
        description="Decides, records and explains every tool call of your software agents.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--version", action="version", version=f"%(prog)s {VERSION}", help="show the version and exit"
    )
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    names = sorted(found.name for found in pkgutil.iter_modules(command_files.__path__))
    if (only := first.replace("-", "_")) in names or first == "--version":
        names = [name for name in names if name == only]
    for name in names:
        importlib.import_module(f"{command_files.__name__}.{name}").register(commands)
    return made


class _Parser(argparse.ArgumentParser):
    """Says what was probably meant, and shows the usage of the command that was called.

    Its subparsers are of this class too.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            # Left to argparse, the outermost parser complains, whose usage says nothing about this command.
            word = rest[0]
            close = suggestion(word.partition("=")[0], self._option_string_actions, cutoff=0.7)
            self.error(f"`{word}` is not understood here{close}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(each) for each in action.choices]
            close = suggestion(str(value), known, cutoff=0.7) or "; write one of " + ", ".join(known)
            raise argparse.ArgumentError(action, f"there is no `{value}`{close}")


def run(words: Sequence[str]) -> int:
    """Run one command; returns its exit code. Wrong usage ends in SystemExit(2), as argparse does it."""
    if sys.stderr is None:  # closed by the caller (`2>&-`); nothing else may get its descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")
    if sys.stdout is None:  # closed by the caller (`>&-`)
        say_error("there is no standard output; direct it to a file, or to /dev/null")
        return USAGE
    whole_output()
    chosen = parser(*words[:1]).parse_args(words)
    if words[:1] != ["serve"]:
        # A command is no process of the service, whose counters are added up there: it would leave files that
        # nobody takes away, and as another user's (root's) that the service cannot read.
        os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    try:
        code: int = chosen.run(chosen)
        sys.stdout.flush()
    except CommandError as error:
        if error.shown is not None and chosen.format == "json":
            print_json(error.shown)
        say_error(str(error))
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`) has seen enough; what is still buffered goes nowhere.
        drop_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in UNWRITTEN:
            drop_output()
            say_error(f"the output cannot be written: {error.strerror}")
            return USAGE
        said = _said(error, words)
        if said is None:
            raise
        say_error(said)
        return USAGE
    return code


def _said(error: Exception, words: Sequence[str]) -> str | None:
    """The text of an error that is for people; None for a fault of ours."""
    from api.database.errors import DatabaseUnavailable
    from api.setting_values import is_text
    from api.settings import SettingsError
    from engine.errors import DocumentError

    if isinstance(error, DatabaseUnavailable):
        return error.operator_message or str(error)
    if isinstance(error, UnicodeEncodeError):
        for word in words:
            if not is_text(word):
                return f"`{word}` is not text in UTF-8; write it in a terminal of UTF-8"
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # of `pathlib`
        return (
            "you have no home folder on this machine, or `~` names one of nobody; set HOME, or write it out"
        )
    if isinstance(error, OSError) and error.filename is not None and error.errno in UNUSABLE:
        mend = "; run this as the user of the service, or let this user into its folder"
        closed = mend if error.errno in (errno.EACCES, errno.EPERM) else ""
        return f"`{os.fsdecode(error.filename)}` cannot be used: {error.strerror}{closed}"
    return str(error) if isinstance(error, (SettingsError, DocumentError)) else scarcity(error)
