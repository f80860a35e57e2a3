"""What programs run that find a variable in their surroundings: `BASH_ENV=f bash -c x`, `GIT_PAGER='x y' git
log`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from engine.shell.expansion import render
from engine.shell.starting.started import Started
from engine.shell.variables.store import RUN_LATER, Value

_GIT_PAIR: Final = re.compile(r"GIT_CONFIG_(KEY|VALUE)_(\d{1,4})")
_FUNCTION: Final = re.compile(r"BASH_FUNC_([\w-]{1,100})%%")
_TAR_RUNS: Final = re.compile(r"exec=|command|program|info-script|-\w*[IF]")
ASSIGNING: Final = frozenset({"env", "sudo", "export", "declare", "typeset", "readonly", "local"})
"""Commands whose words are assignments too."""


def held(name: str, value: str, values: Callable[[str], list[Value]]) -> list[Started]:
    """What `name=value` may run, beside what other variables hold."""
    if name in RUN_LATER:
        return [Started("script", value, here=True)]
    if name in ("BASH_ENV", "ENV"):
        said = [Started("script", f': "{value}"', here=True)] if "$(" in value or "`" in value else []
        return [*said, Started("file", value, (value,))]
    if name == "TAR_OPTIONS":
        return [Started("script", f"tar {value}", here=True)] if _TAR_RUNS.search(value) else []
    if name == "GIT_CONFIG_PARAMETERS":
        settings = value.replace("' '", "' -c '").replace("'='", "=")
        return [Started("script", f"git -c {settings}", here=True)]
    if found := _GIT_PAIR.fullmatch(name):
        other = values(f"GIT_CONFIG_{'VALUE' if found[1] == 'KEY' else 'KEY'}_{found[2]}")
        texts = [each for each in other if isinstance(each, str)]
        pairs = [(value, each) if found[1] == "KEY" else (each, value) for each in texts[:MOST_PAIRS]]
        return [Started("words", words=("git", "-c", f"{key}={said}")) for key, said in pairs]
    if found := _FUNCTION.fullmatch(name):
        return [Started("script", f"{found[1]} {value}", here=True)]
    return []


MOST_PAIRS: Final = 4


def configured(words: Sequence[str], values: Callable[[str], list[Value]]) -> list[str]:
    """The words of `git` with `-c a=b` for `--config-env=a=X`."""
    found: list[str] = []
    is_next = False
    for word in words:
        if is_next or word.startswith("--config-env="):
            name, _, variable = word.removeprefix("--config-env=").rpartition("=")
            texts = [each for each in values(variable) if isinstance(each, str)]
            found += [each for text in texts[:MOST_PAIRS] for each in ("-c", f"{name}={text}")]
            is_next = False
        elif word == "--config-env":
            is_next = True
        else:
            found.append(word)
    return found


def shown(name: str, value: str) -> str:
    """The command that runs it."""
    return render(["bash", value]) if name in ("BASH_ENV", "ENV") else name
