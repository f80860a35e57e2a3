"""A host's settings with the hook in them, or without it: only our own entries change.

Each entry is written with every switch that the host has for a hook that fails. The API key stands in a file
of its own, readable by its owner alone, since settings are often committed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from api.hosts import hook
from api.hosts.jsonc import Document, JsonNode, NotUnderstood
from api.hosts.report import Host
from api.hosts.setup import DEFAULT_URL

DECIDE_SECONDS: Final = 300
"""That the host waits for a decision, and so for a person."""
REPORT_SECONDS: Final = 30
LONGEST_WAIT: Final = 240
"""Seconds that the service lets one request wait."""
KEY_VARIABLE: Final = "GOVERNANCE_API_KEY"
BACKUP: Final = ".before-governance"
_OURS: Final = re.compile(r"api/hosts/hook\.py|\bgovernance hook |/v1/hooks/")
_OTHERWISE: Final = """ || sh -c 'echo "the governance hook failed; the call is denied" >&2; exit 2'"""
"""A hook that cannot even start: exit code 2 blocks with every host, with some only beside a text."""


class InstallError(Exception):
    """Nothing was written; says why."""


class Wish(NamedTuple):
    """How the hook is to be installed."""

    host: Host
    url: str = DEFAULT_URL
    key_file: Path | None = None
    agent_id: str = ""
    fail_mode: str = "closed"
    timeout: int = DECIDE_SECONDS
    http: bool = False

    def entry(self, event: str) -> dict[str, Any]:
        """What stands in the settings for an event."""
        entries = self.host.entries
        decides = event in entries.decides
        more = dict(entries.decides[event] if decides else entries.reports[event])
        seconds = self.timeout if decides else REPORT_SECONDS
        if self.http:
            told: dict[str, Any] = {"type": "http", "url": self._address(seconds if decides else 0)}
            told["headers"] = {"X-API-Key": f"${KEY_VARIABLE}"}
            more = {**more, **told, "allowedEnvVars": [KEY_VARIABLE]}
        else:
            more[entries.command] = self.command(seconds) + (_OTHERWISE if decides else "")
        more[entries.timeout] = seconds * entries.timeout_unit
        return more

    def command(self, seconds: int) -> str:
        """The hook by its path, without the packages of the site, which is the quickest way to start it."""
        words = [sys.executable, "-I", "-S", str(Path(hook.__file__).resolve()), self.host.name]
        words += ["--url", self.url, "--key-file", str(self.key_file), "--timeout", str(seconds)]
        words += ["--agent-id", self.agent_id] if self.agent_id else []
        words += ["--fail-mode", self.fail_mode] if self.fail_mode != "closed" else []
        return shlex.join(words)

    def _address(self, seconds: int) -> str:
        query = [f"wait={max(0, min(LONGEST_WAIT, seconds - 15))}"] if seconds else []
        query += [f"agentId={quote(self.agent_id, safe='')}"] if self.agent_id else []
        return f"{self.url}/v1/hooks/{self.host.name}" + ("?" + "&".join(query) if query else "")


def settings_file(host: Host, project: Path | None, environment: Mapping[str, str]) -> Path:
    """Where the host keeps the settings of a project, or those of the user."""
    entries = host.entries
    if project is not None:
        return project / entries.project
    moved = environment.get(entries.home) if entries.home else None
    if moved:
        return Path(moved) / entries.user.partition("/")[2]
    return Path(environment.get("HOME") or Path.home()) / entries.user


def installed(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Our entries of a settings file, each with its event. Raises InstallError."""
    text = _read(file)
    return [] if text is None else [(event, entry) for event, entry, _ in _ours(_document(file, text))]


def settings(file: Path) -> Mapping[str, Any]:
    """What a settings file says. Raises InstallError."""
    text = _read(file)
    found = _document(file, text).root.value if text and text.strip() else {}
    return found if isinstance(found, dict) else {}


def with_hook(file: Path, wish: Wish) -> str:
    """The text of the settings with the hook in them. Raises InstallError."""
    entries = wish.host.entries
    text = _read(file)
    if text is None or not text.strip():
        text = json.dumps({} if entries.version is None else {"version": entries.version}, indent=2) + "\n"
    wanted = {event: wish.entry(event) for event in (*entries.decides, *entries.reports)}
    present: set[str] = set()
    text = _without(file, text, wanted, present)
    for event, entry in wanted.items():
        if event not in present:
            text = _added(file, text, event, {"hooks": [entry]} if entries.nested else entry, wish.host)
    return text


