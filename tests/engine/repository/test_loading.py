"""Long loads of policies: the callback that is told of them, and the line that a terminal shows."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from api.cli.serving.server_process import LoadingLine, loading_line
from api.clock import random_ids, system_clock
from api.database.connection import Database
from api.database.writer import Writer
from api.policies import opening
from engine.repository.cache import DocumentCache
from tests.harness.application import settings_for
from tests.harness.policy_folder import Folder, document

Told = list[tuple[str, int, int]]


def listener(told: Told) -> Callable[[str, int, int], None]:
    return lambda what, done, total: told.append((what, done, total))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "policies.d")
    for number in range(250):
        made.write(f"policies/p{number:03}.yaml", document(f"p{number:03}"))
    return made


def test_a_first_start_tells_of_reading_checking_and_compiling(folder: Folder, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    told: Told = []
    store = Database(settings.database)
    store.migrate()
    writer = Writer(store, system_clock, random_ids)
    writer.start()
    try:
        with opening.open_policies(settings, store, writer, progress=listener(told)) as live:
            assert live.snapshot.count == 250
    finally:
        writer.close()
        store.close()
    assert told == [
        *[("reading", done, 250) for done in (100, 200)],
        *[("checking", done, 250) for done in (100, 200)],
        ("compiling", 0, 250),
    ]


def test_a_restart_tells_of_restoring(folder: Folder, tmp_path: Path) -> None:
    told: Told = []
    folder.open(cache=DocumentCache(tmp_path / "cache")).start()
    folder.open(cache=DocumentCache(tmp_path / "cache")).start(listener(told))
    assert ("restoring", 200, 250) in told


def test_documents_of_a_batch_are_loaded_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.repository import loader

    loads: list[str] = []
    load = loader.load
    monkeypatch.setattr(loader, "load", lambda path, content: loads.append(path) or load(path, content))
    folder.open().start()
    assert len(loads) == 250


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_is_for_terminals_and_the_first_worker() -> None:
    assert loading_line(io.StringIO(), "MainProcess") is None
    assert loading_line(Terminal(), "SpawnProcess-2") is None
    assert loading_line(Terminal(), "SpawnProcess-11") is None
    assert loading_line(Terminal(), "MainProcess") is not None
    assert loading_line(Terminal(), "SpawnProcess-1") is not None


def test_the_line_writes_over_itself_and_goes_away() -> None:
    terminal = Terminal()
    line = LoadingLine(terminal)
    line("checking", 3_000, 12_000)
    line("compiling", 0, 12_000)
    line.clear()
    line.clear()
    first, second = "  checking policies: 3,000 of 12,000", "  compiling policies: 12,000"
    assert terminal.getvalue() == f"\r{first}\r{second.ljust(len(first))}\r{' ' * len(second)}\r"


def test_short_loads_say_nothing() -> None:
    terminal = Terminal()
    line = LoadingLine(terminal)
    line("checking", 100, 900)
    line.clear()
    assert terminal.getvalue() == ""
