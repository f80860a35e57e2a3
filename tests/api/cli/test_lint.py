"""`lint` over a folder of policies: what it finds, where, and in which format."""

from __future__ import annotations

import json
import shutil

from tests.harness.command_line import DETECTOR, TESTS, WIRES, Shell


def test_lint_is_content_with_good_policies(shell: Shell) -> None:
    code, output, _ = shell.run("lint", shell.folder)
    assert code == 0
    assert output.splitlines()[-1] == "1 policy and 0 presets: 0 errors, 0 warnings, 1 note"
    assert shell.run("lint", shell.folder, "--fail-on", "note")[0] == 1
    hidden = shell.run("lint", shell.folder, "--level", "warning")[1]
    assert hidden == "1 policy and 0 presets: 0 errors, 0 warnings, 1 note (1 not shown, see --level)\n"


def test_lint_names_file_line_column_and_a_call(shell: Shell) -> None:
    shell.write(
        "policies/all.yaml",
        WIRES.replace("policyId: wires", "policyId: all")
        .replace("name: Wires", "name: Every wire")
        .replace("action: require_approval", "action: block")
        .replace("value: 100}", "value: 50}")
        .replace("amount: 100}", "amount: 50}"),
    )
    assert shell.run("lint", shell.folder)[0] == 0, "warnings are no errors"
    code, output, _ = shell.run("lint", shell.folder, "--fail-on", "warning")
    assert code == 1
    expected = (
        f"{shell.folder}/policies/wires.yaml:5:1: warning: `Every wire` (all) already blocks every call that "
        "this policy matches [shadowed]\n    both match this call, and `all` is stronger: "
        '{"toolName": "wire", "inputPayload": {"amount": 101}}\n'
    )
    assert expected in output
    shape = json.loads(shell.run("lint", shell.folder, "--format", "json")[1])
    (finding,) = [each for each in shape["findings"] if each["code"] == "shadowed"]
    assert finding["related"] == ["all"] and finding["line"] == 5
    assert finding["call"] == {"toolName": "wire", "inputPayload": {"amount": 101}}
    assert shape["summary"]["warnings"] == 1
    lines = shell.run("lint", shell.folder, "--format", "github")[1].splitlines()
    assert any(
        line.startswith(f"::warning file={shell.folder}/policies/wires.yaml,line=5,col=1,title=shadowed::")
        for line in lines
    )


def test_lint_asks_for_bound_keys_where_policies_go_by_the_agent(shell: Shell) -> None:
    assert "--agent" not in shell.run("lint", shell.folder)[1]
    limit = "rateLimit: {limit: 5, windowSeconds: 60}\nexamples:"
    shell.write("policies/wires.yaml", WIRES.replace("examples:", limit))
    output = shell.run("lint", shell.folder)[1]
    assert output.count("1 policy goes by `agentId`") == output.count("keys add NAME --agent ID") == 1
    assert "--agent" not in shell.run("lint", shell.folder, "--level", "warning")[1]
    by_key = limit.replace("60}", "60, per: [agentId, apiKeyId]}")
    shell.write("policies/wires.yaml", WIRES.replace("examples:", by_key))
    assert "--agent" not in shell.run("lint", shell.folder)[1]


def test_lint_shows_the_first_of_what_repeats(shell: Shell) -> None:
    for number in range(6):
        text = WIRES.replace("policyId: wires", f"policyId: wires-{number}").replace(
            "value: wire", f"value: w{number}"
        )
        shell.write(f"policies/wires-{number}.yaml", text.split("examples:")[0])
    code, output, _ = shell.run("lint", shell.folder)
    assert code == 0 and output.count("there are no examples") == 3
    assert "warning: 3 more of these; see -v [no-examples]\n" in output
    assert "0 errors, 6 warnings" in output
    for words in (["-v"], ["--format", "json"], ["--format", "github"]):
        assert shell.run("lint", shell.folder, *words)[1].count("there are no examples") == 6


def test_lint_tells_every_problem_of_every_document(shell: Shell) -> None:
    shell.write("policies/broken.yaml", "apiVersion: governance/v1\nkind: Polic\nnope: 1\n")
    shell.write("policies/other.yaml", "a: [\n")
    shell.write("policies/wrong_test.yaml", TESTS.replace("waits", "waits\n    nonsense: 1"))
    shell.write("policies/copy/wires.yaml", WIRES)
    code, output, _ = shell.run("lint", shell.folder)
    assert code == 1
    assert f"{shell.folder}/policies/broken.yaml:3:1: error: " in output
    assert "policies/other.yaml:" in output and "wrong_test.yaml:6:5: error" in output
    assert "are the same policy `wires`; keep one of them" in output
    assert " 0 errors" not in output


