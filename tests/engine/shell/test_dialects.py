"""What zsh and fish run and bash does not is read as well.

Each line was given to the shell that is named, with a program `zap` that writes down how it is called: it was
called with `a b`. bash refuses these lines, or runs something else.
"""

from __future__ import annotations

import time

import pytest

from engine.shell.reader import UNREADABLE, read, reading

ZSH = [
    "=zap a b",
    "noglob zap a b",
    "nocorrect zap a b",
    "repeat 1 zap a b",
    "if [[ -n a ]] zap a b",
    "functions[x]='zap a b'; x",
    "aliases[x]='zap a b'; eval x",
    "$commands[zap] a b",
    "${commands[zap]} a b",
    "${:-zap} a b",
    "${:-zap} a ${:-b}",
    "x='zap a b'; ${=x}",
    "x='zap a b'; $=x",
    "x='zap a b'; ${(z)x}",
    "x='zap a b'; ${(s: :)x}",
    "x=(zap a b); $x",
    "x=(zap a b); $x[@]",
    "x=(zap a b); ${x[1]} ${x[2]} ${x[3]}",
    "x=(zap a b); $x[1] $x[2,3]",
    "x=(c zap d); $x[2] a b",
    "typeset -A h; h[a]=zap; $h[a] a b",
    "ls *(e:'zap a b':)",
    "echo *(e['zap a b'])",
    "echo *(oe:'zap a b':)",
    "zap() { command zap a b }; echo *(+zap)",
    ": ${(e):-'$(zap a b)'}",
    "x='$(zap a b)'; : ${(e)x}",
    "x='`zap a b`'; echo ${(e)x}",
    'print ${(e):-"\\$(zap a b)"}',
    "source =(print zap a b)",
    ". =(echo zap a b)",
    "zsh =(echo zap a b)",
    "zsh -c \"$(print -r -- 'zap a b')\"",
    "print -r 'zap a b' | zsh",
    "print -rl -- 'zap a b' | zsh",
    "emulate sh -c 'zap a b'",
    "emulate zsh -c 'zap a b'",
    "hash foo=$commands[zap]; foo a b",
    "zsh --emulate sh -c 'zap a b'",
    "function f() { zap a b }; f",
    "function f () { zap a b } ; f",
    "x=(zap); x+=(a b); $x",
    'x=(zap a); "$x[@]" b',
    "set -- zap a b; $argv",
    "set -- zap a b; $argv[1] $argv[2] $argv[3]",
    "eval 'noglob zap a b'",
    "exec =zap a b",
    "f() { $@ }; f zap a b",
    'f() { "$@" }; f zap a b',
    "f() { $* }; f zap a b",
    "f() { eval $1 }; f 'zap a b'",
    "f() { ${=1} }; f 'zap a b'",
    "f() { $1 $2 $3 }; f zap a b",
    "f() { shift; $@ }; f x zap a b",
    "echo 'zap a b' | while read l; ${=l}",
    "while read l; do ${(z)l}; done <<< 'zap a b'",
    'x="$(echo zap a b)"; ${=x}',
    "zap ${:-a b}",
    "=zap {a,b}",
    "x=(b a zap); $x[-1] a b",
    "x=(b a zap); ${x[3]} a b",
    "x=(zap a b); ${(@)x}",
    "x=(zap a b); ${x}",
    "x=(a b); zap $x",
]
FISH = [
    "set x zap; $x a b",
    "set -l x zap a b; $x",
    "set x zap a b; $x[1] $x[2..3]",
    "set x zap; eval $x a b",
    "function f; zap $argv; end; f a b",
    "true; and zap a b",
    "false; or zap a b",
    "not zap a b",
    "true; and not zap a b",
    "zap a(echo b)",
    "echo zap a b | source",
    "fish --no-config -C 'zap a b' -c 'true'",
    "fish --no-config --init-command='zap a b' -c true",
    "fish --no-config --init-command 'zap a b' -c true",
    "fish --no-config --command='zap a b'",
    "alias x 'zap a b'; x",
    "set x (echo zap); $x a b",
    "set x $(echo zap); $x a b",
    "printf '\\x7aap a b' | source",
    "eval (echo emFwIGEgYg== | base64 -d)",
    "echo emFwIGEgYg== | base64 -d | source",
    "if true; and zap a b; end",
    "begin zap a b; end",
    "set -gx x zap; $x a b",
    "set -l c zap; set -l d a b; $c $d",
    "set x a b; zap $x",
    "set x zap\\ a\\ b; eval $x",
    "set x 'zap a b'; eval $x",
    "set x 'zap a b'; echo $x | source",
    "function f; $argv; end; f zap a b",
    "function f; eval $argv; end; f 'zap a b'",
]
NOT_FOLLOWED = [
    "x='zap,a,b'; ${(s:,:)x}",
    "x='zap:a:b'; ${(s.:.)x}",
    "x=paz; ${(j::)${(Oa)${(s::)x}}} a b",
    "x=ZAP; ${(L)x} a b",
    "x='$y'; y=zap; ${(e)x} a b",
    "y=zap; x=y; ${(P)x} a b",
    "x=zap; ${(U)x:l} a b",
    "x=(z a p); ${(j::)x} a b",
    "x=(b a zap); ${(Oa)x}",
    "x='zap a'; ${(Q)${(z)x}} b",
]
"""Of these it is said that nobody can tell what they run."""


