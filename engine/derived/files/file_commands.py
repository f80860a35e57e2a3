"""Which files a command reads, writes and deletes, by what is known of common programs.

One table for each use. Of a program that is not in them, every word that looks like a path is read. Knows
nothing of calls or of how paths are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise, takewhile
from typing import Final

from engine.derived.commands.commands import Command, commands_of, started_by
from engine.derived.files.archives import packed, tar, unpacked, zip_
from engine.derived.files.editors import EDITORS, edited, recorded
from engine.derived.files.git import git
from engine.derived.files.listed import LISTING, listed, parted, substituted
from engine.derived.files.openssl import openssl
from engine.derived.files.operands import (
    SCHEME,
    each_of,
    looks_like_path,
    marked,
    pointed,
    without_configuration,
)
from engine.derived.files.sqlite import sqlite
from engine.fields.words import word_set
from engine.shell.files.downloads import DOWNLOADERS, saved
from engine.shell.files.file_calls import Use, Uses, paths_in_code
from engine.shell.files.find_expression import SOME, STARTING, acted_on, outside, started_with
from engine.shell.files.script_files import ANY, paths_in_awk, paths_in_sed
from engine.shell.options import Given, given, has_mark, operands_of, values_of
from engine.shell.reader import reading
from engine.shell.starting.wrappers import starts

_DELETING: Final = word_set(
    "rm rmdir unlink shred srm del erase rd wipe remove-item ri trash trash-put rimraf"
)
_READING: Final = word_set(
    "cat tac head tail less more nl paste xxd od strings base64 base32 hexdump hd sort uniq cut diff cmp "
    "comm join column fold fmt rev bat batcat view get-content gc type "
    "gpg age grep egrep fgrep rg ag sed awk gawk mawk jq yq tr vi vim nano ed emacs "
    "split csplit pr expand look zcat zless bzcat xzcat zstdcat python python3 node bun deno ruby perl "
    "php sh bash zsh"
)
"""Every operand is a file that is read."""
_SCRIPT_FIRST: Final = word_set("grep egrep fgrep rg ag sed awk gawk mawk jq yq tr")
"""The first operand is no file, unless an option gives what it would be."""
_WRITING_SECOND: Final = frozenset(["uniq", "split", "xxd"])
_REPLACES: Final = re.compile(r"s([/|#,])(?>(?:\\.|(?!\1).)*)\1(?>(?:\\.|(?!\1).)*)\1[gIi\d]*", re.DOTALL)
"""A script of `sed` that replaces and no more: in place it shows nothing of the file."""
_AWK_IN_PLACE: Final = Given("include", "inplace")
_WRITING: Final = word_set("tee sponge touch mkdir truncate mkfifo mknod fallocate new-item")
_MODE_FIRST: Final = frozenset(["chmod", "chown", "chgrp"])
"""What they change is no content."""
_COPYING: Final = word_set("cp mv install ln rsync scp ditto copy move copy-item move-item xcopy robocopy")
_MOVING: Final = frozenset(["mv", "move", "move-item"])
_PACKING: Final = word_set("gzip bzip2 xz zstd lzma compress pigz gunzip bunzip2 unxz unzstd")
_NAMING: Final = word_set(
    "ls dir ll stat file test [ [[ cd pushd du df tree realpath readlink dirname basename which find fd "
    "locate get-childitem gci get-item gi source . ssh-add ssh-keygen wc sha256sum md5sum sha1sum cksum"
)
_LISTING: Final = word_set("get-childitem gci get-item gi")
_REMOVING: Final = frozenset(["remove-item", "ri"])
"""What PowerShell hands on is files, without xargs."""
_CHOOSING: Final = re.compile(r"-(?:filter|include|exclude|name)", re.IGNORECASE)
_TALKING: Final = word_set(
    "echo printf print write-output write-host true false : sleep export alias set unset"
)
"""Their words are no files."""

_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!\\)")
_FILE_NAME: Final = re.compile(r"[^\s()'\";]{1,4096}")
_INTERPRETERS: Final = ("python", "node", "bun", "deno", "ruby", "perl", "php")
_LONGEST_GLOB: Final = 64
"""Characters of a program's name that is a glob; to read one takes time in the square of its brackets."""
_SEARCHING: Final = word_set("grep egrep fgrep rg")
_COUNTS: Final = word_set("c count q quiet silent")
"""Options with which a search tells how often or whether it found something, and nothing of what is there."""
_STREAMS: Final = word_set("- /dev/null /dev/stdin /dev/stdout /dev/stderr /dev/tty NUL nul")


