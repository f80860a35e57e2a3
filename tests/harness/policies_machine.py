"""What people, admins, processes and faults do to the policies of a `PoliciesModel`, and long walks of it."""

from __future__ import annotations

import inspect
import random
import shutil
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from api.database.errors import DatabaseUnavailable
from engine.errors import EngineError
from engine.matching.ruleset import Ruleset
from engine.model import ToolCall
from tests.harness.failing_disk import DatabaseGone, Death
from tests.harness.policies_model import PoliciesModel
from tests.harness.policy_folder import document

IDS = st.sampled_from(["a", "b", "c"])
NODES = st.integers(0, 2)
NAMES = st.sampled_from(["One", "Two", "Three"])
STEPS = st.integers(0, 40)
WORKS = st.integers(0, 7)

TOOLS = ("launch", "wire", "pay", "x")

UNSEEN = ("before rename", "before unlink")
"""Between the last look at a file and its rename nothing fits in; what a person writes then would be lost."""


class Policies(PoliciesModel):
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
        self.process(node).write(lambda policies: policies.create(body, author=author))

    def update(self, node: int, policy_id: str, name: str, author: str) -> None:
        named = {"name": f"{name} by API"}
        live = self.process(node)
        live.write(lambda policies: policies.update("default", policy_id, named, author=author))

    def delete(self, node: int, policy_id: str, author: str) -> None:
        self.process(node).write(lambda policies: policies.delete("default", policy_id, author=author))

    def roll_back(self, node: int, policy_id: str, version: int, author: str) -> None:
        live = self.process(node)
        live.write(lambda policies: policies.rollback("default", policy_id, version, author=author))

    @rule(node=NODES, policy_id=IDS)
    def admin_creates(self, node: int, policy_id: str) -> None:
        self.api(lambda: self.create(node, policy_id, f"n{node}"))

    @rule(node=NODES, policy_id=IDS, name=NAMES)
    def admin_updates(self, node: int, policy_id: str, name: str) -> None:
        self.api(lambda: self.update(node, policy_id, name, f"n{node}"))

    @rule(node=NODES, policy_id=IDS)
    def admin_deletes(self, node: int, policy_id: str) -> None:
        self.api(lambda: self.delete(node, policy_id, f"n{node}"))

    @rule(node=NODES, policy_id=IDS, version=st.integers(1, 5))
    def admin_rolls_back(self, node: int, policy_id: str, version: int) -> None:
        self.api(lambda: self.roll_back(node, policy_id, version, f"n{node}"))

    # ---- processes --------------------------------------------------------------------------------------

    @rule(node=NODES)
    def node_decides(self, node: int) -> None:
        """Before it decides, a process is told the newest revision."""
        live = self.process(node)
        revision = self.head().head()[0]
        live.catch_up(revision)
        assert live.revision >= revision
        found = live.repository.policies_at("default", live.revision)
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
            lambda: self.delete(node, policy_id, "x"),
            lambda: self.roll_back(node, policy_id, 1, "x"),
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


class OneNode(Policies):
    nodes = 1


class ThreeWorkers(Policies):
    nodes = 3
    shared = True


class ThreeNodes(Policies):
    nodes = 3


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
