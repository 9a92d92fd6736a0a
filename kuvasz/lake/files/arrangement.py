"""Rows sorted into the files that they belong to, as the layout of their table has it. Pure; runs on executors.

It is apart from the layout because it loads PyArrow: who only compares the map with a table need not wait for that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.lake.format import partition_transforms
from kuvasz.lake.format.layout import Layout, Ordering, Term, Values
from kuvasz.model import Int64s


def arrange(layout: Layout, rows: pa.Table) -> list[tuple[Values, Int64s]]:
    """Return the partitions that rows fall into, each with its rows' numbers in the order they are to have."""
    if len(rows) == 0:
        return []
    groups, values = _groups(layout, rows)
    ranks = [_rank(one, rows) for one in layout.order]
    order = np.lexsort([*reversed(ranks), groups])
    ends = np.cumsum(np.bincount(groups, minlength=len(values)))
    return list(zip(values, np.split(order, ends[:-1]), strict=True))


def _groups(layout: Layout, rows: pa.Table) -> tuple[Int64s, list[Values]]:
    """Return each row's partition as a number, and the partitions' values."""
    groups = np.zeros(len(rows), np.int64)
    values: list[Values] = [()]
    for term in layout.partition:
        encoded = _term(term, rows).dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        texts = [_json(value, encoded.dictionary.type) for value in encoded.dictionary]
        both, groups = np.unique(groups * len(texts) + codes, return_inverse=True)
        values = [(*values[pair // len(texts)], texts[pair % len(texts)]) for pair in both.tolist()]
    return groups, values


def _term(term: Term, rows: pa.Table) -> pa.Array[Any]:
    array = rows.column(term.column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of no chunk
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    return partition_transforms.apply(term, array)


def _rank(ordering: Ordering, rows: pa.Table) -> Int64s:
    """Return numbers that sort as the rows should."""
    array = _sortable(_term(ordering.term, rows))
    placement = "at_start" if ordering.nulls_first else "at_end"
    direction = "descending" if ordering.descends else "ascending"
    options = pc.RankOptions(sort_keys=[("", direction, placement)], tiebreaker="dense")
    return np.asarray(pc.rank(array, options=options).to_numpy(zero_copy_only=False)).astype(np.int64)


def _sortable(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return floats as integers in Iceberg's order: -NaN, -Infinity, …, -0, +0, …, Infinity, NaN."""
    if not pa.types.is_floating(array.type):
        return array
    wide = array.cast(pa.float64())
    bits = pc.fill_null(wide, 0.0).to_numpy(zero_copy_only=False).view(np.int64)
    flipped = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(flipped, mask=array.is_null().to_numpy(zero_copy_only=False))


def _json(value: pa.Scalar[Any], kind: pa.DataType) -> Any:  # noqa: ANN401 (JSON)
    if not value.is_valid:
        return None
    plain = value.as_py()
    if pa.types.is_decimal(kind):
        return format(plain, "f")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return str(plain.isoformat())
    if pa.types.is_fixed_size_binary(kind):
        text = plain.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return plain.hex().upper() if isinstance(plain, bytes) else plain


__all__ = ["arrange"]
