"""`governance doctor`: whether agents on this machine are governed, and what to do where they are not.

The last check of each hook is the only one that counts: the command that stands in the settings is run as the
host runs it, with a probe that must be denied.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from api.cli.api_client import client_of, why_no_answer
from api.cli.terminal import FAILED, Subparsers, filled
from api.hosts.report import Host
from api.hosts.setup import DEFAULT_URL, SetupError, key_of
from api.hosts.table import NAMES, host
from api.hosts.wording import PROBED

MOST_SKEW: Final = 30.0
"""Seconds between the clocks: signatures and records are off by as much."""
SECONDS: Final = 10.0
"""Of each request to the service."""
PROBE_SECONDS: Final = 60.0
BEHIND_PROXY: Final = (502, 503, 504)
"""What a proxy says of a service that it does not reach; 503 says the service, too, in its own words."""
GOOD, BAD, NOTE = "ok", "BAD", "note"


class Diagnosis(NamedTuple):
    verdict: str
    what: str
    text: str


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "doctor", help="check service, API key, hooks, clock and policies, and send a probe"
    )
    parser.set_defaults(run=_run)
    parser.add_argument("host", nargs="?", choices=NAMES, metavar="HOST", help=", ".join(NAMES))
    parser.add_argument("--url", type=filled, metavar="URL", help="the service; default: that of the hooks")
    parser.add_argument(
        "--key-file", type=filled, metavar="FILE", help="the API key; default: that of the hooks"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")


def _run(arguments: argparse.Namespace) -> int:
    hooks = list(_hooks([arguments.host] if arguments.host else NAMES))
    found = [*_service(*_place(arguments, hooks)), *_installed(arguments.host, hooks)]
    if arguments.format == "json":
        print(json.dumps([each._asdict() for each in found], indent=2, ensure_ascii=False))
    else:
        for each in found:
            print(f"{each.verdict:4}  {each.what}: {each.text}")
    return FAILED if any(each.verdict == BAD for each in found) else 0


# The service ----------------------------------------------------------------------------------------


class InstalledHook(NamedTuple):
    """One entry of settings that decides calls."""

    host: Host
    file: Path
    entry: dict[str, Any]
    is_of_project: bool = False

    @property
    def words(self) -> list[str]:
        """The hook's command, as far as it is one."""
        command = self.entry.get(self.host.entries.command, "")
        return shlex.split(command.partition(" || ")[0]) if isinstance(command, str) else []

    def option(self, name: str) -> str:
        words = self.words
        return words[words.index(name) + 1] if name in words[:-1] else ""


def _place(arguments: argparse.Namespace, hooks: list[InstalledHook]) -> tuple[str, str]:
    """Address and key: of the command line, else of the first hook, else of the environment."""
    first = hooks[0] if hooks else None
    url = arguments.url or (first.option("--url") if first else "") or os.environ.get("GOVERNANCE_URL")
    file = arguments.key_file or (first.option("--key-file") if first else "")
    try:
        key = key_of(file) if file else os.environ.get("GOVERNANCE_API_KEY", "")
    except SetupError:
        key = ""
    return (url or DEFAULT_URL).rstrip("/"), key


def _service(url: str, key: str) -> Iterator[Diagnosis]:
    import httpx

    try:
        with client_of(url, SECONDS, SECONDS) as client:
            began = time.time()
            health = client.get("/health")
            yield from _health(url, health)
            yield _clock(health.headers, began)
            yield _key(client, key)
    except (httpx.InvalidURL, UnicodeError) as error:
        yield Diagnosis(BAD, "service", f"{url} is no address ({error}); give the right --url")
    except httpx.HTTPError as error:
        yield Diagnosis(BAD, "service", f"{url} {why_no_answer(error)}")


