"""Random interleavings of everything that may happen to the policies, against what must always be true.

Nodes share one archive; each has a folder of its own, or all share one, as workers do. Between any two
steps people edit, break, delete and check out files, admins write through the API of any node, processes
die in the middle of anything and start again.

Always true:
1. no acknowledged API write is lost: its version stays in the archive, with its content and author;
2. version numbers of every policy are gapless and increasing;
3. after a look at the disk, snapshot and files are the same, or the differences are reported;
4. the blocking policy that nobody touches is in force on every node at every moment;
5. nothing that a person wrote is overwritten silently: it is on disk still, or in the archive.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api.store.database import DatabaseUnavailable
from engine.errors import EngineError
from engine.repository import Repository, Written
from tests.faults.test_repository_faults import DatabaseGone, Death, FailingDisk, Plug
from tests.support_archive import MemoryArchive
from tests.test_repository import document

IDS = st.sampled_from(["a", "b", "c"])
NODES = st.integers(0, 2)
NAMES = st.sampled_from(["One", "Two", "Three"])
STEPS = st.integers(0, 9)


class Policies(RuleBasedStateMachine):
    nodes: ClassVar[int] = 1
    shared: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="governance-model-"))
        self.times = itertools.count(1)
        self.archive = self.new_archive()
        self.plug = Plug()
        self.running: list[Repository | None] = [None] * self.nodes
        self.acknowledged: list[tuple[str, int, str, str]] = []
        self.written: dict[tuple[Path, str], bytes] = {}

    def new_archive(self) -> Any:
        return MemoryArchive()

    def head(self) -> Any:
        """A view of the archive."""
        return self.archive.view(lambda records: records)

    def clock(self) -> str:
        return f"2026-01-01T00:00:00.{next(self.times):06d}Z"

    def root(self, node: int) -> Path:
        return self.home / ("shared" if self.shared else f"node{node}")

    def write(self, node: int, path: str, content: str) -> None:
        target = self.root(node) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        self.written[(self.root(node), path)] = content.encode()

    @initialize()
    def first_start(self) -> None:
        for node in range(self.nodes):
            self.write(node, "policies/guard.yaml", document("guard"))
            self.write(node, "policies/a.yaml", document("a"))
        for node in range(self.nodes):
            self.process(node)

    def process(self, node: int) -> Repository:
        """The node's process, started if it is not running."""
        repository = self.running[node]
        if repository is None:
            disk = FailingDisk(self.root(node), self.plug)
            repository = Repository(
                self.root(node),
                self.archive,
                clock=self.clock,
                nanoseconds=lambda: 0,
                disk=disk,
                authors=lambda root, paths: {},
            )
            repository.start()
            self.running[node] = repository
        return repository

    # ---- people and git ---------------------------------------------------------------------------------

    @rule(node=NODES, policy_id=IDS, name=NAMES, declared=st.integers(0, 4))
    def person_edits(self, node: int, policy_id: str, name: str, declared: int) -> None:
        extra = f"version: {declared}\n" if declared else ""
        path = f"policies/{policy_id}.yaml"
        self.write(node % self.nodes, path, document(policy_id, name=name, extra=extra))

    @rule(node=NODES, policy_id=IDS)
    def person_breaks(self, node: int, policy_id: str) -> None:
        self.write(node % self.nodes, f"policies/{policy_id}.yaml", "half a fi")

    @rule(node=NODES, policy_id=IDS)
    def person_deletes(self, node: int, policy_id: str) -> None:
        path = f"policies/{policy_id}.yaml"
        (self.root(node % self.nodes) / path).unlink(missing_ok=True)
        self.written.pop((self.root(node % self.nodes), path), None)

    @rule(node=NODES, policy_id=IDS)
    def person_moves(self, node: int, policy_id: str) -> None:
        root = self.root(node % self.nodes)
        here, there = f"policies/{policy_id}.yaml", f"policies/team/{policy_id}.yaml"
        if (root / there).exists():
            here, there = there, here
        if (root / here).exists():
            content = (root / here).read_text()
            (root / here).unlink()
            self.written.pop((root, here), None)
            self.write(node % self.nodes, there, content)

    @rule(node=NODES, names=st.lists(NAMES, min_size=3, max_size=3), keep=st.integers(0, 7))
    def git_checks_out(self, node: int, names: list[str], keep: int) -> None:
        for number, (policy_id, name) in enumerate(zip("abc", names, strict=True)):
            if keep >> number & 1:
                self.write(node % self.nodes, f"policies/{policy_id}.yaml", document(policy_id, name=name))

    # ---- admins -----------------------------------------------------------------------------------------

    def api(self, node: int, write: Callable[[Repository], Written]) -> None:
        """An API write; what it answers is remembered as acknowledged."""
        try:
            written = write(self.process(node % self.nodes))
        except EngineError:
            return
        self.remember(written)

    def remember(self, written: Written) -> None:
        for change in written.changes:
            if change.source == "api" and change.new_version and change.after is not None:
                after = change.after
                self.acknowledged.append((after.document_id, after.version, after.digest, change.author))
        if written.stored is not None:
            path = (self.root(0), written.stored.file.path)
            self.written.pop(path, None)

    @rule(node=NODES, policy_id=IDS)
    def admin_creates(self, node: int, policy_id: str) -> None:
        body = {
            "policyId": policy_id,
            "name": "Made",
            "action": "warn",
            "matchConditions": ["toolName == 'x'"],
        }
        self.api(node, lambda repository: repository.create(body, author=f"n{node}"))

    @rule(node=NODES, policy_id=IDS, name=NAMES)
    def admin_updates(self, node: int, policy_id: str, name: str) -> None:
        changes = {"name": name + " by API"}
        self.api(node, lambda repository: repository.update("default", policy_id, changes, author=f"n{node}"))

    @rule(node=NODES, policy_id=IDS)
    def admin_deletes(self, node: int, policy_id: str) -> None:
        self.api(node, lambda repository: repository.delete("default", policy_id, author=f"n{node}"))

    @rule(node=NODES, policy_id=IDS, version=st.integers(1, 5))
    def admin_rolls_back(self, node: int, policy_id: str, version: int) -> None:
        self.api(
            node, lambda repository: repository.rollback("default", policy_id, version, author=f"n{node}")
        )

    # ---- processes --------------------------------------------------------------------------------------

    @rule(node=NODES)
    def node_follows(self, node: int) -> None:
        self.process(node % self.nodes).follow()

    @rule(node=NODES, hinted=st.booleans())
    def node_looks(self, node: int, hinted: bool) -> None:
        repository = self.process(node % self.nodes)
        if hinted:
            repository.apply_files([f"policies/{policy_id}.yaml" for policy_id in "abc"])
        self.look(node % self.nodes)

    def look(self, node: int) -> None:
        repository = self.process(node)
        for _ in range(10):
            if not repository.apply_files().again:
                break
        if repository.problems:
            return
        root = self.root(node)
        on_disk = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in root.rglob("*.yaml")
            if not path.name.startswith(".")
        }
        view = self.head()
        in_force = {path: view.blob(record.digest) for path, record in repository.snapshot.files.items()}
        assert on_disk == in_force

    @rule(node=NODES)
    def node_restarts(self, node: int) -> None:
        self.running[node % self.nodes] = None
        self.process(node % self.nodes)

    @rule(node=NODES, at=STEPS, policy_id=IDS, name=NAMES, what=st.integers(0, 3), dies=st.booleans())
    def something_fails(self, node: int, at: int, policy_id: str, name: str, what: int, dies: bool) -> None:
        """A process dies, or the disk or the database fails it, at some step of a write."""
        node %= self.nodes
        repository = self.process(node)
        works: list[Callable[[], Any]] = [
            lambda: repository.update("default", policy_id, {"name": name + " by API"}, author="x"),
            lambda: repository.delete("default", policy_id, author="x"),
            lambda: repository.rollback("default", policy_id, 1, author="x"),
            repository.apply_files,
        ]
        self.plug.error = Death if dies else lambda: OSError(28, "No space left on device")
        self.plug.left = at
        self.arm(True)
        try:
            done = works[what]()
            if isinstance(done, Written):
                self.remember(done)
        except Death:
            self.running[node] = None
        except (EngineError, OSError, DatabaseGone, DatabaseUnavailable):
            pass
        finally:
            self.plug.left = None
            self.arm(False)
        if self.running[node] is None:
            self.process(node)

    def arm(self, armed: bool) -> None:
        """Let the commit fail, too."""

        def before() -> None:
            self.plug.step("before commit")

        def after() -> None:
            if self.plug.error is Death:
                self.plug.step("after commit")

        self.archive.before_commit = before if armed else lambda: None
        self.archive.after_commit = after if armed else lambda: None

    # ---- what must be true ------------------------------------------------------------------------------

    @invariant()
    def the_blocking_policy_nobody_touches_is_in_force(self) -> None:
        for repository in self.running:
            if repository is not None:
                stored = repository.snapshot.of("default")["guard"]
                assert stored.policy.action == "block" and stored.policy.version == 1

    @invariant()
    def no_acknowledged_write_is_lost(self) -> None:
        view = self.head()
        for policy_id, version, digest, author in self.acknowledged:
            found = next(each for each in view.versions("default", policy_id) if each.version == version)
            assert (found.digest, found.created_by) == (digest, author)
            assert view.blob(digest)

    @invariant()
    def versions_are_gapless_and_increasing(self) -> None:
        view = self.head()
        for policy_id in ("a", "b", "c", "guard"):
            versions = view.versions("default", policy_id)
            assert [each.version for each in versions] == list(range(len(versions), 0, -1))
            assert all(each.archived_at is not None for each in versions[1:])
            assert [each.revision for each in versions] == sorted(
                {each.revision for each in versions}, reverse=True
            )

    @invariant()
    def nothing_a_person_wrote_is_lost(self) -> None:
        view = self.head()
        for (root, path), content in self.written.items():
            target = root / path
            if target.exists() and target.read_bytes() == content:
                continue
            digests = {digest for _, digest in view.history(path) if digest is not None}
            assert content in {view.blob(digest) for digest in digests}, (path, content)

    def teardown(self) -> None:
        # Whatever happened, everything comes to rest once files are mended.
        if self.running and any(self.running):
            self.settle()
        shutil.rmtree(self.home, ignore_errors=True)

    def settle(self) -> None:
        """People undo what is refused: then all nodes agree with the archive and with one another."""
        for node in range(self.nodes):
            for _ in range(3):
                repository = self.process(node)
                repository.follow()
                repository.apply_files()
                for problem in repository.problems:
                    (self.root(node) / problem.file).unlink(missing_ok=True)
                self.look(node)
        for _ in range(2):
            for node in range(self.nodes):
                self.process(node).follow()
                self.look(node)
        snapshots = [self.process(node).snapshot for node in range(self.nodes)]
        assert all(not self.process(node).problems for node in range(self.nodes))
        assert all(snapshot == snapshots[0] for snapshot in snapshots)


class OneNode(Policies):
    nodes = 1


class ThreeWorkers(Policies):
    nodes = 3
    shared = True


class ThreeNodes(Policies):
    nodes = 3


SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
for machine in (OneNode, ThreeWorkers, ThreeNodes):
    machine.TestCase.settings = SETTINGS
TestOneNode = OneNode.TestCase
TestThreeWorkers = ThreeWorkers.TestCase
TestThreeNodes = ThreeNodes.TestCase