def uses_of(command: Command) -> Uses:
    """What the command does to which words, in order; a word may be there more than once."""
    name = command.program
    for operator, target in command.redirections:
        if (
            target not in _STREAMS
            and not target.isdigit()
            and not target.startswith(("/dev/tcp/", "/dev/udp/"))
        ) and operator not in ("<<", "<<-", "<<<"):
            yield ("writes" if ">" in operator else "reads"), target
            may_be_file = not target.endswith((":", "/"))
            if operator in (">", ">|", "&>") and may_be_file and _prints_nothing(name, command):
                yield "deletes", target
    if name in DOWNLOADERS:
        yield from each_of("writes", saved(name, command.words))
    rule = _RULES.get(name)
    for use, word in rule(command) if rule is not None else _by_table(name, command):
        if word not in _STREAMS and word != "{}" and not SCHEME.match(word) and not _is_remote(word):
            yield use, word
        if use == "reads" and word[-1:] == ")":
            yield from each_of("reads", substituted(word))


def _prints_nothing(name: str, command: Command) -> bool:
    """Whether its output, put into a file, leaves that empty: what the file had is lost."""
    if name in ("echo", "printf"):
        return not any(command.arguments)
    return name in ("", ":", "true", "false") or (name == "cat" and command.words == ("/dev/null",))


def _is_remote(word: str) -> bool:
    """`host:path` of scp and rsync; a drive letter is no host."""
    return (found := _REMOTE.match(word[:300])) is not None and found.end() > 2


def _by_table(name: str, command: Command) -> Uses:
    if name in _TALKING:
        return
    if any(char in name for char in "*?["):
        name = _globbed(name)
    items = list(given(name, command.words))
    operands = operands_of(items)
    yield from marked(items)
    if name in _DELETING or name.startswith("mkfs"):
        yield from each_of("deletes", operands)
    elif name in _NAMING:
        yield from _listed(name, command, items)
    elif name in _COPYING:
        yield from _copied(name, items)
    elif name in _MODE_FIRST:
        yield from each_of("names", operands[not has_mark(items, "%") :])
    elif name in _WRITING:
        yield from each_of("writes", operands)
        if name == "truncate" and "0" in values_of(items, "size"):
            yield from each_of("deletes", operands)
    elif name in _READING:
        yield from _read(name, command, items)
    else:
        yield from pointed(without_configuration(name, command.words))


def _globbed(name: str) -> str:
    """The program that deletes which a glob may stand for, else the glob. INVARIANT: one that is too long to
    be compared stands for such a program."""
    known = sorted(_DELETING)
    if len(name) > _LONGEST_GLOB:
        return known[0]
    return next((each for each in known if fnmatchcase(each, name)), name)


def _listed(name: str, command: Command, items: Sequence[Given]) -> Uses:
    """What is listed is deleted where the list goes into a program that deletes."""
    into = {each.lower() for each in command.piped_into}
    removing = _DELETING if name in _LISTING or "xargs" in into else _REMOVING
    if removing.isdisjoint(into):
        yield from each_of("names", operands_of(items))
        return
    chosen = "/**/?*" if any(_CHOOSING.fullmatch(word) for word in command.options) else ""
    folders = [word for word in operands_of(items) if not chosen or looks_like_path(word)]
    yield from each_of("deletes", [f"{folder}{chosen}" for folder in folders or ["."]])


def _read(name: str, command: Command, items: Sequence[Given]) -> Uses:
    in_place = [each for each in items if each.name == "in-place" or each == _AWK_IN_PLACE]
    # `sed '' file` has an empty script; in `sed -i '' script file` macOS takes it for the end of a name
    operands = operands_of(items) if in_place else [each.value for each in items if not each.name]
    files = operands[1:] if name in _SCRIPT_FIRST and not has_mark(items, "%") else operands
    if name in _WRITING_SECOND:
        yield from each_of("writes", filter(None, operands[1:]))
        files = operands[:1]
    interprets = name.startswith(_INTERPRETERS)
    if interprets and not in_place:
        files = [word for word in files if _FILE_NAME.fullmatch(word[:4_097])]
    replaces = name == "sed" and files != operands and _REPLACES.fullmatch(operands[0][:4_096])
    if not (replaces and in_place and not any(each.value for each in in_place)):
        use: Use = "names" if name in _SEARCHING and any(each.name in _COUNTS for each in items) else "reads"
        yield from each_of(use, [word for word in files if 0 < len(word) <= 4_096 and not word.isdigit()])
    yield from each_of("writes", files if in_place else ())
    if name == "sed" or name.endswith("awk"):
        given_by = [each.value for each in items if each.name in ("expression", "source")]
        script = "\n".join(given_by or operands[:1])
        yield from (paths_in_sed if name == "sed" else paths_in_awk)(script)
    yield from pointed(without_configuration(name, command.options))
    for text in (*command.words, *command.inputs) if interprets else ():
        yield from paths_in_code(text)


