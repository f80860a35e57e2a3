"""What the commands about policies print: remarks at places, for people, programs and CI; progress.

`--format text` is for people (colour and a progress bar only on a terminal), `json` for programs, `github`
prints annotations that GitHub's runners put beside the lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.progress import Progress

FORMATS: Final = ("text", "json", "github")
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan", "failure": "bold red"}
_ANNOTATIONS: Final = {"error": "error", "failure": "error", "warning": "warning", "note": "notice"}


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to say about one place. `details` are lines below it; `data` is what programs get besides."""

    level: str
    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    details: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)

    def as_json(self) -> dict[str, Any]:
        shape = {"level": self.level, "code": self.code, "message": self.message}
        place = {"file": self.file, "line": self.line, "column": self.column}
        return shape | {name: value for name, value in place.items() if value} | dict(self.data)


def add_format(parser: argparse.ArgumentParser, *forms: str) -> None:
    parser.add_argument("--format", choices=forms or FORMATS, default="text", help="default: text")


def say(text: str = "", style: str | None = None) -> None:
    """A line for people; never wrapped, so that places can be clicked and calls copied."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console(soft_wrap=True, highlight=False).print(Text(text, style=style or ""))


def print_remarks(remarks: Iterable[Remark], form: str) -> None:
    """Remarks for people or CI (JSON goes out whole, see `print_json`)."""
    for remark in remarks:
        if form == "github":
            print(annotation(remark))
            continue
        if not sys.stdout.isatty():
            where = f"{remark.where}: " if remark.where else ""
            print(f"{where}{remark.level}: {remark.message} [{remark.code}]")
        else:
            _print_coloured(remark)
        for line in remark.details:
            say(f"    {line}", "dim")


def _print_coloured(remark: Remark) -> None:
    from rich.console import Console
    from rich.text import Text

    text = Text()
    if remark.where:
        text.append(f"{remark.where}: ", "bold")
    text.append(f"{remark.level}: ", _STYLES.get(remark.level, ""))
    text.append(remark.message)
    text.append(f" [{remark.code}]", "dim")
    Console(soft_wrap=True, highlight=False).print(text)


def annotation(remark: Remark) -> str:
    """One line of GitHub's workflow commands."""
    places = [("file", remark.file), ("line", remark.line), ("col", remark.column), ("title", remark.code)]
    chosen = ",".join(f"{name}={_property(str(value))}" for name, value in places if value)
    message = "\n".join((remark.message, *remark.details))
    return f"::{_ANNOTATIONS.get(remark.level, 'notice')} {chosen}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_OUTCOMES: Final = {
    "block": "blocked",
    "require_approval": "awaiting_approval",
    "warn": "allowed with a warning",
    "allow": "allowed",
}


def outcome(action: str) -> str:
    """What happens to a call that is decided by a policy of this action."""
    return _OUTCOMES[action]


def print_json(shape: Any) -> None:
    print(json.dumps(shape, indent=2, ensure_ascii=True))


def compact(value: Any) -> str:
    """A JSON value on one line, as it can be pasted."""
    return json.dumps(value, ensure_ascii=False) if _whole(value) else json.dumps(value)


def _whole(value: Any) -> bool:
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return False
    return text.isprintable()


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on the error stream while long work runs; nothing where that is no terminal."""
    if not sys.stderr.isatty() or total < 200:
        yield lambda: None
        return
    with _bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


@contextlib.contextmanager
def stages(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """The same for work in parts: told the part, how much is done, and of how much."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with _bar() as bar:
        task = bar.add_task(first, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
