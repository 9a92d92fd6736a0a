"""Traces over the wire, as a collector gets them; and what becomes of them where there is none."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from kuvasz.errors import ConfigError
from kuvasz.events import Event
from kuvasz.tracing.mini_transaction import MiniTransaction, Times
from kuvasz.tracing.open_telemetry import Tracing
from tests.support.collector import collecting, values

needs_extra = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("opentelemetry") is None, reason="without the extra kuvasz[tracing]"
)

ONE = MiniTransaction(
    worker=0, times=Times(1.0, 2.0, 3.0, 4.0, 5.0), bytes=100, rows=3, through={"eu": 0x100},
    snapshots={"shop.items": 7},
)  # fmt: skip


def send(tracing: Tracing) -> None:
    with tracing.hearing():
        tracing.traces.durable(ONE)
        tracing.traces.hear(Event.STREAM_CONFIRMED, {"source": "eu", "lsn": "0/100"})
    tracing.end()


@needs_extra
def test_a_collector_gets_the_spans_of_a_trace() -> None:
    with collecting() as collector:
        send(Tracing(f"{collector.url}/"))
        spans = collector.spans()
        assert collector.paths == ["/v1/traces"]
        assert collector.services() == {"kuvasz"}
    roots = [span for span in spans if not span.parent_span_id]
    assert [span.name for span in roots] == ["mini-transaction"]
    assert {span.trace_id for span in spans} == {roots[0].trace_id}
    assert len(spans) == 6
    assert values(roots[0])["kuvasz.sources"] == ["eu"]
    assert values(roots[0])["kuvasz.rows"] == 3


@needs_extra
def test_the_variables_of_opentelemetry_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=lake")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "kuvasz-eu")
        send(Tracing())
        assert collector.services() == {"kuvasz-eu"}
        assert collector.headers[0]["x-tenant"] == "lake"
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        before = len(collector.spans())
        send(Tracing())
        assert len(collector.spans()) == before


@needs_extra
def test_a_collector_that_takes_nothing_is_told_as_an_event(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kuvasz"), "propagate", True)
    with collecting(400) as collector:
        send(Tracing(collector.url))
    found: list[Any] = [one for one in caplog.records if one.name.startswith("kuvasz.")]
    assert [one.event for one in found] == ["tracing_failed"]
    assert "400" in found[0].reason


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("opentelemetry"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"^tracing\.enabled: opentelemetry\S* is not installed") as caught:
        Tracing("http://nowhere:4318")
    assert caught.value.hint is not None
    assert "pip install 'kuvasz[tracing]'" in caught.value.hint
