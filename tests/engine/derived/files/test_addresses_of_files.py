"""The address of a file names it, however it is written, also where a tool for the web opens it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.derived.declared import shown

KEY = "/home/a/.ssh/id_rsa"


@pytest.mark.parametrize(
    "address",
    [
        f"file://{KEY}",
        f"FILE:{KEY}",
        f"file://localhost{KEY}",
        f"file://127.0.0.1{KEY}",
        "file:///home/a/%2e%73sh/id_rsa",
        "file:home/a/.ssh/id_rsa",
        r"file:\\\home\a\.ssh\id_rsa",
        f"file://{KEY}?",
        f"file://{KEY}?a=b#c",
        f"file://{KEY}#",
        f" file://{KEY}",
        f"\x01file://{KEY}",
        f"fi\tle://{KEY}",
        f"file:\n//{KEY}",
        f"view-source:file://{KEY}",
        f"URL:file://{KEY}",
        f"<URL:file://{KEY}>",
        f"<file://{KEY}>",
        f"file:{'/' * 5_000}{KEY}",
        f"file://host{'/a/..' * 1_000}{KEY}",
        "file:" + "\t" * 5_000 + f"//{KEY}",
    ],
)
@pytest.mark.parametrize("tool", ["fetch", "http_request", "frobnicate"])
def test_what_is_opened_by_an_address_is_read(tool: str, address: str) -> None:
    assert KEY in shown(tool, {"url": address}, "reads")


@pytest.mark.parametrize(
    ("tool", "payload", "reads"),
    [
        ("fetch", {"url": "https://x.example/file:///etc/passwd"}, []),
        ("fetch", {"url": "https://x.example/", "note": "file: see the annex"}, []),
        ("read_file", {"path": "file:///tmp/a"}, ["/tmp/a"]),
        ("read_file", {"path": "file:///C:/a"}, ["/C:/a"]),
        ("read_file", {"path": "'file:///tmp/a'"}, ["/tmp/a'", "/tmp/a"]),
        ("read_file", {"path": "file:"}, ["file:"]),
        ("read_file", {"path": "file:a"}, ["/a", "file:a"]),
        ("read_file", {"path": "file://~/a"}, ["/a", "/~/a"]),
        ("read_file", {"path": "file:///tmp/a#b"}, ["/tmp/a#b", "/tmp/a"]),
        ("read_file", {"paths": "file:///tmp/a\nfile:///tmp/b"}, ["/tmp/afile:/tmp/b", "/tmp/a", "/tmp/b"]),
        ("send_email", {"body": "file:///etc/passwd"}, []),
    ],
)
def test_what_is_none_is_not(tool: str, payload: Any, reads: list[str]) -> None:
    assert shown(tool, payload, "reads") == reads