def _health(url: str, answer: Any) -> Iterator[Diagnosis]:
    try:
        body = answer.json()
        status, policies = body["status"], body["policies"]
    except (ValueError, KeyError, TypeError):
        why = "is not this service; give the right --url"
        if answer.status_code in BEHIND_PROXY:
            why = (
                f"is answered by a proxy that does not reach the service ({answer.status_code}); see whether "
                "it runs, and whether the proxy has its address"
            )
        yield Diagnosis(BAD, "service", f"{url} {why}")
        return
    if answer.status_code == 200:
        yield Diagnosis(GOOD, "service", f"{url}, version {body.get('version')}")
    else:
        yield Diagnosis(BAD, "service", f"{url} says it is `{status}`; see its log")
    yield _policies(policies)


def _policies(said: Mapping[str, Any]) -> Diagnosis:
    if said.get("stale"):
        first = next(iter(said.get("errors") or ()), "")
        text = first if isinstance(first, str) else first.get("message", "")
        return Diagnosis(BAD, "policies", f"files do not load, older ones stay in force; mend them: {text}")
    if not said.get("count"):
        return Diagnosis(NOTE, "policies", "there are none, so every call is allowed; activate a pack")
    return Diagnosis(GOOD, "policies", f"{said['count']} at revision {said.get('revision')}")


def _clock(headers: Mapping[str, str], began: float) -> Diagnosis:
    try:
        there = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return Diagnosis(NOTE, "clock", "the service does not tell its time")
    skew = there - began
    if abs(skew) > MOST_SKEW:
        return Diagnosis(
            BAD, "clock", f"the service is {skew:+.0f} s away from this machine; set both by NTP"
        )
    return Diagnosis(GOOD, "clock", "that of the service and this one agree")


def _key(client: Any, key: str) -> Diagnosis:
    if not key:
        return Diagnosis(
            BAD, "API key", "there is none; run `governance hook install`, or set GOVERNANCE_API_KEY"
        )
    answer = client.post(f"/v1/hooks/{NAMES[0]}", json=host(NAMES[0]).probe, headers={"X-API-Key": key})
    if answer.status_code == 200:
        agent_id = unquote(answer.headers.get("governance-agent", ""))
        if not agent_id:
            return Diagnosis(
                NOTE, "API key", "valid, bound to no agent; `governance keys add NAME --agent ID` binds one"
            )
        return Diagnosis(GOOD, "API key", f"valid, bound to agent `{agent_id}`")
    if answer.status_code in BEHIND_PROXY:
        return Diagnosis(
            BAD, "API key", f"not checked, since the service did not answer ({answer.status_code})"
        )
    detail = answer.json().get("detail") if "json" in answer.headers.get("content-type", "") else ""
    why = detail or answer.status_code
    return Diagnosis(BAD, "API key", f"refused ({why}); set GOVERNANCE_API_KEY and install the hook again")


# The hooks ------------------------------------------------------------------------------------------


def _hooks(names: Any) -> Iterator[InstalledHook]:
    from api.hosts import installer

    for name in names:
        known = host(name)
        for project in (None, Path.cwd()):
            file = installer.settings_file(known, project, os.environ)
            if project is not None and file == installer.settings_file(known, None, os.environ):
                continue
            try:
                entries = installer.installed(file)
            except installer.InstallError:
                continue
            decides = known.entries.decides
            for event, entry in entries:
                if event in decides:
                    yield InstalledHook(known, file, entry, project is not None)


def _installed(wanted: str | None, hooks: list[InstalledHook]) -> Iterator[Diagnosis]:
    for name in NAMES if wanted is None else (wanted,):
        own = [hook for hook in hooks if hook.host.name == name]
        if not own and wanted is not None:
            yield Diagnosis(BAD, name, f"no hook is installed; run `governance hook install {name}`")
        for hook in own:
            yield _checked(hook)
    if not hooks and wanted is None:
        yield Diagnosis(
            BAD, "hooks", f"none is installed; run `governance hook install HOST` ({', '.join(NAMES)})"
        )


