"""Real processes - one, three workers of one folder, three nodes - watch and write the same policies through
one database, while people edit, break, delete and check out files with git, and processes are killed.

Every write that was answered is in the history, versions have no gaps, all folders end up equal, and each
process asks its compiled rules all the time whether the policy that nobody touches still blocks.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.repository.repository import Repository
from tests.harness.places import ROOT
from tests.harness.policy_folder import Folder, document, run_git
from tests.harness.sql_archive import HookedSqlArchive, opened

PROGRAM = """
import sys, threading, time
from pathlib import Path
from api.clock import iso, random_ids, system_clock
from api.store.policy_archive import SqlArchive
from api.database.connection import Database
from api.database.writer import Writer
from engine.errors import EngineError
from engine.live import LivePolicies
from engine.model import ToolCall
from engine.repository.repository import Repository

url, root, name, count = sys.argv[1:]
store = Database(url)
writer = Writer(store, system_clock, random_ids)
writer.start()
archive = SqlArchive(store, system_clock, random_ids, writer)
live = LivePolicies(Repository(Path(root), archive, clock=lambda: iso(system_clock())))
live.start()
launch, done, asked = ToolCall.of(toolName="launch"), threading.Event(), 0

def guard():
    global asked
    while not done.is_set():
        found = live.ruleset("default").evaluate(launch).matches
        if [(match.policy.policy_id, match.policy.action) for match in found] != [("guard", "block")]:
            print("unguarded", live.revision, flush=True)
        asked += 1
        time.sleep(0.002)

watching = threading.Thread(target=guard)
watching.start()
live.watch()
for number in range(int(count)):
    policy_id = "ab"[number % 2]
    try:
        named = {"name": f"{name} {number}"}
        stored = live.write(lambda policies: policies.update("default", policy_id, named, author=name))
        print("answered", policy_id, stored.policy.version, stored.policy.name, flush=True)
    except EngineError as error:
        print("refused", str(error).splitlines()[0], flush=True)
    time.sleep(0.05)
while asked < 400:
    time.sleep(0.01)
done.set()
watching.join()
print("asked", asked, flush=True)
live.close()
writer.close()
store.close()
"""


def started(url: str, folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, str(folder), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


class People(threading.Thread):
    """Work in the folders with editors and git, until told to stop."""

    def __init__(self, roots: list[Path], seed: int) -> None:
        super().__init__()
        self.roots = roots
        self.draw = random.Random(seed)
        self.over = threading.Event()
        self.acts = 0

    def run(self) -> None:
        while not self.over.wait(self.draw.random() * 0.2):
            self.acts += 1
            root = self.draw.choice(self.roots)
            path = root / "policies" / f"{self.draw.choice('abc')}.yaml"
            # Git refuses what collides with an edit or another command; people try again.
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                self.draw.choice([self.edits, self.breaks, self.deletes, self.commits, self.goes_back])(path)

    def edits(self, path: Path) -> None:
        aside = path.with_name(f".{path.name}.swp")
        aside.write_text(document(path.stem, name=f"person {self.acts}"))
        aside.replace(path)

    def breaks(self, path: Path) -> None:
        path.write_text("half a fi")
        time.sleep(self.draw.random() * 0.4)
        self.edits(path)

    def deletes(self, path: Path) -> None:
        (path.parent / "c.yaml").unlink()

    def commits(self, path: Path) -> None:
        run_git(path.parent, "add", "--all", ".")
        run_git(path.parent, "commit", "--quiet", "-m", f"{self.acts}")

    def goes_back(self, path: Path) -> None:
        run_git(path.parent, "checkout", "--quiet", self.draw.choice(["HEAD", "HEAD~1", "HEAD~2"]), "--", ".")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3], ids=["one", "workers"])
def test_processes_and_people(database_url: str, tmp_path: Path, count: int) -> None:
    play(database_url, tmp_path, count, shared=True)


@pytest.mark.slow
@pytest.mark.postgres
def test_nodes_and_people(postgres_url: str, tmp_path: Path) -> None:
    """On PostgreSQL, since a SQLite has one folder beside it."""
    play(postgres_url, tmp_path, 3, shared=False)


def play(database_url: str, tmp_path: Path, count: int, *, shared: bool) -> None:
    rng = random.Random(count)
    first = Folder(tmp_path / "node0")
    for name in ("a", "b", "c"):
        first.write(f"policies/{name}.yaml", document(name))
    first.write("policies/guard.yaml", document("guard", value="launch"))
    store = opened(database_url)
    first.archive = HookedSqlArchive(store)  # type: ignore[assignment]
    first.started()
    run_git(first.root, "init", "--quiet")
    for message in ("one", "two", "three"):
        first.write("policies/c.yaml", document("c", name=message))
        run_git(first.root, "add", ".")
        run_git(first.root, "commit", "--quiet", "-m", message)
    roots = [first.root if shared or number == 0 else tmp_path / f"node{number}" for number in range(count)]
    for root in roots:
        if root != first.root:
            shutil.copytree(first.root, root)
    acknowledged: list[tuple[str, int, str]] = []
    asked = 0
    for round_number in range(3):
        processes = [started(database_url, root, f"p{round_number}.{n}", 12) for n, root in enumerate(roots)]
        people = People(sorted(set(roots)), round_number)
        people.start()
        if round_number:
            time.sleep(1.5 + rng.random())
            processes[rng.randrange(count)].send_signal(signal.SIGKILL)
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert process.returncode in (0, -signal.SIGKILL)
            for line in output.splitlines():
                match line.split(" ", 3):
                    case ["answered", policy_id, version, name]:
                        acknowledged.append((policy_id, int(version), name))
                    case ["asked", times]:
                        asked += int(times)
                    case [word, *_]:
                        assert word == "refused" or process.returncode == -signal.SIGKILL, line
                        assert word != "unguarded", line
        people.over.set()
        people.join()
        assert people.acts > 3
    assert len(acknowledged) > 10 and asked > 300
    repositories = at_rest(first, sorted(set(roots)))
    for each in repositories:
        assert each.problems == ()
        assert each.snapshot.policies == repositories[0].snapshot.policies
    for policy_id in "abc":
        versions = repositories[0].versions("default", policy_id)
        assert [each.version for each in versions] == list(range(len(versions), 0, -1))
        names = {each.version: each.state["name"] for each in versions}
        for who, version, name in acknowledged:
            if who == policy_id:
                assert names[version] == name
    assert [each.version for each in repositories[0].versions("default", "guard")] == [1]
    records = store.read_here(store.rows, "SELECT record FROM audit ORDER BY at, sequence")
    details = [json.loads(text)["details"] for (text,) in records if '"policyId":"a"' in text]
    told = [each["version"] for each in details if each["change"] != "deleted"]
    assert told == list(range(1, len(repositories[0].versions("default", "a")) + 1))
    store.close()


def at_rest(first: Folder, roots: list[Path]) -> list[Repository]:
    """All folders opened again, after people have removed what is refused."""
    repositories = []
    for root in roots:
        node = Folder.__new__(Folder)
        node.root, node.archive, node.times = root, first.archive, first.times
        repository = node.open()
        repository.start()
        for _ in range(5):
            for problem in repository.problems:
                (root / problem.file).unlink(missing_ok=True)
            repository.follow()
            repository.apply_files()
        assert repository.problems == ()
        repositories.append(repository)
    for _ in range(2):
        for repository in repositories:
            repository.follow()
            repository.apply_files()
    return repositories
