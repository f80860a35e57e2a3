"""What stands at a `$name` or `${name...}`: a variable's values, changed as is written, or what is unknown.

Knows nothing of commands; the words within are read by `_word`, which `words` adds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.shell.commands import Runner
from engine.shell.dialects import ARGUMENTS, FLAGS, PROGRAMS, SPLITTING, SUBSCRIPT, UNNAMED, element
from engine.shell.expansion import BREAK, NAMED, QUOTED, plain, split_value, transform, transform_effort
from engine.shell.variables.choices import Part, Raw, Several, anything, every, first, values_of
from engine.shell.variables.store import ENVIRONMENT, MOST_VALUES, Positional, Value

LONGEST_SHOWN: Final = 2_000
NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_PARAMETER: Final = re.compile(
    rf"\{{(?P<flags>{FLAGS})"
    r"(?P<what>[!#]?)(?P<name>[A-Za-z_]\w*|\d+|[@*?$!-])(?P<at>\[(?:[^\]\n$`]|\$(?!\()){0,200}\])?"
    r"(?P<op>:[-=?+]|##?|%%?|//?|\^\^?|,,?|[-=?+:@])?",
    re.ASCII,
)
_SLICE: Final = re.compile(r"\s*(-?\d{1,6})\s*(?::\s*(\d{1,6})\s*)?")


class ParameterReader:
    """Reads the expansions of `text`."""

    def __init__(self, runner: Runner, text: str, depth: int) -> None:
        self.runner = runner
        self.text = text
        self.at = 0
        self.depth = depth

    def _word(self, operand: bool = False, literal: bool = False) -> Raw:
        """One word from here."""
        raise NotImplementedError

    def _function_substitution(self, quoted: bool) -> Part:
        """`${ command; }`."""
        raise NotImplementedError

    def _one_of(self, texts: Sequence[str], name: str, source: str = "") -> Part:
        """A part that is one of some texts, which go by a source or else by themselves."""
        if len(texts) < 2:
            return texts[0] if texts else ""
        if len(texts) > MOST_VALUES:
            return f"${name}" if name[-1].isalnum() else f"{QUOTED}$(...)"
        self.runner.changes += not source
        return Several(source or f"{name}#{self.runner.changes}", tuple(texts))

    def _inserted(self, outputs: Sequence[str | None], shown: str, quoted: bool) -> Part:
        texts = [
            value
            for output in outputs
            for value in (
                [f"{QUOTED if quoted else ''}$({shown}){NAMED}"]
                if output is None
                else self._inserted_text(output.replace("\0", "").rstrip("\n"), quoted)
            )
        ]
        return self._one_of(texts, "$()")

    def _inserted_text(self, value: str, quoted: bool) -> list[str]:
        return [QUOTED + value] if quoted else self._split(value)

    def _split(self, value: str) -> list[str]:
        """The value as it falls apart at each of what `$IFS` may be."""
        separators = [each for each in self.runner.values("IFS") if isinstance(each, str)]
        return list(dict.fromkeys(split_value(value, each) for each in separators or (None,)))

    def _value(self, name: str, subscript: str, quoted: bool) -> Part:
        """`$name`: its value, or itself when that is unknown."""
        if name == "IFS" and not self.runner.values(name):
            return " " if quoted else BREAK
        if name.isdigit() or name in "@*":
            given = self._arguments(name)
            if given is None:
                return f"${name}"
            is_one = name not in "@" and quoted
            texts = [text for words in given for text in self._joined(words, is_one, quoted)]
            return self._one_of(texts, name, f"@#{len(given)}" if len(texts) == len(given) else "")
        values = self.runner.values(name)
        if name == ARGUMENTS and not values and self.runner.positional != [()]:
            arguments = values_of(self._value("@", "", quoted))
            return self._one_of([*arguments, ""], name)  # of zsh and fish
        if name == PROGRAMS and not values and subscript:
            return self._one_of([*filter(None, [self._key(subscript)]), f"${name}{NAMED}"], name)
        if subscript not in ("", "@", "*"):
            key = self._key(subscript)
            found = self.runner.values(f"{name}[{key}]") if key else []
            if name in self.runner.scattered or not found:
                is_placed = key and key.lstrip("-").isdecimal() and name not in self.runner.scattered
                found = values if is_placed else _elements(values)
            values = found
            subscript = key or ""
        if subscript.isdecimal() and subscript != "0":  # of zsh, which counts from 1
            elsewhere = self.runner.values(f"{name}[{int(subscript) - 1}]")
            found = [*values, *elsewhere]
            texts = [text for value in found for text in self._element(value, subscript, quoted)]
            if elsewhere and texts:
                return self._one_of(texts, name, f"{name}[]")
        if not values:
            return f"${name}{NAMED}" if name[0].isalpha() or name[0] in "_!" else f"${name}"
        texts = [text for value in values for text in self._element(value, subscript, quoted)]
        plainly = subscript in ("", "@", "*") and len(texts) == len(values)
        return self._one_of(texts, name, self.runner.source(name) if plainly else "")

    def _joined(self, words: Sequence[str], is_one: bool, quoted: bool) -> list[str]:
        if quoted:
            return [QUOTED + " ".join(words) if is_one else BREAK.join(QUOTED + word for word in words)]
        return [BREAK.join(each) for each in self._split_each(words)]

    def _split_each(self, words: Sequence[str]) -> list[list[str]]:
        """Words that stand unquoted, at each of what `$IFS` may be."""
        split = [self._split(word) for word in words]
        most = max(map(len, split), default=1)
        return [[each[min(turn, len(each) - 1)] for each in split] for turn in range(most)]

    def _key(self, subscript: str) -> str | None:
        """What stands in `a[...]`, None when that is not known."""
        written = subscript.strip("'\"")
        name = re.fullmatch(r"\$?\{?([A-Za-z_]\w{0,99})\}?", written, re.ASCII)
        values = self.runner.values(name[1]) if name else []
        if values and isinstance(values[0], str) and len(values) == 1:
            return values[0][:200]
        return written if re.fullmatch(r"-?[\w./]+", written) else None

    def _element(self, value: Value, subscript: str, quoted: bool) -> list[str]:
        if isinstance(value, list) and subscript in ("@", "*"):
            if quoted:
                return [BREAK.join(QUOTED + word for word in value)]
            return [BREAK.join(each) for each in self._split_each(value)]
        every_word: list[str] = []
        if isinstance(value, list):
            if not subscript and not quoted and len(value) > 1:  # zsh, which has all of them there
                every_word = [BREAK.join(each) for each in self._split_each(value)]
            index = int(subscript) if re.fullmatch(r"-?\d{1,5}", subscript) else 0
            value = value[index] if -len(value) <= index < len(value) else ""
        return [QUOTED + value] if quoted else [*self._split(value), *every_word]

    def _behind(self, name: str, quoted: bool) -> Part:
        """What stands at `$name`, and for zsh and fish at `$name[2]`."""
        part = self._value(name, "", quoted)
        found = SUBSCRIPT.match(self.text, self.at)
        if found is None or (not self.runner.values(name) and name not in (PROGRAMS, ARGUMENTS)):
            return part
        self.at = found.end()
        texts = [text + found[0] for text in values_of(part)]
        if found[4]:
            return self._one_of([*texts, *values_of(self._value(name, found[4], quoted))], name)
        given: Sequence[Sequence[str]] = [
            value if isinstance(value, list) else value.split() for value in self.runner.values(name)
        ]
        if name == ARGUMENTS and not given:
            given = self._arguments("@") or []
        texts += (text for words in given for text in self._joined(element(words, found), False, quoted))
        return self._one_of(list(dict.fromkeys(texts)), name)

    def _arguments(self, name: str) -> list[Positional] | None:
        """The words that `$1` or `$@` may be."""
        given = self.runner.positional
        if given is None or (name == "0" and not all(given)):
            return None
        if name in "@*":
            return [words[1:] for words in given]
        at = int(name.lstrip("0")[:9] or "0")
        return [words[at : at + 1] for words in given]

    def _parameter(self, quoted: bool) -> Part:
        """`${...}`."""
        start = self.at - 1
        found = _PARAMETER.match(self.text, self.at)
        if found is None:
            self.at += 1
            if self.text[self.at : self.at + 1] in (" ", "\t", "\n", "|"):
                return self._function_substitution(quoted)
            operand = self._word(operand=True)
            self.at += self.text.startswith("}", self.at)
            given = UNNAMED.match(self.text, start + 1)
            if given is not None:  # `${:-rm}` of zsh
                texts = [plain(each)[given.end() - start - 2 :] for each in every(operand)]
                if "e" in given[0]:
                    for each in texts:
                        self.runner.script(f': "{each}"', self.depth + 1)
                return self._one_of(
                    [text for each in texts for text in self._inserted_text(each, quoted)], "-"
                )
            return f"{QUOTED}${{{plain(first(operand))}}}"
        self.at = found.end()
        literal = quoted and (found["op"] or "").lstrip(":") in ("-", "=", "?", "+")
        operands = [plain(each) for each in every(self._word(operand=True, literal=literal))]
        if self.text.startswith("}", self.at):
            self.at += 1
        name, operation = found["name"], found["op"] or ""
        subscript = (found["at"] or "[]")[1:-1]
        if found["flags"] and self._flagged(found["flags"], name):
            return anything(name)
        if not operation and not found["what"] and operands[0][:1] == "[":
            if not all(operand.endswith("]") for operand in operands):
                return QUOTED + self.text[start : self.at][:LONGEST_SHOWN]
            subscript = "$"  # an expression that is not worked out
        if found["what"] == "!" and not operation:
            named = [each for each in self.runner.values(name) if isinstance(each, str)]
            if named and all(map(NAME.fullmatch, named)):
                pointed = [self._value(each, "", quoted) for each in named]
                return self._one_of([text for part in pointed for text in values_of(part)], name)
        if found["what"]:
            shown = QUOTED + self.text[start : self.at][:LONGEST_SHOWN]
            return shown + NAMED if found["what"] == "!" else shown
        if not operation:
            return self._value(name, subscript, quoted)
        parts = [
            text
            for operand in operands
            for text in values_of(self._operated(name, subscript, operation, operand, quoted, start))
        ]
        return self._one_of(list(dict.fromkeys(parts)), name)

    def _flagged(self, flags: str, name: str) -> bool:
        """Whether flags of zsh make another value of it, which is not worked out."""
        if "e" in flags:
            for value in self.runner.values(name):
                self.runner.script(f': "{value}"', self.depth + 1)
        return SPLITTING.fullmatch(flags) is None

    def _operated(
        self, name: str, subscript: str, operation: str, operand: str, quoted: bool, start: int
    ) -> Part:
        value = self._value(name, subscript, True)
        texts = values_of(value)
        known = not texts[0].startswith("$")
        bare = operation.removeprefix(":")
        inserted = self._inserted_text(operand, quoted)
        if bare in ("-", "="):
            if bare == "=":
                self.runner.assign(name, (operand,), False, False)
            if not known:
                return self._one_of([*inserted, texts[0]], name)
            lefts = values_of(self._value(name, subscript, quoted))
            if len(lefts) != len(texts):
                return self._one_of([*lefts, *inserted], name)
            is_set = bare == operation and not (name.isdigit() or name in "@*")
            found = [
                each
                for text, left in zip(texts, lefts, strict=True)
                for each in ([left] if plain(text) else [*inserted, left] if is_set else inserted)
            ]
            return self._one_of(found, name)
        if bare == "+":
            return self._one_of([*inserted, ""], name)
        if bare == "?":
            return self._value(name, subscript, quoted)
        if operation == "@" and operand == "P":
            self.runner.script(f': "{plain(texts[0])}"', self.depth + 1)  # a prompt's substitutions are run
        shown = QUOTED + self.text[start : self.at][:LONGEST_SHOWN]
        if known and operation == ":" and (name in "@*" or subscript in ("@", "*")):
            part = self._slice(name, operand, quoted)
            return shown if part is None else part
        if known:
            made: list[str] = []
            for text in map(plain, texts):
                self.runner.step(transform_effort(text, operation, operand))
                changed = transform(text, operation, operand)
                made += [shown] if changed is None else self._inserted_text(changed, quoted)
            source = value.of if isinstance(value, Several) and len(made) == len(texts) else ""
            return self._one_of(made, name, source)
        if name in ENVIRONMENT and operation == ":" and re.fullmatch(r"\s*0\s*:\s*1\s*", operand):
            return "/"
        return shown + NAMED

    def _slice(self, name: str, operand: str, quoted: bool) -> Part | None:
        """`${a[@]:1:2}`, `${@:2}`."""
        numbers = _SLICE.fullmatch(operand)
        if numbers is None:
            return None
        lists = (self.runner.positional or [()]) if name in "@*" else self.runner.values(name)
        begin = int(numbers[1])
        end = None if numbers[2] is None else begin + int(numbers[2])
        found: list[str] = []
        for each in lists:
            words = [each] if isinstance(each, str) else list(each)
            part = words[begin : end if begin >= 0 or end is None or end < 0 else None]
            found += self._joined(part, False, quoted)
        return self._one_of(found, name)


def _elements(values: list[Value]) -> list[Value]:
    """What an element of an array may be."""
    each = [one for value in values for one in ([value] if isinstance(value, str) else value)]
    return list(each[:MOST_VALUES])
