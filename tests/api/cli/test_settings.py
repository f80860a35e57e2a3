"""`governance settings`: what it writes into the policies folder, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.worktree.disk import Disk
from tests.harness.command_line import Shell

FILE = "settings/default.yaml"


def test_a_setting_is_set_listed_and_taken_away(shell: Shell) -> None:
    def settings(*words: str) -> tuple[int, str, str]:
        return shell.run("settings", words[0], "--dir", shell.folder, *words[1:])

    code, output, _ = settings("list", "--format", "json")
    before = {each["name"]: each for each in json.loads(output)}
    assert code == 0 and before["companyDomains"]["from"] == "missing"
    assert before["paymentLimit"] == before["paymentLimit"] | {"from": "shipped", "value": 10000}
    assert settings("set", "companyDomains", "own.com", "own.example")[0] == 0
    (shell.folder / FILE).write_text((shell.folder / FILE).read_text() + "# kept\n")
    assert settings("set", "paymentLimit", "250.5")[0] == 0
    text = (shell.folder / FILE).read_text()
    assert "companyDomains: [own.com, own.example]" in text and "paymentLimit: 250.5" in text
    assert "# kept" in text
    after = {each["name"]: each for each in json.loads(settings("list", "--format", "json")[1])}
    assert after["companyDomains"]["value"] == ["own.com", "own.example"]
    assert "own.com, own.example" in settings("list")[1]
    assert settings("unset", "companyDomains")[0] == 0
    assert "companyDomains" not in (shell.folder / FILE).read_text()
    hosts = (
        "localhost",
        "::1",
        "fe80::1",
        "10.0.0.7",
        "api.acme.com",
        "db_1.internal",
        "xn--bcher-kva.example",
    )
    assert settings("set", "trustedHosts", *hosts)[0] == 0
    folders = ("/", "~", ".", "/srv/data", "~/work", "C:", "C:/Program Files", "/.ssh", "build/out", "/a/...")
    folders += ("$WORKSPACE", "$PROJECT/out", "/data/$x", "$HOMEPAGE", "D:/data", "%ProgramFiles%")
    assert settings("set", "systemFolders", *folders)[0] == 0
    assert settings("set", "protectedBranches", "main", "release/1.x", "v2.0", "größe", "origin")[0] == 0
    assert settings("set", "productionEnvironments", "prod-eu", "Live", "prod eu")[0] == 0
    assert settings("set", "currencies", "EUR", "--organisation", "acme")[0] == 0
    assert (shell.folder / "settings/acme.yaml").exists()


def test_a_file_for_another_organisation_is_told_of_when_it_is_made(shell: Shell) -> None:
    words = ("settings", "set", "currencies", "EUR", "--dir", shell.folder, "--organisation", "nope")
    code, _, error = shell.run(*words)
    assert code == 0
    assert "`settings/nope.yaml` is new; it counts for an organisation with the id `nope`" in error
    assert shell.run(*words) == (0, shell.run(*words)[1], "")


def test_who_takes_entries_from_a_list_is_told_which(shell: Shell) -> None:
    """Somebody who means to add a folder to those that nobody deletes has taken away all that were there."""

    def said(*words: str) -> str:
        code, _, error = shell.run("settings", words[0], "--dir", shell.folder, *words[1:])
        assert code == 0
        return error

    told = said("set", "systemFolders", "/data")
    assert "`systemFolders` holds no more: `/`, `~`, " in told and " more; a list takes the place" in told
    assert said("unset", "systemFolders").startswith("governance: `systemFolders` holds no more: `/data`; ")
    assert said("set", "companyDomains", "a.example") == ""
    assert said("set", "companyDomains", "a.example", "b.example") == ""
    left = said("unset", "companyDomains")
    assert "holds no more: `a.example`, `b.example`; " in left
    assert "`companyDomains` has no value any more: where policies in force read it, a service " in left
    assert said("unset", "companyDomains") == ""
    assert said("set", "paymentLimit", "5") == ""


def test_what_is_wrong_is_refused_and_nothing_written(shell: Shell) -> None:
    for words, says in (
        (("companyDomain", "a.com"), "did you mean `companyDomains`?"),
        (("companyDomains", "nodots"), "must be a domain"),
        (("trustedHosts", "https://api.acme.com"), "must be a host in lower case"),
        (("trustedHosts", "localhost", "Api.acme.com"), "must be a host in lower case"),
        (("trustedHosts", "api.acme.com:443"), "without scheme, port"),
        (("trustedHosts", "*.acme.com"), "such as `api.acme.com`"),
        (("trustedHosts", ".acme.com"), "such as `api.acme.com`"),
        (("systemFolders", "/", "/data/"), "without `*`, `..`, `\\` or a `/` at its end"),
        (("systemFolders", "/", "/data/*"), "such as `/srv/data`"),
        (("systemFolders", "/", "/data//x"), "such as `/srv/data`"),
        (("systemFolders", "/", "C:\\Windows"), "such as `/srv/data`"),
        (("systemFolders", "/", "$HOME"), "with `~` for `$HOME`"),
        (("systemFolders", "/", "%USERPROFILE%/x"), "such as `/srv/data`"),
        (("systemFolders", "/", "${PROJECT}/x"), "such as `/srv/data`"),
        (("protectedBranches", "origin/main"), "must be a branch's name by itself"),
        (("protectedBranches", "refs/heads/main"), "without `origin/`, `refs/heads/`"),
        (("protectedBranches", "main,master"), "such as `main`"),
        (("protectedBranches", "release/*"), "such as `main`"),
        (("productionEnvironments", "prod*"), "must be one name"),
        (("productionEnvironments", "prod, live"), "such as `prod`"),
        (("paymentLimit", "much"), "must be a number"),
        (("paymentLimit", "1", "2"), "takes one value"),
    ):
        code, _, error = shell.run("settings", "set", "--dir", shell.folder, *words)
        assert code == 2 and says in error
    code, _, error = shell.run("settings", "unset", "companyDomain", "--dir", shell.folder)
    assert code == 2 and "did you mean `companyDomains`?" in error
    assert not (shell.folder / FILE).exists()
    assert shell.run("settings", "list", "--dir", shell.folder / "policies")[0] == 2


def test_lint_names_the_setting_that_a_policy_waits_for(shell: Shell) -> None:
    path = shell.folder / "policies/wires.yaml"
    path.write_text(path.read_text().replace("value: wire}", "value: '{{companyDomains}}'}", 1))
    text = path.read_text().replace("operator: equals, value: '{{", "operator: in, value: '{{")
    path.write_text(text.replace("toolName: wire", "toolName: acme.com"))
    for test in (shell.folder / "policies").glob("*_test.yaml"):
        test.write_text(test.read_text().replace("toolName: wire", "toolName: acme.com"))
    output = shell.run("lint", shell.folder)[1]
    assert "inactive until the organisation's `companyDomains` is set" in output and "needs-setting" in output
    assert shell.run("settings", "set", "--dir", shell.folder, "companyDomains", "mine.com")[0] == 0
    assert "needs-setting" not in shell.run("lint", shell.folder)[1]
    assert shell.run("test", shell.folder)[0] == 0, "examples go by samples"


CHANNELS = """apiVersion: governance/v1
kind: OrganisationSettings
organisationId: default
settings:
  notifications:
    reviewers:                      # who are there all day
      type: slack
      secret: reviewers-chat
      events: [approval.requested]
