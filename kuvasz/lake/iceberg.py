"""The lake of production: Spark writes the files, Iceberg commits them. Implements `kuvasz.ports.Lake`.

A mini-transaction passes two stages, so that the job of the next one runs while this one commits: `write` (any
thread; one Spark job for all targets) and `commit` (per target: resolve, delete files, one Iceberg commit).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import itertools
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from kuvasz import failpoints
from kuvasz.config.model import Config
from kuvasz.errors import ForeignChange, InternalError, KuvaszError, LakeError, LateCommit, TableGone
from kuvasz.evolve.known import SourceColumns
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk
from kuvasz.index.positions import PositionIndex
from kuvasz.lake import chunks, gaps, layout, naming, origin, spark, transforming
from kuvasz.lake.bag import Bag
from kuvasz.lake.binding import Feeds, no_earlier_version, placed
from kuvasz.lake.catalog import Catalog, IcebergTable, gone
from kuvasz.lake.chunks import Chunk, Cut
from kuvasz.lake.comparison import OnProgress
from kuvasz.lake.copy import CopyJob
from kuvasz.lake.datafile import file_io, remove
from kuvasz.lake.era import Era
from kuvasz.lake.expressions import Expressions
from kuvasz.lake.files import Changeset
from kuvasz.lake.history import HistoryWriter
from kuvasz.lake.history_tasks import ReadVersions
from kuvasz.lake.jobs import Jobs
from kuvasz.lake.layout import Layout
from kuvasz.lake.maintenance import Maintainer
from kuvasz.lake.notes import Notes
from kuvasz.lake.order import Order
from kuvasz.lake.repair import RepairJob
from kuvasz.lake.resolution import Resolution
from kuvasz.lake.schema import SID, bounded, wanted
from kuvasz.lake.spool import Spool
from kuvasz.lake.table import LakeTable
from kuvasz.lake.tasks import ApplyChunks, ChunkDone, ChunkTask, CompleteRows, CompleteTask, ReadKeys
from kuvasz.lake.transaction import OpenTransaction
from kuvasz.model import NO_OPERATIONS, Operations, Position, Relation, TableType, Truncation, UInt32s
from kuvasz.modes import own
from kuvasz.modes.facts import Facts
from kuvasz.modes.shape import Shape
from kuvasz.ports import CopyRequest, Failure, Feed, Gap, Receipt, TableWork, Target, Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

T = TypeVar("T")

_Raw: TypeAlias = "tuple[bytes | None, bytes | bytearray | memoryview | None, bytes | None]"

#: Numbers of chunks: files of one commit are told apart by age by them.
_orders = itertools.count(1)

#: Tables that commit side by side. A commit is mostly waiting (28/s with one thread, 80/s with four; 2 cores).
_COMMIT_THREADS = 4

#: Attempts at a commit that meets another writer's before the table stops.
_CONFLICT_ATTEMPTS = 5

_TABLE_PROPERTIES = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.delete.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.merge.isolation-level": "snapshot",
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.default": "counts",
    "commit.manifest.min-count-to-merge": "50",
    "commit.retry.num-retries": "10",
    "commit.retry.min-wait-ms": "20",
    "history.expire.max-snapshot-age-ms": "1800000",
    "history.expire.min-snapshots-to-keep": "30",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _TableJob:
    """One target's part of a mini-transaction between its two stages."""

    work: TableWork
    cut: Cut
    results: tuple[ChunkDone | Truncation, ...]  #: one per step of the cut
    era: Era
    generations: Mapping[str, int]  #: `LakeTable.generations` when it was written
    error: KuvaszError | None = None


