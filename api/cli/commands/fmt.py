"""`governance fmt`: one layout for all documents, comments kept."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.cli.policy_source import default_folder, is_folder
from api.cli.report import Remark, add_format, print_json, print_remarks, progress, say
from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers, filled

EPILOG = """\
Keys get their usual order, nesting two blanks, comments stay with what they stand above or beside, texts and
quotes stay as written. A document that cannot be formatted without changing what it says is left alone, and
the command says so.

exit codes:
  0  done; with --check: everything is formatted already
  1  with --check: some documents are not formatted
  2  wrong usage, or a document that cannot be read; the others are done all the same
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "fmt",
        help="lay documents out: order of keys, indentation; comments are kept",
        description="Lays YAML documents out, in place. What they say does not change.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=_path,
        help="files or folders; `-` lays out the input; default: GOVERNANCE_POLICIES_DIR or ./policies.d",
    )
    parser.add_argument("--check", action="store_true", help="change nothing; say what would change")
    parser.add_argument("--diff", action="store_true", help="change nothing; show what would change")
    add_format(parser)
    parser.set_defaults(run=_fmt)


def _path(text: str) -> Path:
    return Path(filled(text))


def _fmt(arguments: argparse.Namespace) -> int:
    if arguments.files == [Path("-")]:
        return _input(arguments)
    files = list(_files(arguments.files or [Path(default_folder())]))
    remarks: list[Remark] = []
    changed: list[str] = []
    unreadable = 0
    with progress("laying out", len(files)) as step:
        for path in files:
            step()
            if path.exists() and not path.is_file():  # a pipe, of which the end may never come
                message = "this is not a regular file; remove it"
                remarks.append(Remark("error", "not_a_file", message, str(path)))
                unreadable += 1
                continue
            try:
                before = path.read_bytes()
            except OSError as error:
                raise CommandError(f"`{path}` cannot be read: {error.strerror}", USAGE) from None
            after = _laid_out(before, str(path), remarks)
            if after is None:
                unreadable += 1
            elif after != before:
                changed.append(str(path))
                if arguments.check or arguments.diff:
                    if arguments.diff and arguments.format == "text":
                        _show_difference(path, before, after)
                    remarks.append(Remark("warning", "layout", "this is not formatted", str(path), 1, 1))
                else:
                    _write(path, before, after)
    return _report(files, changed, remarks, unreadable, arguments)


def _input(arguments: argparse.Namespace) -> int:
    remarks: list[Remark] = []
    before = sys.stdin.buffer.read()
    after = _laid_out(before, "-", remarks)
    print_remarks(remarks, "text" if arguments.format == "json" else arguments.format)
    if after is None:
        return USAGE
    if arguments.check:
        return FAILED if after != before else 0
    sys.stdout.flush()
    sys.stdout.buffer.write(after)
    return 0


def _laid_out(before: bytes, name: str, remarks: list[Remark]) -> bytes | None:
    """None when the document cannot be read; unchanged when it is left alone."""
    from engine.documents.format import CannotFormat, format_document
    from engine.errors import DocumentError

    try:
        return format_document(before, name)
    except CannotFormat as error:
        remarks.append(Remark("note", "left-alone", f"left as it is: {error}", name, error.line, 1))
        return before
    except DocumentError as error:
        remarks.extend(
            Remark("error", each.code, each.message, name, each.line, each.column) for each in error.problems
        )
        return None


def _unreadable(error: OSError) -> None:
    raise CommandError(f"the folder `{error.filename}` cannot be read: {error.strerror}", USAGE) from None


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if is_folder(path):
            for folder, folders, names in os.walk(path, onerror=_unreadable):
                folders[:] = sorted(each for each in folders if not each.startswith((".", "_")))
                for name in sorted(names):
                    if name.endswith(".yaml") and not name.startswith((".", "_")):
                        yield Path(folder) / name
        elif path.is_file():
            yield path
        else:
            raise CommandError(f"there is no file or folder `{path}`", USAGE)


def _write(path: Path, before: bytes, content: bytes) -> None:
    """In one rename, so that a service that watches the folder never reads half a file; not over what others
    have written meanwhile. It stays its owner's, who may be the user of the service."""
    from engine.worktree.ownership import new_file_like

    target = path.resolve()
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(new_file_like(aside, target), "wb") as file:
            file.write(content)
        if target.read_bytes() != before:
            aside.unlink()
            raise CommandError(f"`{path}` was changed meanwhile and is left as it is; run this again")
        aside.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):  # in a folder that is only read there is nothing to remove
            aside.unlink()
        raise CommandError(f"`{path}` cannot be written: {error.strerror}", USAGE) from None


def _show_difference(path: Path, before: bytes, after: bytes) -> None:
    old, new = before.decode().splitlines(), after.decode().splitlines()
    lines = difflib.unified_diff(old, new, f"{path}", f"{path} (formatted)", lineterm="")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        say(line, styles.get(line[:1]))


def _report(
    files: list[Path],
    changed: list[str],
    remarks: list[Remark],
    unreadable: int,
    arguments: argparse.Namespace,
) -> int:
    would = arguments.check or arguments.diff
    if arguments.format == "json":
        shape: dict[str, Any] = {"files": len(files), "changed": changed, "written": not would}
        print_json(shape | {"remarks": [each.as_json() for each in remarks]})
    else:
        print_remarks(remarks, arguments.format)
        if arguments.format == "text":
            verb = "would change" if would else "changed"
            say(f"{len(files):,} document{'s' * (len(files) != 1)}, {len(changed):,} {verb}")
    if unreadable:
        return USAGE
    return FAILED if arguments.check and changed else 0
