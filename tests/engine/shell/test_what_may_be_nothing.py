"""What is unknown may be nothing: then the next word is the program.

Each line was given to bash (or to the shell that is named), in which `x` was not set, with a program `zap`
that writes down how it is called: it was called with `a b`.
"""

from __future__ import annotations

import time

import pytest

from engine.shell.reader import UNREADABLE, read, reading

CHANGED = ["#a", "##*/", "%a", "/a", "//a/b", "^", "^^", ",,", ":0:1", ":5", "@Q", "@A", "[0]#a"]
UNSET = [
    *(f"${{x{change}}} zap a b" for change in CHANGED),
    *(f"${{x{change}}}zap a b" for change in CHANGED),
    "${HOME##*} zap a b",
    "${PATH##*}zap a b",
    "${!x*} zap a b",
    "${!x@}zap a b",
    "z${x#a}ap a b",
    "${x}${y#b}zap a b",
    "eval ${x#a} zap a b",
    "command $x zap a b",
    "exec $x zap a b",
    "env $x zap a b",
    "env ${x#a} zap a b",
    "nice $x zap a b",
    "nohup ${x} zap a b",
    "setsid $x $y zap a b",
    "timeout 5 $x zap a b",
    "timeout $x 5 zap a b",
    "stdbuf -o0 $x zap a b",
    "flock f $x zap a b",
    "xargs $x zap a b",
    "echo a b | xargs $x zap",
    "coproc $x zap a b",
    "builtin $x eval zap a b",
    "bash -c $x 'zap a b'",
    "sh $x -c 'zap a b'",
    "sh -c ${x#a} 'zap a b'",
    "echo 'zap a b' | sh $x",
    "trap $x 'zap a b' EXIT",
]
RECOVERED = [
    "y=(;\nzap a b",
    "y=(&\nzap a b",
    "y=( c ; d\nzap a b",
    "y+=(|\nzap a b",
    "x=1 y=(<\nzap a b",
    "y=((\nzap a b",
    "declare y=(;\nzap a b",
    "y=(c)d zap a b",
    'y=(c d)"e" zap a b',
    "y+=(c)local zap a b",
    "time y=zap; $y a b",
]
EVALUATED = [
    "y=(1 2); [[ -v 'y[$(zap a b)]' ]]",
    "test -v 'y[$(zap a b)]'",
    "printf -v 'y[$(zap a b)]' c",
    "read 'y[$(zap a b)]' <<< c",
    "let 'y[$(zap a b)]=1'",
    "y=(1); unset 'y[$(zap a b)]'",
    "set -- 'y[$(zap a b)]'; (($1))",
    "set -- 'y[$(zap a b)]'; [[ $1 -eq 1 ]]",
    "f() { [[ $1 -gt 0 ]]; }; f 'y[$(zap a b)]'",
    "f() { local n=$1; (( n++ )); }; f 'y[`zap a b`]'",
    "bash -c 'echo $(( $1 ))' _ 'y[$(zap a b)]'",
    "[[ 1 -eq 'y[$(zap a b)]' ]]",
    "y='c['; y+='$(zap a b)]'; (( y ))",
]
ELSEWHERE = [
    r"echo $'c\'; zap a b #'",  # dash
    r"echo 'c\'' ; zap a b #'",  # fish
    r"echo '\'';zap a b;echo '\''",
    r"echo 'c\nzap a b' | sh",  # dash and zsh, here and below
    r"echo 'z\0141p a b' | sh",
    r"$(echo '\0172ap') a b",
    r"x=`echo 'z\0141p'`; $x a b",
    r"echo '#\nzap a b' > f; sh f",
]


@pytest.mark.parametrize("line", [*UNSET, *RECOVERED, *EVALUATED, *ELSEWHERE])
def test_it_is_called(line: str) -> None:
    found = read([line])
    assert any(each.startswith("zap a b") for each in found) and UNREADABLE not in found


@pytest.mark.parametrize(
    "line",
    [
        "echo $x zap a b",
        "git commit -m $x zap a b",
        "cp $x zap a b",
        "y=(c; d) zap a b",
        "echo 'y[$(zap a b)]'",
        "grep 'y[$(zap a b)]' f",
        r"echo 'c\\' '; zap a b #'",
        r"echo 'c\nzap a b'",
    ],
)
def test_it_is_not_called(line: str) -> None:
    calls = [each for each in reading([line]).simple if each.startswith("zap a b")]
    assert not calls or "(c; d)" in line


@pytest.mark.parametrize(
    "line",
    [
        "sudo mv $x /usr/share",
        "sudo chown -R $x /usr/share",
        "ls | xargs zip $x /usr/share",
        "nice rm $x /usr/share",
    ],
)
def test_an_operand_of_a_program_that_is_known_stays(line: str) -> None:
    found = [each for each in read([line]) if "/usr/share" in each]
    assert all("$x" in each for each in found), found


@pytest.mark.parametrize(
    "part", ["$x ", "env $x ", "${x#a}", "y=(;", "y=(c)d ", r"\'", "'y[$(", "$'\\'", "y+='a[$('\n"]
)
def test_it_takes_time_in_proportion(part: str) -> None:
    started = time.process_time()
    read([part * (64_000 // len(part))])
    assert time.process_time() - started < 3
