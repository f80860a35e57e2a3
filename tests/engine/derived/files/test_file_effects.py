"""What is told of the files of a command beside what the real programs do to a folder.

Commands are put together at random, by a seed: options in any order and spelling, before and behind operands,
in another folder, by wrappers, find and xargs. All paths lie below the folder that a command runs in.
"""

from __future__ import annotations

import fnmatch
import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from engine.fields.computed import UNREADABLE
from tests.engine.derived.declared import shown
from tests.harness.effort import LONG

FILES = ("a.txt", "b.txt", "sp ace", ".hid", "dir/x.txt", "dir/y.log", "dir/sub/z", "keep/k1", "keep/k2")
PROGRAMS = ("bash", "find", "xargs", "sed", "awk", "tar", "zip", "gzip", "sqlite3", "perl", "git")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]


class Commands:
    """Random commands of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def file(self, folder: str = "") -> str:
        names = [name.removeprefix(folder) for name in FILES if name.startswith(folder)]
        name = self.pick(names)
        return self.pick([name, name, f"./{name}", f"{name[:-1]}*"])

    def q(self, name: str) -> str:
        return name if "*" in name and " " not in name else shlex.quote(name)

    def mixed(self, options: Sequence[str], operands: Sequence[str]) -> str:
        """Options among the operands, whose order stays."""
        words = [self.q(each) for each in operands]
        for option in options:
            words.insert(self.random.randrange(len(words) + 1), option)
        return " ".join(words)

    def simple(self, folder: str) -> str:
        one, other = self.file(folder), self.file(folder).replace("*", "1")
        place = self.pick(["new", other])
        pick, mixed, q = self.pick, self.mixed, self.q
        into = pick(["-t m", "-tm", "--targ=m", "--target-d m"])
        forms = [
            f"rm {mixed([pick(['-f', '-rf', '-r', '--force', '--recurs'])], [one])}",
            f"mv {mixed(pick([['-f'], ['-T'], ['--no-cl'], []]), [one, place])}",
            f"cp {mixed(pick([['-r'], ['-fp'], ['--force', '-a'], []]), [one, place])}",
            f"mkdir -p m; {pick(['cp -r', 'mv', 'ln'])} {into} {q(one)}",
            f"ln {mixed([pick(['-f', '-sf', '--force'])], [one, place])}",
            f"truncate {mixed([pick(['-s0', '-s 0', '--size=0', '--siz 1'])], [one])}",
            f"tee {mixed(pick([['-a'], [], ['--append']]), [place])} < {q(other)}",
            f"sort {mixed([pick(['-o', '-ro', '--outp']) + ' ' + q(place)], [one])}",
            f"sed {mixed([pick(['-i', '-Ei', '-n -i', '--in-pl'])], ['s/line/x/', one])}",
            f"sed -n {shlex.quote(pick(['w', '/line/w', 's/l/m/w', '1!{s/l/m/;p;w']) + place)} {q(other)}",
            f"awk '{{ print {pick(['$1', '(1 > 2)', '1, 2'])} {pick(['>', '>>'])} \"{place}\" }}' {q(other)}",
            f"dd if={q(other)} {pick(['status=none', 'bs=9'])} of={q(place)}",
            f"gzip {mixed(pick([['-k'], ['-f'], ['-S .q']]), [other])}",
            f"tar {pick(['-cf n.tar --remove-files', 'cf n.tar --remove-f', '--remove-f -cfn.t'])} {q(one)}",
            f"zip {mixed(['-qr', pick(['-m', '--move', '-T'])], ['n.zip', one])}",
            f"perl -pi -e s/l/m/ {q(one)}",
            f": > {q(place)}",
            f"shred -u {q(other)}",
            f"install -m 600 {q(other)} {q(place)}",
            f"sqlite3 :memory: '.output {place.replace(' ', '')}' 'select 1'",
        ]
        if not folder:
            forms += self.found()
        return self.pick(forms)

    def found(self) -> list[str]:
        folder, program = (
            self.pick(["dir", "keep", "dir keep"]),
            self.pick(["rm", "truncate -s0", "shred -u"]),
        )
        tests = self.pick(["-type f", "-name '*.txt'", "! -name '*.log' -type f", "-type f -size +0"])
        return [
            f"find {folder} {tests} -delete",
            f"find {folder} {tests} -exec {program} {{}} {self.pick(['+', ';'])}".replace(";", "\\;"),
            f"find {folder} {tests} -exec {self.pick(['cp b.txt', 'ln -f b.txt', 'mv -f b.txt'])} {{}} \\;",
            f"find {folder} {tests} -exec {self.pick(['sed -i 1d', 'tee', 'mv -t .'])} {{}} +",
            f"find {folder} {tests} -exec sh -c '{program} \"$1\"' _ {{}} \\;",
            f"find {folder} {tests} -print0 | xargs -0 {self.pick(['-r', '-n1', '-t'])} {program}",
            f"cat names | xargs {self.pick(['', '-n 1', '-L1', '--max-ar=1'])} {program}",
            f"xargs -I{self.pick(['{}', '%'])} mv {{}} % keep < names".replace(
                " {} %", self.pick([" {}", " %"])
            ),
            f"xargs {self.pick(['-a names', '-anames', '--arg-f=names'])} {program}",
        ]

    def command(self) -> str:
        folder = self.pick(["", "", "dir", "keep"])
        text = self.simple(f"{folder}/" if folder else "")
        if not folder:
            return self.pick(
                [
                    text,
                    text,
                    f"{{ {text}; }}",
                    f"sh -c {shlex.quote(text)}",
                    f"nice sh -c {shlex.quote(text)}",
                ]
            )
        return self.pick(
            [
                f"cd {folder} && {text}",
                f"cd ./{folder}/ && {{ {text}; }}",
                f"cd {folder}; cd nope; {text}",
                f"cd {folder}; false && cd ..; {text}",
                f"cd {folder} || exit; {text}",
                f"env -C {folder} sh -c {shlex.quote(text)}",
                f"(cd {folder}; {text})",
            ]
        )


def made(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{name} line {at}\n" for at in range(9)))
    (folder / "names").write_text("a.txt\nb.txt\n")


def kept(folder: Path) -> dict[str, bytes]:
    """What each file holds, or where it leads."""
    return {
        str(each.relative_to(folder)): str(each.readlink()).encode()
        if each.is_symlink()
        else each.read_bytes()
        for each in folder.rglob("*")
        if each.is_symlink() or each.is_file()
    }


def carried_out(text: str, folder: Path) -> tuple[set[str], set[str]]:
    """The files that are gone, and those that are new or changed."""
    made(folder)
    before = kept(folder)
    environment = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C"}
    subprocess.run(
        ["bash", "-c", 'ulimit -f 64; exec bash -c "$1"', "_", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    after = kept(folder)
    return before.keys() - after.keys(), {name for name in after if after[name] != before.get(name)}


def is_covered(path: str, told: Sequence[str]) -> bool:
    """Whether a path is told, or a folder it lies in, or a pattern for it, or that nobody knows which."""
    return any(_covers(each, path) for each in told)


def _covers(told: str, path: str) -> bool:
    if told in (".", UNREADABLE) or "$" in told:
        return True
    pattern = told.replace("**/?*", "*").replace("**", "*")
    return any(
        fnmatch.fnmatchcase(each, form)
        for each in _above(path)
        for form in (pattern, pattern.replace("/*/", "/"))
    )


def _above(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts) + 1))


@pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)}")
def test_what_becomes_of_files_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    for seed in range(4_000 if LONG else 250):
        text = Commands(seed).command()
        deletes, writes = (shown("bash", {"command": text}, member) for member in ("deletes", "writes"))
        gone, changed = carried_out(text, folder)
        for path in gone:
            told = [*deletes, *writes] if "gzip" in text else deletes
            assert is_covered(path, told), (seed, text, path, deletes, writes)
        for path in changed:
            assert is_covered(path, [*writes, *deletes]), (seed, text, path, deletes, writes)


@pytest.mark.parametrize(
    ("command", "member", "path"),
    [
        ("find /srv -type f -exec truncate -s 0 {} +", "writes", "/srv"),
        ("find /etc -exec mv {} /tmp \\;", "deletes", "/etc"),
        ("find /etc -name passwd -exec cp x {} \\;", "writes", "/etc/**/passwd"),
        ("find ~ -name .bashrc -exec sh -c 'echo x > \"$1\"' _ {} \\;", "writes", "~/**/.bashrc"),
        ("find a -exec find {} -exec rm {} +", "deletes", "a"),
        ("xargs rm < list", "deletes", "$(...)"),
        ("cat list | xargs -I% mv % out", "deletes", "$(...)"),
        ("xargs -a ~/list cat", "reads", "~/list"),
        ("zip -rm x.zip /srv/data", "deletes", "/srv/data"),
        ("tar -cf x.tar --remove-files -T list", "deletes", "$(...)"),
        ("tar --delete -f x.tar a", "writes", "x.tar"),
        ("gunzip ~/.bashrc.gz", "writes", "~/.bashrc"),
        ("gzip -dS .q ~/.bashrc.q", "writes", "~/.bashrc"),
        ("git mv x .github/workflows/y.yml", "writes", ".github/workflows/y.yml"),
        ("git mv src lib", "deletes", "src"),
        ("git checkout main -- .env", "writes", ".env"),
        ("git restore --source=HEAD~3 .env", "writes", ".env"),
        ("git checkout .", "writes", "."),
        ("git -C /srv/app reset --hard HEAD~3", "writes", "/srv/app"),
        ("git reset --har", "writes", "."),
        ("git reset --h", "writes", "."),
        ("git stash -u", "writes", "."),
        ("git stash pop", "writes", "."),
        ("git --work-tree=/etc --git-dir=x rm -f passwd", "deletes", "/etc/passwd"),
        ("git diff --output=.bashrc", "writes", ".bashrc"),
        ("git show HEAD:.env", "reads", ".env"),
        ("git show HEAD~2:./app/.env.production", "reads", "app/.env.production"),
        ("git -C app cat-file -p main:.env", "reads", "app/.env"),
        ("git show --textconv :.env", "reads", ".env"),
        ("patch -p1 -d /etc < x", "writes", "/etc"),
        ("install -d /etc/x", "writes", "/etc/x"),
        ("sed -n 'w /etc/x' y", "writes", "/etc/x"),
        ("sed 's/a/b/gw .bashrc' y", "writes", ".bashrc"),
        ("sed -n '/^#/d;r /etc/shadow' y", "reads", "/etc/shadow"),
        ("awk 'BEGIN{print 1 > \"/etc/x\"}'", "writes", "/etc/x"),
        ("awk 'BEGIN{f=\"/etc/x\"; print 1 > f}'", "writes", "/etc/x"),
        ("awk 'BEGIN{while((getline l < \"/etc/shadow\")>0) print l}'", "reads", "/etc/shadow"),
        ("perl -pi -e s/a/b/ 'my file'", "writes", "my file"),
        ('python3 -c \'import os; os.rename("x", "y")\'', "deletes", "x"),
        ('python3 -c \'import shutil; shutil.move("x", ".bashrc")\'', "writes", ".bashrc"),
        ('python3 -c \'import shutil; shutil.copyfile("id_rsa", "y")\'', "reads", "id_rsa"),
        ("python3 -c 'from pathlib import Path; Path(\"x\").unlink()'", "deletes", "x"),
        ('python3 -c \'from pathlib import Path; Path(".bashrc").write_text("")\'', "writes", ".bashrc"),
        ("node -e \"require('fs').promises.rename('x', 'y')\"", "deletes", "x"),
        ("node -e \"fs.renameSync('x', 'y')\"", "deletes", "x"),
        ('perl -MFile::Copy -e \'move("x", "y")\'', "deletes", "x"),
        ('perl -e \'rename "x", "y"\'', "deletes", "x"),
        ("sqlite3 x.db '.output .bashrc' 'select 1'", "writes", ".bashrc"),
        ("sqlite3 x.db <<< '.once .bashrc'", "writes", ".bashrc"),
        ("sqlite3 app.db .dump", "reads", "app.db"),
        ("sqlite3 :memory: \"select writefile('.bashrc', x)\"", "writes", ".bashrc"),
        ("sqlite3 x.db \"vacuum into '.bashrc'\"", "writes", ".bashrc"),
        ("sqlite3 x.db \"VACUUM main  INTO'.bashrc'\"", "writes", ".bashrc"),
        ("sqlite3 x.db \"attach  'y.db' as y\"", "reads", "y.db"),
        ("sqlite3 x.db \"attach database 'y.db' as y\"", "writes", "y.db"),
        ("sqlite3 x.db '.shell rm -rf /srv'", "deletes", "/srv"),
        ("psql -c '\\! rm -rf /srv'", "deletes", "/srv"),
    ],
)
def test_what_else_was_not_told(command: str, member: str, path: str) -> None:
    assert path in shown("bash", {"command": command}, member)


@pytest.mark.parametrize(
    ("command", "member"),
    [
        ("awk '$1 > 2' x", "writes"),
        ("awk '{print ($1 > 2)}' x", "writes"),
        ("sed 's/for word in/w x/' y", "writes"),
        ("sed 'a\\w x' y", "writes"),
        ("gzip -c x > y", "deletes"),
        ("find /tmp/x | xargs cat", "deletes"),
        ("git restore --staged .env", "writes"),
        ("git apply --check x", "writes"),
        ("git reset HEAD~1", "writes"),
        ("git stash list", "writes"),
        ("git checkout main", "writes"),
        ("zip -d x.zip a", "deletes"),
    ],
)
def test_what_is_not_done(command: str, member: str) -> None:
    assert [path for path in shown("bash", {"command": command}, member) if path != "y"] == []
