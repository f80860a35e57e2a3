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

import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from engine.errors import Problem
from engine.live import LivePolicies
from engine.model import ToolCall
from engine.repository.archive import FileChange
from engine.repository.repository import Repository
from engine.worktree.disk import Listing, Pause, Signature
from tests.harness.failing_disk import FailingDisk, Plug
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import document

GUARDED = ToolCall.of(toolName="launch")


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


class PoliciesModel(RuleBasedStateMachine):
    """The nodes, their folders and their archive, and what must be true of them at every step."""

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
        self.running: list[LivePolicies | None] = [None] * self.nodes
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

    def process(self, node: int) -> LivePolicies:
        """The node's process, started if it is not running."""
        node %= self.nodes
        live = self.running[node]
        if live is None:
            live = self.opened(node)
            live.start()
            self.running[node] = live
        return live

    def opened(self, node: int) -> LivePolicies:
        repository = Repository(
            self.root(node),
            self.archive,
            clock=self.clock,
            nanoseconds=lambda: 0,
            disk=StagedDisk(self.root(node), self.stage),
            authors=lambda root, paths: {},
        )
        write = repository.sync.write

        def remembered(author: str, operation: Any, guard: Any) -> Any:
            result = write(author, operation, guard)
            self.remember([each for each in result.changes if (each.source, each.author) == ("api", author)])
            return result

        repository.sync.write = remembered  # type: ignore[method-assign]
        return LivePolicies(repository)

    def remember(self, changes: list[FileChange]) -> None:
        for change in changes:
            if change.new_version and change.after is not None:
                after = change.after
                self.acknowledged.append((after.document_id, after.version, after.digest, change.author))

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
