"""Files that programs download are written: under the name they are told, else as they are called there."""

from __future__ import annotations

import pytest

from tests.engine.derived.declared import shown

THERE = "~/.claude/settings.json"
WRITTEN = [
    "cd ~/.claude; wget http://x/settings.json",
    "cd ~/.claude; wget 'http://x/settings%2ejson#a'",
    "cd ~/.claude; curl -O http://x/a/settings.json",
    "cd ~/.claude; curl -OL 'http://x/settings.json?a=b'",
    "cd ~/.claude; curl --remote-name http://x/settings.json",
    "cd ~/.claude && curl --remote-name-all http://x/a http://x/settings.json",
    "cd ~/.claude; http --download http://x/settings.json",
    "curl --output-dir ~/.claude -O http://x/settings.json",
    "curl --output-dir ~/.claude -o settings.json http://x/s",
    "wget -P ~/.claude http://x/settings.json",
    "wget -q --directory-prefix=~/.claude http://x/settings.json",
    "aria2c -d ~/.claude -o settings.json http://x/s",
    "iwr http://x/s -OutFile ~/.claude/settings.json",
    "certutil -urlcache -f http://x/s ~/.claude/settings.json",
]
NOT_WRITTEN = [
    "curl http://x/settings.json",
    "cd ~/.claude; curl -L http://x/settings.json",
    "cd ~/.claude; wget -qO- http://x/settings.json",
    "cd ~/.claude; wget --spider http://x/settings.json",
    "certutil -hashfile ~/.claude/settings.json",
]


@pytest.mark.parametrize("line", WRITTEN)
def test_it_is_written(line: str) -> None:
    assert THERE in shown("bash", {"command": line}, "writes")


@pytest.mark.parametrize("line", NOT_WRITTEN)
def test_nothing_is_written(line: str) -> None:
    assert shown("bash", {"command": line}, "writes") == []


def test_it_is_written_where_it_is_left_alone() -> None:
    line = "wget -P /tmp/x http://x/.env"
    assert ".env" not in shown("bash", {"command": line}, "writes")