"""


def test_channels_are_shown_and_kept(shell: Shell) -> None:
    path = shell.folder / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(CHANNELS)
    assert shell.run("settings", "set", "paymentLimit", "7", "--dir", shell.folder)[0] == 0
    assert "# who are there all day" in path.read_text()
    output = json.loads(shell.run("settings", "list", "--dir", shell.folder, "--format", "json")[1])
    (channel,) = [each for each in output if each["name"].startswith("notifications.")]
    assert channel["name"] == "notifications.reviewers"
    assert channel["value"] == ["slack", "approval.requested"]
    assert "slack, approval.requested" in shell.run("settings", "list", "--dir", shell.folder)[1]
    code, _, error = shell.run("settings", "set", "notifications", "x", "--dir", shell.folder)
    assert code == 2 and "are written in the file" in error


def test_lint_names_the_line_of_what_is_wrong_with_a_channel(shell: Shell) -> None:
    path = shell.folder / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(CHANNELS.replace("approval.requested", "approval.request").replace("secret:", "secrets:"))
    code, output, error = shell.run("lint", shell.folder)
    assert code != 0
    said = output + error
    assert "settings/default.yaml:8:7" in said and "did you mean `secret`?" in said
    assert "settings/default.yaml:9:16" in said and "did you mean `approval.requested`?" in said


def test_what_others_write_meanwhile_is_not_lost(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    file, written = shell.folder / FILE, Disk.write_temporary
    meanwhile = ["currencies: [EUR]", "currencies: [EUR, USD]"]

    def also_by_others(self: Disk, path: Path, content: bytes) -> None:
        written(self, path, content)
        if meanwhile:
            set_here = f"settings:\n  {meanwhile.pop(0)}\n"
            file.write_text(f"kind: OrganisationSettings\napiVersion: governance/v1\n{set_here}", "utf-8")
            file.write_text(file.read_text("utf-8") + "organisationId: default\n", "utf-8")

    monkeypatch.setattr(Disk, "write_temporary", also_by_others)
    assert shell.run("settings", "set", "--dir", shell.folder, "paymentLimit", "7")[0] == 0
    text = file.read_text("utf-8")
    assert not meanwhile and "currencies: [EUR, USD]" in text and "paymentLimit: 7" in text
    monkeypatch.setattr(
        Disk, "write_temporary", lambda self, path, content: _appended(self, path, content, file)
    )
    code, _, error = shell.run("settings", "set", "--dir", shell.folder, "paymentLimit", "8")
    assert code == 1 and "was changed by others again and again" in error
    assert "paymentLimit: 7" in file.read_text("utf-8")


def _appended(disk: Disk, path: Path, content: bytes, file: Path) -> None:
    path.write_bytes(content)
    file.write_text(file.read_text("utf-8") + "# and again\n", "utf-8")
