"""What the client is told: where the service is, who it speaks for, and what happens while nobody answers.

Read once, from arguments or the environment; knows nothing of HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast
from urllib.parse import urlsplit

FailMode = Literal["closed", "open"]

DEFAULT_URL: Final = "http://127.0.0.1:8700"
USUAL_SECONDS: Final = 20.0
"""In which a decision must have come, retries included."""

_IN_NO_HOST: Final = frozenset("$<>{}")
"""As where nobody has put a host in the place of `${HOST}`: that service would be away for ever."""


def _default_journal() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    try:
        return Path(state).expanduser() / "governance" / "journal"
    except RuntimeError:
        raise ValueError("there is no home folder; name one in `GOVERNANCE_JOURNAL`") from None


def _named(said: Mapping[str, str], name: str) -> str | None:
    """What a variable says. Raises ValueError for what is left of a file that no shell has read: a halt of
    `mailer` would not stop `"mailer"`."""
    value = said.get(name, "")
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if quoted or value != value.strip() or " # " in value:
        raise ValueError(
            f"`{name}` has quotes around it, blanks at its ends or a comment behind it, which only a shell "
            f"takes away; remove them from {value!r}"
        )
    return value or None


def _is_key(text: str) -> bool:
    """Anything else is no header, and what cannot be sent would count as a service that cannot be reached."""
    return bool(text) and text == text.strip() and text.isascii() and text.isprintable()


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:  # the port is none
        return False
    named = bool(host) and _IN_NO_HOST.isdisjoint(host)
    return parts.scheme in ("http", "https") and named and text == text.strip() and text.isprintable()


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """See the module. `fail_mode` is what becomes of a call while the service is away: `closed` refuses it;
    `open` lets it through once it stands in the `journal`, a folder that several processes may share, and
    where both leave outputs that the service does not take before a process ends, and which others a run goes
    on from.
    `decide_seconds` bounds how long a decision is asked for, not how long a person is waited for."""

    api_key: str = field(repr=False)
    url: str = DEFAULT_URL
    agent_id: str | None = None
    fail_mode: FailMode = "closed"
    journal: Path = field(default_factory=_default_journal)
    decide_seconds: float = USUAL_SECONDS

    def __post_init__(self) -> None:
        if not _is_key(self.api_key):
            wrong = "is no API key" if self.api_key else "is not set"
            raise ValueError(f"`GOVERNANCE_API_KEY` {wrong}; an admin makes a key by `governance keys add`")
        if not _is_address(self.url):
            raise ValueError(f"`GOVERNANCE_URL` is `{self.url}`; write an address such as `{DEFAULT_URL}`")
        if self.fail_mode not in ("closed", "open"):
            raise ValueError(f"`GOVERNANCE_FAIL_MODE` is `{self.fail_mode}`; write `closed` or `open`")
        if self.agent_id is not None and not 0 < len(self.agent_id) <= 200:
            raise ValueError("`GOVERNANCE_AGENT_ID` must have 1 to 200 characters")
        if self.journal.exists() and not self.journal.is_dir():
            raise ValueError(f"`GOVERNANCE_JOURNAL` is the file {self.journal}; name a folder")
        if not self.decide_seconds > 0:
            raise ValueError(f"`decide_seconds` is {self.decide_seconds}; a decision needs more than none")

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> ClientSettings:
        """Of the variables that client, hooks and proxy share. Raises ValueError naming the wrong one."""
        said = os.environ if environment is None else environment
        journal = _named(said, "GOVERNANCE_JOURNAL")
        return cls(
            api_key=said.get("GOVERNANCE_API_KEY", "").strip(),
            url=_named(said, "GOVERNANCE_URL") or DEFAULT_URL,
            agent_id=_named(said, "GOVERNANCE_AGENT_ID"),
            fail_mode=cast(FailMode, said.get("GOVERNANCE_FAIL_MODE") or "closed"),
            journal=Path(journal).expanduser() if journal else _default_journal(),
        )

    @property
    def is_local(self) -> bool:
        """Whether the service is on this machine, where no proxy of the environment stands between."""
        return urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
