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
    RULES.format("X := zap\nY = $(X) a\nx:\n\t$(Y)", ""),
    RULES.format("x:\n\tzap ${X}", "X=a"),
    RULES.format("X != zap a\nx:\n\tls", ""),
    RULES.format("X := $(shell zap a)\nx:\n\techo $(X)", ""),
    RULES.format("%.o: %.c\n\tzap a\nx: y.o", ""),
    RULES.format("x: a\n\tzap $(notdir $<)\na: ;", ""),
    "mkdir d; echo 'x: ; zap a' > d/Makefile; make -C d",
    RULES.format("X := zap\nX := $(X) a\nX ?= b\nx:\n\t$(X)", ""),
]
NOT_RUN = [
    "sed 's/a;e zap a/b/' x",
    "sed -n '/else;e/p' x",
    "vim -c 'w! zap a' x",
    RULES.format("x:\n\tls\ny:\n\t@zap a", ""),
    RULES.format("x:\n\tls\ny:\n\t@zap a", "x"),
]


@pytest.mark.parametrize("line", RUN)
def test_it_is_run(line: str) -> None:
    assert "zap a" in read([line])


@pytest.mark.parametrize("line", NOT_RUN)
def test_it_is_not_run(line: str) -> None:
    assert not any(entry.startswith("zap") for entry in read([line]))


def test_what_a_function_makes_is_told_by_its_last_argument() -> None:
    rules = "O = $(patsubst %.c,%.o,$(wildcard *.c))\nclean:\n\trm -rf $(O) $$(zap a) $(B)/x"
    found = read([RULES.format(rules, "clean")])
    assert "zap a" in found
    assert any(entry.startswith("rm -rf *.c '$(zap a)'") for entry in found), found


@pytest.mark.parametrize("recipe", ["cd d && $(MAKE)", "$(MAKE) x", "$(MAKE) y; $(MAKE) -C d"])
def test_rules_that_start_make_are_read_once(recipe: str) -> None:
    found = read([RULES.format(f"x:\n\t{recipe}\n\tzap a\ny:\n\tls", "")])
    assert found[-1] != UNREADABLE
    assert "zap a" in found


def test_rules_that_grow_are_read_in_part() -> None:
    lines = "\n".join(f"X{n} = $(X{n + 1}) $(X{n + 1})" for n in range(30))
    assert read([RULES.format(f"{lines}\nx:\n\techo $(X0)", "")])[-1] == UNREADABLE
