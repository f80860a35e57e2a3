"""Three real processes write the same policies through one database; some are killed while they do.

Every write that was answered is in the history, versions have no gaps, and all folders end up equal.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support_sql_archive import HookedSqlArchive, opened
from tests.test_repository import Folder, document

PROGRAM = """
import sys
from pathlib import Path
from api.clock import iso, random_ids, system_clock
from api.store.archive import SqlArchive
from api.store.database import Database
from api.store.writer import Writer
from engine.errors import EngineError
from engine.repository import Repository

url, root, name, count = sys.argv[1:]
store = Database(url)
writer = Writer(store, system_clock, random_ids)
writer.start()
archive = SqlArchive(store, system_clock, random_ids, writer)
repository = Repository(Path(root), archive, clock=lambda: iso(system_clock()))
repository.start()
for number in range(int(count)):
    policy_id = "ab"[number % 2]
    try:
        stored = repository.update("default", policy_id, {"name": f"{name} {number}"}, author=name).stored
        print(policy_id, stored.policy.version, stored.policy.name, flush=True)
    except EngineError as error:
        print("refused", error, flush=True)
    repository.apply_files(())
writer.close()
store.close()
"""


def started(url: str, folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, str(folder), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["workers", "nodes"])
@pytest.mark.parametrize("kills", [0, 4])
def test_three_processes(database_url: str, tmp_path: Path, shared: bool, kills: int) -> None:
    rng = random.Random(kills)
    first = Folder(tmp_path / "node0")
    for name in ("a", "b", "guard"):
        first.write(f"policies/{name}.yaml", document(name))
    store = opened(database_url)
    first.archive = HookedSqlArchive(store)  # type: ignore[assignment]
    first.started()
    roots = [first.root]
    for number in (1, 2):
        roots.append(first.root if shared else tmp_path / f"node{number}")
        if not shared:
            shutil.copytree(first.root, roots[-1])
    acknowledged: list[tuple[str, int, str]] = []
    for round_number in range(kills + 1):
        processes = [started(database_url, root, f"p{round_number}.{n}", 12) for n, root in enumerate(roots)]
        if round_number < kills:
            time.sleep(0.9 + rng.random() * 0.5)
            processes[rng.randrange(3)].send_signal(signal.SIGKILL)
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert process.returncode in (0, -signal.SIGKILL)
            for line in output.splitlines():
                word, _, rest = line.partition(" ")
                if word in "ab" and rest.count(" ") == 3 - 1:
                    version, _, name = rest.partition(" ")
                    acknowledged.append((word, int(version), name))
                else:
                    assert word == "refused" or process.returncode == -signal.SIGKILL, line
    assert acknowledged
    snapshots = []
    for _ in range(2):
        for root in dict.fromkeys(roots):
            node = Folder.__new__(Folder)
            node.root, node.archive, node.times = root, first.archive, first.times
            repository = node.open()
            applied = repository.start()
            assert applied.problems == ()
            snapshots.append(repository.snapshot)
    assert snapshots[-1].policies == snapshots[-2].policies
    for policy_id in "ab":
        versions = repository.versions("default", policy_id)
        assert [each.version for each in versions] == list(range(len(versions), 0, -1))
        names = {each.version: each.state["name"] for each in versions}
        for who, version, name in acknowledged:
            if who == policy_id:
                assert names[version] == name
    assert [each.version for each in repository.versions("default", "guard")] == [1]
    records = store.read_here(store.rows, "SELECT record FROM audit ORDER BY sequence")
    told = [json.loads(text)["details"]["version"] for (text,) in records if '"policyId":"a"' in text]
    assert sorted(told) == list(range(1, len(repository.versions("default", "a")) + 1))
    store.close()
