"""Random interleavings of everything that may happen to the policies, against what must always be true.

Nodes share one archive; each has a folder of its own, or all share one, as workers do. People edit, break,
copy, move and delete files and go back and forth between commits, admins write through the API of any node,
processes die and start again. Between any two steps of any of it - every read, rename, sync, note and
commit - a process may die, the disk or the database may fail, a person may write, or another node may act.

Always true, the first of them at every single step and in every process:
1. the blocking policy that nobody touches is in force: asked about its call, the compiled rules block it;
2. no acknowledged API write is lost: its version stays in the archive, with its content and author;
3. version numbers of every policy are gapless and increasing;
4. what is in force is one revision of the archive, and after a look at the disk it is what the files say, or
   the difference is reported and the last good set stays;
5. nothing that a person wrote is overwritten silently: it is on disk still, or in the archive;
6. what the history says of files is what people did: no stale file undoes an admin's write;
7. a process that was told of a revision decides by it or by a newer one, as a fresh process would.
"""

from __future__ import annotations

import inspect
import itertools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api.database.connection import DatabaseUnavailable
from engine.errors import EngineError, Problem
from engine.live import LiveRules
from engine.matching.ruleset import Ruleset
from engine.model import ToolCall
from engine.repository.archive import Change
from engine.repository.repository import Repository
from engine.worktree.disk import Listing, Pause, Signature
from tests.faults.test_repository_faults import DatabaseGone, Death, FailingDisk, Plug
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import document

IDS = st.sampled_from(["a", "b", "c"])
NODES = st.integers(0, 2)
NAMES = st.sampled_from(["One", "Two", "Three"])
STEPS = st.integers(0, 40)
WORKS = st.integers(0, 7)

GUARDED = ToolCall.of(toolName="launch")
TOOLS = ("launch", "wire", "pay", "x")

UNSEEN = ("before rename", "before unlink")
"""Between the last look at a file and its rename nothing fits in; what a person writes then would be lost."""


class Stage(Plug):
    """Tells of every step, and lets something happen at one of them."""

    def __init__(self, seen: Callable[[str], None]) -> None:
        super().__init__()
        self._seen = seen
        self._happens: Callable[[], None] | None = None
        self._fits: Callable[[str], bool] = lambda name: True

    def let(self, happens: Callable[[], None], at: int, fits: Callable[[str], bool]) -> None:
        """Let it happen `at` steps from now, or at the first one after that it fits into."""
        self._happens, self._fits, self.left = happens, fits, at

    def quiet(self) -> None:
        self._happens = self.left = None

    def step(self, name: str) -> None:
        self._seen(name)
        if self._happens is None or self.left is None:
            return
        if self.left > 0:
            self.left -= 1
        elif self._fits(name):
            happens, self._happens = self._happens, None
            happens()


class StagedDisk(FailingDisk):
    """Looking, reading and taking notes are steps, too. A note that fails is not taken."""

    def scan(self, pause: Pause = lambda: None) -> Listing:
        self.plug.step("looking")
        return super().scan(pause)

    def look(self, relative: str) -> Signature | Problem | None:
        self.plug.step("looking")
        return super().look(relative)

    def read(self, relative: str) -> bytes | None:
        self.plug.step("reading")
        return super().read(relative)

    def note(self, relative: str, content: bytes) -> None:
        try:
            self.plug.step("before noting")
            super().note(relative, content)
            self.plug.step("after noting")
        except OSError:
            return

    def forget(self, relative: str) -> None:
        try:
            self.plug.step("before forgetting")
            super().forget(relative)
        except OSError:
            return


class Telling(Repository):
    """Tells of every write that it acknowledges."""

    told: Callable[[list[Change]], None]

    def _write(self, author: str, work: Any) -> Any:
        job, result = super()._write(author, work)
        self.told([change for change in job.changes if change.source == "api" and change.author == author])
        return job, result


