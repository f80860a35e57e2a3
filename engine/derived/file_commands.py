"""Which files a command reads, writes and deletes, by what is known of common programs.

One table for each use. Of a program that is not in them, every word that looks like a path is read. Knows
nothing of calls or of how paths are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Final

from engine.derived.commands import Command, started_by
from engine.derived.path_text import within
from engine.fields.words import word_set
from engine.shell.files.file_calls import Use, Uses, paths_in_code
from engine.shell.files.find_expression import SOME, acted_on, outside
from engine.shell.options import Given, given

_DELETING: Final = word_set(
    "rm rmdir unlink shred srm del erase rd wipe wipefs remove-item ri trash trash-put rimraf"
)
_READING: Final = word_set(
    "cat tac head tail less more nl paste xxd od strings base64 base32 hexdump hd sort uniq cut diff cmp "
    "comm join wc column fold fmt rev bat batcat view get-content gc type sha256sum md5sum "
    "sha1sum cksum gpg age grep egrep fgrep rg ag sed awk gawk mawk jq yq tr vi vim nano ed emacs "
    "split csplit pr expand look zcat zless bzcat xzcat zstdcat python python3 node ruby perl php sh bash "
    "zsh"
)
"""Every operand is a file that is read."""
_SCRIPT_FIRST: Final = word_set("grep egrep fgrep rg ag sed awk gawk mawk jq yq tr")
"""The first operand is no file, unless an option gives what it would be."""
_WRITING_SECOND: Final = frozenset(["uniq", "split", "xxd"])
_REPLACES: Final = re.compile(r"s([/|#,])(?>(?:\\.|(?!\1).)*)\1(?>(?:\\.|(?!\1).)*)\1[gIi\d]*", re.DOTALL)
"""A script of `sed` that replaces and no more: in place it shows nothing of the file."""
_AWK_IN_PLACE: Final = Given("include", "inplace")
_WRITING: Final = word_set("tee touch mkdir truncate mkfifo mknod fallocate new-item")
_MODE_FIRST: Final = frozenset(["chmod", "chown", "chgrp"])
"""What they change is no content."""
_COPYING: Final = word_set("cp mv install ln rsync scp ditto copy move copy-item move-item xcopy robocopy")
_MOVING: Final = frozenset(["mv", "move", "move-item"])
_PACKING: Final = word_set("gzip bzip2 xz zstd lzma compress pigz gunzip bunzip2 unxz")
_NAMING: Final = word_set(
    "ls dir ll stat file test [ [[ cd pushd du df tree realpath readlink dirname basename which find fd "
    "locate get-childitem gci get-item gi source . ssh-add ssh-keygen"
)
_LISTING: Final = word_set("get-childitem gci get-item gi")
_REMOVING: Final = frozenset(["remove-item", "ri"])
"""What PowerShell hands on is files, without xargs."""
_CHOOSING: Final = re.compile(r"-(?:filter|include|exclude|name)", re.IGNORECASE)
_CONFIGURING: Final = word_set("--env-file --kubeconfig --identity-file --key --cert --cacert --private-key")
"""Options whose file sets the program up: what it says is used, not shown."""
_SECURE: Final = frozenset(["ssh", "sftp", "mosh"])
_TALKING: Final = word_set(
    "echo printf print write-output write-host true false : sleep export alias set unset"
)
"""Their words are no files."""

_PATH: Final = re.compile(
    r"(?:~|\.{1,2}|\$\{?\w+\}?|%\w+%|[A-Za-z]:)?[/\\][^\s'\"()<>|;&]*|~\w*|\.[A-Za-z][\w.-]+|file:\S+"
)
_RELATIVE: Final = re.compile(r"[\w.@+-]+(?:/[\w.@+*?-]*)+")
_REMOTE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!\\)")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_REFERRED: Final = re.compile(r"(?:[\w.\[\]-]{1,256}=)?[@<]([^;]+)")
"""What `-d @file` and `-F x=@file;type=y` refer to."""
_CLUSTER: Final = re.compile(r"[A-Za-z]+")
_FILE_NAME: Final = re.compile(r"[^\s()'\";]{1,4096}")
_INTERPRETERS: Final = ("python", "node", "ruby", "perl", "php")
_LONGEST_GLOB: Final = 64
"""Characters of a program's name that is a glob; to read one takes time in the square of its brackets."""
_SEARCHING: Final = word_set("grep egrep fgrep rg")
_COUNTS: Final = word_set("c count q quiet silent")
"""Options with which a search tells how often or whether it found something, and nothing of what is there."""
_STREAMS: Final = word_set("- /dev/null /dev/stdin /dev/stdout /dev/stderr /dev/tty NUL nul")


