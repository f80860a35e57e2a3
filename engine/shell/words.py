"""Reads the words of a script: quotes, expansions, substitutions, braces.

A word is read into texts with marks (see `expansion`); the commands within it are read by the method
`commands`, which `scanner` adds. Every step is counted, so reading always ends. Knows nothing of pipelines or
of what commands mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.shell.commands import Pipeline, Raw, Runner
from engine.shell.expansion import (
    BREAK,
    CLOSE,
    COMMA,
    NAMED,
    OPEN,
    QUOTED,
    effort,
    fields,
    plain,
    split_value,
    transform,
    transform_effort,
    unescape,
)

MOST_CHAINS: Final = 4
"""Commands that a group is known by."""
MOST_SHOWN: Final = 8
"""Commands that a substitution shows."""
MOST_VALUES: Final = 64
"""Values of one variable that are tried."""
DEEPEST_NESTED: Final = 16
LONGEST_SHOWN: Final = 2_000


_PLAIN: Final = re.compile(r"[^ \t\r\n'\"\\$`|&;<>(){}]+")
_PLAIN_IN_BRACES: Final = re.compile(r"[^ \t\r\n'\"\\$`|&;<>(){},]+")
_PLAIN_IN_OPERAND: Final = re.compile(r"[^'\"\\$`}]+")
_IN_DOUBLE: Final = re.compile(r'[^"\\$`]+')
IN_DOCUMENT: Final = re.compile(r"[^\\$`]+")
_ANSI: Final = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_SPLIT_OPERATOR: Final = re.compile(r"([<>&|;$({])(?:\\\n)+")
_ARITHMETIC: Final = re.compile(
    r"\(\((?:[^;\n'\"`()$]|\$(?!\()|\((?:[^;\n'\"`()$]|\$(?!\()){0,200}\)){0,400}\)\)"
)
_BACKTICKS: Final = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_PARAMETER: Final = re.compile(
    r"\{(?P<what>[!#]?)(?P<name>[A-Za-z_]\w*|\d+|[@*?$!-])(?P<at>\[(?:[^\]\n$`]|\$(?!\()){0,200}\])?(?P<op>:[-=?+]|##?|%%?|//?|\^\^?|,,?|[-=?+:@])?",
    re.ASCII,
)
_ENVIRONMENT_ROOT: Final = frozenset(["HOME", "PATH", "PWD", "OLDPWD", "SHELL", "MANPATH", "GOPATH"])
"""Variables whose values begin with `/` wherever they are set."""


class WordReader:
    """Reads the words of `text`. `positional` are `$0`, `$1`, ...; None where they are not known, as in the
    body of a function."""

    def __init__(self, runner: Runner, text: str, depth: int, positional: tuple[str, ...] | None) -> None:
        self.runner = runner
        self.text = _SPLIT_OPERATOR.sub(r"\1", text) if "\\\n" in text else text
        self.at = 0
        self.depth = depth
        self.positional = positional
        self.line_end = -1
        self.documents_to: dict[int, int] = {}
        runner.step(3 + len(text) // 1024)

    def commands(self, closer: str, given: str | None, before: tuple[str, ...]) -> Pipeline:
        """Read the commands up to the closer."""
        raise NotImplementedError

    # ---- words -----------------------------------------------------------------------------------------

    def _choices(self, raw: Raw) -> list[str]:
        """The word with each of the values that its variables may have."""
        most = max((len(part) for part in raw if isinstance(part, tuple)), default=1)
        return [
            "".join(part if isinstance(part, str) else part[min(choice, len(part) - 1)] for part in raw)
            for choice in range(most)
        ]

    def _first_of(self, part: str | tuple[str, ...]) -> str:
        return part if isinstance(part, str) else part[0]

    def _first(self, raw: Raw) -> str:
        return "".join(map(self._first_of, raw))

    def _fields(self, raw: Raw) -> list[str]:
        return [word for choice in self._choices(raw) for word in fields(choice)]

    def _word(self, operand: bool = False, literal: bool = False) -> Raw:
        """One word from here; as an operand of `${x:-...}` it may hold blanks and ends before the `}`, and
        (`literal`) a single quote in it may be one."""
        text, size = self.text, len(self.text)
        raw: Raw = []
        depth = 0
        while self.at < size:
            self.runner.step()
            chunk = (_PLAIN_IN_OPERAND if operand else _PLAIN_IN_BRACES if depth else _PLAIN).match(
                text, self.at
            )
            if chunk is not None:
                raw.append(chunk[0])
                self.at = chunk.end()
                continue
            char = text[self.at]
            if char == "'" and literal:
                raw.append(char)
                self.at += 1
            elif char == "'":
                end = text.find("'", self.at + 1)
                end = size if end < 0 else end
                raw.append(QUOTED + text[self.at + 1 : end])
                self.at = end + 1
            elif char == '"':
                start = self.at
                self.at += 1
                quoted = self._quoted(_IN_DOUBLE, '"')
                if text[start : self.at] not in ('"$@"', '"${@}"'):  # of no arguments these make no word
                    raw.append(QUOTED)
                raw += quoted
            elif char == "\\":
                if text[self.at + 1 : self.at + 2] != "\n":
                    raw.append(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char == "$":
                raw.append(self._expansion(False))
            elif char == "`":
                raw.append(self._backticks(False))
            elif operand:
                break
            elif char == "{":
                raw.append(OPEN)
                depth += 1
                self.at += 1
            elif char == "}":
                raw.append(CLOSE)
                depth = max(0, depth - 1)
                self.at += 1
            elif char == "," and depth:
                raw.append(COMMA)
                self.at += 1
            elif char in "<>" and text.startswith("(", self.at + 1):
                self.at += 2
                output, shown, chains = self._nested()
                shown = f"{char}({shown})"
                if char == "<":
                    self.runner.substituted(shown, output, chains)
                raw.append(QUOTED + shown)
            else:
                break
        if len(raw) > 1 and all(isinstance(part, str) for part in raw):
            return ["".join(part for part in raw if isinstance(part, str))]
        return raw

    def _quoted(self, plain_part: re.Pattern[str], closer: str) -> Raw:
        """What stands in double quotes or in a here-document, up to and over the closer."""
        text, size = self.text, len(self.text)
        raw: Raw = []
        while self.at < size:
            self.runner.step()
            chunk = plain_part.match(text, self.at)
            if chunk is not None:
                raw.append(chunk[0])
                self.at = chunk.end()
                continue
            char = text[self.at]
            if char == closer:
                self.at += 1
                break
            if char == "\\":
                after = text[self.at + 1 : self.at + 2]
                if after != "\n":
                    raw.append(after if after in ("$", "`", "\\", closer) else char + after)
                self.at += 2
            else:
                raw.append(self._expansion(True) if char == "$" else self._backticks(True))
        return raw

    # ---- expansions ------------------------------------------------------------------------------------

    def _nested(self) -> tuple[str | None, str, tuple[str, ...]]:
        """The commands up to the closing parenthesis: their output, how they are shown, their chains."""
        with_depth = self.depth
        self.depth += 1
        self.runner.step(1 if self.depth <= DEEPEST_NESTED else 1 << 30)
        positional, folder = self.positional, self.runner.folder
        line = self.commands(")", None, ())
        self.depth, self.positional, self.runner.folder = with_depth, positional, folder
        chains = self._known_by(line.heads)
        shown = self._shown(line.heads)
        return line.collected(), shown, chains

    def _known_by(self, heads: list[str]) -> tuple[str, ...]:
        """The last commands of a group, which hand on what those before them give."""
        if len(heads) > MOST_CHAINS:
            self.runner.behind(heads[-MOST_CHAINS], heads[:-MOST_CHAINS])
        return tuple(heads[-MOST_CHAINS:])

    def _shown(self, heads: Sequence[str]) -> str:
        """How a substitution is shown, which hands on what the commands in it give."""
        shown = "; ".join(heads[-MOST_SHOWN:])[:LONGEST_SHOWN]
        self.runner.behind(shown, [head for head in heads if head != shown])
        return shown

    def _inserted(self, output: str | None, shown: str, quoted: bool) -> str:
        if output is None:
            return f"{QUOTED}$({shown})"
        output = output.replace("\0", "").rstrip("\n")
        return QUOTED + output if quoted else self._split(output)

    def _split(self, value: str) -> str:
        separators = self.runner.values("IFS")
        return split_value(value, separators[0] if separators and isinstance(separators[0], str) else None)

    def _backticks(self, quoted: bool) -> str:
        found = _BACKTICKS.match(self.text, self.at)
        if found is None:
            self.at += 1
            return "" if self.text[self.at - 2 : self.at - 1].isalnum() else "`"
        self.at = found.end()
        inner = re.sub(r'\\([`\\$"])' if quoted else r"\\([`\\$])", r"\1", found[1])
        output, heads = self.runner.script(inner, self.depth + 1)
        return self._inserted(output, self._shown(heads), quoted)

    def _expansion(self, quoted: bool) -> str | tuple[str, ...]:
        """What stands at a `$`; its length and the words in it are counted as steps."""
        found = self._dollar(quoted)
        for value in (found,) if isinstance(found, str) else found:
            self.runner.step(len(value) // 1024 + value.count(BREAK))
        return found

    def _dollar(self, quoted: bool) -> str | tuple[str, ...]:
        text = self.text
        self.at += 1
        char = text[self.at : self.at + 1]
        if char == "'" and not quoted:
            found = _ANSI.match(text, self.at + 1)
            assert found is not None
            self.at = found.end() + 1
            self.runner.step(effort(found[0]))
            return QUOTED + unescape(found[0])
        if char == '"' and not quoted:
            return ""
        if char == "(":
            arithmetic = _ARITHMETIC.match(text, self.at)
            if arithmetic is not None:
                self.at = arithmetic.end()
                return QUOTED + "$" + arithmetic[0]
            self.at += 1
            output, shown, _ = self._nested()
            return self._inserted(output, shown, quoted)
        if char == "{":
            return self._parameter(quoted)
        name = _NAME.match(text, self.at)
        if name is None:
            return "$"
        self.at = name.end()
        return self._value(name[0], "", quoted)

    def _value(self, name: str, subscript: str, quoted: bool) -> str | tuple[str, ...]:
        """`$name`: its value, or itself when that is unknown."""
        if name == "IFS" and not self.runner.values(name):
            return " " if quoted else BREAK
        if name.isdigit() or name in "@*":
            words = self._arguments(name)
            if words is None:
                return f"${name}"
            if name == "*" and quoted:
                return QUOTED + " ".join(words)
            return (BREAK.join(words) if quoted else BREAK.join(map(self._split, words))) or ""
        values = self.runner.values(name)
        if subscript not in ("", "@", "*"):
            key = self._key(subscript)
            found = self.runner.values(f"{name}[{key}]") if key else []
            values = found or (values if key and key.lstrip("-").isdecimal() else _elements(values))
            subscript = key or ""
        if not values:
            return f"${name}{NAMED}" if name[0].isalpha() or name[0] == "_" else f"${name}"
        shown = tuple(self._element(value, subscript, quoted) for value in values)
        return shown if len(shown) > 1 else shown[0]

    def _key(self, subscript: str) -> str | None:
        """What stands in `a[...]`, None when that is not known."""
        written = subscript.strip("'\"")
        name = re.fullmatch(r"\$?\{?([A-Za-z_]\w{0,99})\}?", written, re.ASCII)
        values = self.runner.values(name[1]) if name else []
        if values and isinstance(values[0], str) and len(values) == 1:
            return values[0][:200]
        return written if re.fullmatch(r"-?[\w./]+", written) else None

    def _element(self, value: str | list[str], subscript: str, quoted: bool) -> str:
        if isinstance(value, str):
            return QUOTED + value if quoted else self._split(value)
        if subscript in ("@", "*"):
            return BREAK.join(QUOTED + word if quoted else self._split(word) for word in value)
        index = int(subscript) if re.fullmatch(r"-?\d{1,5}", subscript) else 0
        word = value[index] if -len(value) <= index < len(value) else ""
        return QUOTED + word if quoted else self._split(word)

    def _arguments(self, name: str) -> tuple[str, ...] | None:
        if self.positional is None:
            return None
        words = self.runner.positional or self.positional
        if name in "@*":
            return words[1:]
        index = int(name)
        if index == 0 and not words:
            return None
        return words[index : index + 1]

    def _parameter(self, quoted: bool) -> str | tuple[str, ...]:
        """`${...}`."""
        start = self.at - 1
        found = _PARAMETER.match(self.text, self.at)
        if found is None:
            self.at += 1
            if self.text[self.at : self.at + 1] in (" ", "\t", "\n", "|"):
                return self._function_substitution(quoted)
            shown = plain(self._first(self._word(operand=True)))
            self.at += self.text.startswith("}", self.at)
            return f"{QUOTED}${{{shown}}}"
        self.at = found.end()
        literal = quoted and (found["op"] or "").lstrip(":") in ("-", "=", "?", "+")
        operand = plain(self._first(self._word(operand=True, literal=literal)))
        if self.text.startswith("}", self.at):
            self.at += 1
        name, operation = found["name"], found["op"] or ""
        subscript = (found["at"] or "[]")[1:-1]
        if found["what"] == "!" and not operation:
            pointed = self.runner.values(name)
            if pointed and isinstance(pointed[0], str) and _NAME.fullmatch(pointed[0]):
                return self._value(pointed[0], "", quoted)
        if found["what"]:
            return QUOTED + self.text[start : self.at][:LONGEST_SHOWN]
        if not operation:
            return self._value(name, subscript, quoted)
        return self._operated(name, subscript, operation, operand, quoted, start)

    def _function_substitution(self, quoted: bool) -> str:
        """`${ command; }`."""
        end = self.text.find("}", self.at)
        end = len(self.text) if end < 0 else end
        inner = self.text[self.at : end].lstrip("|")
        self.at = end + 1
        output, heads = self.runner.script(inner, self.depth + 1)
        return self._inserted(output, self._shown(heads), quoted)

    def _operated(
        self, name: str, subscript: str, operation: str, operand: str, quoted: bool, start: int
    ) -> str | tuple[str, ...]:
        insert = (lambda value: QUOTED + value) if quoted else self._split
        value = self._value(name, subscript, True)
        first = value if isinstance(value, str) else value[0]
        known = not first.startswith("$")
        bare = operation.removeprefix(":")
        if bare in ("-", "="):
            if known and plain(first):
                return self._value(name, subscript, quoted)
            if bare == "=":
                self.runner.assign(name, (operand,), False, False)
            return insert(operand) if known else (insert(operand), first)
        if bare == "+":
            return (insert(operand), "")
        if bare == "?":
            return self._value(name, subscript, quoted)
        if operation == "@" and operand == "P":
            self.runner.script(f': "{plain(first)}"', self.depth + 1)  # a prompt's substitutions are run
        if known:
            value = plain(first)
            self.runner.step(transform_effort(value, operation, operand))
            changed = transform(value, operation, operand)
            if changed is not None:
                return insert(changed)
        elif name in _ENVIRONMENT_ROOT and operation == ":" and re.fullmatch(r"\s*0\s*:\s*1\s*", operand):
            return "/"
        return QUOTED + self.text[start : self.at][:LONGEST_SHOWN]


def _elements(values: list[str | list[str]]) -> list[str | list[str]]:
    """What an element of an array may be."""
    each = [one for value in values for one in ([value] if isinstance(value, str) else value)]
    return list(each[:MOST_VALUES])
