"""Fingerprints of rows, and sums of them per bucket of keys: how two tables are compared without moving rows.

A row's fingerprint is the 128-bit hash of all its columns by value (see `kuvasz.fold.keys`), so it is the same
whether the row came through COPY, the stream or a Parquet file. A bucket holds the rows whose keys fall into it: how
many they are and the sum of their fingerprints. Two tables with equal buckets hold the same rows, doubled ones
included, but for a chance of 2^-128 a bucket; the hash is keyed by the table's seed, so nobody can aim at it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from kuvasz.fold.keys import Keys, frozen, hash_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from kuvasz.model import Int64s, UInt64s

#: Odd and without a pattern (2^64 / golden ratio): spreads the integers that stand in keys over the buckets.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Count and sums of the rows of each of n buckets, n a power of two."""

    rows: Int64s
    hi: UInt64s  #: sums, modulo 2^64
    lo: UInt64s

    @staticmethod
    def empty(count: int) -> Buckets:
        """Return `count` buckets without rows."""
        return Buckets(rows=np.zeros(count, np.int64), hi=np.zeros(count, np.uint64), lo=np.zeros(count, np.uint64))

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, keys: Keys, prints: Keys) -> None:
        """Take rows by their keys and fingerprints."""
        _add(self.rows, self.hi, self.lo, bucket_of(keys, len(self)), frozen(prints.hi), frozen(prints.lo))

    def merge(self, other: Buckets) -> None:
        """Take the rows of buckets of the same number."""
        self.rows.__iadd__(other.rows)
        self.hi.__iadd__(other.hi)
        self.lo.__iadd__(other.lo)

    def differing(self, other: Buckets) -> Int64s:
        """Return the numbers of the buckets that differ, ascending."""
        return np.flatnonzero((self.rows != other.rows) | (self.hi != other.hi) | (self.lo != other.lo))


def fingerprints(columns: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], seed: bytes) -> Keys:
    """Return the fingerprints of rows.

    Args:
        columns: All columns but sid, in the order of the table, at least one.
        seed: The seed of the table's key hash.
    """
    # One integer column alone would stand for itself and not be hashed; sums of such say little.
    return hash_keys([*columns, columns[0]] if len(columns) == 1 else columns, sid=None, seed=seed)


def bucket_of(keys: Keys, count: int) -> Int64s:
    """Return each key's bucket out of `count`, a power of two up to 2^31."""
    shift = np.uint64(64 - count.bit_length() + 1)
    if count == 1:
        return np.zeros(len(keys), np.int64)
    return (((keys.lo ^ keys.hi) * _SPREAD) >> shift).astype(np.int64)


def group_of(keys: Keys, count: int) -> Int64s:
    """Return each key's group out of `count`, any number below 2^32; groups have about as many keys each."""
    return (((keys.lo ^ keys.hi) * _SPREAD) >> np.uint64(32)).astype(np.int64) % count


def bucket_count(rows: int) -> int:
    """Return how many buckets suit a table of about so many rows: some hundred rows each, within bounds."""
    return 1 << min(max((rows // 256).bit_length(), 8), 17)


@numba.njit(cache=True, nogil=True)
def _add(
    rows: Int64s, sum_hi: UInt64s, sum_lo: UInt64s, bucket: Int64s, hi: UInt64s, lo: UInt64s
) -> None:  # pragma: no cover - compiled
    for row in range(len(bucket)):
        at = bucket[row]
        rows[at] += 1
        sum_hi[at] += hi[row]
        sum_lo[at] += lo[row]