def uses_of(command: Command) -> Uses:
    """What the command does to which words, in order; a word may be there more than once."""
    name = command.program.lower()
    for operator, target in command.redirections:
        if (
            target not in _STREAMS
            and not target.isdigit()
            and not target.startswith(("/dev/tcp/", "/dev/udp/"))
        ) and operator not in ("<<", "<<-", "<<<"):
            yield ("writes" if ">" in operator else "reads"), target
            if operator in (">", ">|", "&>") and _prints_nothing(name, command):
                yield "deletes", target
    rule = _RULES.get(name)
    for use, word in rule(command) if rule is not None else _by_table(name, command):
        if word not in _STREAMS and word != "{}" and not _SCHEME.match(word) and not _is_remote(word):
            yield use, word


def _prints_nothing(name: str, command: Command) -> bool:
    """Whether its output, put into a file, leaves that empty: what the file had is lost."""
    if name in ("echo", "printf"):
        return not any(command.arguments)
    return name in ("", ":", "true", "false") or (name == "cat" and command.words == ("/dev/null",))


def looks_like_path(word: str) -> bool:
    if len(word) > 4_096 or _SCHEME.match(word):
        return False
    return _PATH.fullmatch(word) is not None or _RELATIVE.fullmatch(word) is not None


def _is_remote(word: str) -> bool:
    """`host:path` of scp and rsync; a drive letter is no host."""
    return (found := _REMOTE.match(word[:300])) is not None and found.end() > 2


def _all(use: Use, words: Sequence[str]) -> Uses:
    return ((use, word) for word in words)


def _marked(items: Sequence[Given]) -> Uses:
    """The files that options name."""
    for option in items:
        if "<" in option.marks or ("^" in option.marks and looks_like_path(option.value)):
            yield "reads", option.value
        elif ">" in option.marks:
            yield "writes", option.value
        elif "@" in option.marks and (found := _REFERRED.match(option.value)):
            yield "reads", found[1].strip('"')


def _by_table(name: str, command: Command) -> Uses:
    if name in _TALKING:
        return
    if any(char in name for char in "*?["):
        name = _globbed(name)
    items = list(given(name, command.words))
    operands = _operands(items)
    yield from _marked(items)
    if name in _DELETING or name.startswith("mkfs"):
        yield from _all("deletes", operands)
    elif name in _NAMING:
        yield from _listed(name, command, items)
    elif name in _COPYING:
        yield from _copied(name, items)
    elif name in _MODE_FIRST:
        yield from _all("names", operands[not _has(items, "%") :])
    elif name in _WRITING:
        yield from _all("writes", operands)
        if name == "truncate" and "0" in _values(items, "size"):
            yield from _all("deletes", operands)
    elif name in _PACKING:
        yield from _all("reads", operands)
        yield from _all("writes", operands)
    elif name in _READING:
        yield from _read(name, command, items)
    else:
        yield from _pointed(_without_configuration(name, command.words))


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
        yield from _all("names", _operands(items))
        return
    chosen = "/**/?*" if any(_CHOOSING.fullmatch(word) for word in command.options) else ""
    folders = [word for word in _operands(items) if not chosen or looks_like_path(word)]
    yield from _all("deletes", [f"{folder}{chosen}" for folder in folders or ["."]])


