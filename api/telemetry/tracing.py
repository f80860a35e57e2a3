"""OpenTelemetry spans of requests, decisions and commits.

They are made where the packages of the extra `otel` are installed and the standard variables name a receiver;
else nothing here does or costs anything. They name tools, runs and routes, never what is in a call. Only OTLP
over HTTP is spoken. The SDK reads the rest of its variables itself: sampling (`OTEL_TRACES_SAMPLER`),
`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, headers and time limits of the exporter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from threading import Thread
from typing import Any, Final

from api.version import VERSION

log = logging.getLogger("governance")

NAME: Final = "agent-governance-service"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP: Final = "http/protobuf"
PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
FLUSH_SECONDS: Final = 5.0
"""For the spans that are still here when the process ends; the SDK itself would wait for minutes."""

_tracer: Any = None
_provider: Any = None


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for spans."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporters = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporters == "otlp" or (not exporters and any(environment.get(name) for name in ENDPOINTS))


def start(environment: Mapping[str, str]) -> None:
    """Begin, if the environment asks for it; what is in the way is said in the log and stops nobody."""
    if not wanted(environment):
        return
    protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), HTTP)
    if protocol != HTTP:
        log.warning("no spans are sent: `%s` is not spoken, only `%s` (%s)", protocol, HTTP, PROTOCOLS[1])
    elif not all(map(_is_installed, PACKAGES)):
        log.warning(
            "no spans are sent: install `agent-governance-service[otel]`, or set OTEL_SDK_DISABLED=true"
        )
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from api.telemetry.bounded_session import bounded_session

        use(BatchSpanProcessor(OTLPSpanExporter(session=bounded_session())))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def use(processor: Any) -> None:
    """Give spans to this processor of the SDK from now on."""
    global _tracer, _provider
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    own = Resource({"service.name": NAME, "service.version": VERSION})
    _provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    _provider.add_span_processor(processor)
    _tracer = _provider.get_tracer("governance", VERSION)


def stop() -> None:
    """Send what is still here, and end."""
    global _tracer, _provider
    provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        sending = Thread(target=provider.shutdown, name="spans", daemon=True)
        sending.start()
        sending.join(FLUSH_SECONDS)
        if sending.is_alive():
            log.warning("the last spans were not taken within %g seconds, and are given up", FLUSH_SECONDS)


def is_on() -> bool:
    return _tracer is not None


@contextmanager
def request(method: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """The span of a request, in the trace that its caller goes on with. Ended by `answered`."""
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    begun = _tracer.start_as_current_span(
        method,
        context=TraceContextTextMapPropagator().extract(headers),
        kind=SpanKind.SERVER,
        record_exception=False,  # its text may quote the request
        set_status_on_exception=False,
        attributes={"http.request.method": method},
    )
    with begun as span:
        yield span


def answered(span: Any, method: str, route: str, status: int, request_id: str) -> None:
    """What a request came to, by the conventions for HTTP."""
    from opentelemetry.trace import StatusCode

    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attributes({"http.response.status_code": status, "governance.request_id": request_id})
    if status >= 500:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)


def step(name: str, **attributes: str) -> AbstractContextManager[Any]:
    """The span of a part of the request at work, its attributes below `governance.`; nothing while off."""
    if _tracer is None:
        return nullcontext()
    named = {f"governance.{key}": value for key, value in attributes.items()}
    span: AbstractContextManager[Any] = _tracer.start_as_current_span(
        name, attributes=named, record_exception=False, set_status_on_exception=False
    )
    return span
