"""`fmt` lays documents out, keeps what they say and their comments, and says what it leaves alone."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents.edit import same
from engine.documents.format import CannotFormat, format_document
from engine.documents.yaml import read
from engine.errors import DocumentError
from engine.worktree import ownership
from tests.harness.command_line import WIRES, Shell
from tests.harness.effort import examples
from tests.harness.places import ROOT

ACCEPTED = sorted((ROOT / "tests" / "cases" / "documents" / "accepted").rglob("*.yaml"))
SHIPPED = sorted((ROOT / "policies.d").rglob("*.yaml"))


MESSY = """
# about the file


kind:   Policy   # of policies
apiVersion: governance/v1
name: "A b"
policyId: messy


# about the action
action: block
enabled: true
examples:
- {toolName: x,   match: true, inputPayload: {b: 1, a: 2}}   # first
# between
- toolName: y
  match: false
  inputPayload:
      z: 1
      a: [1,
        2]
  # tail of y

matchConditions:
# leading
-   operator: equals
    value: x
    field: toolName
- # on the dash
  operator: exists
  field: inputPayload.a
description: >
    Some text
    folded.

# the end
"""
TIDY = """\
# about the file

apiVersion: governance/v1
kind: Policy  # of policies
policyId: messy
name: "A b"
description: >
  Some text
  folded.

# about the action
action: block
enabled: true

matchConditions:
  # leading
  - field: toolName
    operator: equals
    value: x
  # on the dash
  - field: inputPayload.a
    operator: exists
examples:
  - {match: true, toolName: x, inputPayload: {b: 1, a: 2}}  # first
  # between
  - match: false
    toolName: y
    inputPayload:
      z: 1
      a: [1,
        2]
    # tail of y

