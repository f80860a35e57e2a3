"""Scripts of `sed`, given or in files whose text is known, lines of `ed`, and rules that `make` is given."""

from __future__ import annotations

import pytest

from engine.shell.reader import read

RUN = [
    "sed -e 'e zap a' x",
    "sed --expression='1e zap a' x",
    "sed '1ezap a' x",
    "sed -n '/a/,/b/ { e zap a' x",
    "sed 's/a/b/;e zap a' x",
    "sed 's x zap\\ a e' x",
    "sed 's\tx\tzap a\te' x",
    "sed '1e ls \\\nzap a' x",
    "sed '1e\\\nzap a' x",
    "sed '1~2e zap a' x",
    "sed 'y/;a/xx/;e zap a' x",
    "make --makefile=- <<< 'x: ; zap a'",
    "sed -ne 's/x/zap a/pe' x",
    "echo 'e zap a' > f; sed -f f x",
    "echo 'zap a' | sed e",
    "echo 'zap a' | sed 's/x/y/e'",
    "ed <<< '!zap a'",
    "printf '1,$p\\n!zap a\\nq\\n' | ed x",
    "vim -c '%!zap a' x",
    "vim +'silent r !zap a' x",
    "make -f /dev/stdin <<< 'x: ; zap a'",
]
NOT_RUN = [
    "sed 's/a;e zap a/b/' x",
    "sed -n '/else;e/p' x",
    'sed "$ezap" x',
    "vim -c 'w! zap a' x",
]


@pytest.mark.parametrize("line", RUN)
def test_it_is_run(line: str) -> None:
    assert "zap a" in read([line])


@pytest.mark.parametrize("line", NOT_RUN)
def test_it_is_not_run(line: str) -> None:
    assert not any(entry.startswith("zap") for entry in read([line]))
