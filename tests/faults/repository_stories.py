"""Writes of the repository that a fault may strike, and what must be true once it has come to rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.repository.repository import Repository
from tests.harness.failing_disk import Plug, failing
from tests.harness.policy_folder import ADMIN, BODY, Folder, document

Story = Callable[[Folder, Repository], object]


def update(folder: Folder, repository: Repository) -> object:
    return repository.update("default", "a", {"name": "New"}, author=ADMIN)


def create(folder: Folder, repository: Repository) -> object:
    return repository.create(BODY, author=ADMIN, organisation_id="acme")


def create_many(folder: Folder, repository: Repository) -> object:
    return repository.create_many([BODY, BODY], author=ADMIN)


def delete(folder: Folder, repository: Repository) -> object:
    return repository.delete("default", "a", author=ADMIN)


def rollback(folder: Folder, repository: Repository) -> object:
    return repository.rollback("default", "b", 1, author=ADMIN)


def edit_and_update(folder: Folder, repository: Repository) -> object:
    folder.write("policies/a.yaml", document("a", value="pay"))
    return repository.update("default", "a", {"name": "New"}, author=ADMIN)


def edit_files(folder: Folder, repository: Repository) -> object:
    folder.write("policies/a.yaml", document("a", name="New"))
    (folder.root / "policies/b.yaml").unlink(missing_ok=True)
    return repository.apply_files()


STORIES: list[Story] = [update, create, create_many, delete, rollback, edit_and_update, edit_files]


def prepared(root: Path, plug: Plug) -> tuple[Folder, Repository]:
    """Policies `a` (version 1), `b` (version 2) and `c`, which nobody touches."""
    folder = Folder(root)
    for name in ("a", "b", "c"):
        folder.write(f"policies/{name}.yaml", document(name))
    repository = failing(folder, plug)
    repository.start()
    repository.update("default", "b", {"name": "Newer"}, author=ADMIN)
    repository.apply_files()
    return folder, repository


def check_at_rest(repository: Repository) -> None:
    assert repository.apply_files().changes == () and repository.problems == ()


def state(repository: Repository) -> dict[tuple[str, str], tuple[int, str]]:
    return {
        (organisation_id, policy_id): (stored.policy.version, stored.policy.name)
        for organisation_id, policies in repository.snapshot.policies.items()
        for policy_id, stored in policies.items()
    }


def check(folder: Folder, repository: Repository) -> None:
    """What must be true of any repository that has come to rest."""
    assert repository.problems == ()
    assert repository.apply_files().changes == (), "disk and archive agree"
    on_disk = {
        path.relative_to(folder.root).as_posix()
        for path in folder.root.rglob("*.yaml")
        if not path.name.startswith(".")
    }
    assert on_disk == set(repository.snapshot.files)
    assert not [path for path in folder.root.rglob("*.tmp") if path.parent.name != ".governance"]
    for (organisation_id, policy_id), versions in folder.archive.state.versions.items():
        assert [each.version for each in versions] == list(range(1, len(versions) + 1))
        stored = repository.snapshot.of(organisation_id).get(policy_id)
        assert [each.version for each in versions if each.archived_at is None] == (
            [stored.policy.version] if stored else []
        )
        if stored is not None:
            content = (folder.root / stored.file.path).read_bytes()
            assert folder.archive.state.blobs[stored.file.digest] == content
    assert repository.snapshot.of("default")["c"].policy.version == 1, "nobody touched it"


def steps_of(story: Story, root: Path) -> list[str]:
    plug = Plug()
    folder, repository = prepared(root, plug)
    plug.steps.clear()
    story(folder, repository)
    steps = list(plug.steps)
    check(folder, repository)
    return steps
