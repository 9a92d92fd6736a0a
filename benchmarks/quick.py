"""``make bench-quick``: how kuvasz compares with PostgreSQL's own programs, in one run of under three minutes.

(a) Initial copy: kuvasz against one bare ``COPY … TO STDOUT`` into nothing.
(b) Backlog: mixed changes made while kuvasz was down, drained end to end into the lake, against ``pg_recvlogical``
    into /dev/null on the same WAL, before and after. kuvasz's clock runs from its event ``streaming`` to the
    moment the last change is visible in the catalog: without the start of Spark, with everything else.
(c) Visible lag at a steady rate: from the return of COMMIT at the source to the new metadata in the catalog.

All rows are compared by content at the end; a run that lost or changed one prints no result. Figures of one run
can be compared with each other only: server, kuvasz and references share the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psycopg

from benchmarks import reference, subject, workload
from kuvasz.demo.postgres import EmbeddedPostgres

_SLOTS = ("bench_before", "bench_after")
_OUT = Path("benchmarks/out/quick.json")

#: Limits, far above what is expected: a run that hangs must end.
_START_S, _APPLY_S = 300, 900


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    rows: int = 2_000_000
    changes: int = 400_000
    per_transaction: int = 100
    lag_seconds: float = 20.0
    lag_rate: float = 1000.0
    seed: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Result of (a)."""

    rows: int
    seconds: float
    total_seconds: float  #: of the whole process, Spark's start included
    bare_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Result of (b)."""

    changes: int
    seconds: float
    recvlogical_seconds: tuple[float, ...]
    cpu_s: dict[str, float]
    memory_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Result of (c), in seconds."""

    transactions: int
    p50: float
    p99: float
    worst: float


def main(arguments: list[str] | None = None) -> int:
    """Run the three measurements, compare, print."""
    sizes = _sizes(arguments)
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-bench-"))
    try:
        with EmbeddedPostgres(folder / "postgres") as server:
            url = server.url()
            _say(f"seeding {sizes.rows:,} rows")
            workload.create(url, rows=sizes.rows, seed=sizes.seed)
            tested = subject.Subject(folder, url, workload.table_names(1))
            copy = measure_copy(tested, sizes)
            drain, lag = measure_stream(server, tested, sizes)
            _say("comparing the lake with the source")
            differences = tested.differences()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if differences:
        print("WRONG: the lake differs from its source, so there is no result", *differences, sep="\n")
        return 4
    _report(sizes, copy, drain, lag)
    return 0


def measure_copy(tested: subject.Subject, sizes: Sizes) -> Copy:
    """Measure (a)."""
    _say("bare COPY")
    bare = min((reference.bare_copy(tested.url, tested.tables[0]) for _ in range(2)), key=lambda run: run.seconds)
    _say("initial copy by kuvasz")
    with tested.start("--until-caught-up") as run:
        copied = run.wait_for("copied", timeout_s=_START_S + _APPLY_S)
        run.wait(_APPLY_S)
        total = time.time() - run.started_at
    if copied["rows"] != bare.rows:
        raise RuntimeError(f"kuvasz copied {copied['rows']} rows of {bare.rows}")
    return Copy(rows=sizes.rows, seconds=copied["seconds"], total_seconds=total, bare_seconds=bare.seconds)


def measure_stream(server: EmbeddedPostgres, tested: subject.Subject, sizes: Sizes) -> tuple[Drain, Lag]:
    """Measure (b), then (c) with the same kuvasz."""
    for slot in _SLOTS:
        reference.create_slot(tested.url, slot)
    _say(f"making {sizes.changes:,} changes while kuvasz is down")
    mark = workload.change(tested.url, changes=sizes.changes, per_transaction=sizes.per_transaction, seed=sizes.seed)
    changes = sizes.changes + 1  # the one that marks the end
    publication, end_lsn = _stream(tested.url)
    log = tested.folder / "recvlogical.log"

    def recvlogical(slot: str) -> reference.Reference:
        _say(f"pg_recvlogical ({slot})")
        done = reference.recvlogical(
            server, tested.url, slot=slot, publication=publication, end_lsn=end_lsn, rows=changes, log=log
        )
        reference.drop_slot(tested.url, slot)
        return done

    before = recvlogical(_SLOTS[0])
    _say("backlog drained by kuvasz")
    with tested.watch() as watch, tested.start() as run:
        streaming = run.wait_for("streaming", timeout_s=_START_S)
        began, cpu = streaming["seen_at"], run.cpu()
        ended = watch.wait_for(mark.lsn, timeout_s=_APPLY_S, is_alive=run.check)
        used = {name: value - cpu[name] for name, value in run.cpu().items()}
        memory = run.memory()
        after = recvlogical(_SLOTS[1])
        lag = _lag(tested, sizes, watch, run)
        run.end()
    drain = Drain(
        changes=changes,
        seconds=ended - began,
        recvlogical_seconds=(before.seconds, after.seconds),
        cpu_s=used,
        memory_bytes=memory,
    )
    return drain, lag


