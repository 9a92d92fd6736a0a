"""Metrics for Prometheus. Gauges are made of a snapshot; only what adds up is kept in between.

Labels are sources and tables of the map, and states: as many as the map says, never more. A table is counted for all
of its sources together, unless the map asks for each (`server.metrics`): their product may be large.
"""

from __future__ import annotations

import collections
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kuvasz import __version__
from kuvasz.admin import exposition, upkeep
from kuvasz.admin.views import copy_progress, copy_rows_per_second, copy_seconds_left
from kuvasz.config.model import MetricsScope
from kuvasz.state.tables import State, TableState

if TYPE_CHECKING:
    from kuvasz.admin.exposition import Sample
    from kuvasz.admin.observer import Snapshot
    from kuvasz.parking.logs import ParkedView
    from kuvasz.ports import Receipt
    from kuvasz.state.verdicts.verdict import Verdict
    from kuvasz.view import View

CONTENT_TYPE = CONTENT_TYPE_LATEST

#: Every metric that is not counted between scrapes: name -> help.
HELP = {
    "kuvasz_build_info": "Always 1; its labels say which kuvasz and Python run.",
    "kuvasz_replicates": "1 for the process that replicates, 0 for one that stands by for it.",
    "kuvasz_lag_seconds": "How old the lake is as a copy of the source: 0 when nothing is known to be missing.",
    "kuvasz_lag_bytes": "WAL of the source, as it was last asked, whose changes are not in the lake yet.",
    "kuvasz_freshness_timestamp_seconds": "Unix time up to which all commits of the source are in the lake.",
    "kuvasz_valid_through_timestamp_seconds": "Unix time up to which the table has every commit of its sources.",
    "kuvasz_slot_retained_bytes": "WAL that the source keeps for the slot of kuvasz, asked every ten seconds.",
    "kuvasz_slot_safe_bytes": "WAL that may be written before the slot is lost; only with a limit at the source.",
    "kuvasz_source_state": "1 for the state a source is in, 0 for all others.",
    "kuvasz_table_state": "How many sources have the table in this state.",
    "kuvasz_copy_progress_ratio": "Part of the table's initial copy that is done, by pages, where least is.",
    "kuvasz_copy_rows_per_second": "Rows a second of the table's copies, on their average; only while it is copied.",
    "kuvasz_copy_seconds_left": "How long the table's copy goes on at that speed, where longest is.",
    "kuvasz_copies_waiting": "How many sources' copies of the table wait for their hours (`copy.hours`).",
    "kuvasz_parked_bytes": "Changes of a table that does not follow, kept in the state folder; 0 if there are none.",
    "kuvasz_parked_since_timestamp_seconds": "Unix time of the first parked change; only while some are parked.",
    "kuvasz_rows": "Row changes applied to the lake since the start: what the source did, of any table type.",
    "kuvasz_copied_rows": "Rows of the initial copy read since the start.",
    "kuvasz_rejected_rows": "Rows that did not fit their table and were written down instead, since the start.",
    "kuvasz_verified_timestamp_seconds": "Unix time of a table's last comparison on a schedule, the oldest of all.",
    "kuvasz_differing_keys": "Keys that differed between table and source when they were compared, and do still.",
    "kuvasz_comparisons_failing": "Sources whose last comparison of the table on a schedule left all or some open.",
    "kuvasz_commit_conflicts": "Commits made again because another writer was faster at the table.",
    "kuvasz_last_wire_message_timestamp_seconds": "Unix time at which the source was last heard, also when idle.",
    "kuvasz_waiting_bytes": "Raw changes in memory on their way to the lake.",
    "kuvasz_log_waiting_bytes": "With `cluster.log`: changes in memory that are not staged yet.",
    "kuvasz_log_objects": "With `cluster.log`: objects of the log that the lake does not have all of yet.",
    "kuvasz_log_failing": "With `cluster.log`: 1 while nothing can be staged, and sources keep their WAL.",
    "kuvasz_log_staged_timestamp_seconds": "With `cluster.log`: Unix time at which something was staged last.",
    "kuvasz_log_group_objects": "With `cluster.group`: objects since the first that the group's lake lacks some of.",
    "kuvasz_log_group_behind_seconds": "With `cluster.group`: since the first of these was staged; 0: it has all.",
    "kuvasz_staged_lsn": "With `cluster.log`: the LSN, as a number, before which all of the source is staged.",
    "kuvasz_memory_limit_bytes": "When so much waits, reading pauses: `pipeline.memory`, or less.",
}

