"""Which further command a command starts: `sudo`, `env`, `xargs`, `sh -c`, `eval`, `find -exec` and the like.

One table says how many words of each wrapper are its own. Pure; knows nothing of scripts, variables or files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Final

from engine.shell import dialects
from engine.shell.options import given
from engine.shell.starting import option_commands as options
from engine.shell.starting import windows
from engine.shell.starting.input_words import words_given
from engine.shell.starting.started import Started, after_options
from engine.shell.starting.unknown_words import without_unknown_words

SHELLS: Final = frozenset(
    ["sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "fish", "rbash", "yash", "csh", "tcsh"]
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=", re.ASCII)

_Rule = Callable[[Sequence[str], "str | None"], list[Started]]


def starts(name: str, words: Sequence[str], stdin: str | None) -> list[Started]:
    """What `name` with the arguments `words` starts, given its input (None: unknown). Often nothing."""
    rule = _RULES.get(name) or _RULES.get(name.lower())
    if rule is None:
        return []
    found = rule(words, stdin)
    is_shell = name in SHELLS
    if not is_shell and name not in _MERE_STARTERS:
        return found
    known = without_unknown_words(words, is_given_script=is_shell and stdin is not None)
    if known is None:
        return found
    programs = [each.words[:1] for each in found if each.kind == "words"]
    others = [replace(each, same=False) for each in rule(known, stdin)]
    # of a program that is known all the same, such a word is an operand
    return [*(each for each in others if each.words[:1] not in programs or each.kind != "words"), *found]


def _wrapper(
    with_value: str = "", long: str = "", own: int = 0, same: bool = True, assigns: bool = False
) -> _Rule:
    def rule(words: Sequence[str], stdin: str | None) -> list[Started]:
        at = after_options(words, with_value, long)
        while assigns and at < len(words) and _ASSIGNMENT.match(words[at]):
            at += 1
        rest = tuple(words[at + own :])
        return [Started("words", words=rest, same=same)] if rest else []

    return rule


def _another(program: str) -> _Rule:
    """The same words given to another program."""
    return lambda words, stdin: [Started("words", words=(program, *words), same=True)]


def _coreutils(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`coreutils rm x`, `coreutils --coreutils-prog=rm x`."""
    rest = [word.removeprefix("--coreutils-prog=") for word in words]
    return [Started("words", words=tuple(rest), same=True)] if rest else []


def _entering(rule: _Rule, program: str) -> _Rule:
    """The same in the folder that an option names."""

    def entering(words: Sequence[str], stdin: str | None) -> list[Started]:
        options = takewhile(lambda each: each.name, given(program, words))
        folder = next((each.value for each in options if each.name == "chdir"), "")
        return [replace(each, folder=folder) for each in rule(words, stdin)]

    return entering


def _joined(with_value: str = "", long: str = "", own: int = 0) -> _Rule:
    """The rest, put together, is a script: `ssh host a b`, `watch a b`."""

    def rule(words: Sequence[str], stdin: str | None) -> list[Started]:
        rest = words[after_options(words, with_value, long, own) :]
        return [Started("script", " ".join(rest))] if rest else []

    return rule


def _shell(words: Sequence[str], stdin: str | None) -> list[Started]:
    at, script = 0, False
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if word in ("--rcfile", "--init-file", "--emulate"):
            at += 1
        elif not word.startswith("--"):
            script |= "c" in word
            at += word[-1] in "oO"
    rest = tuple(words[at:])
    if script:
        return [Started("script", rest[0], rest[1:]) if rest else Started("input")]
    if rest and rest[0] not in ("-", "/dev/stdin") and not any("s" in word for word in words[:at]):
        return [Started("file", rest[0], rest)]
    return [Started("input", words=("sh", *rest))]


def _fish(words: Sequence[str], stdin: str | None) -> list[Started]:
    """It takes scripts as the values of options, `fish -C 'x' -c 'y'`, any number of them."""
    told = options.valued(*_FISH_RUNS)
    rest = [word for word, before in zip(words, ("", *words), strict=False) if before not in _FISH_RUNS]
    rest = [word for word in rest if not word.startswith(_FISH_RUNS)]
    return [*told(words, stdin), *_shell(rest, stdin)]


_FISH_RUNS: Final = ("-C", "--init-command", "--command")


