"""`test`: tests and examples of policies, and what no example pins."""

from __future__ import annotations

import json
import re

from tests.harness.command_line import DETECTOR, TESTS, WIRES, Shell


def test_tests_and_examples_hold(shell: Shell) -> None:
    code, output, _ = shell.run("test", shell.folder, "--verify")
    assert code == 0
    assert output == (
        "mutation score 100.0 %: 7 of 7 changes are noticed\n3 examples and 1 tests: all hold\n"
    )
    shape = json.loads(shell.run("test", shell.folder, "--format", "json")[1])
    assert shape["summary"] == {"examples": 3, "tests": 1, "failures": 0}
    score = {"score": 100.0, "minScore": 0.0, "ok": True}
    assert shape["mutation"] == {"changes": 7, "unnoticed": 0, "unpinned": []} | score


def test_a_failing_test_is_told_with_expected_and_actual(shell: Shell) -> None:
    shell.write("policies/wires_test.yaml", TESTS.replace("awaiting_approval", "blocked"))
    code, output, _ = shell.run("test", shell.folder, "--no-mutation")
    assert code == 1
    assert f"{shell.folder}/policies/wires_test.yaml:5:1: failure: a large one waits: " in output
    assert "expected `blocked`, got `awaiting_approval`: held for approval by `Wires`" in output
    assert output.endswith("3 examples and 1 tests: 1 failed\n")
    assert shell.run("test", shell.folder, "--format", "github")[1].startswith("::error file=")


def test_a_failing_example_says_which_condition_decided(shell: Shell) -> None:
    shell.write("policies/wires.yaml", WIRES.replace("amount: 101", "amount: 99"))
    code, output, _ = shell.run("test", shell.folder)
    assert code == 1
    assert "policies/wires.yaml:11:5: failure: this example must match, but condition 2" in output
    assert output.endswith("1 example failed; tests were not run\n")


def test_examples_of_detectors_and_tool_sets_are_run_and_counted(shell: Shell) -> None:
    tools = (
        "apiVersion: governance/v1\nkind: ToolSet\ntoolSetId: ours\nname: Ours\n"
        "tools: [{names: [post], kind: mail, effect: send}]\n"
        "examples: [{toolName: post, kind: mail}, {toolName: ghost, kind: unknown}]\n"
    )
    examples = "examples: [{alerts: 1, happens: [{times: 3}]}, {alerts: 0, happens: [{times: 2}]}]\n"
    shell.write("detectors/many.yaml", DETECTOR + examples)
    shell.write("tools/ours.yaml", tools)
    code, output, _ = shell.run("test", shell.folder, "--no-mutation")
    assert (code, output) == (0, "7 examples and 1 tests: all hold\n")
    shell.write("detectors/many.yaml", DETECTOR + examples.replace("times: 2", "times: 4"))
    code, output, _ = shell.run("test", shell.folder)
    assert code == 1
    assert "detectors/many.yaml:10:57: failure: this must lead to 0 alerts, but leads to 1" in output
    shell.write("detectors/many.yaml", DETECTOR + examples)
    shell.write("tools/ours.yaml", tools.replace("kind: unknown", "kind: mail"))
    code, output, _ = shell.run("test", shell.folder)
    assert code == 1 and "tools/ours.yaml:6:" in output and "but the set says `unknown`" in output


def test_documents_that_do_not_load_cannot_be_tested(shell: Shell) -> None:
    shell.write("policies/broken.yaml", "a: 1\n")
    code, _, error = shell.run("test", shell.folder)
    assert code == 2 and "nothing was tested" in error and "policies/broken.yaml:1:1" in error


def test_what_no_example_pins_comes_with_one_that_does(shell: Shell) -> None:
    lines = [line for line in WIRES.splitlines() if "mail" not in line]
    shell.write("policies/wires.yaml", "\n".join(lines) + "\n")
    code, output, _ = shell.run("test", shell.folder)
    assert code == 0 and "note:" not in output and "1 condition is not pinned; see -v\n" in output
    code, output, _ = shell.run("test", shell.folder, "-v")
    assert code == 0
    assert f"{shell.folder}/policies/wires.yaml:8:5: note: `wires`: no example and no test notices" in output
    found = re.search(r"this example would pin it: (.*)", output)
    assert found is not None
    lines.append(f"  - {found[1]}")
    shell.write("policies/wires.yaml", "\n".join(lines) + "\n")
    assert "mutation score 100.0 %" in shell.run("test", shell.folder)[1]


def test_a_low_score_fails_where_a_least_one_is_asked_for(shell: Shell) -> None:
    shell.write("policies/wires.yaml", WIRES.split("examples:")[0])
    assert shell.run("test", shell.folder)[0] == 0
    code, output, _ = shell.run("test", shell.folder, "--min-score", "80%")
    assert code == 1 and "which --min-score asks for" in output
    assert shell.run("test", shell.folder, "--min-score", "800")[0] == 2
    code, output, _ = shell.run("test", shell.folder, "--min-score", "80", "--format", "github")
    assert code == 1 and "::error title=score-too-low::mutation score 28.6 %25 is less than 80 %25" in output
    shape = json.loads(shell.run("test", shell.folder, "--min-score", "80", "--format", "json")[1])[
        "mutation"
    ]
    assert (shape["score"], shape["minScore"], shape["ok"]) == (28.6, 80.0, False)
    assert json.loads(shell.run("test", shell.folder, "--format", "json")[1])["mutation"]["ok"] is True
