"""A whole lake in memory: the same decoding, folding and rules as the one of production, without Spark and files.

For the contract tests, which both lakes pass, and for benchmarks that leave the storage out. Implements
`kuvasz.ports.Lake`. Rows stay in the Arrow tables that the decoder made; a dictionary knows where each key's is.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from kuvasz.config import names
from kuvasz.decode import tuples
from kuvasz.errors import KuvaszError, LakeError, SchemaError
from kuvasz.evolve.known import SourceColumns
from kuvasz.fold.keys import SEED_BYTES, Keys
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.chunks import Chunk, Cut
from kuvasz.lake.format import layout, member
from kuvasz.lake.format.binding import Feeds, bind, no_earlier_version, placed
from kuvasz.lake.format.schema import LakeSchema, typed, wanted
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import NO_OPERATIONS, Operations, Relation, SourcePosition, TableType, Truncation
from kuvasz.modes import changelog, clone, dispatch
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.shape import RefusedValue, Shape
from kuvasz.modes.transaction_facts import Facts
from kuvasz.ports import CopyRequest, Failure, Feed, Gap, Lake, Receipt, TableWork, Target, Upkeep

_CHUNK_BYTES = 8 << 20

_Key = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A row: where it stands, and whose it is."""

    sid: str | None
    rows: pa.Table
    number: int

    @property
    def values(self) -> pa.Table:
        """One row."""
        return self.rows.slice(self.number, 1)


class _Layer:
    """Changes that lie over other rows and hide them. Nothing below is touched until `settle`."""

    def __init__(self, below: Callable[[_Key], _Row | None]) -> None:
        self._below = below
        self.rows: dict[_Key, _Row | None] = {}  #: None: deleted here
        self.versions: list[tuple[str | None, pa.Table]] = []  #: sid, rows of a table type that keeps all
        self.truncated: set[str | None] = set()  #: sids whose rows below are gone

    def get(self, key: _Key) -> _Row | None:
        """Return the row of a key."""
        if key in self.rows:
            return self.rows[key]
        row = self._below(key)
        return None if row is None or row.sid in self.truncated else row

    def truncate(self, sid: str | None) -> None:
        """Delete every row of a source."""
        self.truncated.add(sid)
        self.rows = {key: row for key, row in self.rows.items() if row is None or row.sid != sid}
        self.versions = [pair for pair in self.versions if pair[0] != sid]

    def put(self, keys: Keys, written: Iterable[int], rows: pa.Table, sid: str | None) -> None:
        """Set or, where `written` is negative, delete rows."""
        for key, number in zip(_pairs(keys), written, strict=True):
            self.rows[key] = None if number < 0 else _Row(sid, rows, number)

    def pour(self, other: _Layer) -> None:
        """Put all of this over another layer."""
        for sid in self.truncated:
            other.truncate(sid)
        other.rows |= self.rows
        other.versions += self.versions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """One target's part of a mini-transaction between its two stages."""

    work: TableWork
    cut: Cut
    applied: tuple[ChunkOutcome | None, ...]  #: one per step, None for a truncation
    era: WriteEra
    forgotten: Mapping[str, int]  #: as in the table when it was written
    error: KuvaszError | None