def _without_configuration(name: str, words: Sequence[str]) -> list[str]:
    """The words without the files that only set the program up."""
    options = _CONFIGURING | {"-i"} if name in _SECURE else _CONFIGURING
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if before not in options and word.partition("=")[0] not in options
    ]


def _read(name: str, command: Command, items: Sequence[Given]) -> Uses:
    operands = _operands(items)
    files = operands[1:] if name in _SCRIPT_FIRST and not _has(items, "%") else operands
    if name in _WRITING_SECOND:
        yield from _all("writes", operands[1:])
        files = operands[:1]
    interprets = name.startswith(_INTERPRETERS)
    if interprets:
        files = [word for word in files if _FILE_NAME.fullmatch(word[:4_097])]
    in_place = [each for each in items if each.name == "in-place" or each == _AWK_IN_PLACE]
    replaces = name == "sed" and files != operands and _REPLACES.fullmatch(operands[0][:4_096])
    if not (replaces and in_place and not any(each.value for each in in_place)):
        use: Use = "names" if name in _SEARCHING and any(each.name in _COUNTS for each in items) else "reads"
        yield from _all(use, [word for word in files if len(word) <= 4_096 and not word.isdigit()])
    yield from _all("writes", files if in_place else ())
    yield from _pointed(_without_configuration(name, command.options))
    for text in (*command.words, *command.inputs) if interprets else ():
        yield from paths_in_code(text)


def _operands(items: Sequence[Given]) -> list[str]:
    return [each.value for each in items if not each.name and each.value]


def _has(items: Sequence[Given], mark: str) -> bool:
    return any(mark in each.marks for each in items)


def _values(items: Sequence[Given], name: str) -> list[str]:
    return [each.value for each in items if each.name == name]


def _pointed(words: Sequence[str]) -> Uses:
    """Words, and values of `--option=value`, `key=@value`, `-Fx=@value`, that look like paths."""
    for word in words:
        for part in {word, word.partition("=")[2], word.rpartition("@")[2] if "@" in word else ""}:
            if part and looks_like_path(part.lstrip("@<")):
                yield "reads", part.lstrip("@<")


def _copied(name: str, items: Sequence[Given]) -> Uses:
    operands = _operands(items)
    targets = _values(items, "target-directory")
    if not targets and len(operands) > 1:
        targets, operands = operands[-1:], operands[:-1]
    yield from _all("reads", operands)
    yield from _all("writes", targets)
    if name in _MOVING or _values(items, "remove-source-files"):
        yield from _all("deletes", operands)
    if any(each.name.startswith("del") for each in items):
        yield from _all("deletes", targets)


_STARTING: Final = frozenset(["-exec", "-execdir", "-ok", "-okdir"])


def _find(command: Command) -> Uses:
    """`find a b -delete`, `find a -exec rm {} +`, `find a | xargs rm`: the folders are what is deleted."""
    folders: list[str] = []
    expression: Sequence[str] = ()
    for at, word in enumerate(command.words):
        if word[:1] in ("-", "(", "!", ","):
            if folders or not re.fullmatch(r"-[HLP]|-O\d|-D\w*", word):
                expression = command.words[at:]
                break
            continue
        folders.append(word)
    started = set(command.piped_into)
    if not _STARTING.isdisjoint(command.words):
        started.update(started_by(("find", *command.words)))
    if "-delete" in outside(expression) or not started.isdisjoint(_DELETING):
        for below in acted_on(expression):
            yield from _all("deletes", [f"{folder}{below}" for folder in folders or ["."]])
    else:
        yield from _all("names", folders or ["."])
    if not started.isdisjoint(_READING):
        yield from _all("reads", folders or ["."])
    if not started.isdisjoint(_READING | _COPYING):
        named = [below for below in acted_on(expression) if below != SOME]
        yield from _all("reads", [f"{folder}{below}" for folder in folders or ["."] for below in named])
    for option, word in pairwise(command.words):
        if option in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield "writes", word


