"""Reading of shell commands: cases, what bash really runs, and bounds that hold for any text."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from engine.derived.commands.commands import commands_of
from engine.shell.entries import SPARE_SIZE
from engine.shell.expansion import quote, render
from engine.shell.reader import UNREADABLE, read, reading
from tests.harness import case_files
from tests.harness.effort import examples
from tests.harness.places import CORPUS

CASES: list[list[str]] = case_files.read(CORPUS / "shell.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0][:60])
def test_what_a_text_would_run(case: list[str]) -> None:
    command, *entries = case
    found = read([command])
    assert found[0] == command
    assert [entry for entry in found if entry != command or entry in entries] == entries


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 150
    assert len({case[0] for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        (["rm", "-rf", "/"], ["rm -rf /"]),
        (["rm", "-rf", "a b"], ["rm -rf 'a b'"]),
        (["bash", "-lc", "r''m -rf /"], ["bash -lc 'r\"\"m -rf /'", "rm -rf /"]),
        (["/usr/bin/env", "rm", "x;y"], ["/usr/bin/env rm 'x;y'", "env rm 'x;y'", "rm 'x;y'"]),
        (["git", "commit", "-m", "$(rm -rf /)"], ["git commit -m '$(rm -rf /)'"]),
        (["echo", "*"], ["echo *"]),
    ],
)
def test_a_command_given_in_words_is_not_expanded(words: list[str], entries: list[str]) -> None:
    assert list(read([], [words])) == entries


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("import os\nos.system('rm -rf /')", "rm -rf /"),
        ('subprocess.run(["rm", "-rf", "/"])', "rm -rf /"),
        ("subprocess.run('r\\x6d -rf /', shell=True)", "rm -rf /"),
        ('require("child_process").execSync(`rm -rf ${"/"}`)', "rm -rf ${/}"),
        ('spawn("rm", ["-rf", "/"])', "rm -rf /"),
        ("check_output(args=['sh', '-c', 'rm x'])", "rm x"),
    ],
)
def test_commands_that_code_starts(code: str, command: str) -> None:
    assert command in read([], [], [code])


# ---- what bash really runs -----------------------------------------------------------------------------

STUBS = ("aa", "bb", "cc")
TOOLS = ("cat", "base64", "rev", "tr", "xargs", "env", "timeout", "nohup", "bash", "sh", "printf", "sed")

letters = st.text("abcxyz019._-/=:@%+", min_size=1, max_size=6).filter(lambda word: word[0] not in "-=")
quotable = st.text("abc $`\"\\;|&<>(){}*?#~!\t'", max_size=6)


def in_single(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def in_double(text: str) -> str:
    return '"' + "".join("\\" + char if char in '$`"\\' else char for char in text) + '"'


def in_ansi(text: str) -> str:
    return "$'" + "".join(f"\\x{ord(char):02x}" for char in text) + "'"


def in_backslashes(text: str) -> str:
    return "".join("\\" + char for char in text)


SPELLINGS: list[Any] = [
    str,
    in_single,
    in_double,
    in_ansi,
    in_backslashes,
    lambda text: f"$(echo {text})",
    lambda text: f"`echo {text}`",
    lambda text: f'"$(printf %s {in_single(text)})"',
    lambda text: f"${{unset_one:-{text}}}",
    lambda text: f"{text[:1]}''{text[1:]}",
    lambda text: f"$(echo {in_single(text)} | cat)",
    lambda text: f"$(echo {in_single(text[::-1])} | rev)",
    lambda text: f"{text}\\\n",
]
any_spelling = st.sampled_from(SPELLINGS[1:5])

word = st.one_of(
    st.builds(lambda spell, text: spell(text), st.sampled_from(SPELLINGS), letters),
    st.builds(lambda spell, text: spell(text), any_spelling, quotable),
    st.builds(lambda spell, text: f"{text}{spell(text)}", any_spelling, letters),
    st.builds(lambda one, two: f"{one}{{{two},{one}}}", letters, letters),
    st.sampled_from(['"$v"', "$v", "${v}w", "${v/a/b}", "${v:0:2}", "${v^^}", '"$@"', "${v:+w}"]),
)
UNSET: list[Any] = [
    lambda text: f"{text[:1]}${{unset}}{text[1:]}",
    lambda text: f"{text[:1]}$@{text[1:]}",
    lambda text: f"x={text}; $x",
    lambda text: f"{{{text},q}}",
]
program = st.builds(
    lambda spell, name: spell(name), st.sampled_from(SPELLINGS + UNSET), st.sampled_from(STUBS)
)
simple = st.builds(lambda name, words: " ".join([name, *words]), program, st.lists(word, max_size=4))
WRAPS: list[Any] = [
    str,
    lambda script: f"({script}\n)",
    lambda script: f"{{ {script}\n}}",
    lambda script: f"if true; then {script}\nfi",
    lambda script: f"eval {in_single(script)}",
    lambda script: f"bash -c {in_single(script)}",
    lambda script: f"sh -c {in_double('aa ok')}; {script}",
    lambda script: f"f() {{ {script}\n}}; f",
    lambda script: f"bash <<'END_OF'\n{script}\nEND_OF\n",
    lambda script: f"cat <<'END_OF' | bash\n{script}\nEND_OF\n",
    lambda script: f"printf %s {in_single(script)} | bash",
    lambda script: f"for u in 1; do {script}\ndone",
    lambda script: f"true && {script}",
    lambda script: f"false || {script}",
    lambda script: f"case x in x) {script}\n;; esac",
    lambda script: f"env A=1 timeout 5 nohup bb x </dev/null 2>/dev/null; {script}",
    lambda script: f": $({script}\n)",
    lambda script: f"k=`{script}`" if "`" not in script and "\\" not in script else script,
    lambda script: f"cat < <({script}\n)",
    lambda script: f"set -- p q; {script}",
    lambda script: f'cat <<"EN"D >/dev/null\nx\nEND\n{script}',
    lambda script: f"cat <<A <<-'B' >/dev/null\n' \"\nA\n\t(\n\tB\n{script}",
    lambda script: f"[[ -n x && ( a == b || c < d ) ]]; {script}",
    lambda script: f"((1 + (2))); for ((i=0;i<1;i++)); do {script}\ndone",
    lambda script: f': $((1 + (2))) ${{#u}} $# ${{u:-"}}"}}; {script}',
    lambda script: f'echo "${{u:-\'}}" > /dev/null; {script}',
    lambda script: f"case $({script}\n) in (a|b) ;; *) ;; esac",
    lambda script: f"# it's (\n{script} # it's (\n",
    lambda script: f"while read -r q; do {script}\ndone <<< 1",
    lambda script: f"cat /dev/null | while :; do {script}\nbreak; done",
    lambda script: f"{{ {script}\n}} 2>/dev/null | cat",
]
script = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda wrap, text: wrap(text), st.sampled_from(WRAPS), inner),
        st.builds(lambda one, two: f"{one}\n{two}", inner, inner),
    ),
    max_leaves=3,
)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that do nothing but write down how they were called, and a few harmless tools."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in STUBS:
        stub = folder / name
        stub.write_text(
            '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" >> "$CALLS"\nprintf "\\1\\0" >> "$CALLS"\n'
        )
        stub.chmod(0o755)
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return folder


def really_run(text: str, folder: Path) -> list[list[str]]:
    calls = folder / "calls"
    calls.write_text("")
    subprocess.run(
        [str(folder / "bash"), "--norc", "--noprofile", "-c", text],
        env={"PATH": str(folder), "CALLS": str(calls), "LC_ALL": "C.UTF-8"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    found, current = [], []
    for field in calls.read_bytes().decode(errors="replace").split("\0")[:-1]:
        if field == "\1":
            found.append(current)
            current = []
        else:
            current.append(field)
    return found


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@examples(
    400,
    2_000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script, st.sampled_from(["abc", "a b", "x  y/z", "-r"]))
def test_every_command_that_bash_runs_is_listed(stubs: Path, text: str, value: str) -> None:
    text = f"export v={in_single(value)}; {text}"
    entries = set(read([text]))
    if UNREADABLE in entries:
        return
    for words in really_run(text, stubs):
        # A word that is glob, tilde or a literal file in the folder stays as it was written.
        shown = render(words)
        assert shown in entries or any(
            entry.startswith(shown + " ") and " > " not in entry for entry in entries
        ), (
            text,
            words,
            sorted(entries),
        )


# ---- bounds --------------------------------------------------------------------------------------------

PIECES = (
    "' \" ` $ $( ) ${ } { , ( ; | & && || < > << <<< <<- \n \\ # = a= $a ${a:- ${!a} ${a[ $' $(( )) [[ ]] if"
    " then fi do done case esac in for while eval sh -c sudo xargs base64 -d echo printf rm -rf / * ? [a] ~"
    " {a,b} {1..9} f() f EOF function alias trap set -- cd .. read export x y \x01 \x04 \x00 é \ud800 \u2028"
    " ^ ` 10> >& <( >("
)
pieces = st.sampled_from(PIECES.split(" "))
texts = st.lists(pieces, max_size=40).flatmap(
    lambda found: st.sampled_from([" ", "", "\n"]).map(lambda glue: glue.join(found))
)


@examples(800, 10_000)
@given(texts | st.text(max_size=60))
@example("((" * 100)
@example("a=" + "$a" * 50)
@example("$(" * 40 + "rm" + ")" * 40)
def test_never_raises_and_keeps_the_original(text: str) -> None:
    found = read([text], [[text, text]], [text])
    assert found[0] == text
    assert text in found
    assert len(set(found)) == len(found)
    assert sum(map(len, found)) <= 6 * len(text) + 3 * (2 * len(text) + SPARE_SIZE)


HOSTILE = {
    "commands": "a;",
    "words": "a ",
    "single quotes": "'",
    "double quotes": '"',
    "backticks": "`",
    "substitutions": "$(",
    "parameters": "${",
    "braces": "{a,b}",
    "open braces": "{",
    "here-documents": "<<a ",
    "here-documents on lines": "<<a\n",
    "arithmetic": "((",
    "tests": "[[",
    "pipes": "a|",
    "backslashes": "\\",
    "continuations": "\\\n",
    "cases": "case x in ",
    "loops": "for a in ",
    "functions": "f(){ ",
    "one word": "x",
    "blanks": " ",
    "doubling": "a=$a$a;",
    "eval": "eval eval ",
    "calls": 'system("a") ',
    "marks": "\x01",
    "carets": "a^",
    "subscripts": "a[",
    "equals": "a=b ",
    "arrays": "a=(",
    "redirections": "1>",
    "comments": "#",
    "positional words": "set -- $@ $@ a;",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_a_mebibyte_is_read_in_bounded_time(piece: str) -> None:
    text = (piece * (1 + (1 << 20) // len(piece)))[: 1 << 20]
    best = min(spent(text) for _ in range(3))
    assert best < 0.1, f"{best * 1000:.0f} ms"


def spent(text: str) -> float:
    start = time.process_time()
    read([text], [], [text])
    return time.process_time() - start


def test_values_that_double_and_braces_that_multiply_are_given_up() -> None:
    doubling = "a=xxxxxxxxxxxxxxxx;" + "a=$a$a$a$a;" * 12 + "echo $a"
    assert read([doubling])[-1] == UNREADABLE
    assert read(["echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"])[-1] == UNREADABLE
    assert read([";".join(f"x{n}" for n in range(700))])[-1] == UNREADABLE
    assert read(["f() { f; f; }; f"])[-1] != UNREADABLE
    assert read(["eval " * 20 + "ls"])[-1] == UNREADABLE


@pytest.mark.parametrize(
    "text",
    [
        "set -- $@ $@ a; " * 20,
        "set -- " + "b" * 2_500 + ";echo" + " $1" * 5_000,
        "a=(" + "b" * 2_500 + ");echo" + " ${a[@]}" * 5_000,
        "x=" + "b" * 2_500 + ";echo" + " $x" * 5_000,
    ],
)
def test_what_expansions_put_in_is_counted(text: str) -> None:
    found = read([text])
    assert found[-1] == UNREADABLE
    assert sum(map(len, found)) < 3 * len(text) + 10_000


@pytest.mark.parametrize("text", ["a | $1 | sh", "x=; a | $x | sh", "a | $* | sh"])
def test_a_stage_of_which_nothing_is_left_is_none_of_its_pipeline(text: str) -> None:
    found = reading([text])
    assert list(found.chains) == ["a | sh"]
    assert [each.piped_into for each in commands_of(found)] == [("sh",), ()]


def test_where_values_fall_apart_is_looked_for_by_a_few_characters() -> None:
    assert read(["IFS=,; x=rm,-rf,/; $x"])[-1] == "rm -rf /"
    assert read([f"IFS={'äöü' * 1_000}; x=1; echo $x"])[-1] == UNREADABLE


def test_a_few_hundred_words_are_put_in() -> None:
    words = " ".join(f"x{number}" for number in range(900))
    assert f"rm {words}" in read([f"set -- {words}; rm $@"])
    assert f"rm {words}" in read([f"a=({words}); rm ${{a[@]}}"])


def test_a_long_document_of_data_is_read_to_its_end() -> None:
    text = "cat > notes.txt <<'END'\n" + "rm -rf /\n" * 100_000 + "END\nls"
    assert read([text])[1:] == ("cat > notes.txt", "ls")


def test_quoted_words_are_one_word_for_a_pattern() -> None:
    assert quote("a b") == "'a b'"
    assert quote("it's") == "'it\"s'"
    assert quote("") == "''"
    assert quote("a|b") == "'a|b'"
    assert quote("$HOME/x*") == "$HOME/x*"


def test_a_loop_over_more_than_is_tried_is_not_read_to_its_end() -> None:
    assert read([f"for d in {' '.join(map(str, range(80)))} /; do rm -rf $d; done"])[-1] == UNREADABLE
    assert read([f"for d in {' '.join(map(str, range(60)))} /; do rm -rf $d; done"])[-1] == "rm -rf /"