class Policies(RuleBasedStateMachine):
    nodes: ClassVar[int] = 1
    shared: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="governance-model-"))
        self.times = itertools.count(1)
        self.archive = self.new_archive()
        self.archive.before_commit = lambda: self.stage.step("before commit")
        self.archive.after_commit = lambda: self.stage.step("after commit")
        self.stage = Stage(self.step)
        self.running: list[LiveRules | None] = [None] * self.nodes
        self.acknowledged: list[tuple[str, int, str, str]] = []
        self.written: dict[tuple[Path, str], bytes] = {}
        self.commits: list[dict[str, str]] = []
        self.wrote: Counter[bytes] = Counter()
        self.unlinked: Counter[str] = Counter()
        self.unguarded: list[str] = []

    def new_archive(self) -> Any:
        return MemoryArchive()

    def head(self) -> Any:
        """A view of the archive."""
        return self.archive.view(lambda records: records)

    def clock(self) -> str:
        return f"2026-01-01T00:00:00.{next(self.times):06d}Z"

    def root(self, node: int) -> Path:
        return self.home / ("shared" if self.shared else f"node{node % self.nodes}")

    def write(self, node: int, path: str, content: str) -> None:
        target = self.root(node) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        self.written[(self.root(node), path)] = content.encode()
        self.wrote[content.encode()] += 1

    def unlink(self, node: int, path: str) -> None:
        target = self.root(node) / path
        if target.exists():
            self.unlinked[target.stem] += 1
        target.unlink(missing_ok=True)
        self.written.pop((self.root(node), path), None)

    def files(self, node: int) -> dict[str, str]:
        """The documents of a folder, but for the guard, which nobody touches."""
        root = self.root(node)
        found = {path.relative_to(root).as_posix(): path for path in root.rglob("*.yaml")}
        return {
            name: path.read_text(encoding="utf-8")
            for name, path in found.items()
            if not path.name.startswith(".") and path.name != "guard.yaml"
        }

    @initialize()
    def first_start(self) -> None:
        for node in range(self.nodes):
            self.write(node, "policies/guard.yaml", document("guard", value="launch"))
            self.write(node, "policies/a.yaml", document("a"))
        for node in range(self.nodes):
            self.process(node)

    def process(self, node: int) -> LiveRules:
        """The node's process, started if it is not running."""
        node %= self.nodes
        live = self.running[node]
        if live is None:
            live = self.opened(node)
            live.start()
            self.running[node] = live
        return live

    def opened(self, node: int) -> LiveRules:
        repository = Telling(
            self.root(node),
            self.archive,
            clock=self.clock,
            nanoseconds=lambda: 0,
            disk=StagedDisk(self.root(node), self.stage),
            authors=lambda root, paths: {},
        )
        repository.told = self.remember
        return LiveRules(repository)

    def remember(self, changes: list[Change]) -> None:
        for change in changes:
            if change.new_version and change.after is not None:
                after = change.after
                self.acknowledged.append((after.document_id, after.version, after.digest, change.author))

    # ---- people and git ---------------------------------------------------------------------------------

    @rule(node=NODES, policy_id=IDS, name=NAMES, declared=st.integers(0, 4))
    def person_edits(self, node: int, policy_id: str, name: str, declared: int) -> None:
        extra = f"version: {declared}\n" if declared else ""
        self.write(node, f"policies/{policy_id}.yaml", document(policy_id, name=name, extra=extra))

    @rule(node=NODES, policy_id=IDS)
    def person_breaks(self, node: int, policy_id: str) -> None:
        self.write(node, f"policies/{policy_id}.yaml", "half a fi")

    @rule(node=NODES, policy_id=IDS)
    def person_deletes(self, node: int, policy_id: str) -> None:
        self.unlink(node, f"policies/{policy_id}.yaml")

    @rule(node=NODES, policy_id=IDS, copied=st.booleans())
    def person_moves_or_copies(self, node: int, policy_id: str, copied: bool) -> None:
        here, there = f"policies/{policy_id}.yaml", f"policies/team/{policy_id}.yaml"
        files = self.files(node)
        if there in files:
            here, there = there, here
        if here in files:
            if not copied:
                self.unlink(node, here)
            self.write(node, there, files[here])

    @rule(node=NODES)
    def git_commits(self, node: int) -> None:
        self.commits.append(self.files(node))

    @rule(node=NODES, commit=st.integers(0, 100))
    def git_checks_out(self, node: int, commit: int) -> None:
        """Another commit's files, those that it has not removed."""
        if not self.commits:
            return
        wanted = self.commits[commit % len(self.commits)]
        now = self.files(node)
        for path in now.keys() - wanted.keys():
            self.unlink(node, path)
        for path, content in wanted.items():
            if now.get(path) != content:
                self.write(node, path, content)

    # ---- admins -----------------------------------------------------------------------------------------

    def api(self, write: Callable[[], object]) -> None:
        try:
            write()
        except EngineError:
            return

    def create(self, node: int, policy_id: str, author: str) -> None:
        conditions = ["toolName == 'x'"]
        body = {"policyId": policy_id, "name": "Made", "action": "warn", "matchConditions": conditions}
        self.process(node).create("default", body, author=author)

    def update(self, node: int, policy_id: str, name: str, author: str) -> None:
        self.process(node).update("default", policy_id, {"name": f"{name} by API"}, author=author)

    @rule(node=NODES, policy_id=IDS)
    def admin_creates(self, node: int, policy_id: str) -> None:
        self.api(lambda: self.create(node, policy_id, f"n{node}"))

    @rule(node=NODES, policy_id=IDS, name=NAMES)
    def admin_updates(self, node: int, policy_id: str, name: str) -> None:
        self.api(lambda: self.update(node, policy_id, name, f"n{node}"))

    @rule(node=NODES, policy_id=IDS)
    def admin_deletes(self, node: int, policy_id: str) -> None:
        self.api(lambda: self.process(node).delete("default", policy_id, author=f"n{node}"))

    @rule(node=NODES, policy_id=IDS, version=st.integers(1, 5))
    def admin_rolls_back(self, node: int, policy_id: str, version: int) -> None:
        self.api(lambda: self.process(node).rollback("default", policy_id, version, author=f"n{node}"))

    # ---- processes --------------------------------------------------------------------------------------

    @rule(node=NODES)
    def node_decides(self, node: int) -> None:
        """Before it decides, a process is told the newest revision."""
        live = self.process(node)
        revision = self.head().head()[0]
        live.catch_up(revision)
        assert live.revision >= revision
        found = live.policies_at("default", live.revision)
        assert found is not None
        fresh = Ruleset.build(found[1])
        for tool in TOOLS:
            call = ToolCall.of(toolName=tool)
            assert live.ruleset("default").evaluate(call) == fresh.evaluate(call)

    @rule(node=NODES, hinted=st.booleans())
    def node_looks(self, node: int, hinted: bool) -> None:
        if hinted:
            self.process(node).reload([f"policies/{policy_id}.yaml" for policy_id in "abc"])
        self.look(node)

    def look(self, node: int) -> None:
        live = self.process(node)
        live.reload()
        view = self.head()
        head = {path: record.digest for path, record in view.files().items()}
        assert {path: record.digest for path, record in live.snapshot.files.items()} == head
        if live.health()["stale"]:
            assert live.health()["errors"]
            return
        on_disk = {path: content.encode() for path, content in self.files(node).items()}
        in_force = {path: view.blob(digest) for path, digest in head.items() if "guard" not in path}
        assert on_disk == in_force

    @rule(node=NODES)
    def node_looks_in_passing(self, node: int) -> None:
        """As every 30 seconds: what is found is looked at once it has settled."""
        live = self.process(node)
        found = live.repository.differing((0, 1))
        if found:
            live.reload(found)

    @rule(node=NODES)
    def node_restarts(self, node: int) -> None:
        self.running[node % self.nodes] = None
        self.process(node)

    def works(self, node: int, policy_id: str, name: str) -> list[Callable[[], Any]]:
        return [
            lambda: self.update(node, policy_id, name, "x"),
            lambda: self.create(node, policy_id, "x"),
            lambda: self.process(node).delete("default", policy_id, author="x"),
            lambda: self.process(node).rollback("default", policy_id, 1, author="x"),
            lambda: self.process(node).reload(),
            lambda: self.process(node).catch_up(self.head().head()[0]),
            lambda: self.opened(node).start(),
            lambda: self.node_looks_in_passing(node),
        ]

    @rule(node=NODES, at=STEPS, policy_id=IDS, name=NAMES, what=WORKS, dies=st.booleans())
    def something_fails(self, node: int, at: int, policy_id: str, name: str, what: int, dies: bool) -> None:
        """A process dies, or the disk or the database fails it, at some step of its work."""

        def die() -> None:
            raise Death

        def fail() -> None:
            raise OSError(28, "No space left on device")

        self.process(node)
        # What is committed cannot fail any more, and a look at what is there does not fail, it tells.
        fits = (lambda name: True) if dies else (lambda name: name not in ("after commit", "looking"))
        self.stage.let(die if dies else fail, at, fits)
        try:
            self.works(node, policy_id, name)[what]()
        except Death:
            self.running[node % self.nodes] = None
        except (EngineError, OSError, DatabaseGone, DatabaseUnavailable):
            pass
        finally:
            self.stage.quiet()
        self.process(node)

    @rule(node=NODES, at=STEPS, policy_id=IDS, name=NAMES, what=WORKS, how=st.integers(0, 2))
    def a_person_writes_meanwhile(
        self, node: int, at: int, policy_id: str, name: str, what: int, how: int
    ) -> None:
        path = f"policies/{policy_id}.yaml"
        happens: list[Callable[[], None]] = [
            lambda: self.write(node, path, document(policy_id, name=f"{name} meanwhile")),
            lambda: self.write(node, path, "half a fi"),
            lambda: self.unlink(node, path),
        ]
        self.process(node)
        self.stage.let(happens[how], at, lambda name: name not in UNSEEN)
        try:
            self.api(self.works(node, policy_id, name)[what])
        finally:
            self.stage.quiet()

    @rule(node=NODES, at=STEPS, policy_id=IDS, name=NAMES, what=WORKS, theirs=st.integers(0, 5))
    def another_node_acts_meanwhile(
        self, node: int, at: int, policy_id: str, name: str, what: int, theirs: int
    ) -> None:
        other = (node + 1) % self.nodes
        if other == node % self.nodes:
            return
        self.process(node)
        self.process(other)
        act = self.works(other, policy_id, f"{name} meanwhile")[theirs]
        # Nobody else acts while a transaction is open: they stand in line.
        self.stage.let(lambda: self.api(act), at, lambda name: not self.archive.busy)
        try:
            self.api(self.works(node, policy_id, name)[what])
        finally:
            self.stage.quiet()

    # ---- what must be true ------------------------------------------------------------------------------

    def step(self, name: str) -> None:
        for node, live in enumerate(self.running):
            if live is None:
                continue
            found = live.ruleset("default").evaluate(GUARDED).matches
            if [(match.policy.policy_id, match.policy.action) for match in found] != [("guard", "block")]:
                self.unguarded.append(f"{name}, node {node}")

    @invariant()
    def the_blocking_policy_nobody_touches_is_in_force(self) -> None:
        self.step("at rest")
        assert self.unguarded == []

    @invariant()
    def what_is_in_force_is_one_revision_of_the_archive(self) -> None:
        view = self.head()
        for live in self.running:
            if live is not None:
                kept = view.files_at(live.revision)
                assert {path: each.digest for path, each in live.snapshot.files.items()} == {
                    path: each.digest for path, each in kept.items()
                }

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
        assert len(view.versions("default", "guard")) <= 1

    @invariant()
    def nothing_a_person_wrote_is_lost(self) -> None:
        view = self.head()
        for (root, path), content in self.written.items():
            target = root / path
            if target.exists() and target.read_bytes() == content:
                continue
            digests = {digest for _, digest in view.history(path) if digest is not None}
            assert content in {view.blob(digest) for digest in digests}, (path, content)

    @invariant()
    def nothing_comes_from_nowhere(self) -> None:
        """A version from a file, or a deletion, is what a person did: no old file undoes an admin's write."""
        view = self.head()
        for policy_id in ("a", "b", "c"):
            versions = view.versions("default", policy_id)
            made = Counter(view.blob(each.digest) for each in versions if each.source == "file")
            assert all(self.wrote[content] >= count for content, count in made.items()), policy_id
            ended = [each for each in versions if each.deleted and each.archived_by == "file"]
            assert len(ended) <= self.unlinked[policy_id]

    def teardown(self) -> None:
        # Whatever happened, everything comes to rest once files are mended.
        if self.running and any(self.running):
            self.settle()
        shutil.rmtree(self.home, ignore_errors=True)

    def settle(self) -> None:
        """People undo what is refused: then all nodes agree with the archive and with one another."""
        for node in range(self.nodes):
            for _ in range(5):
                live = self.process(node)
                live.catch_up(self.head().head()[0])
                live.reload()
                for problem in live.repository.problems:
                    self.unlink(node, problem.file)
                self.look(node)
        for _ in range(2):
            for node in range(self.nodes):
                self.process(node).catch_up(self.head().head()[0])
                self.look(node)
        snapshots = [self.process(node).snapshot for node in range(self.nodes)]
        assert all(not self.process(node).repository.problems for node in range(self.nodes))
        assert all(snapshot == snapshots[0] for snapshot in snapshots)
        self.step("settled")
        assert self.unguarded == []


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


