"""The lake of production at work: tables prepared, copied, and brought up to their sources.

A mini-transaction passes two stages, so that the job of the next one runs while this one commits: `write` (any
thread; one Spark job for all targets) and `commit` (per target: resolve, delete files, one Iceberg commit).
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.config import names
from kuvasz.config.model import CatalogType, Consistency
from kuvasz.errors import KuvaszError, LakeRewound, TableGone
from kuvasz.events import Event, EventLog
from kuvasz.lake.about.about import LakeAbout
from kuvasz.lake.commit.commit_stage import CommitStage
from kuvasz.lake.commit.write_stage import WriteStage
from kuvasz.lake.copies.copy import CopyJob
from kuvasz.lake.copies.copy_commits import CopyCommits
from kuvasz.lake.copies.order import COPIES, REPAIRS, Order
from kuvasz.lake.copies.repair import RepairJob
from kuvasz.lake.copies.turns import CopyTurns
from kuvasz.lake.iceberg import joint_commits
from kuvasz.lake.iceberg.branches import IcebergBranches
from kuvasz.lake.iceberg.engine import Engine
from kuvasz.lake.iceberg.index_keeper import IndexUpkeep
from kuvasz.lake.iceberg.maintenance import IcebergMaintenance
from kuvasz.lake.iceberg.source_notes import IcebergSourceNotes
from kuvasz.lake.iceberg.tables import Tables
from kuvasz.lake.iceberg.tags import IcebergTags
from kuvasz.ports import ANY_PACE, Failure, Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.errors import LakeError
    from kuvasz.lake.commit.written import Written
    from kuvasz.lake.compare.comparison import OnProgress
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.model import Relation, SourcePosition
    from kuvasz.ports import CopyLedger, CopyPace, CopyRequest, Feed, Pending, Receipt, TableWork, Target
    from kuvasz.state.lakes.ports import TableOwners
    from kuvasz.state.ports import Witness

_log = EventLog(__name__)

#: Share of `pipeline.memory` that changes may have whose commits are stuck.
_ASIDE_SHARE = 8


class IcebergLake(Lake):
    """Tables of one catalog.

    Large because its port is; what it does stands in the modules that it calls.

    Args:
        config: The whole configuration.
        witness: The witness of the positions of all tables.
        session: A running Spark; started by `open` otherwise.
        owners: Knows which tables are another group's of the same log; None: there is no other one.
    """

    def __init__(
        self,
        config: Config,
        witness: Witness,
        session: SparkSession | None = None,
        *,
        owners: TableOwners | None = None,
    ) -> None:
        self._config = config
        self.engine = Engine(config, session)
        self._tables = Tables(config, self.engine, witness, owners)
        self.notes = IcebergSourceNotes(self._tables)
        self.tags = IcebergTags(self._tables)
        self.branches = IcebergBranches(self.engine)
        self.about = LakeAbout(config.lake.about, config.lake.about_keep, self._tables.loaded)
        self.maintenance = IcebergMaintenance(config, self.engine, self._tables, self.about.tables)
        self._write_stage: WriteStage | None = None
        self._commit_stage: CommitStage | None = None
        self._keeper: IndexUpkeep | None = None
        self._is_warm = False

    def warm_up(self) -> None:
        """Start Spark, reach the catalog, prove that the warehouse can be written, and have all loaded and compiled.

        No table is touched, so a process that stands by may do so. Once is enough.
        """
        if not self._is_warm:
            self.engine.open()
            self.engine.warm_up()
            self._is_warm = True

    @override
    def open(self) -> None:
        """Warm up, unless that was done, and begin what goes on beside the stream."""
        self.warm_up()
        engine, tables, pipeline = self.engine, self._tables, self._config.pipeline
        self._turns = CopyTurns(pipeline.copy_parallelism or engine.jobs.parallelism)
        tells = self.about.namespace is not None or bool(self._config.notify)
        joint = engine.catalog.joint
        if any(group.consistency is Consistency.GROUP for group in self._config.databases):
            if self._config.lake.type is CatalogType.REST:
                joint_commits.prove(self._config)
            joint()  # now rather than at the first commit
        self._copy_commits = CopyCommits(tells=tells)
        self._write_stage = WriteStage(
            engine.session, engine.jobs, engine.spool, tables.loaded, tables.feeds, self._config, engine.access
        )
        self._commit_stage = CommitStage(
            engine.jobs, engine.answer, pipeline.memory // _ASIDE_SHARE, tables.loaded, tables.feeds,
            engine.access, pipeline.state_folder, tells=tells, joint=joint, keep_rejected=self.about.keep_rejected,
        )  # fmt: skip
        self.about.start(tables.about)
        if self._config.indexes_location is not None:
            self._keeper = IndexUpkeep(self._config, engine.access, tables)
            self._keeper.start()
        self.maintenance.start()

    @override
    def close(self) -> None:
        """Save the indexes and stop Spark if it was ours."""
        if self._commit_stage is not None:
            self._commit_stage.close()
        self.maintenance.stop()
        if self._keeper is not None:
            self._keeper.stop()
        self.about.stop()
        self._tables.close()
        self.engine.close()

    @override
    def why_dead(self) -> LakeError | None:
        """See `kuvasz.ports.Lake.why_dead`: as long as Spark's JVM lives."""
        return self.engine.why_dead()

    @property
    @override
    def session(self) -> SparkSession:
        """See `kuvasz.ports.Lake.session`."""
        return self.engine.session

    @override
    def renew(self, properties: Mapping[str, str]) -> None:
        """See `kuvasz.ports.Lake.renew`: of a JDBC catalog, for the connections to come."""
        self.engine.catalog.renew(properties)

    @override
    def patrol(self) -> Sequence[Failure]:
        """See `kuvasz.ports.Lake.patrol`."""
        found = []
        for table in self._tables.all():
            try:
                with self._tables.having(table) as is_there:
                    if is_there and table.era.error is None:
                        table.look()
            except (LakeRewound, TableGone) as error:
                found.append(Failure(target=table.name, error=error))
            except KuvaszError as error:  # the next round tries again, or a commit says so
                _log.tell(Event.TABLE_UNSEEN, table=table.name, error=str(error))
        return found

    # Tables

    def table(self, name: str) -> LakeTable:
        """Return a prepared table."""
        return self._tables[name]

    @override
    def prepare(
        self,
        target: Target,
        feed: Feed,
        relation: Relation,
        *,
        is_streaming: bool = False,
        since: float | None = None,
    ) -> Sequence[str]:
        """See `kuvasz.ports.Lake.prepare`."""
        asked_at = time.monotonic() if since is None else since
        table = self._tables.prepare(target, feed, relation)
        if not is_streaming and table.columns.fits(target, feed, relation):
            return ()
        with table.lock.asking(), table.table.unchanged():
            if not is_streaming:
                table.past.see(asked_at)
                table.past.refuse(feed.source)
            done = table.columns.evolve(target, feed, relation, is_streaming=is_streaming)
            table.columns.shapes.of(feed, relation)
            if not is_streaming:
                table.settle_layout()
                table.columns.fit(target, feed, relation)
        if not is_streaming:
            self._tables.read_index_ahead(table)
        return done

    @override
    def make_room(self, target: str, feed: Feed, relation: Relation) -> Sequence[str]:
        """See `kuvasz.ports.Lake.make_room`."""
        table = self._tables[target]
        with table.lock.asking():
            return table.columns.make_room(feed, relation)

    @override
    def create(self, target: Target, feed: Feed, relation: Relation) -> bool:
        """See `kuvasz.ports.Lake.create`."""
        return self._tables.create(target, feed, relation)

    @override
    def attach(self, target: Target, feed: Feed) -> bool:
        """See `kuvasz.ports.Lake.attach`."""
        return self._tables.attach(target, feed)

    @override
    def let_go(self, *targets: str) -> None:
        """See `kuvasz.ports.Lake.let_go`."""
        if self._keeper is not None:
            self._keeper.hand_over([table for name in targets if (table := self._tables.get(name)) is not None])
        for target in targets:
            with self.maintenance.without(target):
                self._tables.let_go(target)

    @override
    def resume(self, target: str, failure: KuvaszError | None) -> None:
        """See `kuvasz.ports.Lake.resume`."""
        table = self._tables[target]
        with table.lock:
            if failure is not None and table.era.error is failure:
                table.open.abandon_all()  # a commit that was given up and made in the end has left them as they were
            before = table.era
            after = before.resumed(failure, table.positions)
            if after is not before:  # a commit that hangs ends an era without the lock
                table.era = after

    @override
    def failure(self, target: str, source: str | None = None) -> KuvaszError | None:
        """See `kuvasz.ports.Lake.failure`."""
        era = self._tables[target].era
        return era.error or era.refused.get(source or "")

    # Positions

    @override
    def positions(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.positions`."""
        table = self._tables.get(target)
        return {} if table is None else dict(table.positions)

    @override
    def position(self, target: str, source: str) -> SourcePosition | None:
        """See `kuvasz.ports.Lake.position`."""
        table = self._tables.get(target)
        return None if table is None else table.positions.get(source)

    @override
    def recorded(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.recorded`."""
        return self._tables.recorded(target)

    @override
    def stored(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.stored`."""
        return self._tables.stored(target)

    @override
    def forget(
        self, target: str, source: str, *, to_repair: bool = False, is_gone: bool = False, gap_lsn: int | None = None
    ) -> None:
        """See `kuvasz.ports.Lake.forget`."""
        self._tables.forget_position(target, source, to_repair=to_repair, is_gone=is_gone, gap_lsn=gap_lsn)

    @override
    def unmapped(
        self, feeds: Mapping[str, Collection[str]], others: Collection[str] = ()
    ) -> Sequence[tuple[str, str]]:
        """See `kuvasz.ports.Lake.unmapped`."""
        fed: dict[str, set[str]] = {}
        for feeder, targets in feeds.items():
            fed.setdefault(names.source_of(feeder), set()).update(targets)
        fed_by_all = set.intersection(*fed.values()) if fed else set()
        looked_at = {*others, *(target for targets in fed.values() for target in targets)}
        namespaces = {self._config.lake.namespace, *(target.rpartition(".")[0] for target in looked_at)}
        there = {name for namespace in namespaces for name in self.engine.catalog.tables(namespace)}
        asked = sorted(there - (fed_by_all - set(others)))
        return [
            (target, source)
            for target, stored in zip(asked, self.engine.pool.map(self._tables.stored, asked), strict=True)
            for source in sorted(stored)
            if target not in feeds.get(names.feeder_of(source), (target,))
        ]

    # The two stages

    @override
    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Written:
        """See `kuvasz.ports.Lake.write`."""
        assert self._write_stage is not None
        return self._write_stage.write(works, apart=apart)

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

    # Copies

    @property
    @override
    def resumes_copies(self) -> bool:
        """See `kuvasz.ports.Lake.resumes_copies`."""
        return True

    @override
    def copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[int, int], None],
        *,
        on_read: Callable[[], None] = lambda: None,
        pace: CopyPace = ANY_PACE,
        ledger: CopyLedger | None = None,
    ) -> Receipt:
        """See `kuvasz.ports.Lake.copy`."""
        with self._order(feed, relation, COPIES, pace) as order:
            known_files = functools.partial(self.engine.catalog.known_files, feed.target)
            job = CopyJob(order, self._copy_commits, on_read, ledger, known_files)
            return job.run(requests, position, on_progress)

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
        on_read: Callable[[], None] = lambda: None,
        gap_lsn: int | None = None,
    ) -> Receipt:
        """See `kuvasz.ports.Lake.repair`; the source must not be streaming into the table, others may."""
        with self._order(feed, relation, REPAIRS) as order:
            return RepairJob(order, on_read, at_us, gap_lsn).run(requests, position, on_progress)

    @override
    def relocate(self, target: str, source: str, position: SourcePosition) -> None:
        """See `kuvasz.ports.Lake.relocate`."""
        table, asked_at = self._tables[target], time.monotonic()
        with table.lock.asking():
            table.past.see(asked_at)
            table.past.refuse(source)
            table.commits.advance({source: position})
            table.era.accept({source: position.lsn})

    @contextlib.contextmanager
    def _order(self, feed: Feed, relation: Relation, folder: str, pace: CopyPace = ANY_PACE) -> Iterator[Order]:
        """Yield what a job is given; for as long, the table counts as being copied."""
        table, pipeline = self._tables[feed.target], self._config.pipeline
        table.commits.copies += 1
        try:
            yield Order(
                table=table, feed=feed, relation=relation, jobs=self.engine.jobs,
                properties=table.definition.io_properties, folder=pipeline.state_folder / folder, pipeline=pipeline,
                turns=self._turns, pace=pace, keep_rejected=self.about.keep_rejected,
            )  # fmt: skip
        finally:
            table.commits.copies -= 1


__all__ = ["IcebergLake"]
