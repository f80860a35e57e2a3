"""The definitions that were admitted of one server, in a file of the machine the proxy runs on.

The file is its owner's alone (0600, its folder 0700), is replaced as a whole, and is read again when another
process has replaced it: several proxies and `governance mcp-proxy admit` share it under a lock. A file that
cannot be read stops the proxy: whatever it said would be forgotten otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from api.mcp_proxy.tools.definitions import Definition, Standing, digest, read_by_models

_FORMAT: Final = 1
MOST_BYTES: Final = 64 << 20
"""Of the file; a server may list other tools each time that it is asked."""
_NOTHING: Final[Mapping[str, Standing]] = MappingProxyType({})


class PinError(Exception):
    """The file cannot be used; the text says which, and what to do."""


class PinFile:
    """See the module. With `first_sight`, a tool of which nothing was known is admitted as it is first
    seen."""

    def __init__(self, folder: Path, server: str, *, first_sight: bool = True) -> None:
        self.path = folder / f"{server}.json"
        self.first_sight = first_sight
        self._mark: tuple[int, int] | None = None
        self._admitted: dict[str, Definition] = {}
        self._held: dict[str, Definition] = {}
        self._shown: dict[str, str] = {}
        """The digests of those that are held, as a person was last shown them."""
        self._read()

    # ---- what the proxy asks ---------------------------------------------------------------------------

    def look(self, definitions: Sequence[Definition], said: Mapping[str, Standing] = _NOTHING) -> None:
        self._read()
        if all(self._known(each, said) for each in definitions):
            return
        with self._changing():
            for each in definitions:
                self._take(each, said.get(digest(each)))

    def _take(self, definition: Definition, said: Standing | None) -> None:
        name, plain = str(definition.get("name")), read_by_models(definition)
        if said == "changed" and self._is_admitted(definition):
            del self._admitted[name]
        at_first_sight = self.first_sight and name not in self._admitted and name not in self._held
        if said != "changed" and (said == "admitted" or at_first_sight or self._is_admitted(definition)):
            self._admitted[name] = plain
            self._held.pop(name, None)
        else:
            self._held[name] = plain

    def standing(self, definition: Definition) -> Standing:
        self._read()
        if self._is_admitted(definition):
            return "admitted"
        if str(definition.get("name")) in self._admitted or self.first_sight:
            return "changed"
        return "new"

    def admitted(self, name: str) -> Definition | None:
        return self._admitted.get(name)

    # ---- what a person asks ----------------------------------------------------------------------------

    def held(self) -> dict[str, tuple[Definition | None, Definition]]:
        """Of each tool that is held: as it was admitted, if ever, and as the server says it now."""
        self._read()
        return {name: (self._admitted.get(name), now) for name, now in sorted(self._held.items())}

    def admit(self, shown: Mapping[str, Definition], names: Sequence[str]) -> list[str]:
        """Notes what a person is shown of the tools that are held, and admits those named; returns which.
        INVARIANT: none is admitted that is another one by now, or was when the person last looked: a server
        may say one thing to who looks, and another to who admits."""
        done: list[str] = []
        with self._changing():
            for name in names:
                mark = digest(shown[name])
                if name in self._held and digest(self._held[name]) == mark == self._shown.get(name, mark):
                    self._admitted[name] = self._held.pop(name)
                    done.append(name)
            self._shown = {name: digest(each) for name, each in shown.items() if name in self._held}
        return done

    # ---- the file --------------------------------------------------------------------------------------

    def _known(self, definition: Definition, said: Mapping[str, Standing]) -> bool:
        """Whether there is nothing to be written of it."""
        held = self._held.get(str(definition.get("name")))
        word = said.get(digest(definition))
        if self._is_admitted(definition):
            return held is None and word != "changed"
        return held is not None and word != "admitted" and digest(held) == digest(definition)

    def _is_admitted(self, definition: Definition) -> bool:
        before = self._admitted.get(str(definition.get("name")))
        return before is not None and digest(before) == digest(definition)

    def _read(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise PinError(f"`{self.path}` cannot be read: {error.strerror}") from None
        mark = (status.st_ino, status.st_mtime_ns)
        if mark == self._mark:
            return
        try:
            found = json.loads(self.path.read_bytes())
            if found["format"] != _FORMAT:
                raise ValueError(f"format {found['format']!r} is not {_FORMAT}")
            self._admitted, self._held = _definitions(found["admitted"]), _definitions(found["held"])
            self._shown = {str(name): str(mark) for name, mark in found.get("shown", {}).items()}
        except OSError as error:
            raise PinError(f"`{self.path}` cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PinError(
                f"`{self.path}` does not hold the admitted tools ({error}); restore it, or remove it to admit"
                " every tool of this server anew"
            ) from None
        self._mark = mark

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """The newest state, changed under the lock and written as a whole. INVARIANT: what could not be
        written is not so here either: nothing would be known of it next time."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self.path.with_suffix(".lock"), "a", opener=_private) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._read()
                before = dict(self._admitted), dict(self._held), dict(self._shown)
                try:
                    yield
                    self._write()
                except BaseException:
                    self._admitted, self._held, self._shown = before
                    raise
        except OSError as error:
            raise PinError(f"`{self.path}` cannot be written: {error.strerror}") from None

    def _write(self) -> None:
        state = {"format": _FORMAT, "admitted": self._admitted, "held": self._held, "shown": self._shown}
        # On one line: what is nested would be mostly blanks, many times as much as the server has said.
        text = json.dumps(state, sort_keys=True)
        if len(text) > MOST_BYTES:
            raise PinError(
                f"`{self.path}` would hold more than {MOST_BYTES} bytes; remove it to admit every tool of"
                " this server anew"
            )
        aside = self.path.with_suffix(f".{os.getpid()}")
        try:
            with open(aside, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self.path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        status = self.path.stat()
        self._mark = (status.st_ino, status.st_mtime_ns)


def _definitions(found: Any) -> dict[str, Definition]:
    if not isinstance(found, Mapping) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError("its tools are not objects by their names")
    return dict(found)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
