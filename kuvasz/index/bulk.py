"""Loading whole files' keys: those of each file are sorted by themselves, and all are merged in one pass.

The copy of a large table brings millions of keys in tens of files at once. Inserted file by file, each record would
be written again with every merge of the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kuvasz.errors import InternalError
from kuvasz.fold.keys import Keys, frozen
from kuvasz.index import records as kernels
from kuvasz.index.extents import Extents
from kuvasz.index.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kuvasz.model import Int64s, UInt32s, UInt64s

#: Records merged at once: 8 MB with the copy that is merged into.
_SLICE = 1 << 18
_U32 = np.uint64(32)
_U32_BITS = np.uint64(0xFFFF_FFFF)
_AS_IT_IS = frozen(np.empty(0, np.int64))


def ascending(keys: Keys, codes: UInt32s) -> UInt64s:
    """Return the records of keys in any order, ascending.

    Raises:
        InternalError: A key is there twice.
    """
    hi, lo, codes = frozen(keys.hi), frozen(keys.lo), frozen(codes)
    for order in _orders(hi, lo):
        records = frozen(kernels.pack(hi, lo, codes, order()))
        if kernels.rises(records):
            return records
    raise InternalError(f"a key occurs twice among the {len(keys)} that are to be inserted")


def of_one_file(keys: Keys) -> UInt64s:
    """Return the records of a whole file, ascending; their codes are its rows.

    Raises:
        InternalError: A key is there twice.
    """
    return ascending(keys, np.arange(len(keys), dtype=np.uint32))


def order(keys: Keys) -> Int64s:
    """Return the order in which keys ascend as their records do: in it they are inserted without sorting them."""
    return np.lexsort((keys.lo, keys.hi & _U32_BITS))


def keys_of(records: UInt64s) -> Keys:
    """Return keys, in the order of some records, that have the same records; the upper half of `hi` is unknown."""
    first, second = records[:, 0], records[:, 1]
    return Keys(hi=first >> _U32, lo=first << _U32 | second >> _U32)


def rows_of(records: UInt64s, keys: Keys) -> UInt32s:
    """Return the rows of a whole file that have one of some keys, ascending.

    Args:
        records: The records of the file.
        keys: Any keys.
    """
    if not len(records) or not len(keys):
        return np.empty(0, np.uint32)
    found = np.full(len(keys), kernels.NOWHERE, np.uint64)
    run = Run(records, Extents(np.zeros(1, np.uint64), np.array([kernels.top(records)], np.int64)))
    run.find(frozen(keys.hi), frozen(keys.lo), np.arange(len(keys)), found, is_filtered=False)
    return np.unique(found[found != kernels.NOWHERE]).astype(np.uint32)


def merged(files: Sequence[tuple[int, UInt64s]], slice_rows: int = _SLICE) -> Iterator[UInt64s]:
    """Yield the records of several files, ascending.

    Args:
        files: The code of a file's first row, and its records as `of_one_file` has them; they may be mapped from
            disk.
        slice_rows: So many are merged at once, about.

    Raises:
        InternalError: A key is there twice.
    """
    starts = [0] * len(files)
    for bound in [*_bounds([records for _, records in files], slice_rows), None]:
        parts = []
        for at, (start, records) in enumerate(files):
            end = len(records) if bound is None else kernels.first_from(records, starts[at], *bound)
            if end > starts[at]:
                part = records[starts[at] : end].copy()
                part[:, 1] += np.uint64(start)  # of a whole file no key is absent
                parts.append(frozen(part))
            starts[at] = end
        if parts:
            yield _merged_in_memory(parts)


def _bounds(files: Sequence[UInt64s], slice_rows: int) -> list[tuple[np.uint64, np.uint64]]:
    """Return keys between which all files together have about `slice_rows` records each."""
    step = max(1, slice_rows // (2 * max(1, len(files))))
    samples = np.concatenate([records[step - 1 :: step] for records in files] or [np.empty((0, 2), np.uint64)])
    samples[:, 1] &= ~_U32_BITS
    samples = samples[np.lexsort((samples[:, 1], samples[:, 0]))]
    return [(first, second) for first, second in samples[slice_rows // step :: max(1, slice_rows // step)]]


def _merged_in_memory(parts: list[UInt64s]) -> UInt64s:
    rows = sum(map(len, parts))
    while len(parts) > 1:
        pairs = [_pair(parts[at], parts[at + 1]) for at in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) & ~1 :]
    if len(parts[0]) != rows:
        raise InternalError(f"{rows - len(parts[0])} keys occur in two files that are to be loaded")
    return parts[0]


def _pair(older: UInt64s, newer: UInt64s) -> UInt64s:
    out = np.empty((len(older) + len(newer), kernels.WORDS), np.uint64)
    _, _, count = kernels.merge(older, 0, newer, 0, out, np.uint64(0), False)  # noqa: FBT003 - a kernel's
    return frozen(out[:count])


def _orders(hi: UInt64s, lo: UInt64s) -> list[Callable[[], Int64s]]:
    """Return orders to try, cheapest first: as it is, by the one word that varies, by all."""

    def by_one_word() -> Int64s:
        return frozen(np.argsort(lo if bool((hi == hi[0]).all()) else hi << _U32 | lo >> _U32))

    return [lambda: _AS_IT_IS, by_one_word, lambda: frozen(order(Keys(hi=hi, lo=lo)))]


__all__ = ["ascending", "keys_of", "merged", "of_one_file", "order", "rows_of"]