def _tar(command: Command) -> Uses:
    """Each `-C` holds for the words behind it; the first word may be a cluster without a dash."""
    items = list(given("tar", list(_dashed(command.words))))
    names = {each.name for each in items}
    creates = not names.isdisjoint(("create", "append", "update", "catenate"))
    yield from _all("writes" if creates else "reads", _values(items, "file"))
    folder, words = "", []
    for each in items:
        if each.name == "directory":
            folder = within(folder, each.value)
        elif not each.name:
            words.append(within(folder, each.value))
    if creates:
        yield from _all("reads", words)
        yield from _all("deletes", words if "remove-files" in names else ())
    elif not names.isdisjoint(("extract", "get")):
        yield "writes", folder or "."


def _dashed(words: Sequence[str]) -> Iterator[str]:
    """`tar xfC a b` as `-x -f a -C b`."""
    if not words or not _CLUSTER.fullmatch(words[0]):
        yield from words
        return
    rest = iter(words[1:])
    for letter in words[0][:64]:
        yield f"-{letter}"
        if next(given("tar", [f"-{letter}", ""])).marks != "!" and (value := next(rest, None)) is not None:
            yield value
    yield from rest


def _zip(command: Command) -> Uses:
    operands = [word for word in command.arguments if word not in ("a", "u")]
    yield from _all("writes", operands[:1])
    yield from _all("reads", operands[1:])


def _dd(command: Command) -> Uses:
    for word in command.words:
        key, _, value = word.partition("=")
        if key in ("if", "of") and value:
            yield ("reads" if key == "if" else "writes"), value


def _fetched(command: Command) -> Uses:
    """Of curl and wget."""
    items = list(given(command.program.lower(), command.words))
    yield from _marked(items)
    for word in _operands(items):
        if word.lower().startswith("file:"):
            yield "reads", word.replace("file://", "", 1)
    yield from _pointed([each.value for each in items if each.name and "@" in each.value])


def _git(command: Command) -> Uses:
    items = list(given("git", command.words, most=1))
    verb, *rest = _operands(items) or ("",)
    arguments = list(given(f"git {verb}", rest))
    folder = ""
    for each in _values(items, "C"):
        folder = within(folder, each)
    operands = [within(folder, word) for word in _operands(arguments)]
    if verb == "rm" and not _values(arguments, "cached") and not _values(arguments, "dry-run"):
        yield from _all("deletes", operands)
    elif verb == "clean" and not _values(arguments, "dry-run"):
        yield from _all("deletes", operands or [within(folder, "**/?*")])
    elif verb in ("mv", "add", "checkout", "restore", "diff", "show", "log", "blame"):
        yield from _all("names", [word for word in operands if looks_like_path(word)])


def _openssl(command: Command) -> Uses:
    items = list(given("openssl", command.words))
    yield from _marked(items)
    verb, *operands = _operands(items) or ("",)
    if verb in ("dgst", "base64"):
        yield from _all("reads", operands)


def _patch(command: Command) -> Uses:
    items = list(given("patch", command.words))
    yield from _marked(items)
    yield from _all("writes", _operands(items)[:1])
    yield from _all("reads", _operands(items)[1:])


def _unpacked(command: Command) -> Uses:
    """Of unzip, and of 7z, whose first word says what it does."""
    items = list(given(command.program.lower(), command.words))
    operands = _operands(items)
    if command.program.lower() != "unzip":
        if operands[:1] not in (["x"], ["e"]):
            yield from _zip(command)
            return
        del operands[0]
    yield from _all("reads", operands[:1])
    yield from _marked(items)
    if not _has(items, ">"):
        yield "writes", "."


_Rule = Callable[[Command], Uses]
_RULES: Final[Mapping[str, _Rule]] = {
    "find": _find,
    "tar": _tar,
    "bsdtar": _tar,
    "zip": _zip,
    **dict.fromkeys(("7z", "7za", "7zz", "unzip"), _unpacked),
    "patch": _patch,
    "dd": _dd,
    "openssl": _openssl,
    "curl": _fetched,
    "wget": _fetched,
    "git": _git,
}
