"""`governance hook HOST`: reads what the host tells, asks the service, writes what the host expects.

The service reads and answers in the host's own shape (`POST /v1/hooks/:host`), and remembers what waits; so
the hook only passes on, and speaks itself where the service cannot. It is started for each tool call, by
path and without the packages of the site, so it loads no more than it needs.

INVARIANT: whatever goes wrong, a call is denied, unless the fail mode is `open` and nothing but the service
is away. A call that waits for a person is never let through without that person.
"""

from __future__ import annotations

import os
import sys
import time

if __name__ == "__main__":
    # Started by its path: the room is found from there, and nothing else of this folder is.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from api.hosts import journal, wording
from api.hosts.last_word import BLOCK, LastWord
from api.hosts.link import Away, HookAnswer, HookRefused, Nonsense, ServiceFailing, post, sign_of_it
from api.hosts.report import CALL, Report, Unreadable, decoded, shallow, told_otherwise
from api.hosts.setup import Setup, SetupError, setup, timeout_of
from api.hosts.table import NAMES, host

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
ASK_SECONDS: Final = 30.0
"""For a decision that nobody is waited for."""
WAIT_SECONDS: Final = 50
"""For a person, in one request; there are as many as the host's time allows."""
PAUSES: Final = (0.1, 0.3, 1.0)
"""Between tries while the service is away; what is longer away is away."""
BREATH: Final = 0.2
LEAST_SECONDS: Final = 0.4
"""For a question whether the service is there, when there is no time left."""
REPLAY_SHARE: Final = 0.3
"""Of a hook's time, for what earlier ones could not tell."""
PATIENCE: Final = 2.0
"""For a hook of the same session to tell what nobody can tell whose it is, before this one tells it."""
MOST_UNTAKEN: Final = 5
"""Agents and runs of which it is tried in vain to tell, before it is tried for the run alone that asks."""


class HookEnd(NamedTuple):
    """What the hook ends with."""

    output: bytes
    code: int = 0
    error: str = ""


