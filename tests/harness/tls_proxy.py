"""The proxies of `api/guide/deploy` with TLS before a service, as the guide configures them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.harness.guide import GUIDE
from tests.harness.nodes import free_port
from tests.harness.receiver import Certificate

FILES = GUIDE / "deploy"


@dataclass(frozen=True)
class TlsProxy:
    """One that runs. `certificate` is the file that vouches for it."""

    http: httpx.Client
    port: int
    certificate: Path


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        why = f"there is no {name}; `apt-get install {package}` enables these tests"
        pytest.fail(why) if os.environ.get("CI_REQUIRE_ALL") == "1" else pytest.skip(why)
    assert found is not None
    return found


def text(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


@contextlib.contextmanager
def tls_proxy(kind: str, folder: Path, service: int) -> Iterator[TlsProxy]:
    """`nginx` or `caddy` before the service at a port."""
    folder.chmod(0o755)
    certificate = Certificate("localhost")
    port = free_port()
    words = {"nginx": _nginx, "caddy": _caddy}[kind](folder, port, service, certificate.file)
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, cwd=folder, env=_home(folder))
    client = httpx.Client(
        base_url=f"https://localhost:{port}", verify=certificate.trusting, timeout=60, trust_env=False
    )
    try:
        _until(lambda: client.get("/health/live").status_code == 200, folder / "said")
        yield TlsProxy(client, port, certificate.file)
    finally:
        client.close()
        process.terminate()
        process.wait(60)


def _home(folder: Path) -> dict[str, str]:
    return os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


def _nginx(folder: Path, port: int, service: int, certificate: Path) -> list[str]:
    site = text("nginx.conf").replace("127.0.0.1:8700", f"127.0.0.1:{service}")
    site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    site = site.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    site = site.replace("governance.example.com", "localhost")
    site = site.replace("/etc/ssl/certs/governance.pem", str(certificate))
    site = site.replace("/etc/ssl/private/governance.key", str(certificate))
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    main = (
        f"daemon off;\n{user}pid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{site}}}\n"
    )
    (folder / "nginx.conf").write_text(main, encoding="utf-8")
    nginx = program("nginx", "nginx-light")
    words = [nginx, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    done = subprocess.run([*words, "-t"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr, done.stderr
    return words


def _caddy(folder: Path, port: int, service: int, certificate: Path) -> list[str]:
    site = text("Caddyfile").replace("127.0.0.1:8700", f"127.0.0.1:{service}")
    site = site.replace(
        "governance.example.com {", f"https://localhost:{port} {{\n\ttls {certificate} {certificate}"
    )
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    (folder / "Caddyfile").write_text(options + site, encoding="utf-8")
    caddy = program("caddy", "caddy")
    (folder / "plain").write_text(text("Caddyfile"), encoding="utf-8")
    for name in ("plain", "Caddyfile"):
        words = [caddy, "validate", "--adapter", "caddyfile", "--config", name]
        done = subprocess.run(
            words, cwd=folder, env=_home(folder), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 and "not formatted" not in done.stderr, done.stderr
    return [caddy, "run", "--adapter", "caddyfile", "--config", "Caddyfile"]


def _until(holds: Callable[[], bool], said: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(said.read_text(encoding="utf-8", errors="replace"))
