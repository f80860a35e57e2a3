"""Paths of one call that begin in one folder, or are names in many: what is read of them is bounded."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from engine.derived.commands.commands import commands_of
from engine.derived.commands.shell_commands import shell_reading
from engine.derived.derivation import Derivation
from engine.derived.files import files
from engine.derived.files.file_commands import uses_of
from engine.derived.files.files import MOST_READ
from engine.derived.tools import NO_TOOLS
from engine.fields.computed import UNREADABLE
from engine.model import ToolCall
from tests.engine.derived import declared

NAMES = [word for number in range(300) for word in ("-name", f"x{number}", "-delete", "-o")]


def reading(payload: dict[str, Any]) -> Derivation:
    return Derivation(ToolCall.of(toolName="frobnicate", inputPayload=payload).document, NO_TOOLS)


def is_partial(payload: dict[str, Any], member: str) -> bool:
    found, partial = reading(payload).value("derived", member)
    assert isinstance(found, list) and partial is (UNREADABLE in found)
    return partial


@pytest.mark.parametrize(
    ("payload", "member"),
    [
        ({"cwd": "[a]/" * 1_024, "paths": ["x/y"] * 3_000}, "reads"),
        ({"command": ["tar", "c", "-C", "[a]/" * 1_024, *["f"] * 3_000]}, "reads"),
        ({"command": ["git", "-C", "[a]/" * 1_024, "rm", *["f"] * 3_000]}, "deletes"),
        ({"command": ["find", *["a" * 50] * 600, *NAMES]}, "deletes"),
    ],
    ids=["a folder of all", "tar", "git", "find"],
)
def test_what_is_read_of_many_names_in_long_or_many_folders_is_bounded(
    payload: dict[str, Any], member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    add = files.Files.add

    def counted(self: files.Files, use: Any, word: str) -> None:
        asked.append(len(word))
        add(self, use, word)

    read: list[int] = []
    paths_of = files.paths_of

    def measured(word: str) -> Any:
        read.append(len(word))
        return paths_of(word)

    monkeypatch.setattr(files.Files, "add", counted)
    monkeypatch.setattr(files, "paths_of", measured)
    assert is_partial(payload, member)
    assert sum(read) <= MOST_READ and len(asked) < 50_000


@pytest.mark.parametrize(
    "line",
    [
        "vim " + "-cw " * 400 + "f " * 400,
        "ed " + "f " * 400 + "<<< '" + "w\n" * 200 + "'",
        "cp " + "-t d " * 400 + "f " * 400,
        "gzip " + "-S d " * 400 + "f " * 400,
        "ls " + "f " * 32 + "| xargs -I% cp " + "-t% " * 16 + "g " * 400,
        "ls " + "f " * 32 + "| xargs -I% cat " + "%% " * 400,
    ],
    ids=[
        "options of an editor",
        "lines of an editor",
        "folders of cp",
        "endings of gzip",
        "folders of xargs",
        "words of xargs",
    ],
)
def test_what_is_said_again_and_again_is_not_done_to_each_file_each_time(line: str) -> None:
    commands = commands_of(shell_reading({"inputPayload": {"command": line}}))
    assert sum(1 for command in commands for _ in uses_of(command)) < 10_000


@pytest.mark.parametrize("begin", [["tar", "c", "-C"], ["git", "-C"]])
def test_a_folder_that_is_too_long_is_not_put_before_each_name(begin: list[str]) -> None:
    verb = ["rm"] if begin[0] == "git" else []
    payload: dict[str, Any] = {"command": [*begin, "a" * 100_000, *verb, *["f/g"] * 2_000]}
    tracemalloc.start()
    try:
        assert is_partial(payload, "files")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_what_stands_in_a_folder_that_is_too_long_is_not_known_either() -> None:
    for words in (
        ["tar", "c", "-C", "a" * 5_000, "-C", "etc", "f"],
        ["git", "-C", "a" * 5_000, "-C", "etc", "rm", "f"],
    ):
        assert is_partial({"command": words}, "files")


def test_usual_calls_with_many_paths_are_read_to_the_end() -> None:
    paths = [f"src/module{number}.py" for number in range(900)]
    payload = {"cwd": "/srv/projects/" + "a" * 100, "paths": paths}
    assert not declared.is_partial("read_file", payload, "reads")
    assert len(declared.shown("read_file", payload, "reads")) == 1_800
