"""The rows of one table in memory: what readers see, and what lies over it until it is committed.

Rows stay in the Arrow tables that the decoder made; a dictionary knows where each key's is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from kuvasz.lake.format.binding import no_earlier_version
from kuvasz.modes import clone

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
        is_growing: Whether it keeps several rows of a key.
    """

    def __init__(self, table: str, *, is_growing: bool) -> None:
        self._table = table
        self.is_growing = is_growing
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
        if applied.aside is not None:
            earlier = [row for key in _pairs(applied.aside.sources) if (row := layer.get(key)) is not None]
            lost = len(applied.aside.sources) - len(earlier)
            if lost:
                raise no_earlier_version(source, self._table, lost)
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

    def replace(self, source: str, sid: str | None, copied: Iterable[Copied], *, keeps: bool) -> None:
        """Put a copy of a source's table in the place of its rows, or with `keeps` beside them."""
        self.abandon(source)
        self.begin()
        if not keeps:
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
