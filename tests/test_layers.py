"""The house: rooms in their order, every import pointing up, no circle, nothing without a room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.places import ROOT

ROOMS = (
    ("grammar", "schemas", "governance_client", "api.hosts"),
    ("engine.model", "engine.errors", "engine.canonical_json", "engine.gc_pause"),
    ("engine.shell",),
    ("engine.fields",),
    ("engine.flow",),
    ("engine.derived",),
    ("engine.cel",),
    ("engine.conditions",),
    ("engine.matching",),
    ("engine.documents",),
    ("engine.analysis", "engine.detectors"),
    ("engine.worktree",),
    ("engine.repository",),
    ("engine.live",),
    (
        "api.clock",
        "api.in_place",
        "api.loops",
        "api.shared_looks",
        "api.metrics",
        "api.setting_values",
        "api.setting_names",
        "api.settings",
        "api.telemetry",
        "api.agent_message",
        "api.caller",
        "api.version",
    ),
    ("api.database",),
    ("api.store",),
    ("api.http",),
    ("api.auth",),
    ("api.audit",),
    ("api.ingestion", "api.alerts"),
    ("api.webhooks",),
    ("api.notifications",),
    ("api.updates",),
    ("api.policies", "api.reads"),
    ("api.health",),
    ("api.context",),
    ("api.retention", "api.bootstrap"),
    ("api.handlers",),
    ("api.server",),
    ("api.service",),
    ("api.app",),
    ("api.demo",),
    ("api.mcp_proxy",),
    ("api.cli",),
    ("api.guide",),
)
"""From the foundation up: a module imports from rooms listed before its own, and from its own room."""

FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}

MUST_NOT_KNOW = {
    "engine": {
        "api",
        "tests",
        "starlette",
        "uvicorn",
        "peewee",
        "playhouse",
        "sqlite3",
        "psycopg",
        "httpx",
        "jwt",
    },
    "engine.shell": {"engine"},
    "api.store": {"starlette", "uvicorn", "httpx"},
    "api.ingestion": {"starlette", "uvicorn", "httpx"},
    "api.handlers": {"starlette", "peewee", "playhouse"},
    "governance_client": {"engine", "api", "schemas", "grammar", "tests"},
    "api.hosts": {"engine", "schemas", "grammar", "starlette", "httpx", "msgspec", "peewee", "argparse"},
    "api.mcp_proxy": {"engine", "schemas", "grammar", "starlette", "peewee", "playhouse", "tests"},
    "api.notifications.texts": {"httpx", "peewee", "api", "asyncio"},
    "api.webhooks.schedule": {"httpx", "peewee", "api", "asyncio"},
    "api.webhooks.signing": {"httpx", "peewee", "api", "asyncio"},
    "api.webhooks.address": {"httpx", "peewee", "api", "asyncio"},
}
"""A room or module -> packages that it must know nothing of, beside its own room."""

FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}
MOST_FILES = 16
MOST_LINES = 400
AS_LONG_AS_THE_LIST = {"api/handlers", "api/cli/commands", "api/database/migrations"}
"""One file a resource, a command, a migration."""


CLIENT = ROOT / "api" / "client"
"""A project of its own, which can be installed without the others."""


def named(path: Path) -> str:
    base = CLIENT if path.is_relative_to(CLIENT) else ROOT
    return ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    named(path): path
    for package in ("engine", "api", "grammar", "schemas")
    for path in sorted((ROOT / package).rglob("*.py"))
}


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return next((name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in FLOOR), None)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module imported, and whether when the file is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        at_load = node in tree.body
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (whole if whole in MODULES else base), at_load


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_up(module: str) -> None:
    path = MODULES[module]
    if path.name == "__init__.py" and not path.read_text(encoding="utf-8").strip():
        return
    room = room_of(module)
    assert room is not None or module == "engine", f"`{module}` has no room; add it to ROOMS, or move it"
    for name, _ in imports(path):
        for place, unknown in MUST_NOT_KNOW.items():
            if module == place or module.startswith(f"{place}."):
                top = name.split(".")[0]
                own = name == place or name.startswith(f"{place}.")
                assert own or top not in unknown, f"`{module}` must not know {name}"
        if name in MODULES and room is not None:
            other = room_of(name)
            assert other is not None, f"`{module}` imports `{name}`, which has no room"
            assert other == room or FLOOR[other] <= FLOOR[room], (
                f"`{module}` must not import `{name}`, below it"
            )


def test_no_circle_of_modules() -> None:
    graph = {
        module: {name for name, at_load in imports(path) if at_load and name in MODULES and name != module}
        for module, path in MODULES.items()
    }
    while leaves := {module for module, others in graph.items() if not others & graph.keys()}:
        for module in leaves:
            del graph[module]
    assert not graph, f"circles among {sorted(graph)}"


def test_every_room_exists() -> None:
    assert not [
        room
        for room in FLOOR
        if not any(
            (base / room.replace(".", "/")).with_suffix(".py").exists()
            or (base / room.replace(".", "/")).is_dir()
            for base in (ROOT, CLIENT)
        )
    ]


def test_the_map_of_the_readme_names_every_room() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    there = {".".join(path.relative_to(ROOT).parts[:2]) for path in MODULES.values() if len(path.parts) > 2}
    rooms = {name.replace(".", "/") for name in there if (ROOT / name.replace(".", "/")).is_dir()}
    assert not {
        room for room in rooms if f"`{room}`" not in readme and not room.startswith(("grammar", "schemas"))
    }


def test_a_public_class_name_stands_once() -> None:
    """A reader who meets a name, or searches for it, finds one class."""
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert not twice, f"give the newer one a name of its own: {twice}"


@pytest.mark.parametrize("module", MODULES)
def test_files_are_short(module: str) -> None:
    lines = MODULES[module].read_text(encoding="utf-8").count("\n")
    assert lines <= MOST_LINES, f"{lines} lines; split it"


def test_test_files_are_short() -> None:
    """A topic to a file: what is longer has two, or builds what a harness could."""
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in (ROOT / "tests").rglob("*.py")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES
    }
    assert not long, f"split {long}"


def test_rooms_are_small_and_named() -> None:
    for folder in {path.parent for path in MODULES.values()}:
        names = [path.stem for path in folder.glob("*.py") if path.name != "__init__.py"]
        if folder.relative_to(ROOT).as_posix() not in AS_LONG_AS_THE_LIST:
            assert len(names) <= MOST_FILES, f"{folder} has {len(names)} files"
        assert not FORBIDDEN_NAMES & set(names), folder
