"""Every command and snippet of the README and the guide does what the page says, against one real service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from engine.documents.detectors import load_detector
from engine.documents.policy import load_policy, load_policy_test
from engine.documents.settings import load_settings
from engine.documents.tool_sets import load_tool_set
from tests.harness.guide import GUIDE, KNOWN, PAGES, RUN, Block, Shell, blocks, same
from tests.harness.nodes import Node, free_port
from tests.harness.places import ROOT

STARTED = {
    "GOVERNANCE_ADMIN_EMAIL": "admin@example.com",
    "GOVERNANCE_ADMIN_PASSWORD": "correct horse battery staple",
    "GOVERNANCE_API_KEY": "agk_for_the_first_hour",
}
"""What the pages tell their reader to start the service with."""
PORT, RECEIVER = "8700", "9000"
"""The ports of the pages, in whose place the test has free ones."""

pytestmark = pytest.mark.slow


def name(page: Path) -> str:
    return str(page.relative_to(GUIDE if GUIDE in page.parents else ROOT))


def to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUN and not block.not_run]


class Place:
    """A clone of the repository as far as pages need one, and the service that runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {PORT: "0", RECEIVER: str(free_port())}
        shutil.copytree(ROOT / "policies.d", folder / "policies.d")
        (folder / ".gitignore").write_text("*\n!policies.d\n!policies.d/**\n.governance/\n")
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "the policies"]):
            subprocess.run(["git", *command], cwd=folder, env=os.environ | self.git, check=True)
        self.node = Node(
            folder,
            "",
            folder / "policies.d",
            {
                **STARTED,
                "GOVERNANCE_WEBHOOK_ALLOW": f"127.0.0.1:{self.ports[RECEIVER]}",
                "GOVERNANCE_AUDIT_KEY_FILE": "",  # in the data folder, where the pages' commands look for it
            },
        ).ready()
        self.ports[PORT] = str(self.node.port)

    @property
    def git(self) -> dict[str, str]:
        who = {"NAME": "Ann Example", "EMAIL": "ann@example.com"}
        return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}

    def shell(self) -> Shell:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        here = {"PATH": path, "HOME": str(self.folder), "XDG_STATE_HOME": "", "COLUMNS": "100"}
        return Shell(self.folder, {**here, **self.git, "GOVERNANCE_PORT": self.ports[PORT]})

    def here(self, text: str) -> str:
        """With the ports of this place."""
        for port, own in self.ports.items():
            text = re.sub(rf"\b{port}\b", own, text)
        return text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all pages, which hold in any order."""
    made = Place(tmp_path_factory.mktemp("guide"))
    yield made
    made.node.http.close()
    made.node.stop()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is_and_why_it_is_not_run(page: Path) -> None:
    for block in blocks(page):
        assert block.language in KNOWN, f"line {block.line}: `{block.language}` is no language of the guide"
        assert not re.search(r"^\s*[$%] ", block.text, re.M), f"line {block.line}: leave the `$ ` out"
        if block.language not in (*RUN, "yaml", "json", "text", "diff") or block.not_run:
            assert len(block.not_run.split()) >= 3, f"line {block.line}: say why it is not run"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_with_commands_says_where_they_lie(page: Path) -> None:
    """`make serve` puts nothing on the reader's PATH."""
    run = [block for block in to_run(page) if block.language == "bash"]
    first = next((block for block in run if re.search(r"(?:^|[|&;({] *)governance ", block.text, re.M)), None)
    if first is not None:
        before = "".join(block.text for block in run if block.line <= first.line)
        assert ".venv/bin" in before, f"line {first.line}: set PATH before"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_terminal_of_macos_does_the_same(page: Path) -> None:
    """Its zsh takes no comments at the prompt, and `path` for PATH; its sed wants a suffix."""
    for block in blocks(page):
        if block.language == "bash":
            assert not re.search(r"(?:^|\s)#(?:\s|$)", block.text, re.M), f"line {block.line}: say it outside"
            own = re.search(r"(?<![?&\w])(?:argv|cdpath|fpath|manpath|options|path|status)=", block.text)
            assert own is None, f"line {block.line}: {own} is a name of zsh"
            assert "sed -i " not in block.text, f"line {block.line}: write `sed -i.before`"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_document_that_is_shown_loads(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml" and not block.not_run:
            load_document(block.text)
        elif block.language == "json" and not block.not_run:
            json.loads(block.text)


@pytest.mark.parametrize("page", [page for page in PAGES if to_run(page)], ids=name)
def test_every_command_does_what_the_page_says(page: Path, place: Place) -> None:
    run = to_run(page)
    if any(block.language == "javascript" for block in run) and shutil.which("node") is None:
        if os.environ.get("CI_REQUIRE_ALL") == "1":
            pytest.fail("there is no node; `apt-get install nodejs` lets the JavaScript of the guide run")
        run = [block for block in run if block.language != "javascript"]
    shell = place.shell()
    try:
        for block in run:
            check(shell, block, place)
    finally:
        shell.close()


def load_document(text: str) -> None:
    """A policy, a tool set, settings or a policy test, its examples among it."""
    read: Callable[[bytes, str], object] = load_policy_test if "kind: PolicyTest" in text else load_policy
    if "kind: ToolSet" in text:
        read = load_tool_set
    if "kind: OrganisationSettings" in text:
        read = load_settings
    if "kind: Detector" in text:
        read = partial(load_detector, organisation_id="default")
    stem = re.search(r"^(?:policyId|toolSetId|detectorId|organisationId): ([\w.-]+)", text, re.M)
    read(text.encode(), f"{stem[1] if stem else 'all_test'}.yaml")


def check(shell: Shell, block: Block, place: Place) -> None:
    code, printed = shell.run(block, place.here(block.text))
    where = f"line {block.line}:\n{block.text}\nprinted:\n{printed}"
    assert code == 0, f"exit code {code} of {where}"
    if block.output is not None:
        # Other pages have changed policies too.
        printed = re.sub(r'"policyRevision": \d+', '"policyRevision": 1', printed)
        assert same(place.here(block.output), printed), f"{where}\nthe page shows:\n{block.output}"
