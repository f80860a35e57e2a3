"""Words whose text comes from an assignment, a builtin or a function are read as what bash makes of them.

Scripts are put together at random, by a seed: a word is spelled in one of many ways, some of which need a few
commands before it. The real bash runs them with programs that only write down how they were called.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine.derived.commands.commands import commands_of
from engine.shell.reader import UNREADABLE, read, reading
from tests.engine.shell.test_reader import STUBS, in_ansi, in_double, in_single, really_run, stubs
from tests.harness.effort import LONG

__all__ = ["stubs"]

Spelled = tuple[list[str], str]
"""Commands that come first, and the word."""
NOT_FOLLOWED = "...}"
"""What an argument shows that may be more than is told."""
ARGUMENTS = ("-rf", "/q/x", "push", "x y", "k=v", "..", "main")


class Scripts:
    """Random scripts of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def script(self) -> str:
        before: list[str] = []
        words: list[str] = []
        for text in (self.random.choice(STUBS), *self.random.sample(ARGUMENTS, self.random.randrange(4))):
            first, word = self.spelled(text)
            before += first
            words.append(word)
        return "\n".join([*before, self.wrapped(" ".join(words))])

    def wrapped(self, command: str) -> str:
        return self.random.choice(
            [
                command,
                f"if true; then {command}; fi",
                f"f9() {{ {command}; }}; f9",
                f"eval {in_single(command)}",
                f"coproc {{ {command}; }}; wait",
                f"echo x | {{ {command}; }}",
            ]
        )

    def spelled(self, text: str, depth: int = 0) -> Spelled:
        if depth == 3 or self.random.random() < 0.3:
            return [], self.random.choice([in_single, in_double, in_ansi])(text)
        return self.random.choice(SPELLINGS)(self, text, depth)

    def inner(self, text: str, depth: int) -> tuple[list[str], str, str]:
        before, word = self.spelled(text, depth + 1)
        return before, word, self.name()


def _by(*forms: tuple[str, str]) -> Callable[[Scripts, str, int], Spelled]:
    """Ways to spell: a command that assigns the word `W` to `V`, and the word that uses it."""

    def spell(scripts: Scripts, text: str, depth: int) -> Spelled:
        before, word, name = scripts.inner(text, depth)
        command, use = scripts.random.choice(forms)
        other = scripts.name()

        def filled(form: str) -> str:
            return form.replace("V", name).replace("U", other).replace("W", word)

        return [*before, filled(command)], filled(use)

    return spell


