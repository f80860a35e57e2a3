"""The decisions of a play as a table that fits the terminal, and their counts.

Decides only what a person sees. It knows nothing of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from api.demo.session import RecordedSession

COLOURS = {"allowed": "green", "approved": "green", "blocked": "red", "rejected": "red"}
PREVIEW = 300
"""Characters of a payload that are enough for any terminal's column."""


@dataclass(slots=True)
class Row:
    """One tool call. `outcome`: allowed, blocked, awaiting_approval; approved or rejected when resolved."""

    run: str
    tool: str
    payload: Mapping[str, Any]
    outcome: str
    policies: list[str]
    warned: bool = False
    shadow: list[str] = field(default_factory=list)
    review: str | None = None

    @property
    def decision(self) -> str:
        if self.review is not None:
            return f"held, {self.outcome}"
        return "allowed, warned" if self.warned else self.outcome

    @property
    def why(self) -> str:
        parts = ["; ".join(self.policies)] if self.policies else []
        parts += [f"in shadow: {'; '.join(self.shadow)}"] if self.shadow else []
        parts += [f"reviewer: {self.review}"] if self.review else []
        return "".join(each if each.isprintable() else " " for each in " - ".join(parts))


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of a play; `allowed`, `blocked` and `held` add up to `calls`."""

    events: int
    runs: int
    calls: int
    allowed: int
    warned: int
    blocked: int
    held: int
    approved: int
    rejected: int
    seconds: float

    @classmethod
    def of(cls, rows: Sequence[Row], events: int, runs: int, seconds: float) -> Summary:
        held = [row for row in rows if row.review is not None]
        outcomes = [row.outcome for row in rows if row.review is None]
        return cls(
            events=events,
            runs=runs,
            calls=len(rows),
            allowed=outcomes.count("allowed"),
            warned=sum(row.warned for row in rows),
            blocked=outcomes.count("blocked"),
            held=len(held),
            approved=sum(row.outcome == "approved" for row in held),
            rejected=sum(row.outcome == "rejected" for row in held),
            seconds=seconds,
        )

    def __str__(self) -> str:
        return (
            f"{self.events} events of {self.runs} runs in {self.seconds:.1f} s; {self.calls} tool calls: "
            f"{self.allowed} allowed ({self.warned} with a warning), {self.blocked} blocked, "
            f"{self.held} held ({self.approved} approved, {self.rejected} rejected)"
        )


def progress(events: Sequence[Mapping[str, Any]], out: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The events, numbered from 1; with a progress bar when `out` is a terminal."""
    console = Console(file=out)
    yield from track(
        enumerate(events, start=1),
        description="playing",
        total=len(events),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def show(
    session: RecordedSession, rows: Sequence[Row], summary: Summary, out: TextIO, width: int | None
) -> None:
    """The table, run by run, and the summary below it."""
    console = Console(file=out, width=width, highlight=False)
    table = Table(title=session.title, pad_edge=False, expand=True, show_lines=False)
    table.add_column("run", ratio=3, min_width=8, no_wrap=True, overflow="ellipsis")
    table.add_column("tool", ratio=5, no_wrap=True, overflow="ellipsis")
    table.add_column("call", ratio=9, no_wrap=True, overflow="ellipsis")
    table.add_column("decision", no_wrap=True, width=15)
    table.add_column("why", ratio=11)
    for run in session.run_names():
        of_run = [row for row in rows if row.run == run]
        for position, row in enumerate(of_run, start=1):
            style = "yellow" if row.warned else COLOURS.get(row.outcome, "")
            table.add_row(
                Text(row.run if position == 1 else ""),
                Text(row.tool),
                Text(preview(row.payload)),
                Text(row.decision, style=style),
                Text(row.why),
                end_section=position == len(of_run),
            )
    console.print(table)
    console.print(Text(str(summary)))


def preview(payload: Mapping[str, Any]) -> str:
    """The payload's values on one line, the telling ones first."""
    telling = ("command", "cmd", "query", "sql", "amount", "to", "path", "file_path", "target_file", "url")
    keys = [key for key in telling if key in payload] + [key for key in payload if key not in telling]
    texts = (_text(payload[key]) for key in keys)
    line = " ".join(" ".join(texts).split())
    return line[:PREVIEW]


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value[2:] if value[:2] == ["bash", "-lc"] else value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
