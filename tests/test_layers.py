"""Every import in `engine`, `api`, `grammar` and `schemas` against the map of allowed imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.harness.places import ROOT

ENGINE_MAY = {
    "model": set(),
    "errors": set(),
    "texts": {"model"},
    "shell_text": set(),
    "shell_output": {"shell_text"},
    "shell_code": {"shell_text"},
    "shell_starts": {"shell_output"},
    "shell_words": {"shell_text"},
    "shell_scan": {"shell_text", "shell_words"},
    "shell_state": {"shell_words", "shell_output", "shell_text"},
    "shell": {"shell_state", "shell_words", "shell_scan", "shell_starts", "shell_code", "shell_output"}
    | {"shell_text"},
    "commands": {"shell", "texts", "model"},
    "fields": {"model", "texts", "errors"},
    "facts": {"commands", "fields", "model", "texts"},
    "patterns": {"model", "texts", "errors"},
    "values": {"model", "facts", "patterns", "texts", "errors"},
    "operators": {"model", "facts", "fields", "patterns", "values", "texts", "errors"},
    "cel_tree": {"fields", "model"},
    "cel_values": {"model"},
    "cel_logic": {"cel_values", "model"},
    "cel_refusals": {"model", "patterns", "errors"},
    "cel_parser": {"grammar", "cel_tree", "cel_values", "cel_refusals", "fields", "model", "errors"},
    "cel_closures": {"cel_tree", "cel_values", "cel_logic", "model"},
    "cel_functions": {"cel_tree", "cel_values", "cel_logic", "cel_closures", "model", "patterns", "errors"},
    "expression": {
        *("cel_tree", "cel_values", "cel_closures", "cel_parser", "cel_functions"),
        *("model", "fields", "patterns", "texts", "errors"),
    },
    "conditions": {
        "model",
        "operators",
        "expression",
        "facts",
        "fields",
        "patterns",
        "values",
        "texts",
        "errors",
        "shell",
    },
    "yaml_nodes": {"model", "errors"},
    "examples": {"conditions", "facts", "model"},
    "shapes": set(),
    "documents": {"schemas", "shapes", "yaml_nodes", "examples", "conditions", "model", "errors"},
    "presets": {"schemas", "yaml_nodes", "documents", "model", "errors"},
    "edits": {"yaml_nodes", "model", "errors"},
    "disk": {"errors"},
    "git": set(),
    "archive": {"model"},
    "cache": {"documents", "model"},
    "snapshot": {"archive", "presets", "model"},
    "folder": {"archive", "disk", "documents", "presets", "snapshot", "model", "errors"},
    "history": {"archive", "folder", "snapshot", "documents", "model"},
    "accepted": {"archive"},
    "notes": {"disk"},
    "agreed": {"archive", "notes"},
    "observe": {"folder", "disk", "documents", "errors"},
    "unsettled": {"notes", "observe", "disk", "errors"},
    "library": {"archive", "cache", "folder", "observe", "disk", "snapshot", "model", "errors"},
    "reconcile": {
        "accepted",
        "agreed",
        "archive",
        "cache",
        "disk",
        "folder",
        "git",
        "history",
        "library",
        "notes",
        "observe",
        "unsettled",
    }
    | {"snapshot", "errors"},
    "writes": {
        "accepted",
        "reconcile",
        "archive",
        "disk",
        "documents",
        "folder",
        "history",
        "notes",
        "observe",
        "unsettled",
    }
    | {"snapshot", "errors"},
    "parameters": {"presets", "model"},
    "upgrade": {"parameters", "presets", "documents", "edits", "model", "errors"},
    "lineage": {"upgrade", "archive", "presets", "snapshot", "model", "errors"},
    "repository": {"writes", "folder", "archive", "documents", "edits", "lineage", "presets", "snapshot"}
    | {"upgrade", "model", "errors"},
    "literals": set(),
    "textindex": set(),
    "layered": set(),
    "ways": {"literals", "textindex", "fields"},
    "doors": {"ways", "textindex", "facts", "fields", "model"},
    "index": {"doors", "ways", "facts", "fields", "model"},
    "matcher": {"index", "layered", "conditions", "facts", "model"},
    "flips": {"conditions", "facts", "fields", "literals", "patterns", "values", "model", "errors"},
    "explain": {"flips", "matcher", "conditions", "facts", "model"},
    "decision": {"model"},
    "ratelimit": {"model"},
    "gently": set(),
    "ruleset": {"matcher", "explain", "gently", "model", "errors"},
    "samples": {"patterns", "errors"},
    "wishes": {"cel_tree", "model"},
    "witness": {
        "cel_parser",
        "conditions",
        "facts",
        "fields",
        "matcher",
        "operators",
        "samples",
        "wishes",
        "model",
    },
    "proofs": {"cel_parser", "cel_tree", "conditions", "expression", "facts", "patterns"}
    | {"texts", "model", "errors"},
    "conflicts": {"proofs", "conditions", "facts", "matcher", "texts", "values", "model"},
    "lint": {
        "conflicts",
        "witness",
        "conditions",
        "examples",
        "facts",
        "fields",
        "matcher",
        "operators",
        "ruleset",
    }
    | {"model"},
    "policytest": {"decision", "documents", "ruleset", "model"},
    "mutation": {"conflicts", "witness", "conditions", "decision", "documents", "examples", "facts"}
    | {"matcher", "policytest", "ruleset", "values", "model", "errors"},
    "differences": {"lint", "witness", "conditions", "decision", "documents", "examples", "matcher"}
    | {"ruleset", "values", "model"},
    "layout": {"edits", "yaml_nodes", "model", "errors"},
    "checkout": {"disk", "documents", "folder", "presets", "snapshot", "yaml_nodes", "model", "errors"},
    "backtest": {"ruleset", "decision", "ratelimit", "model", "errors"},
    "watch": {"git"},
    "live": {"repository", "observe", "archive", "folder", "watch", "snapshot", "ruleset"}
    | {"gently", "model", "errors"},
}
FORBIDDEN_IN_ENGINE = {"starlette", "uvicorn", "peewee", "playhouse", "sqlite3", "psycopg", "httpx", "jwt"}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}


def modules(package: str) -> list[Path]:
    return sorted(p for p in (ROOT / package).rglob("*.py") if "__pycache__" not in p.parts)


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules("engine"), ids=lambda p: p.stem)
def test_engine_module_imports_only_what_the_map_allows(path: Path) -> None:
    if path.stem == "__init__":
        return
    assert path.stem in ENGINE_MAY, f"engine/{path.name} is not on the map"
    for name in imports(path):
        top, _, rest = name.partition(".")
        assert top not in FORBIDDEN_IN_ENGINE, f"engine/{path.name} must not know {top}"
        assert top not in {"api", "tests"}, f"engine/{path.name} must not import {top}"
        if top == "engine":
            assert rest.split(".")[0] in ENGINE_MAY[path.stem], f"engine/{path.name} must not import {name}"
        if top in {"grammar", "schemas"}:
            assert top in ENGINE_MAY[path.stem], f"engine/{path.name} must not import {name}"


@pytest.mark.parametrize("package", ["engine", "api", "grammar", "schemas"])
def test_no_catch_all_modules(package: str) -> None:
    assert not [p for p in modules(package) if p.stem in FORBIDDEN_NAMES]


def test_pure_parts_of_the_api_stay_pure() -> None:
    for path in modules("api"):
        relative = path.relative_to(ROOT / "api").as_posix()
        for name in imports(path):
            if relative.startswith("store/"):
                assert not name.startswith(("api.handlers", "starlette", "api.server.endpoint")), (
                    relative,
                    name,
                )
            if relative.startswith("handlers/"):
                assert not name.startswith(("starlette", "peewee", "playhouse")), (relative, name)
            if relative.startswith("client/"):
                ours = name.startswith(("engine", "api."))
                assert not ours or name.startswith("api.client"), (relative, name)
            if relative in {"delivery/schedule.py", "delivery/signing.py", "delivery/address.py"}:
                assert not name.startswith(("httpx", "peewee", "api.store", "asyncio")), (relative, name)