SPELLINGS: list[Callable[[Scripts, str, int], Spelled]] = [
    _by(("V=W", '"$V"'), ("V=W; (V=no)", '"$V"'), ("V=W; V=no &", '"$V"'), ("V=W; false && V=no", '"$V"')),
    _by(("V=W; V=no true", '"$V"'), ("V=no; true && V=W", '"$V"'), ("V=no; { V=W; }", '"$V"')),
    _by(
        ("f0() { local V=no; }; V=W; f0", '"$V"'), ("U() { V=W; }; U", '"$V"'), ("readonly V=W\nV=no", '"$V"')
    ),
    _by(
        ("set -- W", '"$1"'),
        ("set -- no W; shift", '"$1"'),
        ("set no W", '"$2"'),
        ("set -- no W", '"${@:2}"'),
    ),
    _by(('U() { echo "$1"; }; set -- no', '"$(U W)"'), ("V=W", '"$(sh -c \'echo "$1"\' _ "$V")"')),
    _by(("for V in no W; do :; done", '"$V"'), ("for V in W; do U=$V; done", '"$U"')),
    _by(('V=no; true && V=W; U="$(echo "$V")"', '"$U"'), ("V=W; false && V=no", '"${nope:-$V}"')),
    _by(
        ('V=W; false && V=no; U() { printf %s "$V"; }', '"$(U)"'), ("V=no; true && V=W", '"$(cat <<< "$V")"')
    ),
    _by(
        ("read -r V <<< W", '"$V"'),
        ("IFS=: read -r U V <<< no:W", '"$V"'),
        ("read -ra V <<< 'no 'W; V=\"${V[*]:1}\"", '"$V"'),
    ),
    _by(("mapfile -t V <<< W", '"${V[0]}"'), ("mapfile -t V < <(echo no; echo W)", '"${V[1]}"')),
    _by(("printf -v V %s W", '"$V"'), ("printf -vV %s W", '"$V"'), (": W", '"$_"')),
    _by(
        ("V=(no W)", '"${V[@]:1}"'),
        ("V=(no W); ((U=1))", '"${V[U]}"'),
        ("V=(no W); U=0; ((U++))", '"${V[U]}"'),
    ),
    _by(("declare -n V=U; V=W", '"$U"'), ("U=V; V=W", '"${!U}"'), ("declare -l V; V=W", '"$V"')),
    _by(("V=no; for _u in 1 2; do U=$V; V=W; done", '"$U"'), ("V=W; IFS=: true", '"$V"')),
    _by(
        ("V=no; U=no; false || V=W; false && U=W", '"$V"'), ("V=W; false && V=no; U=no; true && U=", '"$V$U"')
    ),
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_words_that_come_from_elsewhere_are_what_bash_makes_of_them(stubs: Path) -> None:
    for seed in range(4_000 if LONG else 300):
        text = Scripts(seed).script()
        found = reading([text])
        if UNREADABLE in found.entries or any(NOT_FOLLOWED in entry for entry in found.simple):
            continue
        told = [(command.program, *command.words) for command in commands_of(found)]
        for words in really_run(text, stubs):
            assert any(is_told(each, words) for each in told), (seed, text, words, told)


def is_told(told: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a command that was read is the one that ran; what is shown as unknown may be anything."""
    return len(told) == len(words) and all(
        one == two.replace("'", '"') or (at and one.startswith("$"))
        for at, (one, two) in enumerate(zip(told, words, strict=True))
    )


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("$nothing rm -rf /", "rm -rf /"),
        ("$(curl -s x) rm -rf /", "rm -rf /"),
        ("x=r${nothing}m; $x -rf /", "rm -rf /"),
        ('set -- ls; f() { "$@"; }; f rm -rf /', "rm -rf /"),
        ("set -- ls; bash -c '\"$@\"' _ rm -rf /", "rm -rf /"),
        ("a=rm; a=ls & $a -rf /", "rm -rf /"),
        ("IFS=: true; x='rm -rf /'; $x", "rm -rf /"),
        ("f() { local IFS=,; }; x='rm -rf /'; $x", "rm -rf /"),
        ("v='a[$(rm -rf /)]'; ((v))", "rm -rf /"),
        ("for x in ls 'rm -rf /'; do echo $x | sh; done", "rm -rf /"),
        ("x=ls; false || x='rm -rf /'; false && x=w; bash <<< \"$x\"", "rm -rf /"),
        ("x=ls; for i in 1 2; do $x -rf /; x=rm; done", "rm -rf /"),
        ("set -- ls rm; while [ $# -gt 0 ]; do $1 -rf /; shift; done", "rm -rf /"),
        ('rm "${nothing:-\\/x}"', "rm \\/x"),
        ('a=(x rm); "${a[$((0+1))]}" -rf /', "rm -rf /"),
        ("x=RM; ${x@L} -rf /", "rm -rf /"),
        ("exec 3<<< rm; read -r -u 3 x; $x -rf /", "rm -rf /"),
        ("exec {fd}<<< rm; read -r x <&$fd; $x -rf /", "rm -rf /"),
        ('a=(); "${a[@]}" rm -rf /', "rm -rf /"),
        ("source <(printf 'rm -rf / [0]')", "rm -rf / 0"),
        ("x=ls; false || x='rm -rf /'; false && x=w; echo \"$x\" > s.sh; sh s.sh", "rm -rf /"),
        ("echo x > /et{c..c}/y", "echo x > /etc/y"),
        ("a=-rf; false && a=-x; b=/; false && b=/tmp/x; rm $a $b", "rm -rf /"),
    ],
)
def test_what_was_taken_for_another_value(text: str, command: str) -> None:
    assert command in read([text])


@pytest.mark.parametrize(
    "text",
    [
        "[[ rm =~ .* ]]; $BASH_REMATCH -rf /",
        "x=lsrm; ${x:2:1+1} -rf /",
        "getopts r x -r; $x -rf /",
        "x=rm; $(eval echo ${x@Q}) -rf /",
        "x=abcdefghij; for i in 1 2 3 4 5 6; do $x -rf /; x=${x#?}; done",
    ],
)
def test_a_program_whose_name_is_not_followed_is_not_read(text: str) -> None:
    assert read([text])[-1] == UNREADABLE


@pytest.mark.parametrize(
    "text",
    [
        'args=; for f in a b c; do args="$args -e $f"; done; docker run $args x',
        'cmd="docker run"; '
        + "".join(f'[ -n "${n}" ] && cmd="$cmd -e {n}"; ' for n in "ABCDEFGH")
        + "$cmd x",
        'i=0; while [ $i -lt 9 ]; do i=$((i+1)); curl "http://x/$i"; done',
        'while getopts "ab:" o; do case $o in a) A=1;; b) B="$OPTARG";; esac; done; ls "$B"',
        'while [ $# -gt 0 ]; do case "$1" in -v) V=1; shift;; *) F="$F $1"; shift;; esac; done; ls $F',
        'GREP="${GREP:-grep}"; "$GREP" x y; $SUDO apt-get update; "${EDITOR:-vi}" x',
        'while read -r name url; do curl -o "$name" "$url"; done < list.txt',
    ],
)
def test_ordinary_scripts_are_read_to_their_end(text: str) -> None:
    assert UNREADABLE not in read([text])


def test_values_that_go_together_are_shown_together() -> None:
    found = reading(['for f in a b; do cp "$f" "$f.bak"; done']).simple
    assert list(found) == ["cp a a.bak", "cp b b.bak"]


@pytest.mark.parametrize(
    "text",
    [
        'while read "l*" "(" "[" "+"; do x=$y; y=$x; done <<< a',
        f"set -- a; echo ${{{'9' * 5_000}}}",
        f"mapfile -s {'9' * 5_000} x <<< hi",
    ],
)
def test_names_and_numbers_that_are_none_end_no_reading(text: str) -> None:
    found = read([f"{text}; rm -rf /q"])
    assert "rm -rf /q" in found and UNREADABLE not in found


@pytest.mark.parametrize(
    "text",
    [
        f'let "{"a" * 1_000_000}"',
        f'let "{"a[" * 500_000}"',
        f"echo $(({'(' + 'a[' * 95 + ')'}))" * 5_000,
        f'x="{"a[" * 8_000}";' * 60,
        f"while :; do {' '.join(f'v{each}=2' for each in range(2_500))}; : '{'$v0 ' * 200_000}'; done",
    ],
)
def test_what_assignments_are_looked_for_in_is_read_in_bounded_time(text: str) -> None:
    begin = time.process_time()
    read([text])
    assert time.process_time() - begin < 2