_Plan: TypeAlias = tuple[TableWork, Cut, list[int | Truncation], KuvaszError | None, Era, Mapping[str, int]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A mini-transaction that waits for its commits."""

    tables: tuple[_TableJob, ...]


class IcebergLake:
    """Tables of one namespace of one catalog.

    Args:
        config: The whole configuration.
        session: A running Spark; started by `open` otherwise.
    """

    def __init__(self, config: Config, session: SparkSession | None = None) -> None:
        self._config = config
        self._session = session
        self._owns_session = session is None
        self._tables: dict[str, LakeTable] = {}
        self._feeds = Feeds()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._maintainer: Maintainer | None = None
        self.commit_conflicts = 0
        self._properties: Mapping[str, str] = {k: str(v) for k, v in config.lake.properties.items()}
        self._state = config.pipeline.state_folder

    def open(self) -> None:
        """Start Spark, reach the catalog, and prove that the warehouse can be written."""
        if self._session is None:
            self._session = spark.open_session(self._config)
        self._jobs = Jobs(self._session)
        self._catalog = Catalog(self._session, self._config.lake.name)
        self._catalog.ensure_namespace(self._config.lake.namespace)
        self._prove_warehouse()
        self._spool = Spool(self._spool_folder(), self._properties)
        self._spool.clear()
        self._pool = concurrent.futures.ThreadPoolExecutor(_COMMIT_THREADS, thread_name_prefix="commit")
        self._warm_up()
        if self._maintainer is None:  # whoever opens twice gets one
            self._maintainer = Maintainer(
                self._config.maintenance, self._catalog, self._jobs, self._known_tables, self._keys_of, self._state
            )
            self._maintainer.start()

    def _known_tables(self) -> list[LakeTable]:
        with self._lock:
            return list(self._tables.values())

    def _warm_up(self) -> None:
        """Have everything loaded and compiled before the first changes come, executors and driver side by side."""
        commits = self._pool.submit(self._catalog.rehearse, self._state / "rehearsal")
        index = PositionIndex.in_memory()
        for number in range(2):
            keys = Keys(hi=np.arange(8, dtype=np.uint64), lo=np.full(8, number, np.uint64))
            index.insert(keys, number, np.arange(8, dtype=np.uint32))
            index.mark()
            index.lookup(keys)
            index.load([(number, bulk.of_one_file(keys))])
        index.close()
        self._jobs.warm_up()
        commits.result()

    @property
    def session(self) -> SparkSession:
        """The running Spark."""
        assert self._session is not None
        return self._session

    def _spool_folder(self) -> str:
        if not self._config.spark.master.startswith("local"):
            return f"{self._config.lake.warehouse_location}/_kuvasz_spool"
        memory = Path("/dev/shm")  # noqa: S108 (a folder of our own below it)
        if memory.is_dir() and os.access(memory, os.W_OK):
            return str(memory / f"kuvasz-{os.getuid()}-{_stable_name(self._state)}")
        return str(self._state / "spool")

    def _prove_warehouse(self) -> None:
        location = f"{self._config.lake.warehouse_location}/_kuvasz_probe_{uuid.uuid4().hex}"
        try:
            io = file_io(self._properties, location)
            with io.new_output(location).create() as stream:
                stream.write(b"kuvasz")
            io.delete(location)
        except Exception as error:
            message = f"the warehouse {self._config.lake.warehouse_location} cannot be written: {error}"
            raise LakeError(message, hint="check `lake.warehouse`, `lake.properties` and the permissions") from error

    # Tables

    def prepare(self, target: Target, feed: Feed, relation: Relation, *, is_streaming: bool = False) -> Sequence[str]:
        """See `kuvasz.ports.Lake.prepare`."""
        with self._lock:
            self._feeds.add(feed)
            table = self._tables.get(target.name)
            if table is None or isinstance(table.era.error, TableGone):
                table = self._load(target, feed, relation)
                self._tables[target.name] = table
        with table.lock:
            done = table.columns.evolve(target, feed, relation, is_streaming=is_streaming)
            table.columns.shape(feed, relation)
            if not is_streaming:
                table.settle_layout()
        if not is_streaming:
            self._pool.submit(self._read_index, table)
        return done

    def columns(self, target: str, source: str) -> SourceColumns | None:
        """See `kuvasz.ports.Lake.columns`."""
        return self._tables[target].columns.of(source)

    def _read_index(self, table: LakeTable) -> None:
        """Open a table's index ahead of its first changes; what fails here fails again, and is told, with them."""
        with table.lock, contextlib.suppress(KuvaszError):
            table.follow()

    def _load(self, target: Target, feed: Feed, relation: Relation) -> LakeTable:
        expressions = Expressions(self.session)
        found = self._catalog.load(target.name)
        if found is None:
            place = f"source {feed.source}, table {feed.table}"
            found = self._create(target, expressions.project(target, relation, place).relation)
        folder = self._state / "index"
        return LakeTable(found, target, self._properties, folder, self._key_reader, expressions, self._version_reader)

    def _create(self, target: Target, relation: Relation) -> IcebergTable:
        fields = wanted(target, relation)
        asked = layout.wanted(target, fields)
        key = relation.key
        properties = {
            **_TABLE_PROPERTIES,
            "format-version": str(self._config.lake.format_version),
            **origin.render(target, key),
        }
        properties |= {f"write.metadata.metrics.column.{name}": "full" for name in bounded(target, key)}
        names = ((SID,) if target.has_sid else ()) + key
        identifiers = names if target.type is TableType.CLONE else ()  # elsewhere several rows may have one key
        self._catalog.ensure_namespace(target.name.rpartition(".")[0])
        return self._catalog.create(target.name, fields, identifiers, asked, properties)

    def _key_reader(self, table: LakeTable) -> Callable[[Sequence[tuple[int, str]]], Iterable[tuple[int, Keys]]]:
        def read(files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
            return self._jobs.stream(self._keys_of(table), files)

        return read

    def _keys_of(self, table: LakeTable) -> ReadKeys:
        ids = [table.schema.by_name(name) for name in table.identity]
        return ReadKeys(
            properties=self._properties,
            seed=table.seed,
            sid_id=table.sid_id,
            key_ids=tuple(field.field_id for field in ids if field is not None),
        )

    def _version_reader(
        self, table: LakeTable
    ) -> Callable[[Sequence[tuple[int, str]], bool], Iterable[tuple[int, Keys, UInt32s]]]:
        def read(files: Sequence[tuple[int, str]], are_open: bool) -> Iterable[tuple[int, Keys, UInt32s]]:  # noqa: FBT001
            id_of = {field.name: field.field_id for field in table.schema.fields}
            job = ReadVersions(
                keys=self._keys_of(table), end_id=id_of[own.END], deleted_id=id_of[own.DELETED], are_open=are_open
            )
            return self._jobs.stream(job, files)

        return read

    def table(self, name: str) -> LakeTable:
        """Return a prepared table."""
        return self._tables[name]

    def positions(self, target: str) -> Mapping[str, Position]:
        """See `kuvasz.ports.Lake.positions`."""
        table = self._tables.get(target)
        return {} if table is None else dict(table.positions)

    def feed(self, target: str, source: str, relation: Relation) -> Feed:
        """Return the feed a relation belongs to."""
        return self._feeds.find(target, source, relation)

    # First stage

    def write(self, works: Sequence[TableWork]) -> _Written:
        """See `kuvasz.ports.Lake.write`."""
        size = self._chunk_bytes(works)
        shapes: list[Shape] = []
        bounds: list[tuple[str, ...]] = []
        layouts: list[Layout] = []
        plans: list[_Plan] = []
        parts: list[_Raw] = []
        pending: list[tuple[Chunk | Truncation, int, LakeTable]] = []
        for work in works:
            table = self._tables[work.target]
            era, generations = table.era, dict(table.generations)
            if era.error is not None:
                continue
            events = {key: value for key, value in era.events.items() if key[0] not in work.abandoned}
            cut = chunks.cut(work.changes, dict(era.accepted), size, table.target.type, events)
            steps: list[int | Truncation] = []
            error = None
            try:
                for step in cut.steps:
                    if isinstance(step, Truncation) and table.target.type is not TableType.CHANGELOG:
                        steps.append(step)
                        continue
                    with table.definition:
                        shape = table.columns.shape(self.feed(work.target, step.source, step.relation), step.relation)
                        keys, lies = table.bounded, table.layout
                    if shape not in shapes:
                        shapes.append(shape)
                        bounds.append(keys)
                        layouts.append(lies)
                    steps.append(len(pending))
                    pending.append((step, shapes.index(shape), table))
                    parts.append(_raw(step))
            except KuvaszError as caught:
                error = caught
            plans.append((work, cut, steps, error, era, generations))
        done = self._run(pending, parts, shapes, bounds, layouts)
        for work, cut, _, _, era, _ in plans:  # only now: a job that failed is run again with the same rows
            era.accept(work.through)
            era.events = cut.events
        jobs = tuple(self._table_job(plan, done, pending) for plan in plans)
        for job in jobs:
            self._tables[job.work.target].in_flight.update(_paths(job))
        return _Written(tables=jobs)

    def _chunk_bytes(self, works: Sequence[TableWork]) -> int:
        total = sum(len(c.data) for work in works for c in work.changes if not isinstance(c, Truncation))
        cores = self._jobs.parallelism
        return max(1 << 20, min(self._config.pipeline.chunk_bytes, total // cores + 1))

    def _run(
        self,
        pending: Sequence[tuple[Chunk | Truncation, int, LakeTable]],
        parts: Sequence[_Raw],
        shapes: Sequence[Shape],
        bounds: Sequence[tuple[str, ...]],
        layouts: Sequence[Layout],
    ) -> dict[int, ChunkDone]:
        if not pending:
            return {}
        path, written = self._spool.write([part for raw in parts for part in raw if part is not None])
        slices = iter(written)
        done: dict[int, ChunkDone] = {}
        try:
            tasks = []
            for number, (step, shape, table) in enumerate(pending):
                lengths, data, facts = (None if part is None else next(slices) for part in parts[number])
                order = next(_orders)
                task = ChunkTask(
                    shape=shape, count=step.rows if isinstance(step, Chunk) else 1, lengths=lengths, data=data,
                    facts=facts, path=naming.fresh(table.location, step.source, order), order=order,
                )  # fmt: skip
                tasks.append((number, task))
            job = ApplyChunks(
                shapes=tuple(shapes), bounded=tuple(bounds), layouts=tuple(layouts), properties=self._properties
            )
            sizes = [step.size if isinstance(step, Chunk) else 1 for step, _, _ in pending]
            failpoints.hit("before_data_files", LakeError)
            done = self._run_tasks(job, tasks, sizes)
            failpoints.hit("after_data_files", LakeError)
        except BaseException:
            io = file_io(self._properties, self._config.lake.warehouse_location)
            remove(io, {task.path for _, task in tasks} | {f.path for one in done.values() for f in one.files})
            raise
        else:
            return done
        finally:
            self._spool.remove(path)

    def _run_tasks(
        self, job: ApplyChunks, tasks: Sequence[tuple[int, ChunkTask]], sizes: Sequence[int]
    ) -> dict[int, ChunkDone]:
        """Run the chunks; those with expressions go through Spark SQL, in jobs of their own."""
        plain = [(task, size) for task, size in zip(tasks, sizes, strict=True)
                 if job.shapes[task[1].shape].transform is None or task[1].data is None]  # fmt: skip
        done: dict[int, ChunkDone] = {}
        if plain:
            done |= dict(self._jobs.run(job, [task for task, _ in plain], [size for _, size in plain]))
        if len(plain) < len(tasks):
            simple = {number for (number, _), _ in plain}
            others = [task for task in tasks if task[0] not in simple]
            done |= dict(transforming.apply_chunks(self.session, job, others))
        return done

    def _table_job(
        self,
        plan: _Plan,
        done: Mapping[int, ChunkDone],
        pending: Sequence[tuple[Chunk | Truncation, int, LakeTable]],
    ) -> _TableJob:
        work, cut, steps, error, era, generations = plan
        results: list[ChunkDone | Truncation] = []
        for step in steps:
            if isinstance(step, Truncation):
                results.append(step)
                continue
            result = done[step]
            if result.error is not None and error is None:
                found = pending[step][0]
                row = max(result.row, 0)
                error = placed(
                    result.error, found.commit_lsn_of(row) if isinstance(found, Chunk) else found.commit_lsn
                )
            results.append(result)
        return _TableJob(work=work, cut=cut, results=tuple(results), era=era, generations=generations, error=error)

    # Second stage

    def commit(self, written: _Written) -> Iterable[Receipt | Failure]:
        """See `kuvasz.ports.Lake.commit`."""
        if len(written.tables) == 1:
            outcomes = [self._commit_table(written.tables[0])]
        else:
            outcomes = list(self._pool.map(self._commit_table, written.tables))
        return [outcome for outcome in outcomes if outcome is not None]

    def forget(self, target: str, source: str, *, to_repair: bool = False, is_gone: bool = False) -> None:
        """See `kuvasz.ports.Lake.forget`."""
        table, found = self._tables.get(target), self._catalog.load(target)
        if table is None:
            if found is not None:
                Notes(found).drop_position(source, to_repair=to_repair)
            return
        with table.lock:
            if found is None:  # a table that was loaded before does not say so twice
                error = gone(target)
                table.era = Era(accepted={}, error=error)
                raise error
            table.forget_position(source, to_repair=to_repair, is_gone=is_gone)

    def gap(self, target: str, source: str) -> Gap | None:
        """See `kuvasz.ports.Lake.gap`."""
        table = self._tables[target]
        with table.lock:
            return None if source in table.positions else gaps.open_one(table.notes.gaps(source))

    def parts(self, target: str, source: str) -> frozenset[str] | None:
        """See `kuvasz.ports.Lake.parts`."""
        return self._tables[target].notes.parts(source)

    def remember_parts(self, target: str, source: str, parts: frozenset[str]) -> None:
        """See `kuvasz.ports.Lake.remember_parts`."""
        table = self._tables[target]
        with table.lock:
            table.notes.remember_parts(source, parts)

    def parked(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.Lake.parked`."""
        return self._tables[target].notes.parked(source)

    def park(self, target: str, source: str, log_id: str | None) -> None:
        """See `kuvasz.ports.Lake.park`."""
        table = self._tables[target]
        with table.lock:
            table.notes.park(source, log_id)

    def resume(self, target: str) -> None:
        """See `kuvasz.ports.Lake.resume`."""
        table = self._tables[target]
        with table.lock:
            if table.era.error is not None:
                table.era = Era.begin(table.positions)

    def failure(self, target: str) -> KuvaszError | None:
        """See `kuvasz.ports.Lake.failure`."""
        return self._tables[target].era.error

    def _commit_table(self, job: _TableJob) -> Receipt | Failure | None:
        table = self._tables[job.work.target]
        with table.lock:
            changeset = Changeset()
            if table.era is not job.era or job.era.error is not None:
                _collect(job, changeset)
                table.discard(changeset)
                table.in_flight.difference_update(_paths(job))
                return None
            try:
                for source in job.work.abandoned:
                    table.abandon(source)
                _check_generations(table, job)
                if job.error is not None:
                    raise job.error
                had_open = bool(table.open)
                for attempt in range(_CONFLICT_ATTEMPTS):
                    try:
                        return self._apply(table, job, changeset)
                    except ForeignChange:
                        self._note_conflict()
                        # Parts of an open transaction cannot be resolved again: their keys are gone by now.
                        if attempt == _CONFLICT_ATTEMPTS - 1 or had_open or table.open:
                            raise
                        table.discard(changeset, keep=_paths(job))
                        changeset = Changeset()
                        table.reset_index()
                        table.table.refresh()
                raise InternalError("unreachable")
            except KuvaszError as error:
                return self._failed(table, job, changeset, error)
            except OSError as error:
                # It leaves the index as it was, but the chunk was resolved in part: the table begins again behind it.
                message = f"table {table.name}: its index below {self._state} cannot be kept: {error}"
                return self._failed(table, job, changeset, LakeError(message, hint="make room; it is tried again"))
            except Exception as error:  # noqa: BLE001 (the table stops, not the process)
                _log.exception("a commit failed in our own code", extra={"event": "bug", "table": table.name})
                return self._failed(table, job, changeset, InternalError(f"table {table.name}: {error!r}"))
            finally:
                table.in_flight.difference_update(_paths(job))

    def _note_conflict(self) -> None:
        with self._lock:
            self.commit_conflicts += 1

    def _failed(self, table: LakeTable, job: _TableJob, changeset: Changeset, error: KuvaszError) -> Failure:
        table.era = Era(accepted={}, error=error)
        # A commit that was refused for sure leaves files to remove; one whose answer is missing may be there.
        changeset.is_outcome_unknown = changeset.sent is not None and isinstance(error, LakeError)
        _collect(job, changeset)
        table.forget(changeset)
        return Failure(target=table.name, error=error)

    def _apply(self, table: LakeTable, job: _TableJob, changeset: Changeset) -> Receipt:
        self._retried(table, table.follow)
        closed = job.work.through.keys() - job.work.open_sources
        if table.target.type is TableType.HISTORY:
            self._resolve_history(table, job, changeset, closed)
        else:
            self._resolve(table, job, changeset)
            for source in table.open.keys() & closed:
                table.close_open(source, changeset)
        positions = chunks.reached(job.cut, job.work.through, table.positions)
        begin = time.monotonic()
        snapshot_id = self._retried(table, lambda: table.commit(changeset, positions))
        seconds = time.monotonic() - begin
        return Receipt(
            target=table.name,
            positions=positions,
            rows=job.cut.rows,
            snapshot_id=snapshot_id,
            rows_of=job.cut.rows_of,
            operations_of=_operations_of(job),
            commit_us=job.cut.commit_us,
            seconds=seconds,
        )

    def _retried(self, table: LakeTable, step: Callable[[], T]) -> T:
        """Catalog and storage may fail for a while: the work is kept and the step tried again, for ever."""
        wait = 0.5
        while True:
            try:
                return step()
            except LakeError as error:
                if self._closing.is_set() or isinstance(error, LateCommit):
                    raise
                _log.warning("a commit failed and is tried again", extra={
                    "event": "commit_retry", "table": table.name, "error": error.message, "wait_s": wait,
                })  # fmt: skip
                self._closing.wait(wait)
                wait = min(wait * 2, 30.0)

    def _resolve_history(
        self, table: LakeTable, job: _TableJob, changeset: Changeset, closed: Collection[str]
    ) -> None:
        writer = HistoryWriter(table, self._jobs, self._properties, changeset)
        for step, result in zip(job.cut.steps, job.results, strict=True):
            feed = self.feed(table.name, step.source, step.relation)
            writer.take(step, result, feed.sid if table.target.has_sid else None)
        for source in table.open.keys() & closed:
            writer.close(source)

    def _resolve(self, table: LakeTable, job: _TableJob, changeset: Changeset) -> None:
        """Resolve all chunks in order; rows that wait for earlier versions are completed in as few jobs as can be."""
        waiting: list[_Waiting] = []
        resolution = Resolution(table, changeset)
        level_of: dict[int, int] = {}
        for step, result in zip(job.cut.steps, job.results, strict=True):
            waiting = _take_turn(table, step, changeset, waiting)
            if isinstance(result, Truncation):
                if table.target.type is TableType.APPEND:
                    continue
                feed = self.feed(table.name, step.source, step.relation)
                pending = table.open.get(step.source)
                layer = changeset if pending is None else pending.changeset
                reserved = [item.number for item in waiting if item.source == step.source and item.layer is layer]
                table.truncate(step.source, feed.sid, layer, reserved)
                waiting = [item for item in waiting if item.source != step.source or item.layer is not layer]
                continue
            pending = table.open.get(step.source)
            layer = changeset if pending is None else pending.changeset
            feed = self.feed(table.name, step.source, step.relation)
            waits = table.files.reserve()
            sid = feed.sid if table.target.has_sid else None
            if table.is_bag:
                Bag(table, (changeset, layer), pending).take(result, step.source, sid)
                continue
            earlier = resolution.take(result, step.source, waits, layer, sid)
            if earlier is not None:
                level = 1 + max((level_of.get(int(number), 0) for number in np.unique(earlier[0])), default=0)
                level_of[waits] = level
                waiting.append(_Waiting(source=step.source, number=waits, level=level, done=result,
                                        earlier=earlier, layer=layer, sid=sid))  # fmt: skip
        settled: _Settled = {}
        for level in sorted({item.level for item in waiting}):
            self._complete(table, [item for item in waiting if item.level == level], changeset, settled)

    def _complete(
        self, table: LakeTable, waiting: Sequence[_Waiting], changeset: Changeset, settled: _Settled
    ) -> None:
        tasks = []
        for item in waiting:
            files, positions = _where_now(item.earlier, settled)
            numbers, file_of = np.unique(files, return_inverse=True)
            assert item.done.aside is not None
            tasks.append(
                (
                    item.number,
                    CompleteTask(
                        aside=item.done.aside,
                        unchanged=item.done.unchanged,
                        files=tuple(self._path(table, item, int(number), changeset) for number in numbers),
                        file_of=file_of.astype(np.int32),
                        position_of=positions.astype(np.int32),
                        path=naming.fresh(table.location, item.source, item.done.order),
                        bounded=table.bounded,
                        layout=table.layout,
                        waits=item.done.waits,
                    ),
                )
            )
        results = dict(self._jobs.run(CompleteRows(properties=self._properties), tasks, [1] * len(tasks)))
        resolution = Resolution(table, changeset)
        for item in waiting:  # all files first: an error removes what the changesets know
            completed = results[item.number]
            if table.layout.is_plain:
                for file in completed.files:
                    item.layer.add(item.number, file, item.sid)
            elif completed.error is None:
                settled[item.number] = resolution.settle(
                    item.number, item.done, completed, item.source, item.layer, item.sid
                )
        for done in results.values():
            if done.error is not None:
                raise done.error

    def _path(self, table: LakeTable, item: _Waiting, number: int, changeset: Changeset) -> str:
        for layer in (changeset, item.layer):
            if number in layer.added:
                return layer.added[number][0].path
        if number not in table.files:  # the index does not forget rows of files that went as a whole
            raise no_earlier_version(item.source, table.name, int(np.count_nonzero(item.earlier[0] == number)))
        return table.files[number].path

    # Copy

    def copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: Position,
        on_progress: Callable[[int, int], None],
    ) -> Receipt:
        """See `kuvasz.ports.Lake.copy`."""
        with self._order(feed, relation, "copy") as order:
            return CopyJob(order).run(requests, position, on_progress)

    def repair(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: Position,
        on_progress: OnProgress = lambda *_: None,
        *,
        at_us: int = 0,
    ) -> Receipt:
        """See `kuvasz.ports.Lake.repair`; the source must not be streaming into the table, others may."""
        with self._order(feed, relation, "repair") as order:
            return RepairJob(order, at_us).run(requests, position, on_progress)

    @contextlib.contextmanager
    def _order(self, feed: Feed, relation: Relation, folder: str) -> Iterator[Order]:
        """Yield what a job is given; for as long, the table counts as being copied."""
        table = self._tables[feed.target]
        table.copies += 1
        try:
            yield Order(
                table=table, feed=feed, relation=relation, jobs=self._jobs, properties=self._properties,
                folder=self._state / folder, pipeline=self._config.pipeline,
            )  # fmt: skip
        finally:
            table.copies -= 1

    # Maintenance

    def upkeep(self) -> Mapping[str, Upkeep]:
        """See `kuvasz.ports.Lake.upkeep`."""
        return {} if self._maintainer is None else self._maintainer.upkeep()

    def maintain(self, target: str, *, full: bool) -> Upkeep:
        """See `kuvasz.ports.Lake.maintain`."""
        assert self._maintainer is not None
        return self._maintainer.run(self._tables[target], full=full)

    def close(self) -> None:
        """Save the indexes and stop Spark if it was ours."""
        self._closing.set()
        if self._maintainer is not None:
            self._maintainer.stop()
        for table in self._tables.values():
            table.close()
        self._pool.shutdown(wait=True)
        if self._owns_session and self._session is not None and self.why_dead() is None:
            self._session.stop()

    def why_dead(self) -> LakeError | None:
        """Say why nothing can be committed any more in this process; None while Spark's JVM lives."""
        process = getattr(self.session.sparkContext._gateway, "proc", None)
        code = None if process is None else process.poll()
        if code is None:
            return None
        if code in spark.OUT_OF_MEMORY:
            hint = (
                "give `spark.driver.memory` in `spark.conf` more and start again; nothing that was confirmed is lost"
            )
            return LakeError(f"spark's jvm ran out of memory and ended with {code}", hint=hint)
        hint = "see the log above; nothing that was confirmed is lost: start again"
        return LakeError(f"spark's jvm ended with {code}", hint=hint)


#: Number that rows waited under -> file number and position of each, now that they are written.
_Settled: TypeAlias = dict[int, tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiting:
    """A chunk's rows that wait for their earlier versions."""

    source: str
    number: int  #: reserved for the file they will be written to
    level: int  #: 1 if all earlier versions are written, 2 if some come with level 1, …
    done: ChunkDone
    earlier: tuple[np.ndarray, np.ndarray]
    layer: Changeset
    sid: str | None


def _where_now(earlier: tuple[np.ndarray, np.ndarray], settled: _Settled) -> tuple[np.ndarray, np.ndarray]:
    """Return file numbers and positions with those of rows that have waited themselves replaced by their own."""
    files, positions = earlier
    for number, (file, position) in settled.items():
        mine = files == number
        if mine.any():
            at = positions[mine]
            files, positions = files.copy(), positions.copy()
            files[mine], positions[mine] = file[at], position[at]
    return files, positions


def _raw(step: Chunk | Truncation) -> _Raw:
    """Return what an executor needs of a step: lengths, messages, and facts of the transactions."""
    if isinstance(step, Truncation):
        run = [step.commit_lsn, step.commit_us, step.xid, 1, step.ordinal]
        return None, None, Facts.of(np.array([run], np.int64)).to_bytes()
    data = step.parts[0] if len(step.parts) == 1 else b"".join(step.parts)
    facts = step.facts
    return np.concatenate(step.lengths).tobytes(), data, None if facts is None else facts.to_bytes()


def _take_turn(
    table: LakeTable, step: Chunk | Truncation, changeset: Changeset, waiting: list[_Waiting]
) -> list[_Waiting]:
    """Close a source's open transaction if a step shows that it is whole, open the step's own if it begins one.

    Returns:
        The rows that still wait: those of the closed transaction do so in the commit's own changeset now.
    """
    source = step.source
    of = chunks.open_lsn(step)
    pending = table.open.get(source)
    if pending is not None and pending.commit_lsn != of:
        mine = [item for item in waiting if item.source == source and item.layer is changeset]
        table.close_open(source, changeset, [item.number for item in mine])
        waiting = [
            dataclasses.replace(item, layer=changeset) if item.layer is not changeset and item.source == source
            else item
            for item in waiting
            if pending.truncates is None or item not in mine
        ]  # fmt: skip
        pending = None
    if pending is None and of:
        table.open[source] = OpenTransaction(of)
    return waiting


def _check_generations(table: LakeTable, job: _TableJob) -> None:
    """Refuse changes of a source whose position was forgotten since: they would begin behind a gap."""
    for step in job.cut.steps:
        if job.generations.get(step.source, 0) != table.generations.get(step.source, 0):
            message = (
                f"table {table.name}: source {step.source} is copied again; what was written before is not taken"
            )
            raise LakeError(message, hint="kuvasz begins again by itself")


def _operations_of(job: _TableJob) -> dict[str, Operations]:
    found: dict[str, Operations] = {}
    for step, result in zip(job.cut.steps, job.results, strict=True):
        if isinstance(result, ChunkDone):
            found[step.source] = found.get(step.source, NO_OPERATIONS).plus(result.operations)
    return found


def _paths(job: _TableJob) -> list[str]:
    return [file.path for done in job.results if isinstance(done, ChunkDone) for file in done.files]


def _collect(job: _TableJob, changeset: Changeset) -> None:
    """Put every file of a job into a changeset, to be removed with it."""
    files = [file for result in job.results if isinstance(result, ChunkDone) for file in result.files]
    for number, file in enumerate(files):
        changeset.added[-1 - number] = (file, None)


def _stable_name(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:12]