class Hook:
    """One start of the hook. `clock` and `sleep` count seconds; `now` is the time of day."""

    def __init__(
        self,
        name: str,
        setup: Setup,
        begun: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self.setup = name, setup
        self.clock, self.sleep = clock, sleep
        self.time = own_seconds(setup.timeout)
        self.deadline = begun + self.time
        self.owner = journal.Owner(setup.journal, setup.url, setup.key)
        self.call_id = f"call-{os.urandom(12).hex()}"
        self.at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def left(self) -> float:
        return self.deadline - self.clock()

    def run(self, raw: bytes) -> HookEnd:
        try:  # what a call gives may have to be kept, as later ones are decided by it
            journal.need_room(self.setup.journal)
        except OSError as error:
            if self._report(raw).kind == CALL:
                return self._deny(raw, wording.broken(f"its journal cannot be written: {error}"))
        if (untold := self._replay(raw)) is not None:
            return self._without_service(raw, str(untold), is_there=isinstance(untold, ServiceFailing))
        try:
            answer = self._asked(raw)
        except Away as away:
            return self._without_service(raw, str(away), is_there=isinstance(away, ServiceFailing))
        except Nonsense as nonsense:
            return self._without_service(raw, str(nonsense), is_there=True)
        except HookRefused as refused:
            if not refused.key or self._report(raw).kind == CALL:
                raise
            return self._without_service(raw, str(refused), is_there=True)
        self.owner.keep(answer.key_id)
        # Who waits takes no outcome, as nobody might be there any more to hear it; who asks does.
        while answer.outcome == "waiting" and self.left() > 2:
            wait = max(1, min(WAIT_SECONDS, int(self.left()) - 1))
            try:
                self._post(raw, self.left(), wait=str(wait), handOut="false")
                answer = self._post(raw, min(self.left(), ASK_SECONDS))
                self.sleep(BREATH if answer.outcome == "waiting" else 0)
            except Away as away:
                if self.left() < 5:
                    return self._deny(raw, wording.unreachable(self.setup.url, str(away)))
                self.sleep(1.0)
        return HookEnd(answer.body)

    def _asked(self, raw: bytes) -> HookAnswer:
        """The first answer, which is not waited for."""
        for pause in (*PAUSES, None):
            try:
                return told(self.name, raw, lambda body: self._post(body, min(self.left(), ASK_SECONDS)))
            except Away:
                if pause is None or self.left() < pause + 1:
                    raise
                self.sleep(pause)
        raise AssertionError("not reached")

    def _post(self, raw: bytes, seconds: float, **query: str) -> HookAnswer:
        return post(self.setup, self.name, raw, max(seconds, 0.5), callId=self.call_id, at=self.at, **query)

    # While the service is away -----------------------------------------------------------------------

    def _without_service(self, raw: bytes, why: str, *, is_there: bool) -> HookEnd:
        """A call is denied, or goes ahead on record; what became of one is told later."""
        report = self._report(raw)
        text = wording.unreachable(self.setup.url, why)
        if report.kind == CALL and is_there:
            return self._deny(raw, wording.undecided(why))
        if report.kind == CALL and not self.setup.opens:
            return self._deny(raw, text)
        seconds = max(LEAST_SECONDS, min(self.left(), 1.0))
        if report.kind == CALL and (sign := sign_of_it(self.setup, seconds)):
            return self._deny(raw, wording.undecided(f"{why}{sign}"))
        return self._kept(raw, report, text)

    def late(self, raw: bytes) -> HookEnd:
        """What it ends with where its time is over before it knows more: what became of a call is told later,
        as the next one may depend on it."""
        with contextlib.suppress(Unreadable, ValueError):
            if (report := self._report(raw)).kind != CALL:
                return self._kept(raw, report)
        return _late(self.name, raw)

    def _kept(self, raw: bytes, report: Report, text: str = "") -> HookEnd:
        """It goes ahead once it stands in the journal; `text` says why a call could not be decided."""
        entry = {
            "host": self.name,
            "agentId": self.setup.agent_id,
            "callId": self.call_id,
            "at": self.at,
            "decidedOffline": report.kind == CALL,
            "url": self.setup.url,
            "key": self.owner.tag,
            "input": raw.decode(errors="replace"),
        }
        goes_ahead = HookEnd(json.dumps(host(self.name).allow(report.event)).encode())
        try:
            journal.append(self.setup.journal, entry)
        except OSError as error:
            if report.kind == CALL:
                return self._deny(raw, f"{text} Its journal cannot be written either: {error}.")
            return goes_ahead._replace(error=f"not told: {error}")
        return goes_ahead

    def _replay(self, raw: bytes) -> Away | None:
        """Tell what could not be told, before the next decision, which may depend on it; returns why some of
        this run is not told yet."""
        folder = self.setup.journal
        if journal.is_empty(folder):
            return None
        until = self.clock() + self.time * REPLAY_SHARE
        patient = self.clock() + min(PATIENCE, self.time * REPLAY_SHARE / 2)
        why: Away = ServiceFailing(f"what became of earlier calls waits in {folder} to be told")
        untaken: dict[str, Away] = {}
        postponed = is_patient = False
        report = self._report(raw)
        runs = {journal.run_name(report.run_id), journal.run_name(report.parent)} - {""}

        def tell(entry: dict[str, Any]) -> str | None:
            nonlocal postponed
            whose = journal.whose(entry)
            is_other = len(untaken) > MOST_UNTAKEN and runs.isdisjoint(whose)
            if entry["host"] not in NAMES or is_other or not untaken.keys().isdisjoint(whose):
                return None
            is_own = self.owner.has(entry)
            if not is_own and (is_own is False or is_patient or runs.isdisjoint(whose)):
                postponed |= is_own is None and not runs.isdisjoint(whose)
                return None
            try:
                return self._told(entry, max(1.0, until - self.clock()))
            except journal.Untaken as error:
                untaken[error.whose] = ServiceFailing(str(error))
                return None

        def goes_on() -> bool:
            return self.clock() < until

        try:
            if self.owner.has_to_ask(runs):
                self._ask_who(max(1.0, until - self.clock()))
            while goes_on():
                postponed, is_patient = False, self.clock() < patient
                self.owner.look_again()
                done = journal.replay(folder, tell, goes_on, self.owner.tag) and not postponed
                if done or self._left(runs) is None:
                    break
                self.sleep(BREATH)
        except Away as away:
            why = away
        except OSError as error:
            why = ServiceFailing(f"the journal {folder} cannot be written: {error}")
        try:
            found = self._left(runs)
        except PermissionError:
            return None  # what another user of the system has left there is not of this run
        return None if found is None else next(filter(None, map(untaken.get, found)), why)

    def _ask_who(self, seconds: float) -> None:
        """As what the service knows the key now. Raises Away."""
        probe = json.dumps(host(self.name).probe).encode()
        try:
            self.owner.keep(self._post(probe, min(seconds, ASK_SECONDS)).key_id)
        except (HookRefused, Nonsense):
            self.owner.key_id = ""

    def _left(self, runs: set[str]) -> tuple[str, str] | None:
        """Agent and run of the first that waits to be told of these runs."""
        left = (each for each in journal.waiting(self.setup.journal) if self.owner.has(each) is not False)
        return next((each for each in map(journal.whose, left) if not runs.isdisjoint(each)), None)

    def _told(self, entry: dict[str, Any], seconds: float) -> str:
        """Why the service refuses an entry, or nothing. Raises journal.Untaken, and Away."""
        query = {"callId": entry["callId"], "at": entry["at"]}
        query["decidedOffline"] = "true" if entry["decidedOffline"] else "false"
        whose = self.setup._replace(agent_id=entry["agentId"])
        try:
            name, raw = entry["host"], entry["input"].encode()
            told(name, raw, lambda body: post(whose, name, body, min(seconds, ASK_SECONDS), **query))
        except HookRefused as refused:
            if refused.is_anothers:
                entry["key"] = journal.OTHER_KEY
            if refused.key or refused.is_anothers:
                raise journal.Untaken(str(refused), journal.whose(entry)[0 if refused.key else 1]) from None
            return "" if refused.code == "event_id_conflict" else str(refused)
        except Nonsense as nonsense:
            raise journal.Untaken(str(nonsense), journal.whose(entry)[1]) from None
        except Unreadable as unreadable:
            return str(unreadable)
        return ""

    # In the host's shape -------------------------------------------------------------------------------

    def _report(self, raw: bytes) -> Report:
        return host(self.name).read(decoded(raw))

    def _deny(self, raw: bytes, text: str) -> HookEnd:
        return denied(self.name, raw, text)


def own_seconds(timeout: float) -> float:
    """How long the hook may take, so that its answer comes before the host gives up."""
    return max(timeout - 15, timeout * 0.8)


def _told_of(name: str, raw: bytes) -> bytes:
    """An input as it can be read: a tool chooses how deep its output is, and nobody gets around a rule by an
    output that cannot be read. Of a call nothing is left out, as it is decided by all that it says."""
    try:
        decoded(raw)
    except Unreadable:
        found = shallow(raw)
        if host(name).read(decoded(found)).kind == CALL:
            raise
        return found
    return raw


def told(name: str, raw: bytes, ask: Callable[[bytes], HookAnswer]) -> HookAnswer:
    """The answer to an input. What became of a call is told plainer, then shorter, where the service does not
    take it as it is: nobody gets around a rule by an output that cannot be recorded."""
    try:
        return ask(raw)
    except HookRefused as refused:
        last = refused
        if refused.key or refused.is_anothers or refused.code == "event_id_conflict":
            raise
    for otherwise in told_otherwise(host(name), raw):
        try:
            return ask(otherwise)
        except HookRefused as refused:
            last = refused
    raise last


def denied(name: str, raw: bytes, text: str) -> HookEnd:
    """A denial in the host's shape. Where it is not even known what the host asks, also by the exit code."""
    found = host(name)
    try:
        report = found.read(decoded(raw))
    except Exception:
        return HookEnd(json.dumps(found.deny("", text)).encode(), BLOCK, text)
    if report.kind != CALL:
        return HookEnd(json.dumps(found.allow(report.event)).encode(), 0, text)
    return HookEnd(json.dumps(found.deny(report.event, text)).encode())


def _late(name: str, raw: bytes) -> HookEnd:
    return denied(name, raw, wording.undecided("it took too long"))


def answered(
    name: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    raw: bytes,
    begun: float,
    last_word: LastWord[HookEnd] | None = None,
    **how: Any,
) -> HookEnd:
    """What a hook with these words ends with, whatever happens."""
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        made = setup(words, environment, host(name).default_timeout)
        raw = _told_of(name, raw)
        hook = Hook(name, made, begun, **how)
        if last_word is not None:
            last_word.says = partial(hook.late, raw)
        return hook.run(raw)
    except SetupError as error:
        return denied(name, raw, wording.broken(str(error)))
    except Unreadable as unreadable:
        return denied(name, raw, wording.unreadable(str(unreadable)))
    except HookRefused as refused:
        text = wording.key_refused if refused.key else wording.not_taken
        return denied(name, raw, text(str(refused)))
    except Nonsense as nonsense:
        return denied(name, raw, wording.undecided(str(nonsense)))
    except Exception as error:
        said = denied(name, raw, wording.broken(f"{type(error).__name__}: {error}"))
        return said._replace(code=BLOCK, error=said.error or wording.broken(str(error)))


def main(words: Sequence[str], begun: float) -> int:
    """The exit code of `governance hook`, its host and options in `words`. INVARIANT: whatever goes wrong
    denies; what ends otherwise, hosts take for consent."""
    try:
        return _run_once(words, begun)
    except BaseException as error:
        _complain(f"it failed: {type(error).__name__}: {error}")
        return BLOCK


def _run_once(words: Sequence[str], begun: float) -> int:
    name = words[0] if words else ""
    if name not in NAMES:
        _complain(f"`{name}` is no host of a hook; write one of {', '.join(NAMES)}")
        return BLOCK
    timeout = timeout_of(words[1:], host(name).default_timeout)
    until = begun + min(own_seconds(timeout) + 1, timeout * 0.95)
    last_word = LastWord(until, partial(_late, name, b""), _ended)
    raw = b""
    try:
        raw = sys.stdin.buffer.read()
    except (OSError, AttributeError) as error:
        _complain(f"the input cannot be read: {error}")
    last_word.says = partial(_late, name, raw)
    try:
        said = answered(name, words[1:], os.environ, raw, begun, last_word)
    finally:
        last_word.take()
    return _ended(said)


def _ended(said: HookEnd) -> int:
    """The exit code, once the answer is written."""
    try:
        sys.stdout.buffer.write(said.output + b"\n")
        sys.stdout.buffer.flush()
    except (OSError, AttributeError) as error:
        _complain(f"the answer cannot be written: {error}")
        return BLOCK
    if said.error:
        _complain(said.error)
    return said.code


def _complain(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"governance hook: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], time.monotonic()))
