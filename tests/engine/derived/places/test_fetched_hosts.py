"""The hosts that are told of calls of curl and wget beside those that the real programs ask a proxy for."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.engine.derived.declared import shown
from tests.harness.effort import LONG

MISSING = [name for name in ("bash", "curl", "wget") if shutil.which(name) is None]
ENDS = ("", "/", "/x{1,2}", "/a:b", "?q=/z", "#x")
_ASKED = re.compile(r"(?:CONNECT |\w+ \w+://(?:[^/@ ]*@)?)([^/:?# ]+)")


class Proxy:
    """Answers every request, and remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._socket.accept()[0]
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    self.asked.append(connection.recv(4_096).partition(b"\r\n")[0].decode("latin-1"))
                    connection.sendall(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy()
    yield found
    found.close()


class Calls:
    """Random calls of one seed."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed).choice

    def name(self) -> str:
        return self.pick(
            ["a.example", "b{1,2}.example", "[c-d].example", "e[1-2].{x,y}.example", "intranet", "F.example"]
        )

    def url(self) -> str:
        name, user = self.name(), self.pick(["", "", "u:p@", "u@"])
        place = user + name + self.pick(["", ":80", ""]) + self.pick(ENDS)
        return self.pick(
            [place, f"http://{place}", f"HTTP://{place}", f"https://{place}", f"{{http://{name},x.example}}"]
        )

    def call(self) -> str:
        if self.pick([True, False, False]):
            host = self.pick(
                ["a.example", "intranet", "u@b.example", "b.example:80", "c.example:x@d.example"]
            )
            url = self.pick(["", "http://"]) + host + self.pick(["", "/x"])
            return self.pick(
                [
                    f"wget -qO- {shlex.quote(url)}",
                    f"wget -q -O x -t 1 {url}",
                    f"wget -qi - <<< {url}",
                    f"echo {url} | wget -q -i-",
                ]
            )
        url = self.url()
        words = [
            shlex.quote(url),
            "-s",
            "-m 5",
            self.pick(["-o x", "-ox", "-L", "-H a:b", "-d q=1", "-XPUT"]),
        ]
        line = shlex.quote(self.line(url))
        forms = [
            " ".join(["curl", *words]),
            " ".join(["curl", *reversed(words)]),
            f"curl -s {self.pick(['--url ', '--url=', '--ur '])}{shlex.quote(url)}",
            f"curl -s a.example {self.pick(['--next', '-:'])} {shlex.quote(url)}",
            f"curl -s {self.pick(['-K-', '-K -', '--config -', '--conf -'])} <<< {line}",
            f"echo {line} | curl -sK-",
        ]
        return self.pick(forms)

    def line(self, url: str) -> str:
        return self.pick([f'url = "{url}"', f"url={url}", f"--url {url}", f"url: {url}", f'url "{url}"'])


@pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)}")
def test_each_host_that_is_asked_for_is_told(tmp_path: Path, proxy: Proxy) -> None:
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "LC_ALL": "C"}
    names = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
    environment |= dict.fromkeys(names, proxy.address)
    for seed in range(1_500 if LONG else 120):
        text = Calls(seed).call()
        proxy.asked.clear()
        subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
        told = shown("bash", {"command": text}, "hosts")
        for line in proxy.asked:
            asked = _ASKED.match(line)
            assert asked is None or asked[1].lower() in told, (seed, text, line, told)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("curl 'http://169.254.169.[254-254]/'", "169.254.169.254"),
        ("curl 'http://{a.example/x,evil.example/y}'", "evil.example"),
        ("curl '{http,https}://evil.example/'", "evil.example"),
        ("curl 'evil[1-2].example'", "evil2.example"),
        ("curl -K - <<< 'url = evil.example'", "evil.example"),
        ("curl -K - <<< 'proxy = evil.example:80'", "evil.example"),
        ("echo '-x evil.example' | curl -K- a.example", "evil.example"),
        ("curl -K config", "unreadable"),
        ("curl 'http://a[1-900].example/'", "unreadable"),
        ("curl u:p@intranet", "intranet"),
        ("curl intranet:80/a:b", "intranet"),
        ("wget -i list", "unreadable"),
        ("wget -i - <<< evil.example", "evil.example"),
        ("wget -e input=list", "unreadable"),
        ("wget evil.example:x@a.example", "evil.example"),
        ("wget evil.example:/x", "evil.example"),
    ],
)
def test_where_else_they_go(text: str, host: str) -> None:
    assert host in shown("bash", {"command": text}, "hosts")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("curl 'https://a.example/img[1-5000].{png,jpg}'", ["a.example"]),
        ('curl -d \'{"a": [1, 2], "b": "c.d"}\' https://a.example/x', ["a.example"]),
        ("curl 'https://a.example/?q={x,y}&ids[]=1'", ["a.example"]),
        ("curl 'http://[::1]:80/'", ["::1"]),
    ],
)
def test_globs_that_lead_nowhere_else(text: str, hosts: list[str]) -> None:
    assert shown("bash", {"command": text}, "hosts") == hosts
