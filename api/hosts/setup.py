"""How a hook is told where the service is and how to act: by its command line, else by the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

DEFAULT_URL: Final = "http://127.0.0.1:8700"
OPTIONS: Final = {
    "--url": "GOVERNANCE_URL",
    "--key-file": "",
    "--agent-id": "GOVERNANCE_AGENT_ID",
    "--fail-mode": "GOVERNANCE_FAIL_MODE",
    "--timeout": "",
}
"""Each with the variable that stands in for it."""
_IN_NO_HOST: Final = frozenset("$<>{}")


class SetupError(Exception):
    """The hook cannot work like this; says which option or variable to mend."""


class Setup(NamedTuple):
    url: str
    key: str
    agent_id: str
    opens: bool
    """Calls go ahead while the service is away, and are journalled."""
    timeout: float
    """Seconds after which the host does not wait for the hook any more."""
    journal: Path


def setup(words: Sequence[str], environment: Mapping[str, str], default_timeout: float) -> Setup:
    """From the words after the host's name. Raises SetupError."""
    said = {name: environment.get(variable, "") for name, variable in OPTIONS.items() if variable}
    said |= _options(words)
    mode = said["--fail-mode"] or "closed"
    if mode not in ("closed", "open"):
        raise SetupError(f"the fail mode is `{mode}`; it must be `closed` or `open`")
    agent_id_of(said["--agent-id"])
    return Setup(
        address_of(said["--url"] or DEFAULT_URL),
        _key(said.get("--key-file", ""), environment),
        said["--agent-id"],
        mode == "open",
        seconds_of(said.get("--timeout", ""), default_timeout),
        journal_folder(environment),
    )


def address_of(text: str) -> str:
    """Without a `/` at its end. Raises SetupError for what names no host, as where nobody has put one in the
    place of `${HOST}`: in the fail mode `open` such a service would be away for ever."""
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https"):
        raise SetupError(f"the address is `{text}`; it must begin with http:// or https://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if not host or host[0] in ":?#" or not _IN_NO_HOST.isdisjoint(host):
        raise SetupError(f"the address `{text}` names no host; write one such as {DEFAULT_URL}")
    return text.rstrip("/")


def agent_id_of(text: str) -> str:
    """Raises SetupError for what is left of a file that no shell has read: a halt of `mailer` would not stop
    `"mailer"`."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if quoted or text != text.strip() or " # " in text:
        raise SetupError(
            f"the agent is {text!r}, with quotes around it, blanks at its ends or a comment behind it, which "
            "only a shell takes away; remove them from --agent-id or GOVERNANCE_AGENT_ID"
        )
    return text


def timeout_of(words: Sequence[str], default: float) -> float:
    """The host's time-out alone, which the hook keeps whatever else is wrong with its words."""
    try:
        return seconds_of(_options(words).get("--timeout", ""), default)
    except SetupError:
        return default


def journal_folder(environment: Mapping[str, str]) -> Path:
    """The folder of hooks within that of the client."""
    named = environment.get("GOVERNANCE_JOURNAL")
    if named:
        return Path(named) / "hooks"
    state = environment.get("XDG_STATE_HOME")
    base = Path(state) if state else Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111 - sooner loaded
    return base / "governance" / "journal" / "hooks"


def _key(file: str, environment: Mapping[str, str]) -> str:
    if file:
        return key_of(file)
    key = environment.get("GOVERNANCE_API_KEY", "").strip()
    if not key:
        raise SetupError("there is no API key; give --key-file, or set GOVERNANCE_API_KEY")
    if not _is_key(key):
        raise SetupError("GOVERNANCE_API_KEY holds no API key")
    return key


def key_of(file: str) -> str:
    """The API key in a file; raises SetupError."""
    try:
        key = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError):  # the last, where `~` is nobody's home
        raise SetupError(f"the file of the API key, `{file}`, cannot be read") from None
    if not _is_key(key):
        raise SetupError(f"the file `{file}` holds no API key")
    return key


def _is_key(text: str) -> bool:
    """Anything else would be refused by whoever makes headers, in words that hold it."""
    return bool(text) and text.isascii() and text.isprintable()


def _options(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        if name not in OPTIONS:
            raise SetupError(f"`{name}` is not understood; write one of {', '.join(OPTIONS)}")
        if not joined:
            if not rest:
                raise SetupError(f"`{name}` needs a value")
            value = rest.pop(0)
        found[name] = value
    return found


def seconds_of(text: str, default: float) -> float:
    try:
        found = float(text) if text else default
    except ValueError:
        found = 0.0
    if not 1 <= found <= 86_400:
        raise SetupError(f"the time-out is `{text}`; it must be seconds from 1 to 86400")
    return found