def _lag(tested: subject.Subject, sizes: Sizes, watch: subject.Watch, run: subject.Run) -> Lag:
    _say(f"visible lag at {sizes.lag_rate:.0f} changes/s for {sizes.lag_seconds:.0f} s")
    marks = workload.steady(tested.url, changes_per_second=sizes.lag_rate, seconds=sizes.lag_seconds, keys=sizes.rows)
    watch.wait_for(marks[-1].lsn, timeout_s=60, is_alive=run.check)
    seen_at = np.array([at for at, _ in watch.seen])
    positions = np.maximum.accumulate(np.array([position for _, position in watch.seen]))
    first = np.searchsorted(positions, [mark.lsn for mark in marks], side="right")
    lags = seen_at[first] - np.array([mark.at for mark in marks])
    p50, p99 = np.percentile(lags, [50, 99])
    return Lag(transactions=len(marks), p50=float(p50), p99=float(p99), worst=float(lags.max()))


def _stream(url: str) -> tuple[str, int]:
    """Return the publication kuvasz made and the end of the flushed WAL."""
    with psycopg.connect(url) as connection:
        [(publication,)] = connection.execute(
            "SELECT pubname FROM pg_publication WHERE pubname LIKE 'kuvasz%'"
        ).fetchall()
        [(end_lsn,)] = connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchall()
    return publication, int(end_lsn)


def _report(sizes: Sizes, copy: Copy, drain: Drain, lag: Lag) -> None:
    recvlogical = min(drain.recvlogical_seconds)
    per_row = 1e6 / drain.changes
    cpu = ", ".join(f"{name} {value * per_row:.1f}" for name, value in drain.cpu_s.items())
    lines = [
        f"all rows equal at source and lake; {os.cpu_count()} cores",
        f"(a) initial copy   {copy.rows / copy.seconds:>10,.0f} rows/s   bare COPY"
        f" {copy.rows / copy.bare_seconds:>10,.0f} rows/s   ratio {copy.bare_seconds / copy.seconds:.2f}"
        f"   (process {copy.total_seconds:.1f} s)",
        f"(b) backlog        {drain.changes / drain.seconds:>10,.0f} rows/s   pg_recvlogical"
        f" {' and '.join(f'{drain.changes / seconds:,.0f}' for seconds in drain.recvlogical_seconds)} rows/s"
        f"   ratio to the faster {recvlogical / drain.seconds:.2f}",
        f"    µs of CPU per row: {sum(drain.cpu_s.values()) * per_row:.1f} ({cpu});"
        f" resident {drain.memory_bytes / 1e6:,.0f} MB",
        f"(c) visible lag    p50 {lag.p50 * 1000:,.0f} ms   p99 {lag.p99 * 1000:,.0f} ms"
        f"   worst {lag.worst * 1000:,.0f} ms   ({sizes.lag_rate:,.0f} changes/s)",
    ]
    print(*lines, sep="\n")
    _OUT.parent.mkdir(parents=True, exist_ok=True)
    result = {name: dataclasses.asdict(value) for name, value in
              (("sizes", sizes), ("copy", copy), ("drain", drain), ("lag", lag))}  # fmt: skip
    result["machine"] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    _OUT.write_text(json.dumps(result, indent=2))


def _sizes(arguments: list[str] | None) -> Sizes:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Sizes):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default)
    return Sizes(**vars(parser.parse_args(arguments)))


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
