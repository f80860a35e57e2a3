"""Texts that a call puts into files."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.derived.declared import is_partial, shown

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n+more\n kept\n*** End Patch"
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+new\n"


@pytest.mark.parametrize(
    ("tool", "payload", "written"),
    [
        ("Write", {"file_path": "a.py", "content": "x = 1"}, ["x = 1"]),
        ("write_file", {"path": "a.py", "old_string": "x", "new_string": "y"}, ["y"]),
        ("write_file", {"path": "a", "edits": [{"newText": "y"}, {"newText": "z"}]}, ["y", "z"]),
        ("write_file", '{"path": "a", "content": "in a text"}', ["in a text"]),
        ("Write", {"file_path": "a.json", "content": '{"a": true}'}, ['{"a": true}']),
        ("insert_edit_into_file", {"filePath": "a.cs", "code": "undeclared"}, ["undeclared"]),
        ("write_file", {"input": PATCH}, ["new\nmore"]),
        ("write_file", {"patch": DIFF}, ["new"]),
        ("bash", {"command": "cat > a.sh <<EOF\nrm -rf /srv\nEOF"}, ["rm -rf /srv\n"]),
        ("bash", {"command": "echo one > a; printf two >> b; echo three"}, ["one", "two"]),
        ("bash", {"command": "tee a <<EOF\nx\nEOF"}, ["x\n"]),
        ("bash", {"command": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}, ["new\nmore"]),
        ("bash", {"command": "cat <<EOF\nonly shown\nEOF"}, []),
        ("Read", {"file_path": "a.py", "content": "x"}, []),
        ("send_email", {"to": "a@b.example", "content": "x", "text": "y"}, []),
        ("delete_file", {"path": "a.py"}, []),
    ],
)
def test_what_is_written(tool: str, payload: Any, written: list[str]) -> None:
    assert shown(tool, payload, "written") == written


def test_more_than_is_read_is_not_taken_for_nothing() -> None:
    edits = [{"newText": str(number)} for number in range(2_001)]
    assert is_partial("write_file", {"path": "a", "edits": edits}, "written")
    assert is_partial("bash", {"command": "eval " * 30 + "x > a"}, "written")
