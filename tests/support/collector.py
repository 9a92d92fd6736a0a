"""A collector of OpenTelemetry: takes traces by OTLP over HTTP, in protobuf, and keeps the spans."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterator
from typing import Any


class Collector:
    """What a collector was sent.

    Args:
        status: What it answers with.
    """

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.url = ""
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._bodies: list[bytes] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Keep a request."""
        self.paths.append(path)
        self.headers.append(headers)
        self._bodies.append(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)

    def _resources(self) -> Iterator[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for body in list(self._bodies):
            yield from ExportTraceServiceRequest.FromString(body).resource_spans

    def services(self) -> set[str]:
        """Return who sent something."""
        found = (one for each in self._resources() for one in each.resource.attributes)
        return {one.value.string_value for one in found if one.key == "service.name"}

    def spans(self) -> list[Any]:
        """Return all spans so far."""
        return [span for each in self._resources() for scope in each.scope_spans for span in scope.spans]


@contextlib.contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """Give a collector that listens while the body runs."""
    collector = Collector(status)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def values(span: Any) -> dict[str, Any]:
    """Return the attributes of a span."""
    return {one.key: _value(one.value) for one in span.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found