def test_lint_looks_into_presets(shell: Shell) -> None:
    preset = WIRES.replace("kind: Policy\npolicyId: wires\n", "kind: Preset\npresetId: p\ncategory: money\n")
    preset = preset.replace("enabled: true\n", "description: x\n").split("examples:")[0]
    shell.write(
        "presets/money/p.yaml",
        preset + "examples: [{match: true, toolName: wire, inputPayload: {amount: 101}}]\n",
    )
    code, output, _ = shell.run("lint", shell.folder)
    assert "presets/money/p.yaml" in output and "1 policy and 1 preset:" in output and code == 0
    assert "presets/money/p.yaml" not in shell.run("lint", shell.folder, "--no-presets")[1]


def test_a_folder_without_policies_is_an_error_as_for_the_service(shell: Shell) -> None:
    (shell.folder / "policies").rename(shell.folder / "elsewhere")
    shell.write("organisations/acme/policies/wires.yaml", WIRES)
    shutil.rmtree(shell.folder / "elsewhere")
    says = f"there is no folder `{shell.folder}/policies`; make it"
    code, output, _ = shell.run("lint", shell.folder)
    assert code == 1
    assert f"{shell.folder}/policies: error: {says}" in output and "[no_folder]" in output
    for words in (["test"], ["simulate", "--tool", "x", "--dir"]):
        code, _, error = shell.run(*words, shell.folder)
        assert code == 2 and says in error
    (shell.folder / "policies").mkdir()
    assert shell.run("lint", shell.folder)[0] == 0
    assert shell.run("test", shell.folder)[0] == 0


def test_lint_names_files_that_look_like_documents_and_are_not_read(shell: Shell) -> None:
    for name in (
        "hold.yaml.txt",
        "old.yml~",
        "x.yaml.orig",
        "y.yam",
        "wires.yaml.bak",
        "notes.txt",
        ".z.yaml~",
    ):
        shell.write(f"policies/{name}", WIRES)
    code, output, _ = shell.run("lint", shell.folder)
    found = [
        line.split(": ")[0] for line in output.splitlines() if "[not-read]" in line and "more of" not in line
    ]
    assert found == [
        f"{shell.folder}/policies/{name}" for name in ("hold.yaml.txt", "old.yml~", "x.yaml.orig")
    ]
    assert code == 0 and "1 more of these; see -v [not-read]" in output


def test_lint_reads_detectors(shell: Shell) -> None:
    loud, quiet = "{alerts: 1, happens: [{times: 3}]}", "{alerts: 0, happens: [{times: 2}]}"
    for name, more in (
        ("none", ""),
        ("raises", f"examples: [{loud}]\n"),
        ("silent", f"examples: [{quiet}]\n"),
        ("both", f"examples: [{loud}, {quiet}]\n"),
        ("wrong", f"examples: [{loud.replace('3', '2')}, {quiet}]\n"),
        ("off", f"enabled: false\nexamples: [{loud}, {quiet}]\n"),
    ):
        shell.write(f"detectors/{name}.yaml", DETECTOR.replace("many", name) + more)
    code, output, _ = shell.run("lint", shell.folder, "-v")
    said = [line for line in output.splitlines() if "/detectors/" in line]
    assert [line.removeprefix(f"{shell.folder}/detectors/") for line in said] == [
        "none.yaml:1:1: warning: there are no examples; say what must raise an alert and what must not"
        " [no-examples]",
        "off.yaml:10:1: note: the detector is disabled [disabled]",
        "raises.yaml:10:1: note: no example says what must raise no alert [one-sided]",
        "silent.yaml:10:1: note: no example says what must raise an alert [one-sided]",
        "wrong.yaml:10:21: error: this must lead to 1 alerts, but leads to 0 [example_fails]",
    ] and code == 1
    assert output.splitlines()[-1].startswith("1 policy, 0 presets and 6 detectors: 1 error, ")
    shape = json.loads(shell.run("lint", shell.folder, "--format", "json")[1])
    assert shape["summary"]["detectors"] == 6
    (off,) = (each for each in shape["findings"] if each["code"] == "disabled")
    assert (off["detectorId"], off["pointer"]) == ("off", "/enabled")


def test_lint_reads_tool_sets(shell: Shell) -> None:
    for name, kind in (("ours", "mail"), ("theirs", "chat")):
        shell.write(
            f"tools/{name}.yaml",
            f"apiVersion: governance/v1\nkind: ToolSet\ntoolSetId: {name}\nname: T\n"
            f"tools:\n  - {{names: [send note], kind: {kind}, effect: send}}\n",
        )
    code, output, _ = shell.run("lint", shell.folder, "--fail-on", "warning")
    assert code == 1
    assert f"{shell.folder}/tools/ours.yaml:6:" in output
    assert "of `send_note` this set says `mail` that may `send`" in output
    assert "`theirs` says `chat` that may `send`, output untrusted, which counts" in output
