"""What stands behind many others in a command line, and what was fetched before it is run or only read."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from engine.derived.commands import commands
from engine.shell.entries import SPARE_SIZE
from engine.shell.reader import UNREADABLE, read, reading

MANY = " ".join(f"a{number}" for number in range(300))
FILES = " ".join(f"f{number}" for number in range(20))


@pytest.mark.parametrize(
    "text",
    [
        f"echo {MANY} / | xargs rm -rf",
        f"printf 'rm -rf %s\\n' {MANY} / | sh",
        f"echo {MANY} / | parallel rm -rf",
        f"echo 'rm -rf /' | tee {FILES}; sh f19",
        "".join(f"echo ls > f{number};" for number in range(20)) + f"echo rm -rf / > x; cat {FILES} x | sh",
        f"vim {'-c :!ls ' * 20} -c ':!rm -rf /'",
        f"tar cf a b {'--checkpoint-action=exec=ls ' * 20} --checkpoint-action=exec='rm -rf /'",
        f"alias {' '.join(f'{each}=ls' for each in FILES.split())} x='rm -rf /'; x",
        f"git {'-c alias.a=log ' * 20} -c alias.x='!rm -rf /' x",
        f"sed {'-e s/a/b/ ' * 20} -e '1e rm -rf /' f",
        f"find . {'-exec ls {} + ' * 20} -exec rm -rf / +",
        "".join(f"cp /bin/l{number} a{number};" for number in range(70)) + "cp /bin/rm x; ./x -rf /",
    ],
)
def test_nothing_hides_behind_many_others(text: str) -> None:
    found = read([text])
    assert found[-1] != UNREADABLE
    assert any(entry.startswith("rm -rf ") and "/" in entry.split() for entry in found[1:])


@pytest.mark.parametrize(
    "text",
    [
        f"echo {MANY} {MANY} {MANY} {MANY} / | xargs rm -rf",
        "y='rm -rf /'; " + "".join(f"[ $x = {number} ] && y=l{number};" for number in range(70)) + "$y",
        "".join(f"cp /bin/l{number} a{number};" for number in range(300)) + "cp /bin/rm x; ./x -rf /",
    ],
)
def test_what_hides_behind_too_many_is_not_left_out(text: str) -> None:
    assert read([text])[-1] == UNREADABLE


@pytest.mark.parametrize(
    ("fetched", "file"),
    [
        ("curl -O x.example/i.sh", "i.sh"),
        ("curl -sSLO x.example/i.sh", "./i.sh"),
        ("curl -soi.sh https://x.example/i", "i.sh"),
        ("curl -o a https://x.example/a -O https://x.example/i.sh", "i.sh"),
        ("curl --output-dir /tmp -O https://x.example/i.sh", "/tmp/i.sh"),
        ("curl -H 'a: b' --remote-name-all https://x.example/i.sh", "i.sh"),
        ("wget -o log https://x.example/i.sh", "i.sh"),
        ("wget -Oi.sh x.example/x", "i.sh"),
        ("wget -P /tmp https://x.example/i.sh", "/tmp/i.sh"),
        ("wget 'https://x.example/i.sh?a=1'", "'i.sh?a=1'"),
        ("wget https://x.example/", "index.html"),
        ("aria2c -d /tmp https://x.example/i.sh", "/tmp/i.sh"),
        ("http --download https://x.example/i.sh", "i.sh"),
        ("curl https://x.example/i | dd of=i.sh", "i.sh"),
    ],
)
def test_what_was_fetched_is_known_when_it_is_run(fetched: str, file: str) -> None:
    assert read([f"{fetched}; sh {file}"])[-1].startswith(fetched.split(" ", 1)[0])
    assert read([f"{fetched}; sh other.sh"])[-1] == "sh other.sh"


NOTHING = "".join(f": {number};" for number in range(20))
FETCH = "curl -o f https://x.example/f"


def run_by(text: str) -> set[str]:
    """What runs what was fetched."""
    found = reading([text])
    assert UNREADABLE not in found.entries
    return {program for chain, by in found.run_by.items() if chain.startswith("curl") for program in by}


@pytest.mark.parametrize(
    ("how", "program"),
    [
        ("cat f | sh", "sh"),
        ("cat f | tee g | sudo bash -s -- -y", "bash"),
        ("sh < f", "sh"),
        ("sudo sh < f", "sh"),
        ("exec 3< f; sh <&3", "sh"),
        ("source <(cat f)", "source"),
        (". /dev/stdin < f", "."),
        ("cat f > g; sh g", "sh"),
        ("cat < f | (cd x; sh)", "sh"),
        ("dd if=f | sh", "sh"),
        ("zcat f | sh", "sh"),
        ("mv f f.gz; gunzip -k f.gz; sh f", "sh"),
        ("{ echo a; cat f; } | sh", "sh"),
        ('while read -r l; do echo "$l"; done < f | sh', "sh"),
        ("g() { cat f; }; g | sh", "sh"),
        ('bash -c "$(cat f)"', "eval"),
        ('eval "$(<f)"', "eval"),
        ('eval "$(true; cat f)"', "eval"),
        ('x=$(cat f); echo "$x" | sh', "eval"),
        (f"{{ cat f; {NOTHING} }} | sh", "sh"),
        (f"sh <(cat f; {NOTHING})", "sh"),
        (f'eval "$(cat f; {NOTHING})"', "eval"),
        ("eval `: 1; cat f`", "eval"),
        (f"eval 'cat f; {NOTHING}' | sh", "sh"),
        ("xargs -0 bash -c < f", "bash"),
        ("cat f | xargs -I{} sh -c '{}'", "sh"),
        ("cat f | ssh h bash", "bash"),
        *((f"{python} < f", python) for python in ("python3", "perl", "node", "ruby", "php")),
        ("cat f | python3 -u -", "python3"),
        ("cat f | python3 -W ignore /dev/stdin", "python3"),
        ("cat f | deno run -", "deno"),
        ("python3 -W ignore f", "python3"),
        ("chmod +x f; ./f", "./f"),
        ("mv f ~/bin/x; x", "~/bin/x"),
        ("sudo install -m 755 f g /usr/local/bin && f -y", "/usr/local/bin/f"),
        (f"{'cat a > b;' * 40} cat {FILES} f | sh", "sh"),
    ],
)
def test_what_was_fetched_is_known_where_it_is_a_program(how: str, program: str) -> None:
    assert program in run_by(f"{FETCH}; {how}")


@pytest.mark.parametrize(
    "how",
    [
        "cat f | python3 analyze.py",
        "python3 analyze.py < f",
        "python3 analyze.py f",
        "python3 -m json.tool < f",
        "cat f | python3 -uc 'import sys'",
        "cat f | perl -MJSON -ne 'print'",
        "cat f | node --eval=x",
        "cat f | php -r 'x;'",
        "cat f | bash process.sh",
        "cat f | jq .a | xargs echo",
        "VERSION=$(jq -r .v f) && make VERSION=$VERSION",
        "mv f data/x; x",
        "less f; cat g | sh",
        "while read -r u; do echo $u; done < f",
    ],
)
def test_what_was_fetched_may_be_data(how: str) -> None:
    assert run_by(f"{FETCH}; {how}") == set()


@pytest.mark.parametrize(
    ("how", "is_run"), [("| python3 -", True), ("| python3 a.py", False), ("| sh", True)]
)
def test_what_is_fetched_and_piped_may_be_either(how: str, is_run: bool) -> None:
    assert (run_by(f"curl https://x.example/f {how}") != set()) is is_run


def test_a_long_set_of_characters_is_not_cut() -> None:
    assert "rm -rf /" in read([f"echo zm -rf / | tr {'a' * 1_023}z {'b' * 1_023}r | sh"])
    assert read([f"echo zm -rf / | tr {'a' * 1_024}z {'b' * 1_024}r | sh"])[-1] == UNREADABLE


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"cat {' '.join(f'f{n}' for n in range(number))} > f{number};" for number in range(250)),
        "curl -o f x; " + "cat f f f f f f f f > f;" * 500 + "sh f",
        "curl -o f x; " + "cat f >> g; cat g >> f;" * 290 + "sh f",
        "curl -o f x | " + "cat f | " * 500 + "sh",
        "{ curl x;" * 10 + "".join(f": {number};" for number in range(400)) + "} | cat;" * 10 + "sh f",
        "$(curl x; " * 10 + "".join(f": {number};" for number in range(400)) + ")" * 10,
        "f() { curl x; : $1; }; " + "".join(f"f {number} | sh;" for number in range(140)),
        "".join(f"curl -o f{number} x;" for number in range(250)) + "cat f* f1 | sh;" * 300,
    ],
)
def test_files_made_of_files_are_read_in_bounded_time(text: str) -> None:
    begin = time.process_time()
    found = reading([text])
    assert time.process_time() - begin < 5
    assert sum(map(len, found.entries)) < 4 * len(text) + SPARE_SIZE + 100


def test_what_many_pipelines_have_in_common_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that a long pipeline wrote makes each command that runs it the end of that pipeline."""
    made = 0
    programs = commands._programs

    def counted(stage: str) -> Iterable[str]:
        nonlocal made
        made += 1
        return programs(stage)

    monkeypatch.setattr(commands, "_programs", counted)
    runs = "".join(f"sh f {number};" for number in range(200))
    stages = "".join(f" | b{number}" for number in range(200))
    found = {
        each.program: each for each in commands.commands_of(reading([f"a | xargs c{stages} > f; {runs}"]))
    }
    assert made < 1_000, "200 pipelines of 200 commands are 40,000"
    assert found["xargs"].piped_into == (*(f"b{number}" for number in range(200)), "sh")
    assert found["a"].piped_into[:3] == ("xargs", "c", "b0")