def _switched_off(hook: InstalledHook) -> str:
    """Why the host asks no hook at all, or nothing: the probe cannot tell, since no host runs it."""
    from api.hosts import installer

    entries = hook.host.entries
    if entries.off is None:
        return ""
    files = [hook.file, *(Path.cwd() / each for each in entries.off_in)]
    if entries.off_in:
        files.append(installer.settings_file(hook.host, None, os.environ))
    for file in files:
        with contextlib.suppress(installer.InstallError):
            if switch := entries.off(installer.settings(file)):
                return f"{file}: `{switch}` switches the hook off, so no call is asked about; mend it there"
    return ""


def _checked(hook: InstalledHook) -> Diagnosis:
    name, again = hook.host.name, f"run `governance hook install {hook.host.name}` again"
    if why := _switched_off(hook):
        return Diagnosis(BAD, name, why)
    for switch, value in next(iter(hook.host.entries.decides.values())).items():
        if switch != "type" and hook.entry.get(switch) != value:
            return Diagnosis(BAD, name, f"{hook.file}: `{switch}` must be `{json.dumps(value)}`; {again}")
    seconds = float(hook.entry.get(hook.host.entries.timeout) or 0) / hook.host.entries.timeout_unit
    if hook.entry.get("type") == "http":
        return _probed_over_http(hook, again)
    told = hook.option("--timeout")
    if not told or float(told) > (seconds or hook.host.default_timeout):
        return Diagnosis(
            BAD, name, f"{hook.file}: the hook thinks that the host waits longer than it does; {again}"
        )
    return _probed(hook, again)


def _probed(hook: InstalledHook, again: str) -> Diagnosis:
    name, command = hook.host.name, hook.entry.get(hook.host.entries.command, "")
    if not Path(hook.words[0] if hook.words else "").is_file():
        return Diagnosis(BAD, name, f"{hook.file}: its command starts with no program that is there; {again}")
    try:
        done = subprocess.run(
            command,
            shell=True,
            input=json.dumps(hook.host.probe).encode(),
            capture_output=True,
            timeout=PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Diagnosis(BAD, name, f"{hook.file}: the hook did not answer a probe in {PROBE_SECONDS:.0f} s")
    return _judged(hook, done.stdout, done.stderr, again)


def _probed_over_http(hook: InstalledHook, again: str) -> Diagnosis:
    import httpx

    key = os.environ.get("GOVERNANCE_API_KEY", "")
    if not key:
        text = f"{hook.file}: set GOVERNANCE_API_KEY where the host is started; without it each call fails"
        return Diagnosis(BAD, hook.host.name, text)
    url = hook.entry["url"]
    try:
        with client_of(url, PROBE_SECONDS, PROBE_SECONDS, {"X-API-Key": key}) as client:
            answer = client.post(url, json=hook.host.probe)
    except httpx.HTTPError as error:
        return Diagnosis(BAD, hook.host.name, f"{url} {why_no_answer(error)}")
    return _judged(hook, answer.content, b"", again)


def _judged(hook: InstalledHook, output: bytes, error: bytes, again: str) -> Diagnosis:
    """Only the service's own answer to a probe will do."""
    event = hook.host.read(hook.host.probe).event
    try:
        said = json.loads(output)
    except ValueError:
        said = None
    if said == hook.host.deny(event, PROBED):
        why = "" if hook.host.skipped is None else hook.host.skipped(hook.file, hook.entry)
        if not why and hook.is_of_project and hook.host.entries.trust:
            why = f"{hook.host.title} reads it only in a folder that it trusts: {hook.host.entries.trust}"
        if why:
            return Diagnosis(NOTE, hook.host.name, f"{hook.file}: a probe was denied, but {why}")
        return Diagnosis(GOOD, hook.host.name, f"{hook.file}: a probe was denied, the gate is live")
    text = (output + error).decode(errors="replace").strip()[:500]
    return Diagnosis(
        BAD, hook.host.name, f"{hook.file}: a probe was not denied by the service ({text}); {again}"
    )
