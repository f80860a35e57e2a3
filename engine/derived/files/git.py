"""Which files git reads, writes and deletes besides its own. What it takes out of a commit is not known but
where a word names it; where it puts back what was changed, the folder stands for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.operands import each_of, looks_like_path, marked
from engine.derived.files.path_text import within
from engine.shell.files.file_calls import Uses
from engine.shell.options import Given, given, operands_of, values_of

_OF_STASH: Final = frozenset({"push", "save", "pop", "apply"})


def git(command: Command) -> Uses:
    items = list(given("git", command.words, most=1))
    verb, *rest = operands_of(items) or ("",)
    arguments = list(given(f"git {verb}", rest))
    folder = ""
    for each in (*values_of(items, "C"), *values_of(items, "work-tree")):
        folder = within(folder, each)
    operands = [within(folder, word) for word in operands_of(arguments)]
    if verb == "rm" and not values_of(arguments, "cached") and not values_of(arguments, "dry-run"):
        yield from each_of("deletes", operands)
    elif verb == "clean" and not values_of(arguments, "dry-run"):
        yield from each_of("deletes", operands or [within(folder, "**/?*")])
    elif verb == "mv":
        if not values_of(arguments, "dry-run") and not any(each.name == "n" for each in arguments):
            yield from each_of("deletes", operands[:-1])
            yield from each_of("writes", operands[-1:])
    elif verb == "clone" or (verb in ("worktree", "bundle") and rest[:1] in (["add"], ["move"], ["create"])):
        yield from each_of("writes", operands[1:])
    elif verb == "worktree" and rest[:1] == ["remove"]:
        yield from each_of("deletes", operands[1:])
    elif verb == "restore":
        if not _only_staged(arguments):
            yield from each_of("writes", operands)
    elif verb in ("reset", "stash"):
        if _puts_back(verb, rest):
            yield "writes", folder or "."
    elif verb in ("hash-object", "interpret-trailers"):
        yield from each_of("reads", operands)
    elif verb in ("apply", "am"):
        yield from each_of("reads", operands)
        if not any(each.name in ("stat", "check", "numstat", "summary") for each in arguments):
            yield "writes", folder or "."
    elif verb in ("add", "checkout", "diff", "show", "cat-file", "log", "blame"):
        if verb in ("show", "cat-file"):
            taken = filter(None, map(_of_commit, rest))
            yield from each_of("reads", [within(folder, path) for path in taken])
        shows = verb == "diff" and ("--no-index" in rest or "/dev/null" in operands)
        yield from each_of(
            "reads" if shows else "names", [word for word in operands if looks_like_path(word)]
        )
        if verb == "checkout":
            paths = rest[rest.index("--") + 1 :] if "--" in rest else [word for word in rest if word == "."]
            yield from each_of("writes", [within(folder, word) for word in paths])
    yield from ((use, within(folder, word)) for use, word in marked(arguments))


def _of_commit(word: str) -> str:
    """The file that `HEAD~2:src/a.py` names, or `:a.py` in the index; empty for other words, as `:/a fix`."""
    commit, _, path = word.partition(":")
    return "" if word.startswith(("-", ":/")) or "=" in commit else path


def _only_staged(arguments: Sequence[Given]) -> bool:
    names = {each.name for each in arguments}
    return "staged" in names and "worktree" not in names


def _puts_back(verb: str, rest: Sequence[str]) -> bool:
    """Whether a reset or a stash changes files."""
    if verb == "reset":
        return any(word.startswith(("--h", "--me", "--k")) for word in rest)  # git takes what is cut, too
    return not rest or rest[0].startswith("-") or rest[0] in _OF_STASH
