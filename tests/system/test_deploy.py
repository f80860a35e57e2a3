"""The files of `api/guide/deploy`, as far as a machine without systemd and containers can try them.

Both proxies are run before a real service, systemd's own programs read the unit, and what else the files name
is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api import settings
from api.cli.commands.serve import KEEP_ALIVE
from api.health.exposition import NOTHING_STORED, exposition
from api.http.exchange import encode_cursor
from tests.harness.application import PASSWORD
from tests.harness.guide import GUIDE, blocks
from tests.harness.nodes import KEY, Node, called, nodes
from tests.harness.places import ROOT
from tests.harness.policy_bodies import on_tool
from tests.harness.postgres import Postgres
from tests.harness.tls_proxy import FILES, program, text, tls_proxy

PAGE = GUIDE / "how-to" / "deploy.md"
HOLD = on_tool("Hold payments", "require_approval", "pay")

pytestmark = pytest.mark.slow


# The page ------------------------------------------------------------------------------------------------


def test_the_page_shows_each_file_as_it_is() -> None:
    shown = [block.text for block in blocks(PAGE)]
    for file in FILES.iterdir():
        assert file.read_text(encoding="utf-8") in shown, f"the page shows another {file.name}"


def test_the_settings_are_settings() -> None:
    told = dict(line.split("=", 1) for line in text("settings").splitlines())
    made = settings.load(told | {"GOVERNANCE_JWT_SECRET": "0123456789abcdefghijklmnopqrstuvwxyz"})
    assert made.production and made.trusted_proxies == ("127.0.0.1/32",)


def test_alerts_name_metrics_that_there_are() -> None:
    shown = exposition({}, 0, NOTHING_STORED, unindexed=0).decode()
    known = {"up"}
    for family in text_string_to_metric_families(shown):
        known.add(family.name)
        known |= {family.name + end for end in ("_total", "_bucket")}
    rules = yaml.safe_load(text("alerts.yaml"))["groups"][0]["rules"]
    for rule in rules:
        named = set(re.findall(r"\bgovernance_[a-z_]+", rule["expr"]))
        assert named <= known, f"{rule['alert']} asks for {named - known}"


def test_an_alert_hears_of_the_first_of_what_is_counted() -> None:
    """A counter that is made with its first 1 increases by nothing: Prometheus saw no 0 before."""
    shown = exposition({}, 0, NOTHING_STORED, unindexed=0).decode()
    from_the_start = {line.split()[0] for line in shown.splitlines() if line[:1] != "#"}
    for rule in yaml.safe_load(text("alerts.yaml"))["groups"][0]["rules"]:
        for counter in re.findall(r"increase\(([^\[]+)\[", rule["expr"]):
            first = f"{counter} unless {counter} offset"
            assert counter in from_the_start or first in rule["expr"], rule["alert"]


# Container and unit --------------------------------------------------------------------------------------


def test_each_line_of_the_container_stands_on_something() -> None:
    lines = text("Containerfile").replace("\\\n", " ").splitlines()
    said = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    words = {name for name, _ in said}
    assert words == {
        *("FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE"),
        *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    last = dict(said)
    assert last["USER"] != "root" and last["EXPOSE"] == settings.TABLE[1].default
    assert last["ENTRYPOINT"] == '["governance"]' and last["WORKDIR"] == last["VOLUME"]
    told = dict(re.findall(r"(GOVERNANCE_\w+)=(\S+)", last["ENV"]))
    assert settings.load(told).log_format == "json"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--outdir dist" in makefile and "--output-file dist/requirements.txt" in makefile
    assert "--output-file dist/requirements-otel.txt" in makefile


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "systemd")
    unit = tmp_path / "governance.service"
    command = shutil.which("true")
    unit.write_text(text("governance.service").replace("/opt/governance/bin/governance", str(command)))
    for words in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run([analyze, *words, str(unit)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr and "Failed to parse" not in done.stderr, done.stderr
    (serve,) = re.findall(r"^ExecStart=\S+/governance (.+)$", text("governance.service"), re.M)
    assert serve == "serve"


# Proxies -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    told = {"GOVERNANCE_TRUSTED_PROXIES": "127.0.0.1"}
    with nodes(tmp_path_factory.mktemp("deploy"), "", 1, [HOLD], **told) as (made,):
        yield made


@dataclass(frozen=True)
class Proxy:
    """A proxy with TLS before the service."""

    http: httpx.Client
    node: Node


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxy(
    request: pytest.FixtureRequest, node: Node, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    with tls_proxy(request.param, tmp_path_factory.mktemp(request.param), node.port) as made:
        yield Proxy(made.http, node)


def test_agents_and_people_get_through(proxy: Proxy) -> None:
    sent = {"X-API-Key": KEY, "X-Request-Id": "through-the-proxy"}
    answer = proxy.http.post("/v1/events", json=called(proxy.http.base_url.port or 0, "look"), headers=sent)
    assert answer.json()["toolCallStatus"] == "allowed"
    assert answer.headers["x-request-id"] == "through-the-proxy"
    assert proxy.http.get("/overview").status_code == 200
    encoded = proxy.http.get("/v1/runs/a%2Fb", headers={"X-API-Key": KEY})
    assert "`a/b`" in encoded.json()["detail"], "an encoded slash stays one"


def test_a_proxy_ends_an_idle_connection_before_the_service_does() -> None:
    """A POST on one that ends meanwhile is not sent again: 75 seconds made it 502 behind Caddy, 1 of 180."""
    nginx, go_and_traefik, caddy = 60, 90, 120
    assert max(nginx, go_and_traefik, caddy) < KEEP_ALIVE
    for page, said in (("Caddyfile", "keepalive"), ("nginx.conf", "keepalive_timeout")):
        assert not re.search(rf"\b{said}\b\s+\d+(?:s|m)", text(page)), "it says nothing else"
    guide = PAGE.read_text(encoding="utf-8")
    assert f"less than the {KEEP_ALIVE} seconds" in " ".join(guide.split())


def test_metrics_stay_inside(proxy: Proxy) -> None:
    assert proxy.http.get("/metrics").status_code == 403
    assert proxy.node.http.get("/metrics").status_code == 200


def test_what_is_too_large_does_not_reach_the_service(proxy: Proxy) -> None:
    large = b'{"eventId":"' + b"x" * (1 << 20) + b'"}'
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    assert proxy.http.post("/v1/events", content=large, headers=headers).status_code == 413


def test_the_cursor_of_a_log_of_many_chains_gets_through(proxy: Proxy) -> None:
    cursor = encode_cursor(dict.fromkeys(range(1_000), 10_000_000))
    assert len(cursor) > 16_000
    answer = proxy.http.get(f"/v1/audit?limit=1&order=asc&cursor={cursor}", headers=proxy.node.admin())
    assert answer.status_code == 200, answer.text


def test_the_proxy_says_who_calls_and_nobody_else(proxy: Proxy) -> None:
    login = {"email": "admin@localhost", "password": PASSWORD}
    elsewhere = httpx.HTTPTransport(local_address="127.0.0.2", verify=False)
    with httpx.Client(transport=elsewhere, base_url=proxy.http.base_url, timeout=60) as http:
        answer = http.post("/auth/login", json=login, headers={"X-Forwarded-For": "203.0.113.9"})
    admin = {"Authorization": f"Bearer {answer.json()['accessToken']}"}
    (record,) = proxy.node.http.get("/v1/audit?type=login&limit=1", headers=admin).json()
    assert record["details"] == {"address": "127.0.0.2"}


def test_news_are_not_held_back(proxy: Proxy) -> None:
    admin = proxy.node.admin()
    number = f"held-{proxy.http.base_url.port}"
    with proxy.http.stream("GET", "/v1/stream", headers=admin) as stream:
        lines = stream.iter_lines()
        assert next(lines) is not None, "the beginning comes at once"
        held = proxy.node.call(number, "pay").json()
        assert any(held["approvalId"] in line for line in lines)
    waited: list[httpx.Response] = []
    path = f"/v1/approvals/{held['approvalId']}"
    wait = threading.Thread(
        target=lambda: waited.append(proxy.http.get(f"{path}?wait=50", headers={"X-API-Key": KEY}))
    )
    wait.start()
    assert proxy.node.http.post(f"{path}/approve", headers=admin).status_code == 200
    wait.join(60)
    assert waited[0].json()["status"] == "approved"


# Back up and restore -------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_a_dump_is_restored_as_the_page_says(postgres: Postgres, postgres_url: str, tmp_path: Path) -> None:
    found = [block.text for block in blocks(PAGE) if "runs it with a PostgreSQL" in block.not_run]
    back_up, restore = found
    with nodes(tmp_path, postgres_url, 1, [HOLD]) as (node,):
        assert node.call(1, "look").json()["toolCallStatus"] == "allowed"
        _until_signed(node)
        _in_shell(back_up, node, postgres)
        assert node.call(2, "look").status_code == 200
        _until_signed(node)
        node.stop()
        _in_shell(restore, node, postgres)
        node.restart()
        again = node.call(1, "look")
        assert again.headers["idempotent-replay"] == "true", "what was backed up is there"
        assert "idempotent-replay" not in node.call(2, "look").headers, "what came later is not"


def _until_signed(node: Node) -> None:
    admin = node.admin()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if node.http.get("/v1/audit/verify", headers=admin).json()["unsigned"] == 0:
            return
        time.sleep(0.1)
    raise AssertionError("the record was not signed")


def _in_shell(text: str, node: Node, postgres: Postgres) -> str:
    """What the commands print, run where the service has its data."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{postgres.programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=node.folder,
        env=node.environment | {"PATH": programs},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
