"""The guide's pages as tests see them: every code block, its language, what it prints.

A page runs in one shell, as a reader would follow it. A `text` or `json` block directly after one that was
run is its output, in which `...` stands for anything. `<!-- not run: <reason> -->` takes a block out.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from api.server.guide import names
from tests.harness.nodes import CLEAN
from tests.harness.places import ROOT

GUIDE = ROOT / "api" / "guide"
PAGES = (ROOT / "README.md", *(GUIDE / f"{name}.md" for name in names()))
"""In reading order."""
RUN = ("bash", "python", "javascript")
SHOWN = ("text", "json")
KNOWN = (*RUN, *SHOWN, "yaml", "ini", "nginx", "caddy", "dockerfile", "diff")
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z", re.S)
SECONDS = 60


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int
    not_run: str = ""
    """The reason, of one that is not run."""
    output: str | None = None
    """What it must print, where the page shows that."""


def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page; output belongs to the one before it."""
    before: Block | None = None
    reason = ""
    for token in tokens(page):
        if token.type == "html_block":
            found = _NOT_RUN.search(token.content)
            reason = found[1] if found else ""
        elif token.type in ("fence", "code_block"):
            block = Block(token.info, token.content, (token.map or [0])[0] + 1, reason)
            if before is not None and block.language in SHOWN and before.language in RUN:
                yield Block(before.language, before.text, before.line, before.not_run, block.text)
                before = None
            else:
                if before is not None:
                    yield before
                before = block
            reason = ""
        elif token.type == "paragraph_open" and before is not None:
            yield before
            before = None
    if before is not None:
        yield before


def same(shown: str, printed: str) -> bool:
    """Whether that was printed, `...` standing for anything."""
    wanted = ".*?".join(re.escape(part) for part in shown.strip().split("..."))
    return re.fullmatch(wanted, printed.strip(), re.S) is not None


class Shell:
    """One bash in which the blocks of a page run after each other; its processes end with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=CLEAN | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def run(self, block: Block, text: str) -> tuple[int, str]:
        """Exit code and everything printed."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        mark = f"end-{uuid.uuid4().hex}"
        command = text
        if block.language != "bash":
            file = self._folder / f"snippet-{block.line}.{'py' if block.language == 'python' else 'mjs'}"
            file.write_text(text, encoding="utf-8")
            command = f"{'python3' if block.language == 'python' else 'node'} {file.name}"
        self._shell.stdin.write(f"{command.rstrip()}\ncode=$?; echo; echo {mark} $code\n")
        self._shell.stdin.flush()
        watchdog = threading.Timer(SECONDS, self.close)
        watchdog.start()
        printed: list[str] = []
        try:
            for line in self._shell.stdout:
                if line.startswith(mark):
                    return int(line.split()[1]), "".join(printed)
                printed.append(line)
        finally:
            watchdog.cancel()
        raise AssertionError("the shell ended; so far:\n" + "".join(printed))

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
