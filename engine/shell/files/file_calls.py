"""Which files code in another language reads, writes and deletes, by the names of its calls.

Found by calls with a constant name of a file. Where code deletes what it does not spell out, it is what it
walks through: `for f in glob("/x/*"): os.remove(f)`. The rest of the code is not read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

Use = Literal["reads", "writes", "deletes", "names"]
"""`names`: the path is looked at, not into."""

Uses = Iterator[tuple[Use, str]]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CALL: Final = re.compile(
    r"""\b(\w{1,40})(?=\s{0,8}(?:\(\s{0,8}\[?(?:\w{1,40}\s{0,8}=\s{0,8})?(?:(?:pathlib\.)?Path\(\s{0,8})?)?[rbfuRBFU]{0,2}"""
    r"""(?:""|'')?["']([^"'\n]{1,400})["'](?:\s{0,8},\s{0,8}(?:mode\s{0,8}=\s{0,8})?["']([rwabxt+]{1,3})["'])?)"""
)
"""A call with a constant as its first argument, and what may be the mode of `open` behind it. INVARIANT: no
more than its name is gone past, here and of `_PAIRED`: the end of a constant looks like the beginning of one,
so that `"b"; rmtree("/x")` reads as a call of `b`, too."""
_DELETING: Final = _words(
    "rmtree rmsync rmdirsync rmdir removedirs unlink unlinksync remove removesync rm rm_r rm_rf rm_f "
    "rimraf remove_tree remove_dir_all remove_entry emptydir emptydirsync deltree"
)
_WRITING: Final = _words(
    "writefile writefilesync appendfile appendfilesync write_text write_bytes file_put_contents "
    "createwritestream to_csv mkdir makedirs"
)
_READING: Final = _words(
    "open fopen read readfile readfilesync read_text read_bytes readlines path file file_get_contents "
    "createreadstream load_dotenv read_csv"
)
_SPELLED: Final = re.compile(r"""(["'])\s*+\+\s*+\1|(?<=\()os\.path\.(?:expanduser|abspath)\((?=["'])""")
"""What stands between texts that are added, and before a path that is only written otherwise."""
_AT_HOME: Final = (
    r"""(?:os\.environ\[["']HOME["']\]|os\.(?:environ\.get|getenv)\(["']HOME["']\)|ENV\[["']HOME["']\]|Dir\.home"""
    r"""|process\.env\.HOME|(?:require\(["']os["']\)|\bos)\.homedir\(\)|\b(?:pathlib\.)?Path\.home\(\))"""
)
"""Somebody's home, as code names it. What stands behind it, if anything does, must be a constant."""
_HOME: Final = re.compile(rf"""(?<=\()\s{{0,8}}{_AT_HOME}(?=\s{{0,8}}(?:[,)]|\+\s{{0,8}}["']))""")
_HOME_PATH: Final = re.compile(
    r"""\bPath\.home\(\)(?=\s{0,8}(?:/\s{0,8}["']|\.(?:joinpath\(\s{0,8}["']|iterdir|walk|r?glob)))"""
)
_HOME_WITHIN: Final = re.compile(rf"[$#]?\{{{_AT_HOME}\}}(?=/)")
_TEMPLATE: Final = re.compile(r"""`(~/[^`"'\n$]{1,400})`""")
_PART: Final = r"""["'][^"'\n]{1,200}["']"""
_JOINED: Final = re.compile(
    rf"\b(?:os\.path|posixpath|path|File)\.(?:join|resolve)\(\s*+({_PART}(?:\s*+\)?\s*+,\s*+{_PART}){{1,8}})\s*+,?\s*+\)"
    rf"|\bPath\(\s*+({_PART}\s*+\)(?:\s*+/\s*+{_PART}){{1,8}}"
    rf"|{_PART}\s*+\)\.joinpath\(\s*+{_PART}(?:\s*+,\s*+{_PART}){{0,7}}\s*+\))"
)
"""`os.path.join("a", "b")` and `Path("a") / "b"`, of constants alone."""
_CONSTANT: Final = re.compile(r"""["']((?:~|\.{1,2})?/[^"'\s]{1,400}|~[^"'\s]{1,400})["']""")

_DELETES_ANY: Final = re.compile(
    r"""(?:\b(?:os|fs|fsp|fsPromises|promises|FileUtils|File|Dir|shutil)\.(?:remove|unlink|rm|delete|rmdir|rm_\w{1,2})|\b(?:rmtree"""
    r"""|unlink(?:Sync)?|rmSync|rmdirSync|rimraf|remove_entry|deltree|remove_tree)|\.unlink)\b\s{0,8}\(?\s{0,8}(?![\s("'rbfuRBFU]|\w{0,2}["'])"""
    r"""|\b(?:os|fs|fsp|promises|FileUtils|File|shutil)\.(?:remove|unlink|rm|delete|rmtree|rm_\w{1,2})\s{0,8}\(\s{0,8}[A-Za-z_$]"""
    r"""|\b(?:unlink|rmtree|unlinkSync|rmSync)\b\s{0,8}\(?\s{0,8}[A-Za-z_$@<]|\.(?:unlink|rmdir)\(\s{0,8}\)"""
)
"""A deletion of something that is no constant."""
_WALKED: Final = re.compile(
    r"""\b(?:walk|scandir|listdir|i?glob(?:Sync)?|readdir(?:Sync)?|opendir|children|entries|each_child|find)(?=\s{0,8}\(?\s{0,8}"""
    r"""[rbfuRBFU]{0,2}["']([^"'\n]{1,400})["'])|\bDir\[\s{0,8}["']([^"'\n]{1,400})["']|<((?:/|~|\.)[^<>\s]{0,400}\*[^<>\s]{0,400})>"""
)
"""What code goes through: a folder, or a pattern."""
_PATHLIB: Final = re.compile(
    r"""\bPath\(\s{0,8}["']([^"'\n]{1,400})["']\s{0,8}\)\.(?:iterdir|walk|r?glob)\(\s{0,8}(?:["']([^"'\n]{1,200})["'])?"""
)
_CHOOSES: Final = re.compile(r"\b(?:if|unless|grep|filter|endswith|when)\b")
"""Not everything that is gone through is deleted."""


_PAIRED: Final = re.compile(
    r"""\b(?:(?:os|shutil|fs|fsp|promises|FileUtils|File)\.|(?<![.\w])(?=rename|copy|move))"""
    r"""(rename|renames|replace|move|mv|copy\w{0,8}|cp|cp_r|symlink|link|truncate|rename_file)(?=(?:Sync)?\s{0,8}\(?\s{0,8}"""
    r"""["']([^"'\n]{1,400})["'](?:\s{0,8},\s{0,8}["']([^"'\n]{1,400})["'])?)"""
)
"""A call with the names of one file and of what becomes of it."""
_MOVING: Final = _words("rename renames replace move mv rename_file")
_OF_PATH: Final = re.compile(
    r"""\bPath\(\s{0,8}["']([^"'\n]{1,400})["']\s{0,8}\)\.(unlink|rmdir|rename|replace|write_text|write_bytes|touch|mkdir)\("""
)


def _paired(text: str) -> Uses:
    for found in _PAIRED.finditer(text):
        name, one, other = found[1].lower(), found[2], found[3]
        if name == "truncate":
            yield "writes", one
        elif other is not None:
            yield ("deletes" if name in _MOVING else "reads"), one
            yield "writes", other
    for found in _OF_PATH.finditer(text):
        yield ("deletes" if found[2] in ("unlink", "rmdir", "rename", "replace") else "writes"), found[1]


def _put_together(text: str) -> str:
    """The code with the paths that it puts together of constants as one constant each."""
    if "HOME" in text or ".home" in text:
        text = _TEMPLATE.sub(r'"\1"', _HOME_WITHIN.sub("~", text))
        text = _HOME_PATH.sub('Path("~")', _HOME.sub('"~"', text))
    if "join" in text or ".resolve(" in text or "Path(" in text:
        text = _JOINED.sub(_as_one, text)
    return text


def _as_one(joined: re.Match[str]) -> str:
    first, *others = (part[1:-1] for part in re.findall(_PART, joined[1] or joined[2]))
    # One that begins anew is joined in one language and counts alone in another; an escape may be anything.
    if any(part[0] in "/~" or "\\" in part for part in others):
        return joined[0]
    return f'{"" if joined[1] else "Path("}"{"/".join((first, *others))}"{"" if joined[1] else ")"}'


def paths_in_code(text: str) -> Uses:
    """What code does to which files, by its calls that take a name; else what looks like a path is read.

    INVARIANT: what is put together comes besides. Where a constant begins is not known for certain, and
    nobody hides a path by texts around it that look like the beginning of another one."""
    text = _SPELLED.sub("", text)
    yield from _paths(text)
    whole = _put_together(text)
    if whole != text:
        yield from _paths(_SPELLED.sub("", whole))


def _paths(text: str) -> Uses:
    known: set[str] = set()
    for found in _CALL.finditer(text):
        name, word = found[1].lower(), found[2]
        if name in _DELETING:
            use: Use = "deletes"
        elif name in _WRITING or (found[3] and "r" not in found[3]):
            use = "writes"
        elif name in _READING:
            use = "reads"
        else:
            continue
        known.add(word)
        yield use, word
    for use, word in _paired(text):
        known.add(word)
        yield use, word
    if _DELETES_ANY.search(text) is not None:
        for word in _walked(text):
            known.add(word)
            yield "deletes", word
    yield from (("reads", found[1]) for found in _CONSTANT.finditer(text) if found[1] not in known)


def _walked(text: str) -> Iterator[str]:
    """What the code goes through, as `find` would tell it."""
    within = "/**/?*" if _CHOOSES.search(text) is not None else ""
    for found in _WALKED.finditer(text):
        word = found[1] or found[2] or found[3]
        yield word if "*" in word else word + within
    for found in _PATHLIB.finditer(text):
        chosen = found[2] not in (None, "*", "**", "**/*")
        yield f"{found[1]}/**/{found[2]}" if chosen else found[1] + within