@pytest.mark.parametrize("line", [*ZSH, *FISH])
def test_what_another_shell_runs_is_read(line: str) -> None:
    assert "zap a b" in reading([line]).simple


def test_the_items_of_a_list_in_words_are_no_commands() -> None:
    assert "git push --force" not in reading(["- git push --force\n- not now"]).simple


@pytest.mark.parametrize("line", NOT_FOLLOWED)
def test_a_program_that_is_not_followed_makes_a_line_unreadable(line: str) -> None:
    assert UNREADABLE in read([line])


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("cat ~/.ssh/id_(rsa|dsa)", "cat ~/.ssh/id_rsa ~/.ssh/id_dsa"),
        ("cat ~/.s(s)h/id_rsa", "cat ~/.ssh/id_rsa"),
        ("zf_rm -rf /", "rm -rf /"),
        ("zargs / -- rm -rf", "rm -rf /"),
        ("hash ls=/bin/rm; ls -rf /", "rm -rf /"),
        ("hash -p /bin/rm ls; ls -rf /", "rm -rf /"),
        ("x=(/ /etc); rm -rf $x", "rm -rf / /etc"),
        ("rm -rf (echo /)", "rm -rf /"),
        ("source (curl x.example | psub)", "curl x.example | psub | source '<(curl x.example | psub)'"),
        ("source (echo rm -rf / | psub)", "rm -rf /"),
        ("for d (/ /etc) rm -rf $d", "rm -rf /etc"),
        ("function f; rm -rf $argv; end; f /", "rm -rf /"),
        ("f() { rm -rf $1 }; f /", "rm -rf /"),
    ],
)
def test_what_another_shell_makes_of_a_command(line: str, entry: str) -> None:
    assert entry in read([line])


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("f() { echo }; rm -rf $1; }; f /", "rm -rf /"),
        ("x=(rm ls); $x -rf /", "rm -rf /"),
        ("x=/v; rm -rf $x[1]", "rm -rf /v1"),
        ("a=(x rm); ${a[1]} -rf /", "rm -rf /"),
        ("set rm -rf /; $1 $2 $3", "rm -rf /"),
        ("alias a b; ls", "ls"),
        ("set y z; $y rm -rf /", "rm -rf /"),
        ("$y = z; $y rm -rf /", "rm -rf /"),
        ("f() { $argv rm -rf /; }; f x", "rm -rf /"),
        ("f() { rm -rf $1; end; rm -rf $2; }; f a /", "rm -rf /"),
        ("while read l; do end; $l; done <<< 'rm -rf /'", "rm -rf /"),
        ("function f while read l; do end; rm -rf /; done; f", "rm -rf /"),
        ("f() { rm -rf $1; }; hash f=/bin/ls; f /", "rm -rf /"),
        ("not() { rm -rf $1; }; not /", "rm -rf /"),
        ("nice() { rm -rf $1; }; nice /", "rm -rf /"),
        ("for a in / in x; do rm -rf $a; done", "rm -rf /"),
        ("for a in in; do rm $a; done", "rm in"),
        ("set -- / x; for i do rm -rf $i; done", "rm -rf /"),
        ("set -- / x; for i do\n rm -rf $i\ndone", "rm -rf /"),
        ("for i\ndo rm -rf $i; done", "rm -rf"),
        ("trunc(date, rm -rf /) as m, x", "date, rm -rf /"),
        *((f"alias {name}='rm -rf'; {name} /", "rm -rf /") for name in ("not", "begin", "call", "-", "end")),
        *((f"{name}() {{ rm -rf $1; }}; {name} /", "rm -rf /") for name in ("end", "foreach")),
        *((f"function {name} {{ rm -rf $1; }}; {name} /", "rm -rf /") for name in ("end", "foreach")),
        *(
            (f"function f{gap}{{ rm -rf $1; }}; f /", "rm -rf /")
            for gap in (" \\\n", " # x\n", " () # x\n\n")
        ),
        ("function f() rm -rf /", "rm -rf /"),
        ("x=(<(rm -rf /))", "rm -rf /"),
        ("x=(a >(rm -rf /) b)", "rm -rf /"),
        ("rm -rf ~/*(D)", "rm -rf ~/* ~/*D"),
        ("rm -rf /etc(N)", "rm -rf /etc /etcN"),
        ("hash bash=/bin/echo; bash -c 'rm -rf /'", "rm -rf /"),
        ("hash -p /bin/ls eval; eval 'rm -rf /'", "rm -rf /"),
        ("cp /bin/ls eval; eval 'rm -rf /'", "rm -rf /"),
        ("cp /bin/bash x; curl u | x", "curl u | bash"),
        ("cp /bin/rm x; hash x=/bin/ls; ./x -rf /", "rm -rf /"),
        ("alias x='rm -rf'; alias x echo; x /", "rm -rf /"),
        ("bash -C -c 'rm -rf /'", "rm -rf /"),
        ("$HOME = x; rm -rf $HOME", "rm -rf $HOME"),
        ("set HOME x; rm -rf $HOME", "rm -rf $HOME"),
        ("env HOME=x ls; rm -rf $HOME", "rm -rf $HOME"),
        ("rm -rf ${commands[x]}/", "rm -rf $commands/"),
        ("curl -o /usr/bin/x.exe u; x.exe", "curl -o /usr/bin/x.exe u | /usr/bin/x.exe"),
        ("curl -o /usr/bin/not u; not x", "curl -o /usr/bin/not u | /usr/bin/not x"),
    ],
)
def test_what_bash_makes_of_it_is_read_as_before(line: str, entry: str) -> None:
    assert entry in read([line])


@pytest.mark.parametrize(
    "unit", ["/a/a(b|c)", "/*(e:'x':)", "=(a)", "$x[1]", "${(s:,:)x}", "${:-a}", "for x (a) ", "b (echo a) "]
)
def test_many_of_these_take_no_longer_than_is_allowed(unit: str) -> None:
    start = time.process_time()
    read(["x=(a b); " + unit * (200_000 // len(unit))])
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize(
    "line", ["${(" + "s-" * 132 + "!x", "x='${(" + "s@" * 132 + "!'; $x", "${(" + "s%s" * 80]
)
def test_flags_are_read_in_one_way(line: str) -> None:
    start = time.process_time()
    read([line])
    assert time.process_time() - start < 0.5
