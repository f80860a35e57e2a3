"""The variables of a reading: what each may be, what `$1` and those after it may be, what `$_` may be.

Decides what an assignment leaves of the values before it. Knows nothing of syntax or of what assigns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from engine.shell.expansion import LONGEST_VALUE, TooMuch
from engine.shell.variables.choices import anything, told_by_first

Value = str | list[str]
Positional = tuple[str, ...]

ENVIRONMENT: Final = frozenset(["HOME", "PATH", "PWD", "OLDPWD", "SHELL", "MANPATH", "GOPATH"])
"""Variables that are set wherever a shell runs; their values begin with `/`."""
RUN_LATER_NAMES: Final = (
    "PROMPT_COMMAND PS0 PS1 PS4 EDITOR VISUAL PAGER GIT_PAGER GIT_EDITOR GIT_SSH_COMMAND "
    "GIT_EXTERNAL_DIFF LESSOPEN MANPAGER GIT_SEQUENCE_EDITOR GIT_SSH SSH_ASKPASS GIT_ASKPASS BROWSER"
)
RUN_LATER: Final = frozenset(RUN_LATER_NAMES.split())
"""Variables whose value a program runs."""
MOST_VALUES: Final = 64
"""Values of one variable that are tried."""
MOST_POSITIONAL: Final = 1_000
MOST_LAST: Final = 8
"""Words that `$_` may be."""
_BLANKS: Final = " \t\n"
_KEYED: Final = re.compile(r"\[([^\]]{1,200})\]=", re.DOTALL)
"""What an element of `a=([2]=x [0]=y)` begins with."""


class Variables:
    """What is known of them."""

    def __init__(self) -> None:
        self.variables: dict[str, list[Value]] = {}
        self.elements: dict[str, dict[str, str]] = {}
        """Of variables that are arrays the values by their keys."""
        self.scattered: set[str] = set()
        """Arrays of which it is not certain what stands at which key."""
        self.references: dict[str, str] = {}
        """What `declare -n` made other names of variables."""
        self.constants: set[str] = set()
        """Those that keep their value: `readonly`."""
        self.folded: dict[str, str] = {}
        """Those whose values are folded: `l`, `u`, or counted: `i`."""
        self.positional: list[Positional] | None = [()]
        """What `$0`, `$1`, ... may be; None where that is not known, as in the body of a function."""
        self.changes = 0
        self._sources: dict[str, str] = {}

    def step(self, cost: int = 1) -> None:
        """Count a step."""
        raise NotImplementedError

    def values(self, name: str) -> list[Value]:
        """What a variable may be; `name[key]` is an element of an array."""
        array, bracket, key = name.partition("[")
        array = self.references.get(array, array)
        if bracket:
            element = self.elements.get(array, {}).get(key.removesuffix("]"))
            return [] if element is None else [element]
        return self.variables.get(array, [])

    def source(self, name: str) -> str:
        """What the values of a variable go by: which variable it is, and which time it was assigned."""
        name = self.references.get(name, name)
        return self._sources.get(name, name)

    def assign(
        self, name: str, values: tuple[str, ...] | list[str], added: bool, certain: bool, source: str = ""
    ) -> None:
        """Remember a value. What is not certain to be assigned leaves the values before it possible.
        `source`: what the values go by."""
        array, bracket, key = name.partition("[")
        name = self.references.get(array, array)
        certain = certain and name not in self.constants
        if (fold := self.folded.get(name)) is not None:
            if fold == "i" and not all(map(_is_index, values)):
                self.lose(name)
                return
            values = type(values)(value.upper() if fold == "u" else value.lower() for value in values)
        if bracket or isinstance(values, list):
            if certain and not bracket:
                self.scattered.discard(name)
            elif not certain and self.values(name):
                self.scattered.add(name)
            values = self._array(name, key.removesuffix("]") if bracket else None, values, added)
            added = False
        else:
            self.elements.pop(name, None)
        new: list[Value] = [values] if isinstance(values, list) else list(values)
        old = self.values(name)
        if name == "IFS" and not old:
            old = [_BLANKS]
        elif name in ENVIRONMENT and not certain and not old:
            old = [f"${name}"]
        if added and old:
            new = [
                one + value for one in old if isinstance(one, str) for value in new if isinstance(value, str)
            ] or new
        if any(sum(map(len, value)) + len(value) > LONGEST_VALUE for value in new):
            raise TooMuch
        if not certain and any(anything(name) in each for each in _texts(old)):
            begun = set(map(_begin, _texts(old)))
            new = (
                []
                if anything(name) in old
                else [value for value in new if _begin(*_texts([value])) not in begun]
            )
            kept = [*old, *new]
        else:
            kept = new if certain else [*new, *(value for value in old if value not in new)]
        if len(kept) > MOST_VALUES:
            kept = [*told_by_first(_texts(kept), name)]
        self.changes += kept != old
        self.variables[name] = kept
        self._sources[name] = source if source and len(kept) == len(values) else f"{name}#{self.changes}"

    def lose(self, name: str) -> None:
        """What is assigned is not followed."""
        name = self.references.get(name.partition("[")[0], name.partition("[")[0])
        self.forget(name)
        self.variables[name] = [anything(name)]

    def loosen(self, before: Mapping[str, list[Value]], last: bool) -> None:
        """What is not as it was before may go on changing: each value may have more words, and in the end be
        anything."""
        for name, values in list(self.variables.items()):
            if name != "_" and values != before.get(name):
                more = [anything(name)] if last else told_by_first(_texts(values), name)
                self.variables[name] = [*values, *(each for each in more if each not in values)]

    def restore(self, name: str, values: list[Value] | None) -> None:
        """After a command the value that was given for it alone is gone."""
        if values is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = values

    def ended_with(self, words: Sequence[str], certain: bool) -> None:
        """After a command, its last word is `$_`."""
        before = [] if certain else _texts(self.variables.get("_", []))
        last: list[Value] = [*dict.fromkeys([*words, *before])]
        self.variables["_"] = last[:MOST_LAST]

    def forget(self, name: str) -> None:
        """`unset`."""
        self.variables.pop(name, None)
        self.elements.pop(name, None)
        self.changes += 1

    def give(self, words: Sequence[str], certain: bool) -> None:
        """Set `$1` and those after it."""
        if len(words) > MOST_POSITIONAL:
            raise TooMuch
        name = (self.positional[0][:1] if self.positional else ()) or ("sh",)
        self._put([(*name, *words)], certain)

    def shift(self, count: int | None, certain: bool) -> None:
        """`shift`; by how many is not always known."""
        if self.positional is None:
            return
        known = count is not None and certain
        counts = [count or 0] if known else range(max(map(len, self.positional), default=1))
        self._put([(*each[:1], *each[1 + by :]) for each in self.positional for by in counts], certain)

    def _put(self, new: list[Positional], certain: bool) -> None:
        old = self.positional
        kept = list(dict.fromkeys([*new, *(() if certain or old is None else old)]))
        self.step(sum(map(len, kept)) // 16)
        self.changes += kept != old
        self.positional = kept
        if len(kept) > MOST_VALUES:
            self.positional = [("sh", anything("@"))]

    def _array(
        self, name: str, key: str | None, values: tuple[str, ...] | list[str], added: bool
    ) -> list[str]:
        """The values of an array in the order of its keys, after one of them or all are assigned. What is
        assigned at a key that is not known comes last."""
        known: dict[str, str] = {}
        if added or key is not None:
            before = self.values(name)
            scalar = {"0": before[0]} if before and isinstance(before[0], str) else {}
            known = self.elements.get(name, scalar)
        self.step(1 + (len(known) + len(values)) // 16)
        end = max((int(each) for each in known if _is_index(each)), default=-1) + 1
        for value in values:
            if key is None and (keyed := _KEYED.match(value)):
                at, value = keyed[1], value[keyed.end() :]
            else:
                at = key or str(end)
            known[at] = known.get(at, "") + value if added and key else value
            end = max(end, int(at) + 1) if _is_index(at) else end
            key = "" if key else key
        self.elements[name] = known
        if all(map(_is_index, known)):
            return [known[each] for each in sorted(known, key=int)]
        return list(known.values())


def _texts(values: Sequence[Value]) -> list[str]:
    return [each if isinstance(each, str) else " ".join(each) for each in values]


def _begin(text: str) -> str:
    return next(iter(text.split(None, 1)), "")


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdecimal()