def without_hook(file: Path, host: Host) -> str | None:
    """The text of the settings without the hook; None where nothing else was in them."""
    text = _read(file)
    if text is None:
        return None
    text = _without(file, text, {}, set())
    value = _document(file, text).root.value
    ours_alone = {} if host.entries.version is None else {"version": host.entries.version}
    return None if value in ({}, ours_alone) else text


def write(file: Path, text: str | None) -> bool:
    """Put a text, or nothing, in a file's place, at once, beside a copy of what stood there before the hook;
    returns whether anything changed. A link stays one."""
    place = file.resolve()
    before = _read(place)
    if text == before:
        return False
    if before is not None:
        backup = place.with_name(place.name + BACKUP)
        if not (backup.exists() and _OURS.search(before)):
            shutil.copy2(place, backup)
    if text is None:
        place.unlink()
        return True
    place.parent.mkdir(parents=True, exist_ok=True)
    mode, ends = 0o644, "\n"
    if before is not None:
        mode = place.stat().st_mode & 0o777
        ends = "\r\n" if b"\r\n" in place.read_bytes() else "\n"
    replace(place, text, mode, ends)
    return True


def replace(place: Path, text: str, mode: int, ends: str = "\n") -> None:
    """A file with this text, mode and ends of lines, in one rename."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "w", encoding="utf-8", newline=ends) as file:  # noqa: PTH123 - opened with its mode
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_ours(entry: Any) -> bool:
    said = [entry.get(name) for name in ("command", "bash", "url")] if isinstance(entry, dict) else []
    return any(isinstance(text, str) and _OURS.search(text) for text in said)


# In the text ----------------------------------------------------------------------------------------


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"`{file}` cannot be read ({error}); nothing was written") from None


def _document(file: Path, text: str) -> Document:
    """What the file says, whose `hooks` are lists by event. Raises InstallError."""
    try:
        document = Document(text)
    except (NotUnderstood, RecursionError) as error:
        raise InstallError(f"`{file}` is no JSON, {error}; mend it first, nothing was written") from None
    root = document.root.value
    hooks = root.get("hooks", {}) if isinstance(root, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(each, list) for each in hooks.values()):
        raise InstallError(
            f"`{file}`: `hooks` must be an object with lists; mend it first, nothing was written"
        )
    return document


def _ours(document: Document) -> Iterator[tuple[str, dict[str, Any], tuple[JsonNode, int]]]:
    """Our entries: event, entry, and the list in which it stands with its place there."""
    hooks = document.root.member("hooks")
    for event, entries in zip(hooks.names, hooks.inner, strict=True) if hooks else ():
        for place, entry in enumerate(entries.inner):
            if is_ours(entry.value):
                yield event, entry.value, (entries, place)
            inner = entry.member("hooks") if isinstance(entry.value, dict) else None
            if inner is not None and isinstance(inner.value, list):
                for number, each in enumerate(inner.inner):
                    if is_ours(each.value):
                        yield event, each.value, (inner, number)


def _without(file: Path, text: str, wanted: Mapping[str, Any], present: set[str]) -> str:
    """The text without our entries, but those that are as wanted, whose events are noted as `present`, and
    without what they leave empty."""
    while True:
        document = _document(file, text)
        present.clear()
        for event, entry, (place, number) in _ours(document):
            if wanted.get(event) == entry and event not in present:
                present.add(event)
                continue
            text = _emptied(document, place, number)
            break
        else:
            return text


def _emptied(document: Document, place: JsonNode, number: int) -> str:
    """The text without an entry, and without the group, the event and `hooks` where it was all in them."""
    parents = _parents(document.root, place)
    while len(place.inner) == 1 and parents:
        place, number = parents.pop()
        if parents and not parents[-1][0].names:
            place, number = parents.pop()  # a group goes with its only hook
    return document.removed(place, number)


def _parents(root: JsonNode, wanted: JsonNode) -> list[tuple[JsonNode, int]]:
    """From the root to a node: each container, and the place in it that leads on."""
    found: list[tuple[JsonNode, int]] = []
    node = root
    while node is not wanted:
        index = next(
            number
            for number, each in enumerate(node.inner)
            if each.start <= wanted.start and wanted.end <= each.end
        )
        found.append((node, index))
        node = node.inner[index]
    return found


def _added(file: Path, text: str, event: str, entry: dict[str, Any], host: Host) -> str:
    """The text with one more entry of an event."""
    root = _document(file, text).root
    if "version" not in root.value and host.entries.version is not None:
        text = _document(file, text).added(root, host.entries.version, "version")
    document = _document(file, text)
    hooks = document.root.member("hooks")
    if hooks is None:
        return document.added(document.root, {event: [entry]}, "hooks")
    entries = hooks.member(event)
    if entries is None:
        return document.added(hooks, [entry], event)
    return document.added(entries, entry)
