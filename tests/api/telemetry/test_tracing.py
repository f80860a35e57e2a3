"""Spans: which there are, whose children they are, what they never say; and nothing of them while off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from api.telemetry import tracing
from tests.harness.application import event
from tests.harness.policy_bodies import on_tool
from tests.harness.running_service import Served

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BLOCK = on_tool("No launches", "block", "launch")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    made = InMemorySpanExporter()
    tracing.use(SimpleSpanProcessor(made))
    yield made
    tracing.stop()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {each.name: each for each in exporter.get_finished_spans()}


def test_a_call_has_spans_of_request_decision_and_commit(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    with Served(tmp_path, [BLOCK]) as service:
        fields = {"toolCallId": "c1", "toolName": "launch", "inputPayload": {"code": "do-not-tell"}}
        body = event(1, "tool.called", service.clock.text, fields)
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "req-7"}
        answer = service.call("agent", "POST", "/v1/events", body, headers=headers)
        assert answer.json()["toolCallStatus"] == "blocked"
    spans = by_name(exporter)
    request, decide, commit = (spans[name] for name in ("POST /v1/events", "decide", "commit"))
    assert request.kind is SpanKind.SERVER
    assert request.parent is not None
    assert (f"{request.parent.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    for child in (decide, commit):
        assert child.parent is not None and child.parent.span_id == request.context.span_id
    assert decide.end_time is not None and commit.start_time is not None
    assert decide.end_time <= commit.start_time
    assert dict(decide.attributes or {}) == {
        "governance.organisation_id": "default",
        "governance.run_id": "run-1",
        "governance.tool_name": "launch",
    }
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/events",
        "http.response.status_code": 200,
        "governance.request_id": "req-7",
    }
    assert not any("do-not-tell" in each.to_json() for each in spans.values())


def test_other_requests_have_one_span_each(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    with Served(tmp_path) as service:
        service.call("admin", "GET", "/v1/runs/run-1?token=do-not-tell")
        service.http.get("/nothing/do-not-tell")
        service.context.store.close()
        service.http.get("/health/ready")
    spans = by_name(exporter)
    assert spans.keys() >= {"GET /v1/runs/:id", "GET", "GET /health/ready"}
    assert spans["GET /v1/runs/:id"].parent is None
    assert spans["GET /v1/runs/:id"].status.status_code is StatusCode.UNSET, "a 404 is no fault of ours"
    assert not any("do-not-tell" in each.to_json() for each in spans.values())


def test_a_fault_is_an_error_without_its_text(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    with Served(tmp_path) as service:
        service.context.reads.count = fault  # type: ignore[method-assign]
        assert service.call("admin", "GET", "/v1/runs").status_code == 500
    span = by_name(exporter)["GET /v1/runs"]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "500"
    assert "do-not-tell" not in span.to_json()


def fault(_: object) -> None:
    raise RuntimeError("do-not-tell")


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({}, False),
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_the_standard_variables_turn_spans_on(told: dict[str, str], wanted: bool) -> None:
    assert tracing.wanted(told) is wanted


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "`grpc` is not spoken"),
        ({}, "install `agent-governance-service[otel]`"),
    ],
)
def test_what_is_in_the_way_of_spans_is_said(
    told: dict[str, str], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:
        monkeypatch.setattr(tracing, "PACKAGES", ("a_package.that_nobody.has",))
    tracing.start({ENDPOINT: "http://127.0.0.1:4318", **told})
    assert not tracing.is_on()
    (line,) = caplog.records
    assert said in line.getMessage()


def test_what_is_left_is_sent_at_the_end() -> None:
    made = InMemorySpanExporter()
    tracing.use(BatchSpanProcessor(made))
    with tracing.step("commit"):
        pass
    tracing.stop()
    assert list(by_name(made)) == ["commit"]


def test_a_receiver_that_does_not_answer_keeps_no_stop_waiting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, given_up = Event(), Event()

    class Silent(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            begun.set()
            given_up.wait(60)
            return super().export(spans)

    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.1)
    tracing.use(BatchSpanProcessor(Silent()))
    with tracing.step("commit"):
        pass
    tracing.stop()
    assert begun.wait(60) and not given_up.is_set()
    assert "the last spans were not taken within 0.1 seconds" in caplog.text
    given_up.set()


def test_nothing_is_loaded_while_spans_are_off() -> None:
    code = (
        "import sys; from api.telemetry import tracing; import api.app; tracing.start({});"
        "assert tracing.step('commit').__enter__() is None and not tracing.is_on();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
