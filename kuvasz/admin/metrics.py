"""Metrics for Prometheus. Gauges are made of a snapshot at every scrape; only what adds up is kept in between.

Labels are sources and tables of the map, and states: as many as the map says, never more.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from kuvasz import __version__
from kuvasz.admin import upkeep
from kuvasz.admin.views import copy_progress
from kuvasz.state.tables import State, TableState

if TYPE_CHECKING:
    from kuvasz.admin.observer import Snapshot
    from kuvasz.ports import Receipt

CONTENT_TYPE = CONTENT_TYPE_LATEST

#: Every metric that is not counted between scrapes: name -> help.
HELP = {
    "kuvasz_build_info": "Always 1; its labels say which kuvasz and Python run.",
    "kuvasz_lag_seconds": "How old the lake is as a copy of the source: 0 when nothing is known to be missing.",
    "kuvasz_lag_bytes": "WAL of the source, as it was last asked, whose changes are not in the lake yet.",
    "kuvasz_freshness_timestamp_seconds": "Unix time up to which all commits of the source are in the lake.",
    "kuvasz_slot_retained_bytes": "WAL that the source keeps for the slot of kuvasz, asked every ten seconds.",
    "kuvasz_slot_safe_bytes": "WAL that may be written before the slot is lost; only with a limit at the source.",
    "kuvasz_source_state": "1 for the state a source is in, 0 for all others.",
    "kuvasz_table_state": "1 for the state a table of a source is in, 0 for all others.",
    "kuvasz_copy_progress_ratio": "Part of the table's initial copy that is done, by pages; since this start.",
    "kuvasz_parked_bytes": "Changes of a table that does not follow, kept in the state folder; 0 if there are none.",
    "kuvasz_parked_since_timestamp_seconds": "Unix time since when changes are parked; only while they are.",
    "kuvasz_rows": "Row changes applied to the lake since the start: what the source did, of any table type.",
    "kuvasz_copied_rows": "Rows of the initial copy read since the start.",
    "kuvasz_commit_conflicts": "Commits made again because another writer was faster at the table.",
    "kuvasz_last_wire_message_timestamp_seconds": "Unix time at which the source was last heard, also when idle.",
    "kuvasz_waiting_bytes": "Raw changes in memory on their way to the lake.",
    "kuvasz_memory_limit_bytes": "When so much waits, reading pauses: `pipeline.memory`, or less.",
}

#: What `SourceView.state` may be.
SOURCE_STATES = ("starting", "connecting", "streaming", "waiting", "stopped", "error")

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics(Collector):
    """All metrics of one application.

    Args:
        snapshot: Gives the moment's facts; called in the thread that renders.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._registry = CollectorRegistry()
        self._commits = Histogram(
            "kuvasz_commit_duration_seconds", "What an Iceberg commit of streamed changes took.",
            buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], int] = {}
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def note(self, receipt: Receipt) -> None:
        """Count a commit. Safe from any thread."""
        if receipt.snapshot_id is not None and receipt.is_first:
            self._commits.observe(receipt.seconds)

    def render(self) -> bytes:
        """Return the page."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are not looked for twice, so registering needs no snapshot."""
        return ()

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric that is made of a snapshot."""
        snapshot = self._snapshot()
        yield _gauge("kuvasz_build_info", ("version", "python"), [((__version__, platform.python_version()), 1)])
        yield from _of_sources(snapshot)
        yield from _of_tables(snapshot)
        yield from upkeep.metrics(snapshot.view.upkeep)
        yield _counter("kuvasz_commit_conflicts", (), [((), snapshot.view.commit_conflicts)])
        yield _gauge("kuvasz_waiting_bytes", (), [((), snapshot.view.waiting_bytes)])
        yield _gauge("kuvasz_memory_limit_bytes", (), [((), snapshot.memory_bytes)])


#: Label values and a value; what is not known is left out.
_Sample = tuple[tuple[str, ...], float | None]


def _of_sources(snapshot: Snapshot) -> Iterator[Metric]:
    sources = snapshot.view.sources
    labels = ("source",)
    slots = {name: facts.slot for name, facts in snapshot.facts.items()}
    yield _gauge(
        "kuvasz_source_state", (*labels, "state"),
        [((s.name, state), float(s.state == state)) for s in sources for state in SOURCE_STATES],
    )  # fmt: skip
    yield _gauge("kuvasz_lag_seconds", labels, [((s.name,), snapshot.lag_seconds(s)) for s in sources])
    yield _gauge("kuvasz_lag_bytes", labels, [((s.name,), snapshot.lag_bytes(s)) for s in sources])
    yield _gauge(
        "kuvasz_freshness_timestamp_seconds", labels, [((s.name,), snapshot.facts[s.name].fresh_at) for s in sources]
    )
    yield _gauge(
        "kuvasz_slot_retained_bytes", labels,
        [((name,), None if slot is None else slot.retained_bytes) for name, slot in slots.items()],
    )  # fmt: skip
    yield _gauge(
        "kuvasz_slot_safe_bytes", labels,
        [((name,), None if slot is None else slot.safe_bytes) for name, slot in slots.items()],
    )  # fmt: skip
    yield _gauge(
        "kuvasz_last_wire_message_timestamp_seconds",
        labels,
        [
            ((s.name,), None if s.last_message_at is None else snapshot.now - (snapshot.clock - s.last_message_at))
            for s in sources
        ],
    )


def _of_tables(snapshot: Snapshot) -> Iterator[Metric]:
    tables = snapshot.view.tables
    labels = ("source", "table")
    states: list[_Sample] = [
        ((table.database, table.label, state.value), float(table.state is state))
        for table in tables
        for state in State
    ]
    yield _gauge("kuvasz_table_state", (*labels, "state"), states)
    yield _gauge("kuvasz_copy_progress_ratio", labels, [((t.database, t.label), copy_progress(t)) for t in tables])
    parked = snapshot.view.parked
    yield _gauge(
        "kuvasz_parked_bytes", labels,
        [((t.database, t.label), parked[t.target, t.source].bytes if (t.target, t.source) in parked else 0)
         for t in tables],
    )  # fmt: skip
    yield _gauge(
        "kuvasz_parked_since_timestamp_seconds", labels,
        [((t.database, t.label), parked[t.target, t.source].since)
         for t in tables if (t.target, t.source) in parked],
    )  # fmt: skip
    yield _counter("kuvasz_rows", (*labels, "op"), [sample for table in tables for sample in _rows(table)])
    yield _counter("kuvasz_copied_rows", labels, [((t.database, t.label), t.copied_rows) for t in tables])


def _rows(table: TableState) -> Iterator[_Sample]:
    for op, count in (("insert", table.inserts), ("update", table.updates), ("delete", table.deletes)):
        yield (table.database, table.label, op), float(count)


def _gauge(name: str, labels: tuple[str, ...], samples: Iterable[_Sample]) -> Metric:
    return _filled(GaugeMetricFamily(name, HELP[name], labels=labels), samples)


def _counter(name: str, labels: tuple[str, ...], samples: Iterable[_Sample]) -> Metric:
    # The client adds the `_total`.
    return _filled(CounterMetricFamily(name, HELP[name], labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[_Sample]) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family