def _last(path: str) -> str:
    """The last part of a path, also of one on another machine; empty where that is not told."""
    last = path.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return "" if last in ("", ".", "..", "~") or "$" in last else last


def _may_be_folder(path: str, file: str) -> bool:
    """Whether a file that is copied to a path is a file in it then, as `a.json` in `~/.claude` is, and not in
    `b.json`."""
    last = _last(path)
    if not last or path.endswith("/") or path.rfind("/") == 0:  # such as `..`, `a/` and `/etc`
        return True
    hidden = last[0] == "."
    alike = last.startswith(file) or file.startswith(last)
    return not alike and "." not in last[hidden:] and (hidden or "." in file[1:])


def _copied(name: str, items: Sequence[Given]) -> Uses:
    operands = operands_of(items)
    targets = into = values_of(items, "target-directory")[-1:]  # several are refused
    if any(each.name == "directory" for each in items):
        yield from each_of("writes", operands)
        return
    if not targets and len(operands) > 1:
        targets, operands = operands[-1:], operands[:-1]
    yield from each_of("reads", operands)
    yield from each_of("writes", targets)
    within_them = bool(into) or len(operands) > 1
    named = [path for path in operands if name != "rsync" or not path.endswith("/")]  # `a/` is what is in it
    for folder in () if any(each.name == "no-target-directory" for each in items) else targets:
        for file in map(_last, named):
            if file and (within_them or _may_be_folder(folder, file)):
                yield "writes", f"{folder.rstrip('/')}/{file}"
    if name in _MOVING or values_of(items, "remove-source-files"):
        yield from each_of("deletes", operands)
    if any(each.name.startswith("del") for each in items):
        yield from each_of("deletes", targets)


_MOST_MARKED: Final = 16
"""Words of a command in which each file has its place."""
_MOST_STARTED: Final = 32
"""Commands that are read of those which `find` starts, one for each file that is told."""


def _find(command: Command) -> Uses:
    """What it does itself, and what the commands do that it starts."""
    folders, expression = parted(command.words)
    yield from _found(command, folders, expression)
    if not STARTING.isdisjoint(command.words):
        below = acted_on(expression)
        yield from _started(expression, [f"{folder}{each}" for folder in folders for each in below])


def _found(command: Command, folders: Sequence[str], expression: Sequence[str]) -> Uses:
    """`find a b -delete`, `find a -exec rm {} +`, `find a | xargs rm`: the folders are what is deleted."""
    into = set(command.piped_into)
    started = set(into)
    below = acted_on(expression)
    if not STARTING.isdisjoint(command.words):
        started.update(started_by(("find", *command.words)))
    found = [f"{folder}{each}" for each in below for folder in folders]
    if "-delete" in outside(expression) or not started.isdisjoint(_DELETING):
        yield from each_of("deletes", found)
    else:
        yield from each_of("names", folders)
    yield from each_of("deletes", found if not into.isdisjoint(_MOVING) else ())
    yield from each_of("writes", found if not into.isdisjoint(_WRITING) else ())
    if not started.isdisjoint(_READING):
        yield from each_of("reads", folders)
    if not started.isdisjoint(_READING | _COPYING):
        named = [each for each in below if each != SOME]
        yield from each_of("reads", [f"{folder}{each}" for folder in folders for each in named])
    for option, word in pairwise(command.words):
        if option in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield "writes", word