class _Table:
    """One target. The same words as in `kuvasz.lake.table.table`."""

    def __init__(self, target: Target, relation: Relation) -> None:
        self.lock = threading.RLock()
        self.target = target
        self.schema = LakeSchema(schema_id=0, fields=wanted(target, typed(target, relation)))
        layout.wanted(target, self.schema.fields)  # says what is wrong with it; rows in memory lie in no order
        self.key = relation.key
        self.seed = secrets.token_bytes(SEED_BYTES)
        self.positions: dict[str, SourcePosition] = {}
        self.parts: dict[str, frozenset[str]] = {}
        self.parked: dict[str, str] = {}
        self.published: dict[str, str] = {}
        self.era = WriteEra.begin(self.positions)
        self.gaps: dict[str, Gap] = {}  #: open ones, by source
        self.forgotten: dict[str, int] = {}  #: source -> how often its position was
        self.rows: dict[_Key, _Row] = {}  #: what readers see
        self.versions: list[tuple[str | None, pa.Table]] = []  #: the same, of a table type that keeps all
        self.is_growing = target.type in {TableType.APPEND, TableType.CHANGELOG}
        self.snapshots = 0
        self.layer = _Layer(self.rows.get)  #: of the commit being worked out
        self.open: dict[str, tuple[int, _Layer]] = {}  #: source -> commit LSN and rows of its open transaction
        self._shapes: dict[tuple[str, Relation], Shape] = {}

    def shape(self, feed: Feed, relation: Relation) -> Shape:
        """Return how a relation's columns meet the table's fields."""
        found = self._shapes.get((feed.source, relation))
        if found is None:
            seed = member.seed(self.seed, names.member_of(feed.source))
            found = bind(self.target, self.schema, self.key, seed, feed, typed(self.target, relation))
            self._shapes[feed.source, relation] = found
        return found

    def add_columns(self, relation: Relation) -> None:
        """Add the columns of a relation that are lacking."""
        first = 1 + max(max(field.field_id, *field.inner_ids, 0) for field in self.schema.fields)
        lacking = [field for field in wanted(self.target, typed(self.target, relation), first_id=first)
                   if self.schema.by_name(field.name) is None]  # fmt: skip
        if lacking:
            added = tuple(dataclasses.replace(field, required=False) for field in lacking)
            self.schema = LakeSchema(schema_id=self.schema.schema_id + 1, fields=self.schema.fields + added)
            self._shapes.clear()

    def begin(self) -> None:
        """Begin to work out a commit."""
        self.layer = _Layer(self.rows.get)

    def layer_of(self, source: str, open_lsn: int) -> _Layer:
        """Return where a step's changes go; closes the source's open transaction if the step is beyond it."""
        pending = self.open.get(source)
        if pending is not None and pending[0] != open_lsn:
            self.close_open(source)
            pending = None
        if not open_lsn:
            return self.layer
        if pending is None:
            pending = (open_lsn, _Layer(self._below_open))
            self.open[source] = pending
        return pending[1]

    def _below_open(self, key: _Key) -> _Row | None:
        return self.layer.get(key)  # another layer with every commit

    def close_open(self, source: str) -> None:
        """Take the parts of a transaction that is now whole into the commit."""
        self.open.pop(source)[1].pour(self.layer)

    def resolve(self, source: str, sid: str | None, applied: ChunkOutcome, layer: _Layer) -> None:
        """Put the outcome of a chunk into a layer."""
        rows = applied.rows
        if applied.aside is not None:
            earlier = [row for key in _pairs(applied.aside.sources) if (row := layer.get(key)) is not None]
            lost = len(applied.aside.sources) - len(earlier)
            if lost:
                raise no_earlier_version(source, self.target.name, lost)
            before = _stacked(earlier, rows.schema)
            completed = clone.complete(applied.aside.rows, applied.aside.unchanged, before, applied.aside.waits)
            rows = pa.concat_tables([rows, completed])
        if not self.is_growing:
            layer.put(applied.keys, applied.written.tolist(), rows, sid)
            return
        held = np.flatnonzero(applied.written >= 0)
        layer.put(applied.keys.take(held), applied.written[held].tolist(), rows, sid)
        if rows.num_rows:
            layer.versions.append((sid, rows))

    def settle(self, positions: Mapping[str, SourcePosition]) -> int | None:
        """Make the layer visible together with the positions; returns the snapshot's number if there is one."""
        gone = [key for key, row in self.rows.items() if row.sid in self.layer.truncated]
        changes = {key: row for key, row in self.layer.rows.items() if row is not None or key in self.rows}
        added = self.layer.versions
        kept = [pair for pair in self.versions if pair[0] not in self.layer.truncated]
        is_same = not gone and not changes and not added and len(kept) == len(self.versions)
        if is_same and positions.keys() <= self.positions.keys():
            return None
        self.versions = kept + added
        for key in gone:
            del self.rows[key]
        for key, row in changes.items():
            if row is not None:
                self.rows[key] = row
            else:
                self.rows.pop(key, None)
        self.positions.update(positions)
        self.published |= {source: position.published for source, position in positions.items() if position.published}
        self.begin()
        if is_same:
            return None
        self.snapshots += 1
        return self.snapshots


