"""A clone of a table without a key: rows are matched as a whole, and of several equal rows one changes.

REPLICA IDENTITY FULL sends the whole old row of every UPDATE and DELETE. Which of several equal rows it was, nobody
can see; so a chunk comes to how many copies of each row more or fewer there are. The index knows the copies as (hash
of the row, number of the copy).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from kuvasz.decode import tuples
from kuvasz.decode.tuples import DELETE, INSERT, OLD, RowChanges
from kuvasz.errors import DecodeError, place_of
from kuvasz.fold.keys import Keys, Sids
from kuvasz.model import Int32s, Int64s
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.shape import OWN_COLUMN, Shape
from kuvasz.modes.transaction_facts import Facts

#: Odd, so that no two copies of one row share a key.
_STEP = np.uint64(0x9E3779B97F4A7C15)


def apply_changes(shape: Shape, changes: RowChanges, facts: Facts | None = None) -> ChunkOutcome:
    """Decode changes of one relation version.

    Raises:
        DecodeError: A value does not fit, or an old row is missing.
    """
    del facts
    lacks_old = (changes.tag != INSERT) & (changes.old_tag != OLD)
    was_in: Int32s | None = None
    if changes.outside is not None and changes.old_outside is not None:
        lacks_old &= ~changes.outside
        was_in = np.flatnonzero(~changes.old_outside).astype(np.int32)
    if lacks_old.any():
        message = f"{place_of(shape.source, shape.table)}: a change has no old row to go by"
        raise DecodeError(message, hint="give the table REPLICA IDENTITY FULL or a primary key")
    tuples.fill_unchanged(changes, np.full(len(changes.tag), -1, np.int32))
    came = np.flatnonzero(changes.tag != DELETE).astype(np.int32)
    rows = shape.rows(changes.new, came)
    old = shape.rows(changes.old, was_in)
    keys = Keys.concat([row_keys(shape, rows), row_keys(shape, old)])
    found, of, firsts = distinct(keys)
    delta = np.bincount(of[: len(came)], minlength=len(found)) - np.bincount(of[len(came) :], minlength=len(found))
    matters = delta != 0
    more = np.maximum(delta[matters], 0).astype(np.int32)
    # Equal rows are equal: the first of each is written as often as there are more of it.
    kept = np.repeat(firsts[matters], more)
    written = np.where(more > 0, np.cumsum(more) - more, -1).astype(np.int32)
    return ChunkOutcome(
        rows=rows.take(pa.array(kept)),
        keys=found.take(matters),
        written=written,
        aside=None,
        deleted=int(np.count_nonzero(delta < 0)),
        delta=delta[matters].astype(np.int32),
        whose=_owners_of(changes, came)[firsts[matters]] if shape.owners else None,
    )


def _owners_of(changes: RowChanges, came: Int32s) -> Int32s:
    """Return the owners of the rows that came, then of all old ones."""
    assert changes.new.whose is not None
    assert changes.old.whose is not None
    return np.concatenate([changes.new.whose[came], changes.old.whose])


def row_keys(shape: Shape, rows: pa.Table) -> Keys:
    """Return the hashes of whole rows; columns of kuvasz's own are not part of a row."""
    own = {binding.name for binding in shape.bindings if binding.column == OWN_COLUMN}
    names = [name for name in hashed_columns(rows.schema, has_sid=shape.sid is not None) if name not in own]
    sids = Sids.of_column(rows.column("sid")) if shape.owners else None
    return shape.hash([rows.column(name).combine_chunks() for name in names], rows.num_rows, sids)


def hashed_columns(schema: pa.Schema, *, has_sid: bool) -> list[str]:
    """Return the columns that tell rows apart, in the schema's order."""
    return [name for name in schema.names if not (has_sid and name == "sid")]


def distinct(keys: Keys) -> tuple[Keys, Int64s, Int64s]:
    """Return the different keys, the number of each row's one, and the first row of each."""
    pairs = np.empty(len(keys), [("hi", np.uint64), ("lo", np.uint64)])
    pairs["hi"], pairs["lo"] = keys.hi, keys.lo
    found, firsts, of = np.unique(pairs, return_index=True, return_inverse=True)
    return Keys(hi=found["hi"].copy(), lo=found["lo"].copy()), of, firsts


def ranks(of: Int64s) -> Int32s:
    """Return, for rows that each have a number, how many rows of the same number come before."""
    order = np.argsort(of, kind="stable")
    sorted_ = of[order]
    begins = np.flatnonzero(np.diff(sorted_, prepend=-1) != 0)
    rank = np.empty(len(of), np.int32)
    rank[order] = np.arange(len(of)) - np.repeat(begins, np.diff(begins, append=len(of)))
    return rank


def copy_keys(keys: Keys, number: Int64s | Int32s) -> Keys:
    """Return the keys under which the index knows copies of rows; copy 0 has the row's own."""
    # Not `lo`: of a single integer column its neighbour could be another row. The step is odd, so that copies differ
    # in the lower half of `hi` too, which is all of it that the position index has.
    return Keys(hi=keys.hi + number.astype(np.uint64) * _STEP, lo=keys.lo)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowCopies:
    """RowCopies of rows: per copy which of the rows it is of, and its number."""

    of: Int64s
    number: Int64s

    @classmethod
    def between(cls, begin: Int64s, end: Int64s) -> RowCopies:
        """Return the copies from `begin` up to `end` of each row, row by row."""
        sizes = np.maximum(end - begin, 0)
        of = np.repeat(np.arange(len(begin)), sizes)
        offset = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return cls(of=of, number=begin[of] + offset)
