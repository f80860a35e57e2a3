"""Policies and packs from a terminal."""

from __future__ import annotations

import json
from pathlib import Path

from tests.api.cli.running.conftest import Operator
from tests.harness.command_line import WIRES


def test_a_policy_is_applied_from_its_file(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "wires.yaml"
    file.write_text(WIRES)
    assert "give --yes" in operator.refused("policies", "apply", file, code=2)
    assert operator.done("policies", "apply", file, "--yes") == "wires is created, version 1\n"
    assert operator.done("policies", "apply", file) == "wires is as the file says already, version 1\n"
    file.write_text(
        WIRES.replace("require_approval", "block").replace("name: Wires", "name: Wires\nmessage: no")
    )
    operator.types("y\n")
    assert operator.done("policies", "apply", file) == "wires is changed, version 2\n"
    assert operator.json("policies", "show", "wires")["message"] == "no"
    file.write_text(WIRES)
    assert operator.done("policies", "apply", file, "--yes") == "wires is changed, version 3\n"
    assert "message" not in operator.json("policies", "show", "wires")
    assert "name: Wires\n" in operator.done("policies", "show", "wires")


def test_what_is_shown_of_a_policy_is_a_file_that_can_be_applied(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(WIRES.replace("wires", "again").replace("Wires", "Again"))
    operator.done("policies", "apply", file, "--yes")
    shown = operator.done("policies", "show", "again")
    assert shown.startswith("# made ") and "\napiVersion: governance/v1\nkind: Policy\n" in shown
    file.write_text(shown)
    assert operator.done("policies", "apply", file) == "again is as the file says already, version 1\n"
    file.write_text(shown.replace("name: Again", "name: Once more"))
    assert operator.done("policies", "apply", file, "--yes") == "again is changed, version 2\n"


def test_a_file_that_is_no_policy_is_refused_at_its_place(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(WIRES.replace("greater_than", "greater_then"))
    error = operator.refused("policies", "apply", file, "--yes", code=2)
    assert f"{file}:9:" in error and "greater_than" in error
    assert "cannot be read" in operator.refused("policies", "apply", tmp_path / "none.yaml", "--yes", code=2)


def test_policies_are_switched_and_rolled_back(operator: Operator) -> None:
    assert "Hold wires" in operator.done("policies", "list")
    assert [each["policyId"] for each in operator.json("policies", "list", "--search", "hold-w")] == [
        "hold-wires"
    ]
    first = operator.json("policies", "show", "hold-wires")["version"]
    assert "give --yes" in operator.refused("policies", "disable", "hold-wires", code=2)
    assert operator.json("policies", "disable", "hold-wires", "--yes")["enabled"] is False
    assert (
        operator.done("policies", "enable", "hold-wires") == f"hold-wires is enabled, version {first + 2}\n"
    )
    history = operator.json("policies", "history", "hold-wires")
    assert [each["version"] for each in history["versions"]] == [first + 1, first]
    assert f"the newest is version {first + 2}" in operator.done("policies", "history", "hold-wires")
    back = operator.json("policies", "rollback", "hold-wires", str(first + 1), "--yes")
    assert back["version"] == first + 3 and back["enabled"] is False
    operator.done("policies", "enable", "hold-wires")
    assert "the service refuses (404)" in operator.refused("policies", "show", "unknown")


def test_a_pack_is_seen_made_and_taken_back(operator: Operator) -> None:
    assert {each["packId"] for each in operator.json("packs", "list")} == {"integrity", "secrets"}
    assert "integrity" in operator.done("packs", "list")
    assert "did you mean `integrity`?" in operator.refused("packs", "show", "integrty")
    pack = operator.json("packs", "show", "integrity")
    assert len(pack["presets"]) == pack["presetCount"]
    shown = operator.done("packs", "activate", "integrity", "--preview")
    assert all(each in shown for each in pack["presetIds"])
    assert operator.json("packs", "activate", "integrity", "--preview")["new"] == pack["presetIds"]
    assert "give --yes" in operator.refused("packs", "activate", "integrity", code=2)
    assert operator.json("packs", "show", "integrity")["activatedCount"] == 0
    said = operator.done("packs", "activate", "integrity", "--yes")
    assert said.splitlines()[-1] == f"{pack['presetCount']} policies made or changed"
    assert operator.json("packs", "activate", "integrity", "--yes") == []
    one = pack["presetIds"][0]
    operator.done("policies", "disable", one, "--yes")
    again = operator.done("packs", "activate", "integrity", "--yes")
    assert f"left as it is: {one} is disabled; `governance policies enable {one}` puts it in force" in again
    assert operator.json("packs", "show", "integrity")["inForceCount"] == pack["presetCount"] - 1
    assert len(operator.json("packs", "deactivate", "integrity", "--preview")) == pack["presetCount"]
    assert "deleted: " in operator.done("packs", "deactivate", "integrity", "--yes")
    assert operator.json("packs", "show", "integrity")["activatedCount"] == 0


def test_parameters_of_a_pack_are_of_their_types(operator: Operator) -> None:
    sites = ["paste.example", "other.example"]
    chosen = ("--parameter", f"sites={json.dumps(sites)}")
    assert "sites" in operator.done("packs", "show", "secrets")
    assert operator.json("packs", "activate", "secrets", "--preview", *chosen)["parameters"] == {
        "sites": sites
    }
    assert "paste.example" in operator.done("packs", "activate", "secrets", "--preview", *chosen)
    activate = ("packs", "activate", "secrets", "--yes", "--parameter")
    assert "did you mean `sites`?" in operator.refused(*activate, "sits=[]", code=2)
    assert "write NAME=VALUE" in operator.refused(*activate, "x", code=2)
    error = operator.refused(*activate, "sites=much")
    assert "the service refuses (422)" in error and "/parameters/sites" in error
    made = operator.json("packs", "activate", "secrets", "--yes", *chosen)
    assert sites in [value for each in made for value in each.get("presetParameters", {}).values()]
    assert json.loads(operator.done("packs", "deactivate", "secrets", "--yes", "--json"))