class MemoryLake(Lake):
    """See the module.

    Args:
        chunk_bytes: Raw bytes of a chunk; small ones make tests meet the borders between chunks.
    """

    def __init__(self, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._tables: dict[str, _Table] = {}
        self._feeds = Feeds()
        self._lock = threading.Lock()

    @property
    @override
    def commit_conflicts(self) -> int:
        """See `kuvasz.ports.Lake.commit_conflicts`: nobody else writes."""
        return 0

    @override
    def open(self) -> None:
        """See `kuvasz.ports.Lake.open`."""

    @override
    def upkeep(self) -> Mapping[str, Upkeep]:
        """See `kuvasz.ports.Lake.upkeep`: there are no files."""
        return {}

    @override
    def maintain(self, target: str, *, full: bool) -> None:
        """See `kuvasz.ports.Lake.maintain`: there are no files."""

    @override
    def close(self) -> None:
        """See `kuvasz.ports.Lake.close`."""
        for table in self._tables.values():
            table.open.clear()

    @override
    def why_dead(self) -> LakeError | None:
        """See `kuvasz.ports.Lake.why_dead`: never."""
        return None

    @override
    def prepare(self, target: Target, feed: Feed, relation: Relation, *, is_streaming: bool = False) -> Sequence[str]:
        """See `kuvasz.ports.Lake.prepare`."""
        if target.type is TableType.HISTORY:
            raise SchemaError(f"table {target.name}: the lake in memory keeps no history")
        with self._lock:
            self._feeds.add(feed)
            table = self._tables.get(target.name)
            if table is None:
                table = self._tables[target.name] = _Table(target, relation)
        with table.lock:
            table.add_columns(relation)
            table.shape(feed, relation)
        return ()

    @override
    def attach(self, target: Target, feed: Feed) -> bool:
        """See `kuvasz.ports.Lake.attach`."""
        with self._lock:
            self._feeds.add(feed)
            return target.name in self._tables

    @override
    def columns(self, target: str, source: str) -> SourceColumns | None:
        """See `kuvasz.ports.Lake.columns`: this lake goes by names."""
        return None

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
    def forget(self, target: str, source: str, *, to_repair: bool = False, is_gone: bool = False) -> None:
        """See `kuvasz.ports.Lake.forget`."""
        table = self._tables.get(target)
        if table is not None:
            with table.lock:
                table.open.pop(source, None)
                position = table.positions.pop(source, None)
                if not to_repair:
                    table.gaps.pop(source, None)
                elif position is not None:
                    table.gaps[source] = Gap(from_lsn=position.lsn, noticed_us=time.time_ns() // 1000)
                table.parked.pop(source, None)
                table.era.accepted.pop(source, None)
                table.forgotten[source] = table.forgotten.get(source, 0) + 1

    @override
    def gap(self, target: str, source: str) -> Gap | None:
        """See `kuvasz.ports.Lake.gap`."""
        return self._tables[target].gaps.get(source)

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
    ) -> Receipt:
        """See `kuvasz.ports.Lake.repair`: rows in memory are as quickly copied as compared."""
        table = self._tables[feed.target]
        wanted = () if table.is_growing else requests

        def tell(done: int, _: int) -> None:
            on_progress("copy", done, len(wanted))

        receipt = self._copy(feed, relation, wanted, position, tell, keeps=table.is_growing)
        table.gaps.pop(feed.source, None)
        return receipt

    @override
    def published(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.Lake.published`."""
        return self._tables[target].published.get(source)

    @override
    def remember_published(self, target: str, source: str, published: str) -> None:
        """See `kuvasz.ports.Lake.remember_published`."""
        self._tables[target].published[source] = published

    @override
    def unmapped(self, feeds: Mapping[str, Collection[str]]) -> Sequence[tuple[str, str]]:
        """See `kuvasz.ports.Lake.unmapped`."""
        return [
            (target, source)
            for target, table in self._tables.items()
            for source in table.positions
            if target not in feeds.get(names.source_of(source), (target,))
        ]

    @override
    def parts(self, target: str, source: str) -> frozenset[str] | None:
        """See `kuvasz.ports.Lake.parts`."""
        table = self._tables.get(target)
        return None if table is None else table.parts.get(source)

    @override
    def remember_parts(self, target: str, source: str, parts: frozenset[str]) -> None:
        """See `kuvasz.ports.Lake.remember_parts`."""
        self._tables[target].parts[source] = parts

    @override
    def parked(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.Lake.parked`."""
        return self._tables[target].parked.get(source)

    @override
    def park(self, target: str, source: str, log_id: str | None) -> None:
        """See `kuvasz.ports.Lake.park`."""
        parked = self._tables[target].parked
        if log_id is None:
            parked.pop(source, None)
        else:
            parked[source] = log_id

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

    # First stage

    @override
    def write(self, works: Sequence[TableWork]) -> Sequence[_Written]:
        """See `kuvasz.ports.Lake.write`."""
        written = [self._write(work) for work in works]
        return [one for one in written if one is not None]

    def _write(self, work: TableWork) -> _Written | None:
        table = self._tables[work.target]
        era, forgotten = table.era, dict(table.forgotten)
        if era.error is not None:
            return None
        events = {key: value for key, value in era.events.items() if key[0] not in work.abandoned}
        cut = chunks.cut(work.changes, dict(era.accepted), self._chunk_bytes, table.target.type, events)
        applied: list[ChunkOutcome | None] = []
        error: KuvaszError | None = None
        try:
            applied.extend(
                self._truncated(table, step) if isinstance(step, Truncation) else self._apply(table, step)
                for step in cut.steps
            )
        except KuvaszError as caught:
            error = caught
        era.accept(work.through)
        era.events = cut.events
        return _Written(work=work, cut=cut, applied=tuple(applied), era=era, forgotten=forgotten, error=error)

    def _truncated(self, table: _Table, step: Truncation) -> ChunkOutcome | None:
        if table.target.type is not TableType.CHANGELOG:
            return None
        feed = self._feeds.find(table.target.name, step.source, step.relation)
        run = [step.commit_lsn, step.commit_us, step.xid, 1, step.ordinal]
        rows = changelog.apply_truncation(table.shape(feed, step.relation), Facts.of(np.array([run], np.int64)))
        return ChunkOutcome(rows=rows, keys=Keys.empty(), written=np.empty(0, np.int32), aside=None, deleted=0)

    def _apply(self, table: _Table, chunk: Chunk) -> ChunkOutcome:
        feed = self._feeds.find(table.target.name, chunk.source, chunk.relation)
        data = np.frombuffer(b"".join(chunk.parts), np.uint8)
        try:
            shape = table.shape(feed, chunk.relation)
            return dispatch.apply_changes(shape, data, np.concatenate(chunk.lengths), chunk.facts)
        except KuvaszError as error:
            row = error.row if isinstance(error, RefusedValue) else 0
            raise placed(error, chunk.commit_lsn_of(max(row, 0))) from error

    # Second stage

    @override
    def commit(self, written: Sequence[_Written]) -> Iterable[Receipt | Failure]:
        """See `kuvasz.ports.Lake.commit`."""
        outcomes = [self._commit(one) for one in written]
        return [outcome for outcome in outcomes if outcome is not None]

    def _commit(self, written: _Written) -> Receipt | Failure | None:
        table = self._tables[written.work.target]
        with table.lock:
            if table.era is not written.era or written.era.error is not None:
                return None
            for source in written.work.abandoned:
                table.open.pop(source, None)
            table.begin()
            try:
                if any(written.forgotten.get(step.source, 0) != table.forgotten.get(step.source, 0)
                       for step in written.cut.steps):  # fmt: skip
                    raise LakeError("what was written before its position was forgotten is not taken")
                if written.error is not None:
                    raise written.error
                return self._make_visible(table, written)
            except KuvaszError as error:
                table.era = WriteEra(accepted={}, error=error)
                table.open.clear()
                table.begin()
                return Failure(target=table.target.name, error=error)

    def _make_visible(self, table: _Table, written: _Written) -> Receipt:
        begin = time.monotonic()
        work, cut = written.work, written.cut
        for step, applied in zip(cut.steps, written.applied, strict=True):
            layer = table.layer_of(step.source, chunks.open_lsn(step))
            sid = self._sid(table, self._feeds.find(work.target, step.source, step.relation))
            if applied is None and table.target.type is TableType.APPEND:
                continue
            if applied is None:
                layer.truncate(sid)
            else:
                table.resolve(step.source, sid, applied, layer)
        for source in (table.open.keys() & work.through.keys()) - work.open_sources:
            table.close_open(source)
        positions = chunks.reached(cut, work.through, table.positions)
        return Receipt(
            target=work.target,
            positions=positions,
            rows=cut.rows,
            snapshot_id=table.settle(positions),
            rows_of=cut.rows_of,
            operations_of=_operations_of(cut),
            commit_us=cut.commit_us,
            seconds=time.monotonic() - begin,
        )

    def _sid(self, table: _Table, feed: Feed) -> str | None:
        """Return what tells the rows of a feed from those of others."""
        sid = feed.sid if table.target.has_sid else None
        which = names.member_of(feed.source)
        return names.member_name(sid or "", which) if which else sid

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
        self._tables[feed.target].gaps.pop(feed.source, None)
        return self._copy(feed, relation, requests, position, on_progress, keeps=False)

    def _copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[int, int], None],
        *,
        keeps: bool,
    ) -> Receipt:
        begin = time.monotonic()
        table = self._tables[feed.target]
        shape = table.shape(feed, relation)
        sid = self._sid(table, feed)
        parts: list[clone.Copied] = []
        rows = 0
        for done, request in enumerate(requests, 1):
            for data in request.read(self._chunk_bytes):
                parts.append(dispatch.apply_copy(shape, data, position.lsn))
                rows += parts[-1].rows.num_rows
            on_progress(done, rows)
        with table.lock:
            table.open.pop(feed.source, None)
            table.begin()
            if not keeps:
                table.layer.truncate(sid)
            for part in parts:
                if table.is_growing:
                    table.layer.versions.append((sid, part.rows))
                table.layer.put(part.keys, range(part.rows.num_rows), part.rows, sid)
            snapshot = table.settle({feed.source: position})
            table.era.accept({feed.source: position.lsn})
        return Receipt(
            target=feed.target,
            positions={feed.source: position},
            rows=rows,
            snapshot_id=snapshot,
            seconds=time.monotonic() - begin,
        )

    # For observers

    def rows(self, target: str) -> pa.Table:
        """Return the rows that a reader of the target sees, in no order that means anything."""
        table = self._tables[target]
        with table.lock:
            schema = table.schema.arrow()
            if table.is_growing:
                every = [_Row(sid, rows, n) for sid, rows in table.versions for n in range(rows.num_rows)]
                return _stacked(every, schema)
            return _stacked(table.rows.values(), schema)

    def snapshots(self, target: str) -> int:
        """Return how many snapshots a target has."""
        return self._tables[target].snapshots


def _operations_of(cut: Cut) -> dict[str, Operations]:
    found: dict[str, Operations] = {}
    for step in cut.steps:
        if isinstance(step, Chunk):
            data = np.frombuffer(b"".join(step.parts), np.uint8)
            counted = tuples.operations(data, np.concatenate(step.lengths))
            found[step.source] = found.get(step.source, NO_OPERATIONS).plus(counted)
    return found


def _stacked(rows: Iterable[_Row], schema: pa.Schema) -> pa.Table:
    """Return rows as one table; columns added after a row was written are NULL."""
    found = [row.values for row in rows]
    if not found:
        return schema.empty_table()
    stacked = pa.concat_tables(found, promote_options="default")
    columns = [
        stacked.column(field.name) if field.name in stacked.column_names else pa.nulls(len(stacked), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays([column.cast(field.type) for column, field in zip(columns, schema, strict=True)],
                                schema=schema)  # fmt: skip


def _pairs(keys: Keys) -> Iterable[_Key]:
    return zip(keys.hi.tolist(), keys.lo.tolist(), strict=True)
