"""OpenTelemetry's SDK as kuvasz has it: what it is called, where traces go, and what becomes of its own complaints.

Everything that OpenTelemetry's variables say (`OTEL_…`) counts: endpoint, headers, sampling, batches, resource.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.errors import ConfigError
from kuvasz.events import Event, EventLog, heard_by
from kuvasz.tracing.traces import Traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_log = EventLog(__name__)

#: Complaints of the SDK are told this often at most: a collector that is away makes one for each attempt.
_QUIET_S: Final = 60.0

#: For traces on their way when kuvasz stops.
_END_MS: Final = 3000


class Tracing:
    """Sends traces of what happens while `hearing` is entered.

    Args:
        endpoint: The url of a collector, as `http://collector:4318`; None: whichever the variables name.
        exporter: Another way for spans.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str | None = None, exporter: SpanExporter | None = None) -> None:
        try:
            self._provider = _provider(endpoint, exporter)
        except ModuleNotFoundError as error:
            hint = "install it: pip install 'kuvasz[tracing]'; or leave tracing.enabled at false"
            raise ConfigError(f"tracing.enabled: {error.name} is not installed", hint=hint) from error
        self.traces = Traces(self._provider.get_tracer("kuvasz"))

    @contextlib.contextmanager
    def hearing(self) -> Iterator[None]:
        """Hear what is confirmed while the body runs."""
        theirs = logging.getLogger("opentelemetry")
        theirs.handlers[:], theirs.propagate = [_Complaints()], False
        with heard_by(self.traces.hear):
            yield

    def end(self) -> None:
        """Send what is left, for some seconds, and let go of the thread that sends."""
        self.traces.end()
        self._provider.force_flush(_END_MS)
        self._provider.shutdown()


class _Complaints(logging.Handler):
    """Tells what the SDK has to say as an event of ours."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._quiet_until = 0.0

    @override
    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            _log.tell(Event.TRACING_FAILED, reason=record.getMessage())


def _provider(endpoint: str | None, exporter: SpanExporter | None) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from kuvasz import __version__

    resource = Resource.create()
    if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "kuvasz"}))
    provider = TracerProvider(
        resource=resource.merge(Resource({"service.version": __version__})), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter or _otlp(endpoint)))
    return provider


def _otlp(endpoint: str | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces")


__all__ = ["Tracing"]
