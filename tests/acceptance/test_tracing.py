"""A running kuvasz as a collector of OpenTelemetry sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import log_schema
from tests.support.collector import collecting, values
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

pytest.importorskip("opentelemetry.sdk", reason="without the extra kuvasz[tracing]")


@pytest.mark.timeout(600)
def test_each_mini_transaction_is_a_trace_up_to_its_confirmation(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute("CREATE TABLE items (id serial PRIMARY KEY, body text)")
    process = new_process(group({"eu": database}, {"items": None}))
    with collecting() as collector:
        process.start(
            "--set", "tracing.enabled=true", "--set", f"tracing.endpoint={collector.url}",
            environment={"OTEL_BSP_SCHEDULE_DELAY": "100"},
        )  # fmt: skip
        process.wait_event("copied")
        database.execute("INSERT INTO items (body) VALUES ('a-value-4711')")
        process.wait_confirmed(database)
        process.wait_until(lambda: any(span.name == "confirm" for span in collector.spans()), "a whole trace")
        process.terminate()
        spans = collector.spans()
    (done,) = [span for span in spans if not span.parent_span_id and values(span)["kuvasz.rows"] == 1]
    parts = {span.name: span for span in spans if span.parent_span_id == done.span_id}
    assert list(parts) == ["wait", "write", "wait for commit", "commit", "confirm"]
    assert done.start_time_unix_nano < parts["commit"].start_time_unix_nano < done.end_time_unix_nano
    found = values(done)
    (snapshot,) = [event["snapshot"] for event in process.found("committed")]
    assert found["kuvasz.targets"] == ["shop.items"]
    assert found["kuvasz.sources"] == ["shop_eu"]
    assert found["kuvasz.snapshots"] == [f"shop.items={snapshot}"]
    assert "a-value" not in str(spans)
    assert not process.found("tracing_failed")
    assert log_schema.violations(process.events) == [], "at debug all of them are told"
