"""Spans of a real process, as a receiver of OTLP over HTTP gets them; also those of the last moment."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.harness.nodes import KEY, called, serve


class Receiver(BaseHTTPRequestHandler):
    bodies: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        self.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_spans_arrive_when_the_process_has_ended(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        told = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}",
            "OTEL_SERVICE_NAME": "governance-of-acme",
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",
            "NO_PROXY": "127.0.0.1",
        }
        with serve(tmp_path, GOVERNANCE_API_KEY=KEY, **told) as service:
            answer = service.ready().http.post("/v1/events", json=called(1), headers={"X-API-Key": KEY})
            assert answer.status_code == 200
            assert service.stop() == 0
            assert "Traceback" not in service.errors
        receiver.shutdown()
    names, services = set(), set()
    for path, body in Receiver.bodies:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            services |= {
                each.value.string_value for each in resource.resource.attributes if "name" in each.key
            }
            names |= {span.name for scope in resource.scope_spans for span in scope.spans}
    assert services == {"governance-of-acme"}
    assert {"POST /v1/events", "decide", "commit"} <= names
