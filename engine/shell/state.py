"""What a reading knows so far: variables, files, folder and functions, beside its entries.

Decides what commands leave behind for those after them. Knows nothing of syntax or of which command starts
which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from engine.shell.commands import SimpleCommand
from engine.shell.dialects import LOST, name_scripts
from engine.shell.emulation import LONGEST_OUTPUT
from engine.shell.entries import EntryList
from engine.shell.expansion import TooMuch, fields, plain, render, unmark
from engine.shell.files.downloads import DOWNLOADERS, downloaded
from engine.shell.files.whereabouts import ABSOLUTE, Whereabouts, joined
from engine.shell.starting.program_files import BEGIN_OF_CLIENTS, included, named, run_by_text
from engine.shell.starting.started import Started
from engine.shell.variables.builtins import assigned
from engine.shell.variables.choices import CHANGED, first, is_anything, together
from engine.shell.variables.store import Positional, Value, Variables

DEEPEST: Final = 12
MOST_COPIES: Final = 256
DESCRIPTOR: Final = re.compile(r"\d+-?|-")
OWN: Final = re.compile(r"\./[^/]*")
"""A program of the folder at hand, which is no other of that name."""
_LOCAL: Final = re.compile(r"\.{1,2}(?:/|$)|\*")
_RELATIVE: Final = re.compile(r"[\w.][\w.*?/-]*")
_ON_NAMED_NAMES: Final = (
    "rm rmdir unlink shred cat tac head tail less more base64 xxd od strings cp mv tee touch source ."
)
_ON_NAMED: Final = frozenset(_ON_NAMED_NAMES.split())
ON_FILES: Final = _ON_NAMED | {"chmod", "chown", "chgrp", "find", "rsync", "tar", "ls"}
_BEFORE_FILE: Final = re.compile(r"^-[0rtpxo]{1,6}a")
"""`-0a f` of xargs is `-0 -a f`."""
_INTO: Final = (">", ">>", "1>", "&>")
_POSITIONAL: Final = re.compile(r"\$\{?[\d@*]")
_DESCRIBED: Final = re.compile(r"-[a-z]*?u(\d*)")
_UNPACKING: Final = frozenset({"gunzip", "bunzip2", "unxz", "unzstd", "gzip", "bzip2", "xz", "zstd"})
"""They leave the file without the end of its name."""
_COPYING: Final = frozenset({"cp", "mv", "install", "ln"})
_WRITING: Final = DOWNLOADERS | _UNPACKING | _COPYING | {"tee", "dd"}
"""What writes files that its words name."""
_PROGRAMS: Final = re.compile(r"s?bin")
"""Folders in which a shell looks for programs."""
LONGEST_NAME: Final = 1_024


class State(EntryList, Variables):
    """What is known, and the entries so far; made for texts of `size` characters."""

    def __init__(self, size: int) -> None:
        EntryList.__init__(self, size)
        Variables.__init__(self)
        self.inputs: dict[str, dict[str, None]] = {}
        """For simple commands, the texts that each is known to read: its input, and files written before."""
        self.files: dict[str, str] = {}
        self.sources: dict[str, tuple[str, ...]] = {}
        """For files, the pipelines that wrote them."""
        self.fed: dict[str, tuple[str, ...]] = {}
        """For redirections, as they are shown, the pipelines that wrote what they give to read."""
        self.placed: dict[str, str] = {}
        """For the names of programs, the files that were put where a shell looks for them."""
        self.functions: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.running: set[str] = set()
        self.decoded: dict[str, str] = {}
        self.copies: dict[str, str] = {}
        self.whereabouts = Whereabouts()
        self.there: dict[str, tuple[str, dict[str, None]]] = {}
        """Commands as they stand there, how each is shown, and the folders after `cd` in which it may run."""
        self.printed: tuple[str | None, ...] = ()
        self.also: list[str | None] = []
        """What else the scripts may print that a command starts."""

    def script(
        self, text: str, depth: int, given: str | None = None
    ) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
        """Read a script within this one."""
        raise NotImplementedError

    def reads(self, shown: str, words: Sequence[str], tail: str, stdin: str | None) -> None:
        """Note what a command gets to read, and from where."""
        files = [word.removeprefix("--file=").removeprefix("if=") for word in words]
        if self.files and shown.startswith(BEGIN_OF_CLIENTS):
            files += included((*words, stdin or ""))
        keys = list(map(self.key, files)) if self.sources else []
        for text in (stdin, *map(self.files.get, keys)):
            if text:
                self.inputs.setdefault(shown, {})[unmark(text)] = None
        chains = [chain for key in keys for chain in self.sources.get(key, ())]
        chains += self.fed.get(tail, ())
        self.behind(shown, chains)

    def stored(self, name: str) -> str | None:
        return self.files.get(self.key(name))

    def key(self, name: str) -> str:
        """Under which name a file is known: from where the call began, else as it is written."""
        written = name.removeprefix("./").replace("/proc/self/fd/", "/dev/fd/")
        if self.folder is not None and not name.startswith(ABSOLUTE) and len(name) < LONGEST_NAME:
            path = joined(self.folder, written)
            if path in self.files or path in self.sources:
                return path
        return written

    def define(self, name: str, body: str) -> None:
        self.functions[plain(name)] = body

    def substituted(self, word: str, output: str | None, chains: tuple[str, ...]) -> None:
        if output is not None:
            self.files[word] = unmark(output, null="\0")
        self.sources[word] = chains

    def known(self, word: str) -> bool:
        name = self.key(word)
        return name in self.files or name in self.sources

    def described(self, words: Sequence[str], stdin: str | None) -> str | None:
        """What `read -u 3` reads."""
        for word, following in pairwise((*words, "")):
            if found := _DESCRIBED.fullmatch(word):
                return self.stored(f"/dev/fd/{found[1] or following}")
        return stdin

    def argument_file(self, words: Sequence[str], stdin: str | None) -> str | None:
        """What `xargs` reads: its input, or the file of `-a`."""
        for at, word in enumerate(words):
            word = _BEFORE_FILE.sub("-a", word)
            if word in ("-a", "--arg-file"):
                return self.stored(words[at + 1]) if at + 1 < len(words) else None
            if word.startswith(("-a", "--arg-file=")):
                return self.stored(word.removeprefix("--arg-file=").removeprefix("-a"))
            if not word.startswith("-"):
                break
        return stdin

    def from_files(self, name: str, words: Sequence[str]) -> list[Started]:
        """What a program runs of the files that it takes that from."""
        texts = list(filter(None, map(self.stored, named(name, words))))
        self.step(sum(1 + len(text) // 16 for text in texts))
        return [each for text in texts for each in run_by_text(name, text)]

    def is_lost(self, program: str) -> bool:
        """Whether a program stands in a variable that the text assigns and that is not followed."""
        found = CHANGED.match(program)
        lost = is_anything(program) or LOST.match(program) is not None
        return lost or (found is not None and found[1] in self.variables)

    def feeds_back(
        self, body: str, before: Mapping[str, list[Value]], given: list[Positional] | None
    ) -> bool:
        """Whether the body of a loop may use in one turn what it assigned in the turn before."""
        changed = [
            name for name, values in self.variables.items() if name != "_" and values != before.get(name)
        ]
        if given != self.positional and _POSITIONAL.search(body):
            return True
        if not changed:
            return False
        self.step((len(changed) + len(self.functions)) * len(body) // 4096)
        if "eval" in body or "${!" in body or any(name in body for name in self.functions):
            return True
        for name in map(re.escape, changed):
            use = re.search(rf"\$\{{?#?{name}\b", body)
            if use is not None and re.search(rf"(?<![$\w{{]){name}\b", body[use.end() :]):
                return True
        return False

    def again(self, text: str, depth: int, given: str | None = None) -> tuple[str | None, ...]:
        """Read once more what was read before, with other values; its commands do not count again."""
        commands = self._commands
        outputs, _ = self.script(text, depth, given)
        self._commands = commands
        return outputs

    # ---- what commands leave behind --------------------------------------------------------------------

    def remember(self, name: str, words: Sequence[str], stdin: str | None, certain: bool) -> None:
        """What a builtin leaves behind."""
        name = "[[" if name.startswith("[[ ") and "=~" in name else name
        for entry in assigned(self, name, words, stdin, certain):
            self.add(entry)
        if name in ("alias", "hash"):
            name_scripts(self.aliases, name, words)
        elif name in ("cd", "pushd"):
            self.enter([word for word in words if not word.startswith("-") or word == "-"], certain)
        elif name == "popd":
            self.enter(["-"], False)

    def is_own(self, name: str) -> bool:
        """Whether the text says itself what a name runs."""
        return name in self.functions or name in self.aliases or name in self.placed

    def enter(self, words: Sequence[str], certain: bool) -> None:
        """Go where `cd` leads, from the folder at hand."""
        target = words[0] if words else "~"
        searched = [value for value in self.variables.get("CDPATH", ()) if isinstance(value, str)]
        folders = [each for value in searched for each in value.split(":") if each]
        self.whereabouts = (
            self.whereabouts.somewhere()
            if target == "-"
            else self.whereabouts.entered(target, certain, folders)
        )

    def goes_to(self, folder: str) -> Whereabouts | None:
        """Go to a folder, if one is named; where it was before."""
        before = self.whereabouts
        self.whereabouts = before.entered(folder, False).known(True) if folder else before
        return before if folder else None

    def surely_there(self, word: str) -> None:
        """Know that what follows runs where the `cd` before it led, or not at all."""
        if word not in self.functions and word not in self.aliases:
            self.whereabouts = self.whereabouts.known(True)

    @property
    def folder(self) -> str | None:
        """Where `cd` led."""
        return self.whereabouts.folder

    def stands(self, words: Sequence[str], tail: str) -> str:
        """How a command is written where it stands, if `cd` led elsewhere before."""
        return render(words) + tail if self.whereabouts.folders() else ""

    def run_there(self, written: str, shown: str) -> None:
        """Note in which folders a command may run."""
        if not written:
            return
        folders = self.there.setdefault(written, (shown, {}))[1]
        for folder in self.whereabouts.folders():
            if folder not in folders:
                self._room -= len(written) + len(folder)
                folders[folder] = None
        if self._room < 0:
            raise TooMuch

    def from_start(self, words: Sequence[str], tail: str, name: str) -> list[str]:
        """The words with `*`, `.` and `../x` told from the folder the call began in; a command on files is
        also added with all of its paths told so."""
        if name in _ON_NAMED:
            self.command(render([name, *map(self.told, words)]) + tail)
        return [self.told(word) if _LOCAL.match(word) else word for word in words]

    def told(self, word: str) -> str:
        """A relative path told from the folder the call began in."""
        local = self.folder is not None and (_LOCAL.match(word) or _RELATIVE.fullmatch(word))
        return joined(self.folder or ".", word) if local else word

    def redirected(
        self,
        simple: SimpleCommand,
        shown: str,
        output: str | None,
        before: tuple[str, ...],
        outputs: Sequence[str | None],
    ) -> str | None:
        """Files that the command writes, to know them when they are run; what is left to print."""
        command = shown.split(" ", 1)[0].lower()
        if not simple.redirections and command not in _WRITING and "tee" not in shown:
            return output
        words = [word for raw in simple.words for word in fields(first(raw))] if simple.words else []
        chains = self.lengthened(before, shown)
        name = bare(words[0]) if words else ""
        targets = [plain(first(raw)) for operator, raw in simple.redirections if operator in _INTO]
        printed = "" if targets else output
        if "tee" in (name, command):
            targets += [word for word in words[1:] if not word.startswith("-")]
        elif command in DOWNLOADERS:
            targets += downloaded(command, words[1:])
        elif command == "dd":
            targets += [word[3:] for word in words[1:] if word.startswith("of=")]
        elif command in _UNPACKING:
            targets += [word.rpartition(".")[0] for word in words[1:] if self.key(word) in self.sources]
        elif command in _COPYING and len(words) > 2:
            self._copied(words)
            return ""
        if len(outputs) > 1:
            output = together(outputs)
        for target in targets:
            self._write(target, output, chains)
        return printed

    def _copied(self, words: Sequence[str]) -> None:
        """The last word is the new name of the one before, or the folder of all before."""
        *_, source, target = words
        if "/" in self.key(source):
            if len(self.copies) >= MOST_COPIES:
                raise TooMuch
            self.copies[target.removeprefix("./")] = bare(self.key(source))
        self._copy(source, target)
        if target.endswith("/") or _PROGRAMS.fullmatch(target.rpartition("/")[2]):
            for each in words[1:-1]:
                self._copy(each, f"{target.rstrip('/')}/{each.rpartition('/')[2]}")

    def _copy(self, source: str, target: str) -> None:
        key = self.key(source)
        text, chains = self.files.get(key), self.sources.get(key, ())
        if text is not None or chains:
            self._write(target, text, chains)

    def _write(self, target: str, text: str | None, chains: tuple[str, ...]) -> None:
        self._keep(target.removeprefix("./"), text, chains)
        if self.folder is not None and not target.startswith(ABSOLUTE) and len(target) < LONGEST_NAME:
            self._keep(joined(self.folder, target), text, chains)

    def _keep(self, name: str, text: str | None, chains: tuple[str, ...]) -> None:
        if len(self.sources) > 256 and name not in self.sources:
            raise TooMuch
        self.files.pop(name, None)
        if text is not None:
            self.files[name] = text[:LONGEST_OUTPUT]
        self.sources[name] = chains
        folder, _, program = name.rpartition("/")
        if _PROGRAMS.fullmatch(folder.rpartition("/")[2]):
            self.placed[program] = name


def bare(word: str) -> str:
    """`rm` of `/bin/rm` and of `C:\\tools\\rm.exe`."""
    if len(word) > 4096 or word.startswith(("$(", "<(")) or " " in word or "://" in word:
        return word
    bare = word[max(word.rfind("/"), word.rfind("\\")) + 1 :]
    return (bare[:-4] if bare[-4:].lower() in (".exe", ".com") else bare) or word
