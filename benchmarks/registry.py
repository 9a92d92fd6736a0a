"""Every scenario by name, in three sizes: tiny (function only), quick (minutes), full (that of the targets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.scenario import Entry
from benchmarks.scenarios.backlog import Backlog, FanIn, TpcbBacklog, Transaction
from benchmarks.scenarios.clustering import ClusteredBacklog, Takeover
from benchmarks.scenarios.copying import Copying
from benchmarks.scenarios.fleet import Fleet
from benchmarks.scenarios.flood import FleetFlood
from benchmarks.scenarios.growth import Growth
from benchmarks.scenarios.idle import FleetIdle, Idle
from benchmarks.scenarios.indexing import Indexing, LostIndex
from benchmarks.scenarios.quick import Quick
from benchmarks.scenarios.reading import Reading
from benchmarks.scenarios.scanning import Scanning
from benchmarks.scenarios.starting import FleetStart, StoreStart
from benchmarks.scenarios.steady import Steady
from benchmarks.scenarios.storing import StoreBacklog, StoreSteady
from benchmarks.scenarios.stuck import Stuck
from benchmarks.scenarios.telling import Telling
from benchmarks.scenarios.tenants import Tenants
from benchmarks.scenarios.tracing import Tracing
from benchmarks.scenarios.truncating import Truncating

if TYPE_CHECKING:
    from collections.abc import Mapping

_TINY_LOAD = {"rows": 2000, "changes": 1000}
_TINY_PACE = {"rows": 2000, "seconds": 2.0, "rate": 200.0}

_ENTRIES = (
    Entry(
        name="quick",
        summary="copy, mixed backlog and lag of one source, under 3 minutes",
        build=Quick,
        tiny=_TINY_LOAD | _TINY_PACE,
        full={"rows": 10_000_000, "changes": 2_000_000, "seconds": 60.0},
    ),
    Entry(
        name="copy-narrow",
        summary="initial copy, rows of 110 bytes",
        build=Copying,
        tiny={"rows": 2000},
        full={"rows": 10_000_000},
    ),
    Entry(
        name="copy-wide",
        summary="initial copy, rows of 2 kB with a JSON document",
        build=Copying,
        fixed={"shape": "wide"},
        tiny={"rows": 500},
        quick={"rows": 200_000},
        full={"rows": 2_000_000},
    ),
    Entry(
        name="copy-columns",
        summary="initial copy, rows of 200 columns",
        build=Copying,
        fixed={"shape": "columns"},
        tiny={"rows": 500},
        quick={"rows": 100_000},
        full={"rows": 2_000_000},
    ),
    Entry(
        name="backlog-inserts",
        summary="backlog of inserts",
        build=Backlog,
        fixed={"updates": 0.0, "inserts": 1.0},
        tiny=_TINY_LOAD,
        quick={"rows": 100_000},
        full={"rows": 100_000, "changes": 2_000_000, "stages": True},
    ),
    Entry(
        name="backlog-mixed",
        summary="backlog of 60 % updates, 25 % inserts, 15 % deletes, uniform keys",
        build=Backlog,
        tiny=_TINY_LOAD,
        full={"stages": True},
    ),
    Entry(
        name="backlog-hot",
        summary="the same, 80 % of it on a fifth of the keys",
        build=Backlog,
        fixed={"hot": 0.8},
        tiny=_TINY_LOAD,
    ),
    Entry(
        name="backlog-wide",
        summary="mixed backlog, rows of 2 kB with a JSON document",
        build=Backlog,
        fixed={"shape": "wide"},
        tiny={"rows": 500, "changes": 300},
        quick={"rows": 100_000, "changes": 100_000},
        full={"rows": 500_000, "changes": 500_000},
    ),
    Entry(
        name="backlog-100-tables",
        summary="mixed backlog over 100 tables",
        build=Backlog,
        fixed={"tables": 100},
        tiny=_TINY_LOAD | {"tables": 5},
    ),
    Entry(
        name="backlog-tpcb",
        summary="backlog of pgbench's TPC-B transactions, four tables",
        build=TpcbBacklog,
        tiny={"scale": 1, "transactions": 200},
        full={"transactions": 500_000},
    ),
    Entry(
        name="transaction",
        summary="one transaction of mixed changes, and how memory grows",
        build=Transaction,
        tiny=_TINY_LOAD,
        full={"rows": 5_000_000, "changes": 5_000_000},
    ),
    *(
        Entry(
            name=f"fan-in-{sources}",
            summary=f"mixed backlog of {sources} sources into the same tables",
            build=FanIn,
            fixed={"sources": sources},
            tiny=_TINY_LOAD | {"sources": min(sources, 3)},
            full={"rows": 2_000_000, "changes": 1_000_000},
        )
        for sources in (3, 16, 64)
    ),
    *(
        Entry(
            name=f"fleet-{sources}",
            summary=f"visible lag and files of {sources} small sources at {rate:.0f} changes/s in all, against one",
            build=Fleet,
            fixed={"sources": sources, "servers": servers, "rate": rate},
            tiny={"sources": 3, "servers": min(servers, 2), "rows": 50, "rate": 60.0, "seconds": 2.0},
            quick={"seconds": 30.0},
        )
        for sources, servers, rate in ((100, 1, 300.0), (1000, 20, 1000.0))
    ),
    Entry(
        name="fleet-start",
        summary="first start and start after SIGKILL of 150 small sources with five tables each, against one",
        build=FleetStart,
        tiny={"sources": 3, "tables": 2},
        quick={"sources": 50},
    ),
    Entry(
        name="tenants",
        summary="150 schemas of one database with five tables each: both starts, rest, and 300 updates/s",
        build=Tenants,
        tiny={"schemas": 3, "tables": 2, "seconds": 1.0, "settle": 1.0},
        quick={"schemas": 50, "seconds": 10.0},
        full={"schemas": 2000},
    ),
    Entry(
        name="fleet-idle",
        summary="CPU of 100 quiet sources with the same five tables",
        build=FleetIdle,
        tiny={"sources": 3, "tables": 2, "settle": 1.0, "seconds": 1.0},
    ),
    *(
        Entry(
            name=name,
            summary=summary,
            build=FleetFlood,
            fixed={"absent": absent},
            tiny={"sources": 2, "rows": 50, "rate": 60.0, "seconds": 2.0, "calm": 1.0, "flood": 2000.0},
            quick={"sources": 100, "rate": 100.0},
        )
        for name, absent, summary in (
            ("fleet-flood", False, "lag of 200 quiet sources beside one that inserts 100,000 rows/s"),
            ("fleet-absent", True, "lag of 200 quiet sources while one brings 3 M rows that it has missed"),
        )
    ),
    Entry(
        name="steady-1k",
        summary="visible lag at 1,000 changes/s, interval 1 s",
        build=Steady,
        tiny=_TINY_PACE,
        full={"rows": 2_000_000, "seconds": 300.0},
    ),
    Entry(
        name="steady-shortest",
        summary="visible lag at 1,000 changes/s with the shortest useful interval",
        build=Steady,
        fixed={"interval": "200ms"},
        tiny=_TINY_PACE,
        full={"rows": 2_000_000, "seconds": 300.0},
    ),
    Entry(
        name="steady-10k",
        summary="visible lag at 10,000 changes/s, and its drift",
        build=Steady,
        fixed={"rate": 10_000.0, "per_transaction": 100},
        tiny=_TINY_PACE,
        full={"rows": 2_000_000, "seconds": 300.0},
    ),
    Entry(
        name="clustered-steady-1k",
        summary="the same with a staged log in a local folder: compare with steady-1k of the same run",
        build=Steady,
        fixed={"log_interval": "200ms"},
        tiny=_TINY_PACE,
        full={"rows": 2_000_000, "seconds": 300.0},
    ),
    Entry(
        name="clustered-backlog-mixed",
        summary="mixed backlog read by one that stages it in a local folder, against one without a log",
        build=ClusteredBacklog,
        tiny=_TINY_LOAD,
    ),
    Entry(
        name="clustered-takeover",
        summary="a table goes to another machine: its index from the store, against its keys read from the table",
        build=Takeover,
        tiny={"rows": 70_000, "changes": 500},
        full={"rows": 10_000_000},
    ),
    Entry(
        name="about",
        summary="CPU of the tables about the lake at 1,000 changes/s, beside a kuvasz that has none",
        build=Telling,
        tiny={"rows": 400, "seconds": 3.0, "warm_seconds": 1.0, "rate": 100.0, "tables": 2},
        full={"seconds": 300.0},
    ),
    Entry(
        name="steady-stuck",
        summary="visible lag of a table beside one that the store refuses, in the same worker",
        build=Stuck,
        tiny={"rows": 4000, "seconds": 3.0, "rate": 100.0},
        full={"seconds": 180.0},
    ),
    Entry(
        name="store-start",
        summary="first start and start after SIGKILL with 100 tables on an object store of 40 ms a request",
        build=StoreStart,
        tiny={"tables": 2, "delay": 5.0},
        quick={"tables": 50},
    ),
    Entry(
        name="store-steady-1k",
        summary="the same on an object store of 40 ms a request: requests of a commit, lag, cost",
        build=StoreSteady,
        tiny=_TINY_PACE,
        full={"rows": 2_000_000, "seconds": 300.0},
    ),
    Entry(
        name="store-backlog-mixed",
        summary="mixed backlog on an object store of 40 ms a request, against a local folder",
        build=StoreBacklog,
        tiny=_TINY_LOAD,
    ),
    Entry(
        name="store-backlog-100-tables",
        summary="the same over 100 tables",
        build=StoreBacklog,
        fixed={"tables": 100},
        tiny=_TINY_LOAD | {"tables": 5},
    ),
    Entry(
        name="scanning",
        summary="files and scans of a table at random moments of two small commits a second",
        build=Scanning,
        tiny={"rows": 2000, "seconds": 3.0},
        quick={"seconds": 150.0},
    ),
    Entry(
        name="growth",
        summary="the same updates while the table grows",
        build=Growth,
        tiny={"smallest": 500, "largest": 5000, "rate": 200.0, "seconds": 2.0},
        quick={"smallest": 100_000, "largest": 10_000_000, "seconds": 30.0},
    ),
    Entry(
        name="read",
        summary="full scan and point query after a mixed backlog, against a fresh copy",
        build=Reading,
        tiny=_TINY_LOAD | {"repeats": 1},
    ),
    Entry(
        name="index",
        summary="position index: bytes a row, look-ups",
        build=Indexing,
        tiny={"rows": 10_000, "batch": 1000},
        full={"rows": 50_000_000},
    ),
    Entry(
        name="lost-index",
        summary="start with changes waiting and no position index: its keys are read from the table",
        build=LostIndex,
        tiny={"rows": 300_000, "changes": 500},
        full={"rows": 50_000_000},
    ),
    Entry(
        name="trace",
        summary="`kuvasz trace` of single rows behind 500 snapshots of 40 scattered updates",
        build=Tracing,
        tiny={"rows": 2000, "snapshots": 12, "updates": 4},
        quick={"rows": 500_000, "snapshots": 100},
    ),
    Entry(
        name="truncate",
        summary="TRUNCATE of a table followed as clone, append and history",
        build=Truncating,
        tiny={"rows": 2000},
        full={"rows": 10_000_000},
    ),
    Entry(
        name="truncate-v2",
        summary="the same in format 2",
        build=Truncating,
        fixed={"format_version": 2},
        tiny={"rows": 2000},
        full={"rows": 10_000_000},
    ),
    Entry(
        name="idle",
        summary="CPU of 10 quiet sources with 50 tables",
        build=Idle,
        tiny={"sources": 2, "tables": 4, "rows": 100, "settle": 1.0, "seconds": 1.0},
    ),
)

SCENARIOS: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}
