"""Rules that `make` goes by, scripts of `sed` and lines of `ed`, given or in files whose text is known."""

from __future__ import annotations

import pytest

from engine.fields.computed import UNREADABLE
from engine.shell.reader import read

RULES = "cat > Makefile <<'E'\n{}\nE\nmake {}"
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
    "printf 'x: ; zap a' > Makefile; make",
    "printf 'x: ; zap a' > f; make -sf f",
    "cd d; printf 'x: ; zap a' > Makefile; make",
    "make -f /dev/stdin <<< 'x: ; zap a'",
    RULES.format("x: y\n\ty:\ny:\n\t@zap a", "-j4"),
    RULES.format("x:\n\tls\ny:\n\t@zap a", "y"),
    RULES.format("%.o: %.c\n\tzap a\nx: y.o", ""),
    "mkdir d; echo 'x: ; zap a' > d/Makefile; make -C d",
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


@pytest.mark.parametrize("recipe", ["cd d && $(MAKE)", "$(MAKE) x", "$(MAKE) y; $(MAKE) -C d"])
def test_rules_that_start_make_are_read_once(recipe: str) -> None:
    found = read([RULES.format(f"x:\n\t{recipe}\n\tzap a\ny:\n\tls", "")])
    assert found[-1] != UNREADABLE
    assert "zap a" in found