# ---- long walks --------------------------------------------------------------------------------------------

DRAWN: dict[str, Callable[[random.Random], Any]] = {
    "node": lambda draw: draw.randrange(3),
    "policy_id": lambda draw: draw.choice("abc"),
    "name": lambda draw: draw.choice(["One", "Two", "Three"]),
    "declared": lambda draw: draw.choice([0, 0, 0, 1, 2, 3, 4]),
    "copied": lambda draw: draw.random() < 0.2,
    "commit": lambda draw: draw.randrange(100),
    "version": lambda draw: draw.randint(1, 5),
    "hinted": lambda draw: draw.random() < 0.5,
    "at": lambda draw: draw.randrange(draw.choice([8, 20, 45])),
    "what": lambda draw: draw.randrange(8),
    "theirs": lambda draw: draw.randrange(6),
    "dies": lambda draw: draw.random() < 0.5,
    "how": lambda draw: draw.choice([0, 0, 0, 1, 2]),
}
"""How a walk draws the arguments of rules: evenly, where the shrinking search above prefers small ones."""

ALWAYS = (
    "the_blocking_policy_nobody_touches_is_in_force",
    "what_is_in_force_is_one_revision_of_the_archive",
    "no_acknowledged_write_is_lost",
    "versions_are_gapless_and_increasing",
    "nothing_a_person_wrote_is_lost",
    "nothing_comes_from_nowhere",
)
OFTEN = ("something_fails", "a_person_writes_meanwhile", "another_node_acts_meanwhile", "node_looks")


