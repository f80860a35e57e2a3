"""Which files programs read, write and delete that pack and unpack others: tar, zip, gzip and their like.

Knows nothing of calls or of how paths are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.operands import each_of, marked
from engine.derived.files.path_text import within
from engine.shell.files.file_calls import Uses
from engine.shell.files.script_files import ANY
from engine.shell.options import given, has_mark, operands_of, values_of

_CLUSTER: Final = re.compile(r"[A-Za-z]+")
_ENDS: Final = re.compile(r"\.(?:gz|bz2|xz|zst|lzma|Z|z|tgz|txz|tbz2?)\Z")
_END_OF: Final = {"gzip": ".gz", "pigz": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst", "lzma": ".lzma"}


def tar(command: Command) -> Uses:
    """Each `-C` holds for the words behind it; the first word may be a cluster without a dash."""
    items = list(given("tar", list(_dashed(command.words))))
    names = {each.name for each in items}
    creates = not names.isdisjoint(("create", "append", "update", "catenate"))
    yield from each_of("writes" if creates or "delete" in names else "reads", values_of(items, "file"))
    folder, words = "", []
    for each in items:
        if each.name == "directory":
            folder = within(folder, each.value)
        elif each.name == "files-from":
            yield "reads", each.value
            words.append(ANY)
        elif not each.name:
            words.append(within(folder, each.value))
    if creates:
        yield from each_of("reads", words)
        yield from each_of("deletes", words if "remove-files" in names else ())
    elif not names.isdisjoint(("extract", "get")):
        for top in values_of(items, "one-top-level"):
            yield "writes", within(folder, top)
        yield "writes", folder or "."
        if "recursive-unlink" in names:
            yield "deletes", within(folder, ANY)


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


def zip_(command: Command) -> Uses:
    """The first operand is the archive, which is called `.zip` if it has no other end."""
    items = list(given(command.program, command.words))
    archive, *words = [word for word in operands_of(items) if word not in ("a", "u")] or [""]
    if values_of(items, "delete"):
        words = []
    yield from each_of("writes", [archive, f"{archive}.zip"] if "." not in archive[-5:] else [archive])
    yield from each_of("reads", words)
    yield from marked(items)
    given_names = any(each.name == "@" for each in items)
    yield from each_of("reads", [ANY] if given_names else [])
    if any(each.name == "move" for each in items):
        yield from each_of("deletes", [*words, ANY] if given_names else words)


def unpacked(command: Command) -> Uses:
    """Of unzip, and of 7z, whose first word says what it does."""
    items = list(given(command.program, command.words))
    operands = operands_of(items)
    if command.program != "unzip":
        if operands[:1] not in (["x"], ["e"]):
            yield from zip_(command)
            return
        del operands[0]
    yield from each_of("reads", operands[:1])
    yield from marked(items)
    if not has_mark(items, ">"):
        yield "writes", "."


def packed(command: Command) -> Uses:
    """Of gzip and its like, which put one file in the place of another: both count as written."""
    name = command.program
    items = list(given(name, command.words))
    names = {each.name for each in items}
    files = operands_of(items)
    yield from each_of("reads", files)
    yield from marked(items)
    if names.isdisjoint({"c", "stdout", "to-stdout", "t", "test", "l", "list"}):
        yield from each_of("writes", files)
        # the last one counts
        ends = [end for end in (*values_of(items, "suffix")[-1:], _END_OF.get(name, "")) if end]
        for file in files:
            plain = _ENDS.sub("", file)
            yield from each_of("writes", [plain] if plain != file else [file + end for end in ends])
            yield from each_of("writes", [file.removesuffix(end) for end in ends if file.endswith(end)])
        if name != "zstd" and names.isdisjoint({"k", "keep"}) and not names.isdisjoint({"r", "recursive"}):
            yield from each_of("deletes", [f"{file}/**/?*" for file in files])
