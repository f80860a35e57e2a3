"""What `..` behind a home or a variable means."""

from __future__ import annotations

import pytest

from engine.shell.files.settled_path import settled


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a/./b//c", "a/b/c"),
        ("build/../src", "src"),
        ("../x", "../x"),
        ("/a/../../b", "/b"),
        ("~/x/../y", "~/y"),
        ("~/", "~"),
        ("~/..", "/home"),
        ("~/../bob", "/home/bob"),
        ("~/../../etc", "/etc"),
        ("$X/y/../z", "$X/z"),
        ("$X/../y", "$X/../y"),
        ("${X}/../../y", "${X}/../../y"),
        ("%APPDATA%/../y", "%APPDATA%/../y"),
    ],
)
def test_a_path_in_its_shortest_form(written: str, meant: str) -> None:
    assert settled(written) == meant