#: What `SourceView.state` may be.
SOURCE_STATES = ("starting", "connecting", "streaming", "waiting", "stopped", "error")

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of one application.

    Args:
        scope: What a sample of a table is of.
    """

    def __init__(self, scope: MetricsScope = MetricsScope.PER_TABLE) -> None:
        self._scope = scope
        self.more: list[Callable[[], Iterable[str]]] = []  #: what others count
        self._registry = CollectorRegistry()
        self._commits = Histogram(
            "kuvasz_commit_duration_seconds", "What an Iceberg commit of streamed changes took.",
            buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip
        ProcessCollector(registry=self._registry)

    def note(self, receipt: Receipt) -> None:
        """Count a commit. Safe from any thread."""
        if receipt.snapshot_id is not None and receipt.is_first:
            self._commits.observe(receipt.seconds)

    def render(self, snapshot: Snapshot) -> bytes:
        """Return the page."""
        made = [*_of_process(snapshot), *_of_log(snapshot), *_of_sources(snapshot), *self._of_tables(snapshot)]
        made += upkeep.metrics(snapshot.view.upkeep)
        made += [text for told in self.more for text in told()]
        return "".join(made).encode(errors="backslashreplace") + generate_latest(self._registry)

    def _of_tables(self, snapshot: Snapshot) -> Iterator[str]:
        tables = snapshot.view.tables
        if self._scope is MetricsScope.PER_SOURCE:
            return _of_tables(("source", "table"), {(one.database, one.label): [one] for one in tables}, snapshot)
        groups: dict[tuple[str, ...], list[TableState]] = {}
        for one in tables:
            groups.setdefault((one.target,), []).append(one)
        return _of_tables(("table",), groups, snapshot)


def of_standby() -> bytes:
    """Return the page of a process that stands by."""
    return "".join([_build(), _gauge("kuvasz_replicates", (), [((), 0)])]).encode()


def _build() -> str:
    versions = (__version__, platform.python_version())
    return _gauge("kuvasz_build_info", ("version", "python"), [(versions, 1)])


def _of_process(snapshot: Snapshot) -> Iterator[str]:
    yield _build()
    yield _gauge("kuvasz_replicates", (), [((), 1)])
    yield _counter("kuvasz_commit_conflicts", (), [((), snapshot.view.commit_conflicts)])
    yield _gauge("kuvasz_waiting_bytes", (), [((), snapshot.view.waiting_bytes)])
    yield _gauge("kuvasz_memory_limit_bytes", (), [((), snapshot.memory_bytes)])


def _of_log(snapshot: Snapshot) -> Iterator[str]:
    staged = snapshot.view.staged
    if staged is None:
        return
    yield _gauge("kuvasz_log_waiting_bytes", (), [((), staged.waiting_bytes)])
    yield _gauge("kuvasz_log_objects", (), [((), staged.objects)])
    yield _gauge("kuvasz_log_failing", (), [((), float(staged.error is not None))])
    at = None if staged.staged_at is None else snapshot.now - (snapshot.clock - staged.staged_at)
    yield _gauge("kuvasz_log_staged_timestamp_seconds", (), [((), at)])
    labels, groups = ("log_group",), staged.groups
    yield _gauge("kuvasz_log_group_objects", labels, [((one.name,), one.objects) for one in groups])
    yield _gauge("kuvasz_log_group_behind_seconds", labels, [((one.name,), one.behind_s or 0.0) for one in groups])
    names = [source.name for source in snapshot.view.sources]
    yield _gauge("kuvasz_staged_lsn", ("source",), [((name,), staged.lsns.get(name)) for name in names])


def _of_sources(snapshot: Snapshot) -> Iterator[str]:
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


def _of_tables(
    labels: tuple[str, ...], groups: Mapping[tuple[str, ...], Sequence[TableState]], snapshot: Snapshot
) -> Iterator[str]:
    """Yield the metrics of tables.

    Args:
        labels: Names.
        groups: Their values -> what they are of.
        snapshot: Has what is parked.
    """
    view = snapshot.view
    parked = {key: found for key, tables in groups.items() if (found := _parked(tables, view))}
    yield _gauge("kuvasz_table_state", (*labels, "state"), _states(groups))
    yield _gauge(
        "kuvasz_copy_progress_ratio", labels,
        [(key, min((part for one in tables if (part := copy_progress(one)) is not None), default=None))
         for key, tables in groups.items()],
    )  # fmt: skip
    yield _gauge("kuvasz_valid_through_timestamp_seconds", labels, _valid_through(groups, snapshot))
    yield from _copies(labels, groups, snapshot.clock)
    yield _gauge(
        "kuvasz_parked_bytes", labels, [(key, sum(one.bytes for one in parked.get(key, ()))) for key in groups]
    )
    yield _gauge(
        "kuvasz_parked_since_timestamp_seconds", labels,
        [(key, min(one.since for one in found)) for key, found in parked.items()],
    )  # fmt: skip
    yield _counter("kuvasz_rows", (*labels, "op"), _rows(groups))
    yield _counter(
        "kuvasz_copied_rows", labels, [(key, sum(one.copied_rows for one in found)) for key, found in groups.items()]
    )
    yield from _verdicts(labels, groups, view)
    yield _counter(
        "kuvasz_rejected_rows", labels, [(key, sum(one.rejected for one in found)) for key, found in groups.items()]
    )


def _valid_through(groups: Mapping[tuple[str, ...], Sequence[TableState]], snapshot: Snapshot) -> Iterator[Sample]:
    """Yield how far tables are, by the clocks of their sources; nothing of one that nobody can say it of."""
    sources = {one.name: one for one in snapshot.view.sources}
    known: dict[tuple[str, int | None], float | None] = {}  # the tables of a source are mostly equally far
    for key, tables in groups.items():
        found: list[float] = []
        for one in tables:
            if (source := sources.get(one.database)) is None:
                break
            place = source.name, snapshot.durable_lsn(source, one)
            if place not in known:
                known[place] = snapshot.valid_through(source, place[1])
            if (at := known[place]) is None:
                break
            found.append(at)
        else:
            yield key, min(found)


def _copies(
    labels: tuple[str, ...], groups: Mapping[tuple[str, ...], Sequence[TableState]], clock: float
) -> Iterator[str]:
    rates = {key: [found for one in tables if (found := copy_rows_per_second(one, clock)) is not None]
             for key, tables in groups.items()}  # fmt: skip
    left = {key: [found for one in tables if (found := copy_seconds_left(one, clock)) is not None]
            for key, tables in groups.items()}  # fmt: skip
    waiting = {key: sum(1 for one in tables if one.copy_resumes_at) for key, tables in groups.items()}
    yield _gauge("kuvasz_copies_waiting", labels, list(waiting.items()))
    yield _gauge("kuvasz_copy_rows_per_second", labels, [(key, sum(found)) for key, found in rates.items() if found])
    yield _gauge("kuvasz_copy_seconds_left", labels, [(key, max(found)) for key, found in left.items() if found])


def _verdicts(
    labels: tuple[str, ...], groups: Mapping[tuple[str, ...], Sequence[TableState]], view: View
) -> Iterator[str]:
    """Yield what comparisons found; rows of no source are counted with the table."""
    is_all = labels == ("table",)
    tried: dict[tuple[str, ...], list[Verdict]] = {}
    for key, tables in groups.items():
        mine = {(one.target, one.source) for one in tables} | (
            {(one.target, "") for one in tables} if is_all else set()
        )
        tried[key] = [found for one in mine if (found := view.verdicts.get(one)) is not None]
    ended = {key: [one for one in verdicts if one.at] for key, verdicts in tried.items()}
    yield _gauge(
        "kuvasz_verified_timestamp_seconds", labels,
        [(key, min(one.at for one in verdicts)) for key, verdicts in ended.items() if verdicts],
    )  # fmt: skip
    yield _gauge(
        "kuvasz_differing_keys", labels,
        [(key, sum(one.left for one in verdicts)) for key, verdicts in ended.items() if verdicts],
    )  # fmt: skip
    yield _gauge(
        "kuvasz_comparisons_failing", labels,
        [(key, sum(one.is_open for one in verdicts)) for key, verdicts in tried.items() if verdicts],
    )  # fmt: skip


def _parked(tables: Iterable[TableState], view: View) -> list[ParkedView]:
    return [found for one in tables if (found := view.parked.get((one.target, one.source))) is not None]


def _states(groups: Mapping[tuple[str, ...], Sequence[TableState]]) -> Iterator[Sample]:
    for key, tables in groups.items():
        counts = collections.Counter(one.state for one in tables)
        for state in State:
            yield (*key, state.value), counts[state]


def _rows(groups: Mapping[tuple[str, ...], Sequence[TableState]]) -> Iterator[Sample]:
    for key, tables in groups.items():
        yield (*key, "insert"), sum(one.inserts for one in tables)
        yield (*key, "update"), sum(one.updates for one in tables)
        yield (*key, "delete"), sum(one.deletes for one in tables)


def _gauge(name: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> str:
    return exposition.family(name, HELP[name], "gauge", labels, samples)


def _counter(name: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> str:
    return exposition.family(f"{name}_total", HELP[name], "counter", labels, samples)
