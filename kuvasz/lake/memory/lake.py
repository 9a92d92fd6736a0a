"""The lake in memory at work, for the contract tests, which both lakes pass, and for whoever needs no files."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from kuvasz.config import names
from kuvasz.errors import LakeError, SchemaError, place_of
from kuvasz.lake.executors.refused_rows import by_source
from kuvasz.lake.format import gaps
from kuvasz.lake.format.binding import Feeds
from kuvasz.lake.memory.commit_stage import MemoryCommitStage
from kuvasz.lake.memory.source_notes import MemorySourceNotes
from kuvasz.lake.memory.table import MemoryTable
from kuvasz.lake.memory.write_stage import MemoryWriteStage
from kuvasz.model import TableType
from kuvasz.modes import dispatch
from kuvasz.modes.rejects import RECORD
from kuvasz.ports import ANY_PACE, About, Branches, Gap, Lake, Maintenance, Published, Receipt, Tags

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kuvasz.errors import KuvaszError
    from kuvasz.lake.memory.write_stage import MemoryWritten
    from kuvasz.model import Relation, SourcePosition
    from kuvasz.modes.clone import Copied
    from kuvasz.ports import CopyLedger, CopyPace, CopyRequest, Failure, Feed, TableWork, Target, Upkeep

_CHUNK_BYTES = 8 << 20


class MemoryMaintenance(Maintenance):
    """See `kuvasz.ports.Maintenance`: there are no files."""

    @override
    def upkeep(self) -> Mapping[str, Upkeep]:
        """See `kuvasz.ports.Maintenance.upkeep`."""
        return {}

    @override
    def run(self, target: str, *, full: bool) -> None:
        """See `kuvasz.ports.Maintenance.run`."""


class MemoryAbout(About):
    """See `kuvasz.ports.About`: what is told stays here, if there is a namespace."""

    def __init__(self) -> None:
        self.namespace: str | None = None
        self.told: dict[str, list[Mapping[str, object]]] = {}

    @override
    def tell(self, table: str, rows: Iterable[Mapping[str, object]]) -> None:
        """See `kuvasz.ports.About.tell`."""
        if self.namespace is not None:
            self.told.setdefault(table, []).extend(rows)

    @override
    def write(self, table: str) -> None:
        """See `kuvasz.ports.About.write`."""

    @override
    def committed(self, receipt: Receipt) -> None:
        """See `kuvasz.ports.About.committed`."""

    @override
    def standing(self) -> Mapping[str, object]:
        """See `kuvasz.ports.About.standing`: nothing is told of commits."""
        return {}

    @override
    def commits_after(self, target: str, seen: str | None, most: int) -> tuple[list[Mapping[str, Any]], str, int]:
        """See `kuvasz.ports.About.commits_after`."""
        return [], seen or "", 0

    @override
    def keep_rejected(self, target: str, rows: pa.Table) -> None:
        """See `kuvasz.ports.About.keep_rejected`."""
        self.told.setdefault("rejects", []).extend({"target": target} | row for row in rows.to_pylist())


class MemoryTags(Tags):
    """Tags of tables in memory, each with the rows that it names."""

    def __init__(self, lake: MemoryLake) -> None:
        self._lake = lake
        self.rows: dict[tuple[str, str], pa.Table] = {}  #: (target, tag) -> rows

    @override
    def add(self, target: str, name: str, keep_s: float) -> int | None:
        """See `kuvasz.ports.Tags.add`."""
        if (target, name) in self.rows:
            raise LakeError(f"{place_of(table=target)}: there is a tag {name}", hint="choose another name")
        self.rows[target, name] = self._lake.rows(target)
        return self._lake.snapshots(target) or None

    @override
    def remove(self, target: str, name: str) -> None:
        """See `kuvasz.ports.Tags.remove`."""
        del self.rows[target, name]


class MemoryBranches(Branches):
    """There is none but main."""

    @override
    def publish(self, target: str, tag: str | None = None, *, is_trial: bool = False) -> Published:
        """See `kuvasz.ports.Branches.publish`."""
        message = f"{place_of(table=target)}: main is written, so there is nothing to publish"
        raise LakeError(message, hint="a lake in memory has no branches")


class MemoryLake(Lake):
    """See the module.

    Large because it answers all that `kuvasz.ports.Lake` asks, and shows its rows to tests.

    Args:
        chunk_bytes: Raw bytes of a chunk; small ones make tests meet the borders between chunks.
    """

    def __init__(self, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._tables: dict[str, MemoryTable] = {}
        self._feeds = Feeds()
        self._lock = threading.Lock()
        self._write_stage = MemoryWriteStage(self._tables, self._feeds, chunk_bytes)
        self.about = MemoryAbout()
        self._commit_stage = MemoryCommitStage(self._tables, self._feeds, self.about.keep_rejected)
        self.notes = MemorySourceNotes(
            lambda target: self._tables[target].schema.columns() if target in self._tables else ()
        )
        self.maintenance = MemoryMaintenance()
        self.tags = MemoryTags(self)
        self.branches = MemoryBranches()

    @property
    @override
    def commit_conflicts(self) -> int:
        """See `kuvasz.ports.Lake.commit_conflicts`: nobody else writes."""
        return 0

    @override
    def open(self) -> None:
        """See `kuvasz.ports.Lake.open`."""

    @override
    def close(self) -> None:
        """See `kuvasz.ports.Lake.close`."""
        for table in self._tables.values():
            table.rows.abandon_all()

    @override
    def why_dead(self) -> LakeError | None:
        """See `kuvasz.ports.Lake.why_dead`: never."""
        return None

    # Tables

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
        if target.type is TableType.HISTORY:
            raise SchemaError(f"{place_of(table=target.name)}: the lake in memory keeps no history")
        with self._lock:
            self._feeds.add(feed)
            table = self._tables.get(target.name)
            if table is None:
                table = self._tables[target.name] = MemoryTable(target, relation, self.notes)
        with table.lock:
            table.add_columns(relation)
            why = "" if is_streaming else table.settle_rule(target, feed)
            table.shape(feed, relation)
        return (f"its rows are copied again: {why}",) if why else ()

    @override
    def make_room(self, target: str, feed: Feed, relation: Relation) -> Sequence[str]:
        """See `kuvasz.ports.Lake.make_room`: columns are never given other types here."""
        return ()

    @override
    def create(self, target: Target, feed: Feed, relation: Relation) -> bool:
        """See `kuvasz.ports.Lake.create`."""
        with self._lock:
            is_new = target.name not in self._tables
            if is_new:
                self._tables[target.name] = MemoryTable(target, relation, self.notes)
            return is_new

    @override
    def attach(self, target: Target, feed: Feed) -> bool:
        """See `kuvasz.ports.Lake.attach`."""
        with self._lock:
            self._feeds.add(feed)
            return target.name in self._tables

    @override
    def let_go(self, *targets: str) -> None:
        """See `kuvasz.ports.Lake.let_go`: they are kept here, for they are nowhere else."""

    @override
    def resume(self, target: str, failure: KuvaszError | None) -> None:
        """See `kuvasz.ports.Lake.resume`."""
        table = self._tables[target]
        with table.lock:
            table.resume(failure)

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
    def recorded(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.recorded`."""
        return self.positions(target)

    @override
    def stored(self, target: str) -> Mapping[str, SourcePosition]:
        """See `kuvasz.ports.Lake.stored`."""
        return self.positions(target)

    @override
    def forget(
        self, target: str, source: str, *, to_repair: bool = False, is_gone: bool = False, gap_lsn: int | None = None
    ) -> None:
        """See `kuvasz.ports.Lake.forget`."""
        table = self._tables.get(target)
        if table is not None:
            with table.lock:
                position = table.forget_position(source)
                if not to_repair:
                    self.notes.close_gap(target, source)
                elif position is not None:
                    gap = Gap(from_lsn=gaps.begin(position.lsn, gap_lsn), noticed_us=time.time_ns() // 1000)
                    self.notes.open_gap(target, source, gap)
                self.notes.park(target, source, None)
                if is_gone:
                    self.notes.forget_partitions(target, source)

    @override
    def unmapped(
        self, feeds: Mapping[str, Collection[str]], others: Collection[str] = ()
    ) -> Sequence[tuple[str, str]]:
        """See `kuvasz.ports.Lake.unmapped`."""
        return [
            (target, source)
            for target, table in self._tables.items()
            for source in table.positions
            if target not in feeds.get(names.feeder_of(source), (target,))
        ]

    # The two stages

    @override
    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Sequence[MemoryWritten]:
        """See `kuvasz.ports.Lake.write`: each step is always one by itself."""
        return self._write_stage.write(works)

    @override
    def commit(self, written: Sequence[MemoryWritten]) -> Iterable[Receipt | Failure]:
        """See `kuvasz.ports.Lake.commit`."""
        return self._commit_stage.commit(written)

    # Copies

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
        receipt = self._copy(feed, relation, requests, position, on_progress, on_read, pace, keeps=False)
        self.notes.close_gap(feed.target, feed.source)
        return receipt

    @override
    def repair(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[str, int, int], None],
        *,
        at_us: int = 0,
        on_read: Callable[[], None] = lambda: None,
        gap_lsn: int | None = None,
    ) -> Receipt:
        """See `kuvasz.ports.Lake.repair`: rows in memory are as quickly copied as compared.

        A gap that is closed is forgotten.
        """
        keeps = self._tables[feed.target].rows.is_growing
        wanted = () if keeps else requests

        def tell(done: int, _: int) -> None:
            on_progress("copy", done, len(wanted))

        receipt = self._copy(feed, relation, wanted, position, tell, on_read, keeps=keeps)
        self.notes.close_gap(feed.target, feed.source)
        return receipt

    @override
    def relocate(self, target: str, source: str, position: SourcePosition) -> None:
        """See `kuvasz.ports.Lake.relocate`."""
        table = self._tables[target]
        with table.lock:
            table.positions[source] = position
            table.era.accept({source: position.lsn})

    def _copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[int, int], None],
        on_read: Callable[[], None],
        pace: CopyPace = ANY_PACE,
        *,
        keeps: bool,
    ) -> Receipt:
        begin = time.monotonic()
        table = self._tables[feed.target]
        shape = table.shape(feed, relation)
        parts: list[Copied] = []
        rows = 0
        for done, request in enumerate(requests, 1):
            pace.wait()
            for data in request.read(self._chunk_bytes):
                parts.append(dispatch.apply_copy(shape, data, position.lsn))
                rows += parts[-1].rows.num_rows
            on_progress(done, rows)
        on_read()
        rejected = pa.concat_tables(
            [part.rejected for part in parts if part.rejected is not None] or [RECORD.empty_table()]
        )
        if rejected.num_rows:
            self.about.keep_rejected(feed.target, rejected)
        with table.lock:
            table.rows.replace(feed.source, table.sid(feed), parts, keeps=keeps)
            snapshot = table.make_visible({feed.source: position})
            table.positions[feed.source] = position
            table.note_rule(feed)
            table.era.accept({feed.source: position.lsn})
        return Receipt(
            target=feed.target,
            positions={feed.source: position},
            rows=rows,
            snapshot_id=snapshot,
            rejected=by_source(rejected),
            seconds=time.monotonic() - begin,
        )

    # For observers

    def rows(self, target: str) -> pa.Table:
        """Return the rows that a reader of the target sees, in no order that means anything."""
        table = self._tables[target]
        with table.lock:
            return table.rows.visible(table.schema.arrow())

    def snapshots(self, target: str) -> int:
        """Return how many snapshots a target has."""
        return self._tables[target].rows.snapshots


__all__ = ["MemoryLake"]