def _started(expression: Sequence[str], found: Sequence[str]) -> Uses:
    """What the commands that `find` starts do to what it finds."""
    starts = [words for words in started_with(expression) if any("{}" in word for word in words)]
    nested = any(not STARTING.isdisjoint(words) for words in starts)
    if nested or len(starts) * len(found) > _MOST_STARTED:
        yield from (each for file in found for each in (("writes", file), ("deletes", file)))
        return
    for words in starts:
        for file in found:
            filled = [word.replace("{}", file) for word in words]
            for inner in commands_of(reading([], [filled])):
                if inner.program == "find":
                    yield from _found(inner, *parted(inner.words))
                else:
                    yield from _uses_alone(inner)


def _uses_alone(command: Command) -> Uses:
    """The same without what it starts, which is read beside it."""
    return iter(()) if command.program in ("find", "xargs") else uses_of(command)


def _xargs(command: Command) -> Uses:
    """What it starts, where nobody knows what it is given to read."""
    options = list(takewhile(lambda each: each.name, given("xargs", command.words)))
    yield from marked(options)
    if command.inputs:
        return
    is_listed = bool(command.given_by) and all(stage[0] in LISTING for stage in command.given_by)
    files = listed(command.given_by) if is_listed else []
    marks = [each.value or "{}" for each in options if each.name == "replace"]
    for words in (started.words for started in starts("xargs", command.words, None)):
        if words[0] == "xargs":
            continue  # which is a command of its own
        filled = [word.replace(marks[0], ANY) for word in words] if marks else [*words, ANY]
        for inner in commands_of(reading([], [filled])):
            for use, word in _uses_alone(inner):
                if ANY in word and (use == "writes" or not is_listed):
                    yield use, word
        yield from _reads_alone(_filled(words, marks, files)) if files else ()


def _filled(words: Sequence[str], marks: Sequence[str], files: Sequence[str]) -> list[str]:
    """The words of a command with all files that it is given one after another."""
    mark = marks[0] if marks else ""
    if not mark or sum(mark in word for word in words) > _MOST_MARKED:
        return [*words, *files]
    return [
        word.replace(mark, file)
        for word in words
        for file in ((["*"] if _is_below(word, mark) else files) if mark in word else files[:1])
    ]


def _is_below(word: str, mark: str) -> bool:
    """Whether what is given is a name in a folder: `a/{}`."""
    return not word.startswith(mark) and looks_like_path(word.replace(mark, "x"))


def _reads_alone(words: Sequence[str]) -> Uses:
    """What is read by a command of which that is known."""
    for inner in commands_of(reading([], [words])):
        if inner.program in _READING | _COPYING | _RULES.keys():
            yield from (each for each in _uses_alone(inner) if each[0] == "reads")


def _dd(command: Command) -> Uses:
    for word in command.words:
        key, _, value = word.partition("=")
        if key in ("if", "of") and value:
            yield ("reads" if key == "if" else "writes"), value


def _fetched(command: Command) -> Uses:
    """The files that `curl` and `wget` read and write: those of options, of `file:` URLs, of `@file`."""
    items = list(given(command.program, command.words))
    yield from marked(items)
    for word in operands_of(items):
        if word.lower().startswith("file:"):
            yield "reads", word.replace("file://", "", 1)
    yield from pointed([each.value for each in items if each.name and "@" in each.value])


def _wiped(command: Command) -> Uses:
    """Without these options it shows, or says what it would do."""
    items = list(given("wipefs", command.words))
    told = {each.name for each in items}
    wipes = not told.isdisjoint(("all", "offset")) and "no-act" not in told
    yield from each_of("deletes" if wipes else "names", operands_of(items))


def _patch(command: Command) -> Uses:
    items = list(given("patch", command.words))
    yield from marked(items)
    yield from each_of("writes", operands_of(items)[:1] or (values_of(items, "directory") or ["."])[:1])
    yield from each_of("reads", operands_of(items)[1:])


_Rule = Callable[[Command], Uses]
_RULES: Final[Mapping[str, _Rule]] = {
    "find": _find,
    "tar": tar,
    "bsdtar": tar,
    "zip": zip_,
    **dict.fromkeys(("7z", "7za", "7zz", "unzip"), unpacked),
    **dict.fromkeys(_PACKING, packed),
    "sqlite3": sqlite,
    "xargs": _xargs,
    "patch": _patch,
    "dd": _dd,
    "openssl": openssl,
    "wipefs": _wiped,
    "curl": _fetched,
    "wget": _fetched,
    "git": git,
    **dict.fromkeys(EDITORS, edited),
    "script": recorded,
}
