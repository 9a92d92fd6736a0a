"""How the columns of one relation meet the fields of one lake table; pickled to executors with each job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from kuvasz.decode import columns, tuples
from kuvasz.decode.cells import NULL, UNCHANGED
from kuvasz.decode.refusals import CUT_AWAY, HAS_BOUNDS, way_out
from kuvasz.decode.tuples import Cells, RowChanges
from kuvasz.errors import DecodeError, place_of, resync_of
from kuvasz.fold import keys
from kuvasz.fold.keys import Keys, Sids
from kuvasz.model import Int32s, LakeType, TableName, TableType, UInt32s, ValueType, Wire
from kuvasz.modes import defaults, owners
from kuvasz.modes.owners import Owner
from kuvasz.modes.row_rules import REDACTED, Evaluated, Transform, attach, mask, resolve

#: `Binding.column` of the field that holds the sid, of one that the source lacks, of one that the mode fills, and of
#: the first one that an expression computes; the next computed ones are below that.
SID_COLUMN = -2
NO_COLUMN = -1
OWN_COLUMN = -3
DEFAULT_COLUMN = -4  #: of one that rows of the relation's time are older than: they have the field's default
COMPUTED = -10

#: What `out_of_range: null` may make NULL of values that are large enough to be kept out of line.
_NULLED = frozenset({LakeType.DECIMAL, LakeType.LIST})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Where one lake field gets its values from."""

    name: str
    column: int  #: index into the relation's columns, or one of the constants above
    type: ValueType  #: how to read the column's text
    mask: str | None = None  #: how the value is hidden; see `transform.mask`
    source: str = ""  #: the column's name at the source, for messages
    is_veiled: bool = False  #: its values are hidden so already
    is_mixed: bool = False  #: it is masked or computed, and rows are there for which another rule of the map did so
    is_past: bool = False  #: what the lake has of it need not be what was there last: rows are missing since

    @property
    def computed(self) -> int | None:
        """Which of the computed columns it is, None if it is no such."""
        return COMPUTED - self.column if self.column <= COMPUTED else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One relation version of one source, seen from its lake table.

    Large because rows of all types are read by it: what one of them needs to know stands here.
    """

    source: str
    table: TableName
    sid: str | None
    column_count: int  #: of the relation
    bindings: tuple[Binding, ...]  #: one per lake field, in the order of the lake's schema
    key: tuple[int, ...]  #: indices of the key's fields in `bindings`, without sid, in the table's key order
    seed: bytes  #: of the table's key hash
    schema: pa.Schema  #: of the lake table, with field ids
    out_of_range: str = "error"
    mode: TableType = TableType.CLONE
    transform: Transform | None = None
    mask_secret: bytes = dataclasses.field(default=b"", repr=False)
    copied_us: int | None = None  #: where copied versions begin that have not always been there, µs since 1970
    family: bytes = b""  #: the same for all shapes of a table; empty: their seed is
    rejects: bool = False  #: what does not fit is left out, and written down; see `rejects`
    keeps_earlier: bool = False  #: of a clone with a key: what it would have replaced stays
    owners: tuple[Owner, ...] = ()  #: of a chunk of several sources; `source`, `table` and `sid` are the first one's

    @property
    def place(self) -> str:
        """Where an error is."""
        return place_of(self.source, self.table)

    def split(self, data: np.ndarray, lengths: UInt32s, evaluated: Evaluated | None = None) -> RowChanges:
        """Take row messages apart; with expressions, join what Spark made of them."""
        changes = tuples.split_changes(data, lengths, self.column_count)
        for column in self._unread():
            changes.new.length[column] = NULL  # nothing waits for what was not sent of it
        if self.owners:
            changes = owners.attach(self.owners, changes)
        if self.transform is None or evaluated is None:
            return changes
        resolve(self.transform, changes)
        return attach(self.transform, changes, evaluated)

    def _unread(self) -> set[int]:
        """Return the relation's columns that nobody looks at: the map leaves them out."""
        read = {binding.column for binding in self.bindings}
        if self.transform is not None:
            read |= {item.column for item in self.transform.inputs} | set(self.transform.identity)
        return set(range(self.column_count)) - read

    @property
    def is_bag(self) -> bool:
        """Whether it clones a table without a key, whose rows are matched as a whole."""
        return self.mode is TableType.CLONE and not self.key

    @property
    def is_soft(self) -> bool:
        """Whether it clones a table so that rows which are deleted stay."""
        is_clone = self.mode is TableType.CLONE and bool(self.key)
        return is_clone and any(binding.column == OWN_COLUMN for binding in self.bindings)

    def keys(self, cells: Cells, rows: Int32s | None = None) -> Keys:
        """Return the 128-bit keys of tuples."""
        arrays = [self.read(cells, index, rows) for index in self.key]
        return self.hash(arrays, _count(cells, rows), owners.sids(self.owners, cells, rows))

    def hash(self, arrays: Sequence[pa.Array], count: int, sids: Sids | None = None) -> Keys:
        """Return the keys of already decoded key columns; with the rows' sids if they are of several sources."""
        if count == 0:
            return Keys.empty()
        return keys.hash_keys(arrays, sid=self.sid if sids is None else sids, seed=self.seed)

    def row_keys(self, rows: pa.Table) -> Keys:
        """Return the keys of decoded rows; none if the table has no key."""
        if not self.key:
            return Keys.empty()
        return self.hash([rows.column(index).combine_chunks() for index in self.key], rows.num_rows)

    def with_own(self, rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
        """Return rows with the columns that the mode fills."""
        arrays = [
            rows.column(index) if field.name not in columns else columns[field.name].cast(field.type)
            for index, field in enumerate(self.schema)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def empty_rows(self, count: int) -> pa.Table:
        """Return rows of which only the sid is known."""
        arrays = [
            pa.repeat(pa.scalar(self.sid, pa.string()), count) if binding.column == SID_COLUMN
            else pa.nulls(count, field.type)
            for binding, field in zip(self.bindings, self.schema, strict=True)
        ]  # fmt: skip
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def read(self, cells: Cells, index: int, rows: Int32s | None = None) -> pa.Array:
        """Decode one lake field of the given rows."""
        binding = self.bindings[index]
        count = _count(cells, rows)
        if binding.column == SID_COLUMN:
            of_each = owners.sids(self.owners, cells, rows)
            return pa.repeat(pa.scalar(self.sid, pa.string()), count) if of_each is None else owners.column(of_each)
        if binding.column in {NO_COLUMN, OWN_COLUMN}:
            return pa.nulls(count, self.schema.field(index).type)
        if binding.column == DEFAULT_COLUMN:
            return defaults.column(self.schema.field(index), count)
        if binding.computed is not None:
            values = cells.computed[binding.computed]
            return self._masked(binding, values if rows is None else values.take(pa.array(rows)))
        # A key that were clamped or NULL could be that of another row, which would then be lost.
        policy = "error" if index in self.key else self.out_of_range
        if index in self.key and binding.type.wire is Wire.ARRAY:
            self._refuse_bounds(cells, index, rows)
        try:
            decoded = columns.column(cells, binding.column, binding.type, rows, out_of_range=policy)
        except columns.ValueRefused as refused:
            raise self.refusal(index, refused) from refused
        return self._masked(binding, decoded)

    def _refuse_bounds(self, cells: Cells, index: int, rows: Int32s | None) -> None:
        """Refuse ``[0:1]={1,2}`` in a key: the list has no bounds, so ``{1,2}`` would be the same row."""
        strip = cells.strip(self.bindings[index].column, rows)
        has_bounds = strip.length > 0
        has_bounds[has_bounds] = strip.data[strip.start[has_bounds]] == ord("[")
        if has_bounds.any():
            row = int(np.argmax(has_bounds))
            text = (strip.text(row) or b"").decode()
            refused = columns.ValueRefused(row if rows is None else int(rows[row]), text, HAS_BOUNDS)
            raise self.refusal(index, refused) from refused

    def _masked(self, binding: Binding, values: pa.Array) -> pa.Array:
        if binding.mask is None or binding.is_veiled:
            return values
        return mask(values, binding.mask, self.mask_secret)

    def unchanged(self, cells: Cells, index: int, rows: Int32s) -> np.ndarray:
        """Say of the given rows whether a field has the value it had before, which was not sent."""
        binding = self.bindings[index]
        if binding.computed is not None:
            return cells.unknown[binding.computed][rows]
        if binding.column < 0:
            return np.zeros(len(rows), np.bool_)
        return np.asarray(cells.length[binding.column, rows] == UNCHANGED)

    def is_value(self, index: int) -> bool:
        """Whether a field is never NULL where its column has a large value: PostgreSQL keeps no NULL out of line."""
        may_be_refused = self.out_of_range == "null" and self.bindings[index].type.kind in _NULLED
        return self.bindings[index].column >= 0 and not may_be_refused

    def waiting(self, cells: Cells, rows: Int32s) -> Int32s:
        """Return those of the rows that have such a field."""
        open_rows = np.zeros(len(rows), np.bool_)
        for index in range(len(self.bindings)):
            open_rows |= self.unchanged(cells, index, rows)
        return rows[open_rows]

    def refusal(self, index: int, refused: columns.ValueRefused) -> DecodeError:
        """Name table and column of a value that did not fit; it is a `RefusedValue` if the row may be left out."""
        binding = self.bindings[index]
        value = repr(refused.text[:120]) if binding.mask is None else REDACTED
        message = f"{place_of(self.source, self.table, binding.name)}: value {value} {refused.reason}"
        hint = self._way_out(index, refused)
        if refused.number == CUT_AWAY and (index in self.key or self.is_bag):  # the lake may have the row
            return DecodeError(message, hint=hint)
        return RefusedValue(message, hint=hint, row=int(refused.row))

    def _way_out(self, index: int, refused: columns.ValueRefused) -> str:
        binding, is_key = self.bindings[index], index in self.key
        way = way_out(refused.number, binding.source or binding.name, has_policy=not is_key)
        key = "the column is part of the key, which no policy may change: " if is_key else ""
        return f"{key}{way}; or mend the value at the source, and then: {resync_of(self.table)}"

    def rows(self, cells: Cells, rows: Int32s | None = None) -> pa.Table:
        """Decode whole rows."""
        arrays = [self.read(cells, index, rows) for index in range(len(self.bindings))]
        for index in self.key:
            if arrays[index].null_count and self.bindings[index].computed is not None:
                message = f"{place_of(self.source, self.table)}: `set.{self.bindings[index].name}` is NULL"
                raise DecodeError(message, hint="it is part of the key: make it give a value, with coalesce(…)")
        return pa.Table.from_arrays(
            [array if array.type == field.type else array.cast(field.type)
             for array, field in zip(arrays, self.schema, strict=True)],
            schema=self.schema,
        )  # fmt: skip


class RefusedValue(DecodeError):
    """A value that its lake column cannot hold; `row` is its index in the chunk."""

    def __init__(self, message: str, *, hint: str | None = None, row: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.row = row

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return _refused, (self.message, self.hint, self.row)


def _refused(message: str, hint: str | None, row: int) -> RefusedValue:
    return RefusedValue(message, hint=hint, row=row)


def _count(cells: Cells, rows: Int32s | None) -> int:
    return int(np.shape(cells.start)[1]) if rows is None else len(rows)
