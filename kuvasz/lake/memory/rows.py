"""The rows of one table in memory: what readers see, and what lies over it until it is committed.

Rows stay in the Arrow tables that the decoder made; a dictionary knows where each key's is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from kuvasz.lake.format.binding import no_earlier_value, no_earlier_version
from kuvasz.model import TableType
from kuvasz.modes import clone, soft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kuvasz.fold.keys import Keys
    from kuvasz.modes.clone import ChunkOutcome, Copied

_Key: TypeAlias = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryRow:
    """A row: where it stands, and whose it is."""

    sid: str | None
    rows: pa.Table
    number: int

    @property
    def values(self) -> pa.Table:
        """One row."""
        return self.rows.slice(self.number, 1)


class Layer:
    """Changes that lie over other rows and hide them. Nothing below is touched until they are poured over it."""

    def __init__(self, below: Callable[[_Key], MemoryRow | None]) -> None:
        self._below = below
        self.rows: dict[_Key, MemoryRow | None] = {}  #: None: deleted here
        self.versions: list[tuple[str | None, pa.Table]] = []  #: sid, rows of a table type that keeps all
        self.truncated: set[str | None] = set()  #: sids whose rows below are gone

    def get(self, key: _Key) -> MemoryRow | None:
        """Return the row of a key."""
        if key in self.rows:
            return self.rows[key]
        row = self._below(key)
        return None if row is None or row.sid in self.truncated else row

    def delete_all(self, rows: Iterable[tuple[_Key, MemoryRow]], sid: str | None, us: int) -> None:
        """Delete every row of a source where deleted rows stay.

        Args:
            rows: The rows below.
            sid: The source's.
            us: When, in µs since 1970.
        """
        for key, row in {**dict(rows), **self.rows}.items():
            if row is not None and row.sid == sid:
                gone = soft.deleted(row.values, us, np.ones(1, np.bool_))
                self.rows[key] = MemoryRow(sid, gone, 0)

    def truncate(self, sid: str | None) -> None:
        """Delete every row of a source."""
        self.truncated.add(sid)
        self.rows = {key: row for key, row in self.rows.items() if row is None or row.sid != sid}
        self.versions = [pair for pair in self.versions if pair[0] != sid]

    def put(self, keys: Keys, written: Iterable[int], rows: pa.Table, sid: str | None) -> None:
        """Set or, where `written` is negative, delete rows."""
        for key, number in zip(_pairs(keys), written, strict=True):
            self.rows[key] = None if number < 0 else MemoryRow(sid, rows, number)

    def pour(self, other: Layer) -> None:
        """Put all of this over another layer."""
        for sid in self.truncated:
            other.truncate(sid)
        other.rows |= self.rows
        other.versions += self.versions


class MemoryRows:
    """The rows of one table; its lock is held.

    Args:
        table: Its name.
        table_type: Its type.
        is_soft: Whether rows that are deleted stay.
    """

    def __init__(self, table: str, table_type: TableType, *, is_soft: bool = False) -> None:
        self._table = table
        self._type = table_type
        self.is_growing = table_type in {TableType.APPEND, TableType.CHANGELOG}  #: keeps several rows of a key
        self._is_soft = is_soft
        self._rows: dict[_Key, MemoryRow] = {}  #: what readers see
        self._versions: list[tuple[str | None, pa.Table]] = []  #: the same, of a table type that keeps all
        self._open: dict[str, tuple[int, Layer]] = {}  #: source -> commit LSN and rows of its open transaction
        self.layer = Layer(self._rows.get)  #: of the commit being worked out
        self.snapshots = 0

    def visible(self, schema: pa.Schema) -> pa.Table:
        """Return the rows that a reader sees, in no order that means anything."""
        if self.is_growing:
            every = [MemoryRow(sid, rows, n) for sid, rows in self._versions for n in range(rows.num_rows)]
            return _stacked(every, schema)
        return _stacked(self._rows.values(), schema)

    # A commit

    def begin(self) -> None:
        """Begin to work out a commit."""
        self.layer = Layer(self._rows.get)

    def resolve(self, source: str, sid: str | None, applied: ChunkOutcome, layer: Layer) -> None:
        """Put the outcome of a chunk into a layer."""
        rows = applied.rows
        if self._is_soft and applied.aside is not None:
            applied = _without_absent(applied, layer)
        if applied.aside is not None:
            earlier = [row for key in _pairs(applied.aside.sources) if (row := layer.get(key)) is not None]
            lost = len(applied.aside.sources) - len(earlier)
            if lost:
                raise no_earlier_version(source, self._table, lost)
            before = _stacked(earlier, rows.schema)
            try:
                completed = clone.complete(
                    applied.aside.rows, applied.aside.unchanged, before, applied.aside.waits, is_soft=self._is_soft,
                    is_value=applied.aside.is_value, table_type=self._type,
                )  # fmt: skip
            except soft.EarlierDeleted as error:
                raise no_earlier_version(source, self._table, 1) from error
            except clone.EarlierLost as error:
                raise no_earlier_value(source, self._table, error.field) from error
            rows = pa.concat_tables([rows, completed])
        if not self.is_growing:
            layer.put(applied.keys, applied.written.tolist(), rows, sid)
            return
        layer.put(applied.keys, applied.written.tolist(), rows, sid)
        if rows.num_rows:
            layer.versions.append((sid, rows))

    def delete_all(self, sid: str | None, us: int, layer: Layer) -> None:
        """Delete every row of a source where deleted rows stay."""
        below: dict[_Key, MemoryRow | None] = dict(self._rows)
        if layer is not self.layer:  # what came in the same transaction nobody has seen
            below |= self.layer.rows
            layer.rows.clear()
        layer.delete_all([(key, row) for key, row in below.items() if row is not None], sid, us)

    def replace(self, source: str, sid: str | None, copied: Iterable[Copied], *, keeps: bool) -> None:
        """Put a copy of a source's table in the place of its rows, or with `keeps` beside them."""
        self.abandon(source)
        self.begin()
        if keeps:  # what an update leaves out may be another value since
            for key in [key for key, row in self._rows.items() if row.sid == sid]:
                del self._rows[key]
        else:
            self.layer.truncate(sid)
        for part in copied:
            if self.is_growing:
                self.layer.versions.append((sid, part.rows))
            self.layer.put(part.keys, range(part.rows.num_rows), part.rows, sid)

    def make_visible(self) -> bool:
        """Make the layer visible; return whether that changed anything."""
        gone = [key for key, row in self._rows.items() if row.sid in self.layer.truncated]
        changes = {key: row for key, row in self.layer.rows.items() if row is not None or key in self._rows}
        added = self.layer.versions
        kept = [pair for pair in self._versions if pair[0] not in self.layer.truncated]
        if not gone and not changes and not added and len(kept) == len(self._versions):
            return False
        self._versions = kept + added
        for key in gone:
            del self._rows[key]
        for key, row in changes.items():
            if row is not None:
                self._rows[key] = row
            else:
                self._rows.pop(key, None)
        self.begin()
        self.snapshots += 1
        return True

    # Open transactions

    def layer_of(self, source: str, open_lsn: int) -> Layer:
        """Return where a step's changes go; closes the source's open transaction if the step is beyond it."""
        pending = self._open.get(source)
        if pending is not None and pending[0] != open_lsn:
            self._close(source)
            pending = None
        if not open_lsn:
            return self.layer
        if pending is None:
            pending = (open_lsn, Layer(self._below_open))
            self._open[source] = pending
        return pending[1]

    def _below_open(self, key: _Key) -> MemoryRow | None:
        return self.layer.get(key)  # another layer with every commit

    def _close(self, source: str) -> None:
        self._open.pop(source)[1].pour(self.layer)

    def close_whole(self, sources: Iterable[str]) -> None:
        """Take the parts of transactions that are now whole into the commit; sources without one are passed over."""
        for source in self._open.keys() & set(sources):
            self._close(source)

    def abandon(self, source: str) -> None:
        """Forget a source's open transaction, if it has one."""
        self._open.pop(source, None)

    def abandon_all(self) -> None:
        """Forget all open transactions, and the commit that is being worked out."""
        self._open.clear()
        self.begin()


def _without_absent(applied: ChunkOutcome, layer: Layer) -> ChunkOutcome:
    """Leave out what is deleted and is not there."""
    aside = applied.aside
    assert aside is not None
    unknown = aside.unchanged[aside.rows.schema.get_field_index(soft.DELETED_AT)]
    stays = np.array([layer.get(key) is not None for key in _pairs(aside.sources)], np.bool_) | ~unknown
    begin = applied.rows.num_rows
    written = applied.written.copy()
    waits = np.flatnonzero(written >= begin)
    row = written[waits] - begin
    written[waits] = np.where(stays[row], begin + np.cumsum(stays)[row] - 1, -1)
    which = np.flatnonzero(stays).astype(np.int32)
    left = dataclasses.replace(
        aside, rows=aside.rows.take(pa.array(which)), sources=aside.sources.take(which),
        unchanged=tuple(mask[which] if len(mask) else mask for mask in aside.unchanged),
    )  # fmt: skip
    return dataclasses.replace(applied, written=written, aside=left if len(which) else None)


def _stacked(rows: Iterable[MemoryRow], schema: pa.Schema) -> pa.Table:
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


__all__ = ["Layer", "MemoryRow", "MemoryRows"]