# the end
"""


def test_fmt_lays_out_and_keeps_comments(shell: Shell) -> None:
    file = shell.write("policies/messy.yaml", MESSY)
    code, output, _ = shell.run("fmt", "--check", shell.folder)
    assert code == 1 and "messy.yaml:1:1: warning: this is not formatted" in output
    assert file.read_text() == MESSY
    assert "+policyId: messy" in shell.run("fmt", "--diff", shell.folder)[1]
    assert file.read_text() == MESSY
    assert shell.run("fmt", shell.folder) == (0, "3 documents, 1 changed\n", "")
    assert file.read_text() == TIDY
    assert shell.run("fmt", "--check", shell.folder)[0] == 0
    assert not list(shell.folder.rglob("*.tmp"))


def test_fmt_does_not_write_over_what_others_wrote_meanwhile(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell.write("policies/messy.yaml", MESSY)
    newer, made = MESSY.replace("block", "require_approval"), ownership.new_file_like

    def also_by_others(aside: Path, before: Path) -> int:
        path.write_text(newer, encoding="utf-8")
        return made(aside, before)

    monkeypatch.setattr(ownership, "new_file_like", also_by_others)
    code, _, error = shell.run("fmt", path)
    assert code == 1 and "was changed meanwhile and is left as it is" in error
    assert path.read_text("utf-8") == newer and not list(path.parent.glob(".*.tmp"))


def test_fmt_says_that_a_folder_is_only_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shell.write("policies/messy.yaml", MESSY)

    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(ownership, "new_file_like", refused)
    monkeypatch.setattr(Path, "unlink", refused)  # also of a file that is not there
    code, _, error = shell.run("fmt", path)
    assert code == 2 and f"`{path}` cannot be written: Read-only file system" in error


def test_fmt_keeps_windows_line_ends() -> None:
    assert format_document(MESSY.replace("\n", "\r\n").encode()) == TIDY.replace("\n", "\r\n").encode()


def test_fmt_leaves_alone_what_it_cannot_format(shell: Shell) -> None:
    text = WIRES.replace("name: Wires", "name: Wires\ndescription: |2\n    kept\n")
    file = shell.write("policies/wires.yaml", text)
    code, output, _ = shell.run("fmt", shell.folder)
    assert code == 0 and "wires.yaml:5:1: note: left as it is: a text with `|2` depends" in output
    assert file.read_text() == text


OTHER_BREAK = "a line ends with another character than a line feed; write a line feed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello", "the whole document is a single value; write `key: value` lines"),
        ("true", "the whole document is a single value; write `key: value` lines"),
        ("- 1", "the whole document is a list; write `key: value` lines"),
        ("[1]", "the whole document is in braces or brackets"),
        ("{a: 1}", "the whole document is in braces or brackets"),
        ("a: |\n  b\u2028  c", OTHER_BREAK),
        ("a: 1 # b\u2029# c", OTHER_BREAK),
    ],
)
def test_fmt_says_why_it_leaves_a_document_alone(text: str, reason: str, shell: Shell) -> None:
    file = shell.write("policies/odd.yaml", text + "\n")
    code, output, _ = shell.run("fmt", file)
    assert code == 0 and f"left as it is: {reason} [left-alone]" in output


def test_fmt_refuses_a_folder_that_it_cannot_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def scandir(path: str) -> Any:
        if str(path).endswith("policies"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    listed = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    for words in (["fmt"], ["fmt", "--check"]):
        code, _, error = shell.run(*words, shell.folder)
        assert code == 2
        assert f"the folder `{shell.folder}/policies` cannot be read: Permission denied" in error


def test_fmt_reports_what_it_cannot_read_and_does_the_rest(shell: Shell) -> None:
    shell.write("policies/broken.yaml", "a: [\n")
    file = shell.write("policies/messy.yaml", MESSY)
    code, output, _ = shell.run("fmt", shell.folder)
    assert code == 2 and "broken.yaml:" in output
    assert file.read_text() == TIDY


def test_fmt_does_not_wait_for_a_pipe(shell: Shell) -> None:
    file = shell.write("policies/messy.yaml", MESSY)
    os.mkfifo(file.parent / "pipe.yaml")
    code, output, _ = shell.process("fmt", shell.folder)
    assert code == 2 and "pipe.yaml: error: this is not a regular file; remove it" in output
    assert file.read_text() == TIDY


@pytest.mark.parametrize("path", [*ACCEPTED, *SHIPPED], ids=lambda path: path.stem)
def test_fmt_says_the_same(path: Path) -> None:
    source = path.read_bytes()
    try:
        made = format_document(source)
    except CannotFormat:
        return
    assert same(read(made).root.value, read(source).root.value)
    assert format_document(made) == made


texts = st.text(st.sampled_from("ab #:-'\"\n{}[],|>!&*%@`\\\t é"), max_size=12)
comments = st.sampled_from(["", "", "  # c", " # d: e"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Documents as untidy as they come, block and flow, comments anywhere."""

    def value(indent: int, depth: int) -> str:
        kind = draw(st.sampled_from(["scalar", "scalar", "flow", "list", "map", "literal"]))
        if kind == "scalar" or depth > 2:
            return " " + json.dumps(draw(texts)) + draw(comments) + "\n"
        if kind == "flow":
            return " " + json.dumps(draw(st.lists(texts, max_size=2))) + draw(comments) + "\n"
        inner = indent + draw(st.sampled_from([1, 2, 4]))
        if kind == "literal":
            mark = draw(st.sampled_from(["|", "|-", ">", ">-", "|+", "|2"]))
            return f" {mark}\n" + "".join(f"{' ' * inner}{line}\n" for line in ("one", "  two", "", "three"))
        if kind == "list":
            return (
                draw(comments)
                + "\n"
                + "".join(
                    f"{lines(inner)}{' ' * inner}-{value(inner + 1, depth + 1)}"
                    for _ in range(draw(st.integers(1, 3)))
                )
            )
        keys = draw(st.lists(st.sampled_from(["field", "value", "z", "operator"]), min_size=1, unique=True))
        return (
            draw(comments)
            + "\n"
            + "".join(f"{lines(inner)}{' ' * inner}{key}:{value(inner, depth + 1)}" for key in keys)
        )

    def lines(indent: int) -> str:
        return draw(st.sampled_from(["", "", "\n", "\n\n", f"{' ' * indent}# own\n", "# left\n"]))

    keys = draw(st.permutations(["kind", "name", "matchConditions", "examples", "x"]))
    return "".join(
        f"{lines(0)}{key}: Policy\n" if key == "kind" else f"{lines(0)}{key}:{value(0, 0)}" for key in keys
    )


@examples(200, 4_000)
@given(documents())
def test_fmt_never_changes_what_is_said(text: str) -> None:
    source = text.encode()
    try:
        before = read(source)
        made = format_document(source)
    except (DocumentError, CannotFormat):
        return
    after = read(made)
    assert same(after.root.value, before.root.value)
    assert format_document(made) == made
    assert sorted(before.text[a:b].rstrip() for a, b in before.comments()) == sorted(
        after.text[a:b].rstrip() for a, b in after.comments()
    )
