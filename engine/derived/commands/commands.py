"""The commands of a call in parts: what `derived.commands` shows, and what files and hosts are read from.

Takes the normal form that `shell.reader` writes apart again: words parted by single blanks, a word with
anything unusual in single quotes, redirections last. Knows nothing of what programs do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from engine.model import Json
from engine.shell.reader import reading
from engine.shell.reading import ShellReading

_TOKEN: Final = re.compile(r"'[^']*'|[^ ']+|'")
_REDIRECTION: Final = re.compile(
    r"(?:\d{0,9}|\{\w{1,64}\})(<<<|<<-?|<>|<&|>>|>&|<|>)(.*)|(&>>?)(.*)", re.DOTALL
)
MOST_WORDS: Final = 48
"""Words of a command whose output reaches xargs."""


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. `words` are all that follow the program, told apart in `options` and `arguments`,
    where the value of an option is an argument; a redirection is (operator, target)."""

    program: str
    words: tuple[str, ...]
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    redirections: tuple[tuple[str, str], ...]
    piped_into: tuple[str, ...]
    run_by: tuple[str, ...]
    in_code: bool
    inputs: tuple[str, ...] = ()
    """The texts that it is known to read."""
    given_by: tuple[tuple[str, ...], ...] = ()
    """Of xargs, the commands whose output reaches it, as far as `MOST_WORDS`."""
    folders: tuple[str, ...] = ()
    """Where it may run besides the folder that the call begins in; known of `commands_there` alone."""

    def as_json(self) -> dict[str, Json]:
        return {
            "program": self.program,
            "options": list(self.options),
            "arguments": list(self.arguments),
            "pipedInto": list(self.piped_into),
            "runBy": list(self.run_by),
            "inCode": self.in_code,
        }


def commands_of(reading: ShellReading) -> list[Command]:
    """The simple commands of a reading, in order."""
    fed, run, given = _fed(reading.chains), _run(reading.run_by), _given(reading.chains)
    return [
        _command(
            shown,
            tuple(fed.get(shown, ())),
            tuple(run.get(shown, ())),
            code,
            tuple(reading.inputs.get(shown, ())),
            tuple(given.get(shown, ())),
        )
        for shown, code in reading.simple.items()
    ]


def commands_there(reading: ShellReading) -> list[Command]:
    """The commands that may run in another folder than the call began in, with their words as they stand."""
    if not reading.there:  # as a rule, and what pipelines hand on is not worked out twice then
        return []
    fed, given = _fed(reading.chains), _given(reading.chains)
    return [
        replace(
            _command(
                written,
                tuple(fed.get(shown, ())),
                (),
                False,
                tuple(reading.inputs.get(shown, ())),
                tuple(given.get(shown, ())),
            ),
            folders=tuple(folders),
        )
        for written, (shown, folders) in reading.there.items()
        if folders
    ]


def _command(
    shown: str,
    piped_into: tuple[str, ...],
    run_by: tuple[str, ...],
    in_code: bool,
    inputs: tuple[str, ...],
    given_by: tuple[tuple[str, ...], ...],
) -> Command:
    words: list[str] = []
    redirections: list[tuple[str, str]] = []
    operator = ""
    for token in _tokens(shown):
        if operator:
            redirections.append((operator, _plain(token)))
            operator = ""
        elif token[0] != "'" and (found := _REDIRECTION.fullmatch(token)):
            operator, target = found[1] or found[3], found[2] or found[4]
            if target:
                redirections.append((operator, _plain(target)))
                operator = ""
        else:
            words.append(_plain(token))
    program, *rest = words or [""]
    end = rest.index("--") if "--" in rest else len(rest)
    options = tuple(word for word in rest[:end] if len(word) > 1 and word[0] == "-")
    arguments = tuple(word for word in rest[:end] if word[:1] != "-" or word == "-") + tuple(rest[end + 1 :])
    return Command(
        program.lower().removesuffix(".exe"),
        tuple(rest),
        options,
        arguments,
        tuple(redirections),
        piped_into,
        run_by,
        in_code,
        inputs,
        given_by,
    )


def _tokens(shown: str) -> Iterable[str]:
    """The words of the normal form; a quoted part may be glued to a redirection before it."""
    token, end = "", 0
    for found in _TOKEN.finditer(shown):
        if token and found.start() != end:
            yield token
            token = ""
        token += found[0]
        end = found.end()
    if token:
        yield token


def _plain(token: str) -> str:
    return token[1:-1] if len(token) > 1 and token[0] == token[-1] == "'" else token


def _fed(chains: Iterable[str]) -> dict[str, list[str]]:
    """For each command, as it is shown, the programs that get its output, directly or through others.

    INVARIANT: linear in the length of all chains, which many commands may have in common: a stage is read
    once, and what gets its output is a set of bits."""
    bits: dict[str, int] = {}
    """Programs by their numbers."""
    of_stage: dict[str, int] = {}
    fed: dict[str, int] = {}
    for chain in chains:
        first, *others = _stages(chain)
        into = 0
        for stage in others:
            if stage not in of_stage:
                numbers = [bits.setdefault(program, len(bits)) for program in _programs(stage)]
                of_stage[stage] = sum(1 << number for number in set(numbers))
        for stage in reversed(others):
            fed[stage] = fed.get(stage, 0) | into
            into |= of_stage[stage]
        fed[first] = fed.get(first, 0) | into
    programs = list(bits)
    return {stage: [programs[number] for number in _numbers(into)] for stage, into in fed.items()}


def _given(chains: Iterable[str]) -> dict[str, dict[tuple[str, ...], None]]:
    """For each xargs, as it is shown, the commands that begin the pipelines which it ends or stands in."""
    given: dict[str, dict[tuple[str, ...], None]] = {}
    for chain in chains:
        if "xargs" in chain:
            first, *others = _stages(chain)
            words = tuple(map(_plain, islice(_tokens(first), MOST_WORDS))) or ("",)
            for stage in others:
                if stage.startswith("xargs"):
                    given.setdefault(stage, {})[words] = None
    return given


def _numbers(bits: int) -> Iterable[int]:
    return (at for at, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def _run(chains: Mapping[str, Mapping[str, None]]) -> dict[str, dict[str, None]]:
    """For each command the programs that run what it, or the pipeline it stands in, gives."""
    run: dict[str, dict[str, None]] = {}
    for chain, programs in chains.items():
        for stage in _stages(chain):
            run.setdefault(stage, {}).update(programs)
    return run


def _programs(stage: str) -> Iterable[str]:
    """The program of a command; of xargs also what it starts."""
    program, *words = map(_plain, _tokens(stage))
    return started_by((program, *words)) if program in ("xargs", "parallel") else (program,)


def started_by(words: Sequence[str]) -> list[str]:
    """The program of a command, and those that it starts."""
    return list(dict.fromkeys(next(iter(_tokens(shown))) for shown in reading([], [words]).simple))


def _stages(chain: str) -> list[str]:
    """The commands of a pipeline. A ` | ` within quotes is text."""
    stages: list[str] = []
    start, quoted = 0, False
    for part in re.finditer(r"'| \| ", chain):
        if part[0] == "'":
            quoted = not quoted
        elif not quoted:
            stages.append(chain[start : part.start()])
            start = part.end()
    return [*stages, chain[start:]]
