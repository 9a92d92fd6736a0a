"""The lake of production: Spark writes the files, Iceberg commits them. Implements `kuvasz.ports.Lake`.

A mini-transaction passes two stages, so that the job of the next one runs while this one commits: `write` (any
thread; one Spark job for all targets) and `commit` (per target: resolve, delete files, one Iceberg commit).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from kuvasz.config import names as config_names
from kuvasz.config.model import Config
from kuvasz.errors import KuvaszError, LakeError, LateCommit, TableGone, TableStuck
from kuvasz.evolve.known import SourceColumns
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk
from kuvasz.index.positions import PositionIndex
from kuvasz.lake.commit.commit_stage import CommitStage
from kuvasz.lake.commit.write_stage import WriteStage
from kuvasz.lake.commit.written import Written
from kuvasz.lake.compare.comparison import OnProgress
from kuvasz.lake.copies.copy import CopyJob
from kuvasz.lake.copies.order import Order
from kuvasz.lake.copies.repair import RepairJob
from kuvasz.lake.copies.turns import CopyTurns
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.spool import Spool
from kuvasz.lake.files.data_file import file_io
from kuvasz.lake.format import gaps, layout, table_identity
from kuvasz.lake.format import source_positions as position_properties
from kuvasz.lake.format.binding import Feeds
from kuvasz.lake.format.schema import SID, bounded, wanted
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.jvm.jvm_errors import gone
from kuvasz.lake.maintenance.maintenance import Maintainer
from kuvasz.lake.table.notes import Notes
from kuvasz.lake.table.readers import Readers
from kuvasz.lake.table.table import LakeTable
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Relation, SourcePosition, TableType
from kuvasz.ports import CopyRequest, Failure, Feed, Gap, Lake, Pending, Receipt, TableWork, Target, Upkeep
from kuvasz.state.witness import Witness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Threads for what is done beside: reading an index ahead, trying whether the store takes a table again.
_THREADS = 4

#: Share of `pipeline.memory` that changes may have whose commits are stuck.
_ASIDE_SHARE = 8

#: How long a table that was refused may take to be tried.
_TRIAL_S = 10.0

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


class IcebergLake(Lake):
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
        self._maintainer: Maintainer | None = None
        self._write_stage: WriteStage | None = None
        self._commit_stage: CommitStage | None = None
        self._properties: Mapping[str, str] = config.lake.properties
        self._state = config.pipeline.state_folder
        self._witness = Witness(self._state)

    @override
    def open(self) -> None:
        """Start Spark, reach the catalog, and prove that the warehouse can be written."""
        if self._session is None:
            self._session = spark.open_session(self._config)
        self._jobs = Jobs(self._session)
        self._readers = Readers(self._jobs, self._properties)
        self._catalog = Catalog(self._session, self._config.lake.name)
        self._catalog.ensure_namespace(self._config.lake.namespace)
        self._prove_warehouse()
        pipeline = self._config.pipeline
        self._turns = CopyTurns(pipeline.copy_rows_per_second, pipeline.copy_parallelism or self._jobs.parallelism)
        self._spool = Spool(self._spool_folder(), self._properties)
        self._spool.clear()
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="lake")
        self._write_stage = WriteStage(
            self._session, self._jobs, self._spool, self._tables, self._feeds, self._config
        )
        self._commit_stage = CommitStage(
            self._jobs, self._answer, self._config.pipeline.memory // _ASIDE_SHARE, self._tables, self._feeds,
            self._properties, self._state,
        )  # fmt: skip
        self._warm_up()
        if self._maintainer is None:  # whoever opens twice gets one
            self._maintainer = Maintainer(
                self._config.maintenance,
                self._catalog,
                self._jobs,
                self._known_tables,
                self._readers.job,
                self._state,
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

    @override
    def prepare(self, target: Target, feed: Feed, relation: Relation, *, is_streaming: bool = False) -> Sequence[str]:
        """See `kuvasz.ports.Lake.prepare`."""
        with self._lock:
            self._feeds.add(feed)
            table = self._tables.get(target.name)
            if table is None or isinstance(table.era.error, TableGone):
                table = self._load(target, feed, relation)
                self._tables[target.name] = table
        self._try(table)
        with table.lock.asking():
            if not is_streaming:
                table.table.refresh()
                table.past.check()
                table.past.refuse(feed.source)
                table.past.note()
            done = table.columns.evolve(target, feed, relation, is_streaming=is_streaming)
            table.columns.shape(feed, relation)
            if not is_streaming:
                table.settle_layout()
        if not is_streaming:
            self._pool.submit(self._read_index, table)
        return done

    @override
    def attach(self, target: Target, feed: Feed) -> bool:
        """See `kuvasz.ports.Lake.attach`."""
        with self._lock:
            self._feeds.add(feed)
            if target.name not in self._tables:
                found = self._catalog.load(target.name)
                if found is None:
                    return False
                self._tables[target.name] = self._table(found, target)
            return True

    def _try(self, table: LakeTable) -> None:
        """Find out whether catalog and store take a table again that they had refused.

        Raises:
            TableStuck: They do not.
        """
        refusal = table.era.error
        if not isinstance(refusal, LakeError) or isinstance(refusal, LateCommit):
            return
        try:
            self._pool.submit(table.prove).result(_TRIAL_S)
        except TimeoutError as error:
            message = f"table {table.name}: catalog or store have not answered for {_TRIAL_S:g} s"
            raise TableStuck(message, hint="see what they wait for; it is tried again") from error
        except LakeError as error:
            raise TableStuck(error.message, hint=error.hint) from error

    def _answer(self) -> None:
        """Find out whether catalog and store answer at all.

        Raises:
            LakeError: They do not.
        """
        self._catalog.ensure_namespace(self._config.lake.namespace)
        self._prove_warehouse()

    @override
    def columns(self, target: str, source: str) -> SourceColumns | None:
        """See `kuvasz.ports.Lake.columns`."""
        table = self._tables.get(target)
        return None if table is None else table.columns.of(source)

    def _read_index(self, table: LakeTable) -> None:
        """Open a table's index ahead of its first changes; what fails here fails again, and is told, with them."""
        with table.lock, contextlib.suppress(KuvaszError):
            table.follow()

    def _load(self, target: Target, feed: Feed, relation: Relation) -> LakeTable:
        found = self._catalog.load(target.name)
        if found is None:
            place = f"source {feed.source}, table {feed.table}"
            found = self._create(target, Expressions(self.session).project(target, relation, place).relation)
        return self._table(found, target)

    def _table(self, found: IcebergTable, target: Target) -> LakeTable:
        folder, expressions = self._state / "index", Expressions(self.session)
        return LakeTable(
            found,
            target,
            self._properties,
            folder,
            self._readers.keys,
            expressions,
            self._readers.versions,
            self._witness,
        )

    def _create(self, target: Target, relation: Relation) -> IcebergTable:
        fields = wanted(target, relation)
        asked = layout.wanted(target, fields)
        key = relation.key
        properties = {
            **_TABLE_PROPERTIES,
            "format-version": str(self._config.lake.format_version),
            **table_identity.render(target, key),
        }
        properties |= {f"write.metadata.metrics.column.{name}": "full" for name in bounded(target, key)}
        names = ((SID,) if target.has_sid else ()) + key
        identifiers = names if target.type is TableType.CLONE else ()  # elsewhere several rows may have one key
        self._catalog.ensure_namespace(target.name.rpartition(".")[0])
        return self._catalog.create(target.name, fields, identifiers, asked, properties)

    def table(self, name: str) -> LakeTable:
        """Return a prepared table."""
        return self._tables[name]

    @override
    def positions(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.positions`."""
        table = self._tables.get(target)
        return {} if table is None else dict(table.positions)

    @override
    def recorded(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.recorded`."""
        table = self._tables.get(target)
        if table is not None:
            return dict(table.positions)
        found = self._catalog.load(target)
        return {} if found is None else position_properties.parse(found.properties, target)

    # The two stages

    @override
    def write(self, works: Sequence[TableWork]) -> Written:
        """See `kuvasz.ports.Lake.write`."""
        assert self._write_stage is not None
        return self._write_stage.write(works)

    @override
    def commit(self, written: Written) -> Iterable[Receipt | Failure | Pending]:
        """See `kuvasz.ports.Lake.commit`."""
        assert self._commit_stage is not None
        return self._commit_stage.commit(written)

    @override
    @property
    def commit_conflicts(self) -> int:
        """See `kuvasz.ports.Lake`."""
        return 0 if self._commit_stage is None else self._commit_stage.conflicts

    @override
    def forget(self, target: str, source: str, *, to_repair: bool = False, is_gone: bool = False) -> None:
        """See `kuvasz.ports.Lake.forget`."""
        with self._lock:  # or another source might load it meanwhile, with the position
            table, found = self._tables.get(target), self._catalog.load(target)
            if table is None:
                self._witness.drop(target, source)
                if found is not None:
                    Notes(found).drop_position(source, to_repair=to_repair, is_gone=is_gone)
                return
        with table.lock.asking():
            if found is None:  # a table that was loaded before does not say so twice
                error = gone(target)
                table.era = WriteEra(accepted={}, error=error)
                raise error
            table.forget_position(source, to_repair=to_repair, is_gone=is_gone)

    @override
    def gap(self, target: str, source: str) -> Gap | None:
        """See `kuvasz.ports.Lake.gap`."""
        table = self._tables[target]
        with table.lock:
            return None if source in table.positions else gaps.open_one(table.notes.gaps(source))

    @override
    def parts(self, target: str, source: str) -> frozenset[str] | None:
        """See `kuvasz.ports.Lake.parts`."""
        table = self._tables.get(target)
        return None if table is None else table.notes.parts(source)

    @override
    def remember_parts(self, target: str, source: str, parts: frozenset[str]) -> None:
        """See `kuvasz.ports.Lake.remember_parts`."""
        table = self._tables[target]
        with table.lock.asking():
            table.notes.remember_parts(source, parts)

    @override
    def published(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.Lake.published`."""
        return self._tables[target].notes.published(source)

    @override
    def remember_published(self, target: str, source: str, published: str) -> None:
        """See `kuvasz.ports.Lake.remember_published`."""
        table = self._tables[target]
        with table.lock.asking():
            table.notes.remember_published(source, published)

    @override
    def unmapped(self, feeds: Mapping[str, Collection[str]]) -> Sequence[tuple[str, str]]:
        """See `kuvasz.ports.Lake.unmapped`."""
        targets = {target for fed in feeds.values() for target in fed}
        namespaces = {self._config.lake.namespace, *(target.rpartition(".")[0] for target in targets)}
        fed_by_all = {target for target in targets if all(target in fed for fed in feeds.values())}
        names = {name for namespace in namespaces for name in self._catalog.tables(namespace)} - fed_by_all
        found = zip(sorted(names), self._pool.map(self._sources_in, sorted(names)), strict=True)
        return [
            (target, source)
            for target, sources in found
            for source in sources
            if target not in feeds.get(config_names.source_of(source), (target,))
        ]

    def _sources_in(self, target: str) -> list[str]:
        found = self._catalog.load(target)
        return [] if found is None else sorted(position_properties.parse(found.properties, target))

    @override
    def parked(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.Lake.parked`."""
        return self._tables[target].notes.parked(source)

    @override
    def park(self, target: str, source: str, log_id: str | None) -> None:
        """See `kuvasz.ports.Lake.park`."""
        table = self._tables[target]
        with table.lock.asking():
            table.notes.park(source, log_id)

    @override
    def resume(self, target: str) -> None:
        """See `kuvasz.ports.Lake.resume`."""
        table = self._tables[target]
        with table.lock:
            if table.era.error is not None:
                table.era = WriteEra.begin(table.positions)

    @override
    def failure(self, target: str) -> KuvaszError | None:
        """See `kuvasz.ports.Lake.failure`."""
        return self._tables[target].era.error

    # Copy

    @override
    def copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[int, int], None],
    ) -> Receipt:
        """See `kuvasz.ports.Lake.copy`."""
        with self._order(feed, relation, "copy") as order:
            return CopyJob(order).run(requests, position, on_progress)

    @override
    def repair(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
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
                turns=self._turns,
            )  # fmt: skip
        finally:
            table.copies -= 1

    # Maintenance

    @override
    def upkeep(self) -> Mapping[str, Upkeep]:
        """See `kuvasz.ports.Lake.upkeep`."""
        return {} if self._maintainer is None else self._maintainer.upkeep()

    @override
    def maintain(self, target: str, *, full: bool) -> Upkeep:
        """See `kuvasz.ports.Lake.maintain`."""
        assert self._maintainer is not None
        return self._maintainer.run(self._tables[target], full=full)

    @override
    def close(self) -> None:
        """Save the indexes and stop Spark if it was ours."""
        if self._commit_stage is not None:
            self._commit_stage.close()
        if self._maintainer is not None:
            self._maintainer.stop()
        for table in self._tables.values():
            with contextlib.suppress(TableStuck):
                table.close()
        self._pool.shutdown(wait=False)
        if self._owns_session and self._session is not None and self.why_dead() is None:
            self._session.stop()

    @override
    def why_dead(self) -> LakeError | None:
        """See `kuvasz.ports.Lake.why_dead`: as long as Spark's JVM lives."""
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


def _stable_name(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:12]