def walk(machine: type[Policies], seed: int, steps: int) -> None:
    """One long random story. What it did is told when it fails."""
    draw = random.Random(seed)
    found = inspect.getmembers(machine, inspect.isfunction)
    rules = {
        name: list(inspect.signature(function).parameters)[1:]
        for name, function in found
        if name.startswith(("person_", "git_", "admin_", "node_", "something_", "a_person_", "another_"))
    }
    names = sorted(rules) + 3 * list(OFTEN)
    story = machine()
    story.first_start()
    told: list[str] = []
    try:
        for _ in range(steps):
            name = draw.choice(names)
            arguments = {each: DRAWN[each](draw) for each in rules[name]}
            told.append(f"{name}({arguments})")
            getattr(story, name)(**arguments)
            for invariant_name in ALWAYS:
                getattr(story, invariant_name)()
        told.append("settle")
        story.settle()
    except BaseException as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(told))
        raise
    finally:
        shutil.rmtree(story.home, ignore_errors=True)


@pytest.mark.parametrize("machine", [OneNode, ThreeWorkers, ThreeNodes])
@pytest.mark.parametrize("seed", range(4))
def test_long_walks(machine: type[Policies], seed: int) -> None:
    for number in range(5):
        walk(machine, 1000 * seed + number, 60)
