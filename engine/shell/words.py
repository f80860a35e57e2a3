"""Reads the words of a script: quotes, expansions, substitutions, braces.

A word is read into texts with marks (see `expansion`); the commands within it are read by the method
`commands`, which `scanner` adds. Every step is counted, so reading always ends. Knows nothing of pipelines or
of what commands mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.shell.commands import Pipeline, Runner
from engine.shell.dialects import ALTERNATIVES, QUALIFIER
from engine.shell.expansion import (
    BREAK,
    CLOSE,
    COMMA,
    OPEN,
    QUOTED,
    effort,
    fields,
    unescape,
)
from engine.shell.variables.choices import Part, Raw, every, first, together, values_of
from engine.shell.variables.parameters import LONGEST_SHOWN, NAME, ParameterReader

MOST_CHAINS: Final = 4
"""Commands that a group is known by."""
MOST_SHOWN: Final = 8
"""Commands that a substitution shows."""
DEEPEST_NESTED: Final = 16


_PLAIN: Final = re.compile(r"[^ \t\r\n'\"\\$`|&;<>(){}]+")
_PLAIN_IN_BRACES: Final = re.compile(r"[^ \t\r\n'\"\\$`|&;<>(){},]+")
_PLAIN_IN_OPERAND: Final = re.compile(r"[^'\"\\$`}]+")
_IN_DOUBLE: Final = re.compile(r'[^"\\$`]+')
IN_DOCUMENT: Final = re.compile(r"[^\\$`]+")
_ANSI: Final = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL)
_SPLIT_OPERATOR: Final = re.compile(r"([<>&|;$({])(?:\\\n)+")
_ARITHMETIC: Final = re.compile(
    r"\(\((?:[^;\n'\"`()$]|\$(?!\()|\((?:[^;\n'\"`()$]|\$(?!\()){0,200}\)){0,400}\)\)"
)
_ENDED: Final = re.compile(r"[\s;&|<>)]|$")
_BACKTICKS: Final = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)


class WordReader(ParameterReader):
    """Reads the words of `text`."""

    def __init__(self, runner: Runner, text: str, depth: int) -> None:
        text = _SPLIT_OPERATOR.sub(r"\1", text) if "\\\n" in text else text
        super().__init__(runner, text, depth)
        self.line_end = -1
        self.documents_to: dict[int, int] = {}
        runner.step(3 + len(text) // 1024)

    def commands(self, closer: str, given: str | None, before: tuple[str, ...]) -> Pipeline:
        """Read the commands up to the closer."""
        raise NotImplementedError

    # ---- words -----------------------------------------------------------------------------------------

    def _fields(self, raw: Raw) -> list[str]:
        return [word for each in every(raw) for word in fields(each)]

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
                self.at += 1
                quoted = self._quoted(_IN_DOUBLE, '"')
                if not _is_list(quoted):  # of no words `"$@"` makes none
                    raw.append(QUOTED)
                raw += quoted
            elif char == "\\":
                after = text[self.at + 1 : self.at + 2]
                if after != "\n":
                    raw.append(char + after if literal and after not in '$`"\\}' else after)
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
            elif (char in "<>" and text.startswith("(", self.at + 1)) or (char == "(" and raw == ["="]):
                self.at += 1 + (char != "(")
                if char == "(":  # `=(...)` of zsh
                    raw.clear()
                outputs, shown, chains = self._nested()
                shown = f"{'>' if char == '>' else '<'}({shown})"
                if char != ">":
                    self.runner.substituted(shown, together(outputs), chains)
                raw.append(QUOTED + shown)
            elif char == "(" and raw and self._globbed(raw):
                continue
            else:
                break
        if len(raw) > 1 and all(isinstance(part, str) for part in raw):
            return ["".join(part for part in raw if isinstance(part, str))]
        return raw

    def _globbed(self, raw: Raw) -> bool:
        """Take `(a|b)` within a path, and the code in `*(e:'rm x':)`, as zsh has them."""
        self.runner.step(1 + len(raw))  # all of it is looked through
        globs = any(isinstance(part, str) and ("*" in part or "?" in part) for part in raw)
        if globs and (code := QUALIFIER.match(self.text, self.at)) is not None:
            self.at = code.end()
            script = code[1] or code[3]
            self.runner.script(script.strip("'\""), self.depth + 1)
            return True
        found = ALTERNATIVES.match(self.text, self.at)
        if found is None or not any(isinstance(part, str) and "/" in part for part in raw):
            return False
        self.at = found.end()
        several = found[1].split("|")
        is_last = _ENDED.match(self.text, self.at) is not None
        if first(raw[-1:]).endswith(("*", "?")) or (is_last and len(several) == 1):
            several.insert(0, "")  # where it says which files are meant: `/*(N)`
        raw += [OPEN, *COMMA.join(several), CLOSE] if len(several) > 1 else several
        return True

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

    def _nested(self) -> tuple[tuple[str | None, ...], str, tuple[str, ...]]:
        """The commands up to the closing parenthesis: what they may print, how they are shown, their
        chains."""
        with_depth = self.depth
        self.depth += 1
        self.runner.step(1 if self.depth <= DEEPEST_NESTED else 1 << 30)
        positional, whereabouts = self.runner.positional, self.runner.whereabouts
        line = self.commands(")", None, ())
        self.depth, self.runner.positional, self.runner.whereabouts = with_depth, positional, whereabouts
        return line.collected_each(), self._shown(line.heads), self._known_by(line.heads)

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

    def _backticks(self, quoted: bool) -> Part:
        found = _BACKTICKS.match(self.text, self.at)
        if found is None:
            self.at += 1
            return "" if self.text[self.at - 2 : self.at - 1].isalnum() else "`"
        self.at = found.end()
        inner = re.sub(r'\\([`\\$"])' if quoted else r"\\([`\\$])", r"\1", found[1])
        return self._printed(inner, quoted)

    def _printed(self, script: str, quoted: bool) -> Part:
        """What a script within a word prints."""
        positional, whereabouts = self.runner.positional, self.runner.whereabouts
        outputs, heads = self.runner.script(script, self.depth + 1)
        self.runner.positional, self.runner.whereabouts = positional, whereabouts
        return self._inserted(outputs, self._shown(heads), quoted)

    def _expansion(self, quoted: bool) -> Part:
        """What stands at a `$`; its length and the words in it are counted as steps."""
        found = self._dollar(quoted)
        for value in (found,) if isinstance(found, str) else found.values:
            self.runner.step(len(value) // 1024 + value.count(BREAK))
        return found

    def _dollar(self, quoted: bool) -> Part:
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
        if char == "=" and not quoted and self.runner.values((NAME.match(text, self.at + 1) or [""])[0]):
            self.at += 1  # `$=x` of zsh
        if char == "(":
            arithmetic = _ARITHMETIC.match(text, self.at)
            if arithmetic is not None:
                self.at = arithmetic.end()
                self.runner.remember("let", [arithmetic[0]], None, False)
                return QUOTED + "$" + arithmetic[0]
            self.at += 1
            outputs, shown, _ = self._nested()
            return self._inserted(outputs, shown, quoted)
        if char == "{":
            return self._parameter(quoted)
        name = NAME.match(text, self.at)
        if name is None:
            return "$"
        self.at = name.end()
        return self._behind(name[0], quoted)

    def _function_substitution(self, quoted: bool) -> Part:
        """`${ command; }`."""
        end = self.text.find("}", self.at)
        end = len(self.text) if end < 0 else end
        inner = self.text[self.at : end].lstrip("|")
        self.at = end + 1
        return self._printed(inner, quoted)


def _is_list(quoted: Raw) -> bool:
    """Whether what stood in quotes is one expansion, each of whose words is marked as quoted."""
    return len(quoted) == 1 and all(text[:1] in ("", QUOTED) for text in values_of(quoted[0]))