def _eval(words: Sequence[str], stdin: str | None) -> list[Started]:
    rest = words[1:] if words[:1] == ["--"] else words
    return [Started("script", " ".join(rest), same=True, here=True)] if rest else []


def _source(words: Sequence[str], stdin: str | None) -> list[Started]:
    if not words:
        return [Started("input")]  # as fish does
    if words[0] in ("-", "/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
        return [Started("input")]
    file = Started("file", words[0], tuple(words), here=True)
    command = windows.dotted(words)
    return [Started("words", words=command), file] if command else [file]


def _env(words: Sequence[str], stdin: str | None) -> list[Started]:
    is_value = False
    for at, word in enumerate(words):
        if found := re.fullmatch(r"(?:-[i0v]*S|--s[a-z-]*(?:=|$))(.*)", word, re.DOTALL):
            text = " ".join([found[1], *words[at + 1 :]]).replace("\\_", " ")
            again = "env " if text.lstrip().startswith("-") else ""
            return [Started("script", again + text)] if text.strip() else []
        if not word.startswith("-") and not is_value:
            break
        is_value = re.fullmatch(r"-[i0v]*[uC]|--(?:u|ch)[a-z]*", word) is not None
    return _wrapper("uC", "--unset --chdir", assigns=True)(words, stdin)


def _command(words: Sequence[str], stdin: str | None) -> list[Started]:
    return [] if words and re.fullmatch(r"-[^\WvV]*+[vV]\w*+", words[0]) else _wrapper()(words, stdin)


def _xargs(words: Sequence[str], stdin: str | None) -> list[Started]:
    at = after_options(
        words, "InPLdEsa", "--max-args --max-procs --max-chars --delimiter --arg-file --process-slot-var"
    )
    rest = list(words[at:])
    given = words_given(words[:at], stdin)
    marks = [word[2:] or following for word, following in pairwise(words) if word.startswith("-I")]
    marks += [word.partition("=")[2] or "{}" for word in words if re.match(r"--replace(=|$)|-i$", word)]
    if rest and marks and any(marks[0] in word for word in rest):
        rest = [word.replace(marks[0], " ".join(given)) for word in rest] if given else rest
    elif given:
        rest += given
    fed = bool(rest) and stdin is None and _reads_script(rest)
    return [Started("words", words=tuple(rest), same=fed)] if rest else []


def _parallel(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`parallel rm {} ::: a b`, and what its input has where nothing stands behind colons."""
    begin = after_options(words, "jIaNSd", "--jobs --sshlogin --delimiter --arg-file")
    rest = words[begin:]
    at = next((at for at, word in enumerate(rest) if word.startswith(":::")), len(rest))
    given = " ".join(
        [word for word in rest[at:] if not word.startswith(":::")] or words_given(words[:begin], stdin)
    )
    template = rest[:at] if any("{}" in word for word in rest[:at]) else (*rest[:at], "{}")
    filled = tuple(word.replace("{}", given) for word in template) if given else rest[:at]
    return [Started("script", " ".join(filled)), Started("words", words=tuple(filled))] if filled else []


def _reads_script(words: Sequence[str]) -> bool:
    """A shell that is given no script of its own: what xargs adds is the script."""
    if words[0].rpartition("/")[2] not in SHELLS:
        return False
    return all(word.startswith("-") or word == "{}" for word in words[1:])


def _find(words: Sequence[str], stdin: str | None) -> list[Started]:
    found: list[Started] = []
    at = 0
    while at < len(words):
        if words[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((to for to in range(at + 1, len(words)) if words[to] in (";", "+")), len(words))
            found.append(Started("words", words=tuple(words[at + 1 : end])))
            at = end
        at += 1
    return found


def _option_c(letter: str = "c", long: str = "--command") -> _Rule:
    """`su -c '...'`: the script is the value of an option."""

    def rule(words: Sequence[str], stdin: str | None) -> list[Started]:
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if len(name) > 2 and long.startswith(name) and (equals or at + 1 < len(words)):
                return [Started("script", value if equals else words[at + 1])]
            clustered = re.match(rf"-[A-Za-z]*?{letter}", word)
            if clustered and (clustered.end() < len(word) or at + 1 < len(words)):
                return [Started("script", word[clustered.end() :] or words[at + 1])]
        return []

    return rule


def _ssh(words: Sequence[str], stdin: str | None) -> list[Started]:
    """What follows the host runs there; without it, what is piped in."""
    found = options.ssh_options(words, stdin)
    return [*found, *(_joined("bcDEeFIiJLlmOopQRSWw", own=1)(words, stdin) or [Started("input")])]


def _flock(words: Sequence[str], stdin: str | None) -> list[Started]:
    return _option_c()(words, stdin) or _wrapper("wE", "--timeout --conflict-exit-code", own=1)(words, stdin)


def _alias(words: Sequence[str], stdin: str | None) -> list[Started]:
    return [Started("script", script) for _, script in dialects.aliased(words)]


def _trap(words: Sequence[str], stdin: str | None) -> list[Started]:
    rest = words[after_options(words) :]
    return [Started("script", rest[0], here=True)] if len(rest) > 1 and rest[0] != "-" else []


def _coproc(words: Sequence[str], stdin: str | None) -> list[Started]:
    start = words.index("{") + 1 if "{" in words[:2] else 0
    return [Started("words", words=tuple(words[start:]), same=True)] if words[start:] else []


def _run(*verbs: str, with_value: str = "", script: str = "") -> _Rule:
    """`poetry run x`, `bundle exec x`, and with an option `script` as in `npm exec -c 'x y'`."""

    def rule(words: Sequence[str], stdin: str | None) -> list[Started]:
        at = after_options(words)
        if at >= len(words) or words[at] not in verbs:
            return []
        rest = words[at + 1 :]
        if script and (found := _option_c(script, "--call")(rest, stdin)):
            return found
        rest = rest[after_options(rest, with_value, _RUN_VALUES) :]
        return [Started("words", words=tuple(rest))] if rest else []

    return rule


def _npx(words: Sequence[str], stdin: str | None) -> list[Started]:
    return _option_c("c", "--call")(words, stdin) or _wrapper("p", "--package", same=False)(words, stdin)


def _busybox(words: Sequence[str], stdin: str | None) -> list[Started]:
    return [Started("words", words=tuple(words), same=True)] if words else []


_WITHOUT_OPTIONS: Final = (
    "linux32 linux64 i386 x86_64 unbuffer dbus-run-session firejail fakeroot rlwrap eatmydata torsocks torify"
    " valgrind catchsegv chronic call"
)
_RUN_VALUES: Final = "--with --from --package --python --group --extra --name --prefix --cwd"

_MERE_STARTERS: Final[Mapping[str, _Rule]] = {
    "source": _source,
    ".": _source,
    "env": _entering(_env, "env"),
    "command": _command,
    "xargs": _xargs,
    "sudo": _entering(
        _wrapper("ugphCrtTDRU", "--user --group --prompt --host --chdir --chroot", assigns=True), "sudo"
    ),
    "doas": _wrapper("uC"),
    "busybox": _busybox,
    "builtin": _wrapper(),
    "exec": _wrapper("a"),
    "nohup": _wrapper(),
    "setsid": _wrapper(),
    "time": _wrapper("fo", "--format --output"),
    "timeout": _wrapper("sk", "--signal --kill-after", own=1),
    "gtimeout": _wrapper("sk", "--signal --kill-after", own=1),
    "nice": _wrapper("n", "--adjustment"),
    "ionice": _wrapper("cnp", "--class --classdata"),
    "chrt": _wrapper("pTPD", own=1),
    "choom": _wrapper("np", "--adjust --pid"),
    "prlimit": _wrapper("op", "--output --pid"),
    "setpriv": _wrapper(
        long="--reuid --regid --ruid --rgid --euid --egid --groups --inh-caps --ambient-caps --bounding-set"
    ),
    "taskset": _wrapper(own=1),
    "stdbuf": _wrapper("ioe", "--input --output --error"),
    "coproc": _coproc,
    "strace": _wrapper("eopsuaSE"),
    "unshare": _wrapper(
        "SGRw", "--root --wd --setuid --setgid --map-user --map-group --map-users --map-groups"
    ),
    "nsenter": _wrapper("tSGW", "--target --setuid --setgid --wdns"),
    "chroot": _wrapper(long="--userspec --groups", own=1),
    "su": _option_c(),
    "runuser": lambda words, stdin: _option_c()(words, stdin) or _wrapper("ugGw")(words, stdin),
    "flock": _flock,
    "trap": _trap,
}
"""Those of whose words an unknown one may be nothing."""
_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(SHELLS, _shell),
    **_MERE_STARTERS,
    "fish": _fish,
    "eval": _eval,
    "find": _find,
    "toybox": _busybox,
    "caffeinate": _wrapper("tw"),
    "faketime": _wrapper("f", own=1),
    "ltrace": _wrapper("eopsuaS"),
    "pkexec": _wrapper("u", "--user"),
    "run0": _wrapper("u", "--user"),
    "systemd-run": _wrapper("upEt", "--unit --property --setenv --slice", same=False),
    "proxychains": _wrapper("f"),
    "parallel": _parallel,
    "watch": _joined("nq", "--interval"),
    "entr": options.entr,
    "ssh": _ssh,
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "ed"), options.editor),
    "wsl": _wrapper("du", "--distribution --user", same=False),
    **dict.fromkeys(("$SHELL", "$BASH", "$0"), _shell),
    "script": _option_c(),
    "sg": lambda words, stdin: _option_c()(words, stdin) or [Started("script", word) for word in words[1:]],
    **dict.fromkeys(("at", "batch"), lambda words, stdin: [Started("input")]),
    "tmux": options.terminal,
    **dict.fromkeys(("scp", "sftp"), options.ssh_options),
    "rsync": options.valued("-e", "--rsh", "--rsync-path"),
    "man": options.valued("-P", "--pager"),
    **dict.fromkeys(("complete", "compgen", "mapfile", "readarray"), options.valued("-C")),
    **dict.fromkeys(("gdb", "lldb"), options.debugger),
    **dict.fromkeys(("make", "gmake"), options.make),
    "coreutils": _coreutils,
    "screen": _wrapper("Scset", same=False),
    "npx": _npx,
    **dict.fromkeys(("bunx", "pnpx"), _wrapper(same=False)),
    "uvx": _wrapper(long="--from --with --python", same=False),
    "dotenv": _wrapper("fe", same=False),
    **dict.fromkeys(("poetry", "uv", "pipenv", "hatch", "pdm", "rye"), _run("run")),
    "bundle": _run("exec"),
    "mise": _run("exec", "x"),
    "npm": _run("exec", "x", script="c"),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _run("run", with_value="np")),
    "nix-shell": lambda words, stdin: _option_c("\0", "--run")(words, stdin) or _option_c("\0")(words, stdin),
    **dict.fromkeys(("fd", "fdfind"), options.fd),
    **dict.fromkeys(_WITHOUT_OPTIONS.split(), _wrapper()),
    **dict.fromkeys(dialects.BEFORE_COMMANDS, _wrapper()),
    **dict.fromkeys(("setarch", "gosu", "su-exec", "repeat"), _wrapper(own=1)),
    "proot": _wrapper("rbw"),
    "xvfb-run": _wrapper(
        "efnpsw", "--error-file --auth-file --server-num --xauth-protocol --server-args --wait"
    ),
    **dict.fromkeys(
        ("ld.so", "ld-linux.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "ld-musl-x86_64.so.1"),
        _wrapper(long="--library-path --preload --argv0"),
    ),
    **dict.fromkeys(("pnpm", "yarn"), _run("exec", "dlx")),
    "direnv": lambda words, stdin: [Started("words", words=tuple(words[2:]))] if len(words) > 2 else [],
    "alias": _alias,
    "git": options.git,
    "tar": options.tar,
    "sed": options.sed,
    **dict.fromkeys(options.CLIENTS, options.client),
    "redis-cli": options.redis,
    "emulate": _option_c(),
    "sched": _joined(own=1),
    "zargs": dialects.zargs,
    **{name: _another(program) for name, program in dialects.OWN_FILES.items()},
    "cmd": windows.cmd,
    **dict.fromkeys(("powershell", "pwsh"), windows.powershell),
    **dict.fromkeys(("iex", "invoke-expression"), windows.evaluated),
    **dict.fromkeys(("start", "start-process", "saps"), windows.process),
    **dict.fromkeys(("icm", "invoke-command", "start-job", "start-threadjob"), windows.block),
    **dict.fromkeys(("%", "foreach-object", "measure-command"), windows.block),
    "forfiles": windows.each_file,
}
