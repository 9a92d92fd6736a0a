"""Two lists of rows, by key and fingerprint, and where they differ. Whole arrays, no loop over rows."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

import numpy as np

from kuvasz.fold.keys import Keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from kuvasz.model import Int64s, UInt8s, UInt32s, UInt64s

    Bools = npt.NDArray[np.bool_]

_KEY = np.dtype([("hi", "<u8"), ("lo", "<u8")])


class DifferenceKind(enum.IntEnum):
    """How a key differs."""

    MISSING = 0  #: at the source, not in the lake, or not as often
    EXTRA = 1  #: in the lake, not at the source
    CHANGED = 2  #: in both, with other values
    DOUBLED = 3  #: in the lake more often than at the source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows of one side; n entries each."""

    keys: Keys
    prints: Keys
    files: UInt32s  #: number of the data file; 0 at the source
    places: UInt32s  #: row in that file; 0 at the source

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Any) -> Listing:  # noqa: ANN401 (indices, a mask or a slice)
        """Return some of the rows."""
        return Listing(
            keys=self.keys.take(rows), prints=self.prints.take(rows), files=self.files[rows], places=self.places[rows]
        )

    @staticmethod
    def empty() -> Listing:
        """Return no rows."""
        none = np.zeros(0, np.uint32)
        return Listing(keys=Keys.empty(), prints=Keys.empty(), files=none, places=none)

    @staticmethod
    def concat(parts: list[Listing]) -> Listing:
        """Return the rows of all parts."""
        if not parts:
            return Listing.empty()
        return Listing(
            keys=Keys.concat([part.keys for part in parts]),
            prints=Keys.concat([part.prints for part in parts]),
            files=np.concatenate([part.files for part in parts]),
            places=np.concatenate([part.places for part in parts]),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """k differing keys, ascending, and the lake's rows that hold them."""

    keys: Keys
    kinds: UInt8s  #: of `DifferenceKind`
    source_rows: Int64s  #: per key: how many rows the source has of it
    lake_rows: Int64s  #: per key: how many rows the lake has of it
    lake_hi: np.ndarray  #: per key: sum of the fingerprints of the lake's rows
    lake_lo: np.ndarray
    files: UInt32s  #: m rows of the lake: data file,
    places: UInt32s  #: place in it,
    owner: Int64s  #: and the key it has, as an index

    def __len__(self) -> int:
        return len(self.keys)

    def count(self, kind: DifferenceKind) -> int:
        """Return how many keys differ in one way."""
        return int(np.count_nonzero(self.kinds == kind))

    def keep(self, mask: Bools) -> Difference:
        """Return the keys where `mask` holds."""
        number = np.cumsum(mask) - 1
        rows = mask[self.owner]
        return Difference(
            keys=self.keys.take(mask), kinds=self.kinds[mask], source_rows=self.source_rows[mask],
            lake_rows=self.lake_rows[mask], lake_hi=self.lake_hi[mask], lake_lo=self.lake_lo[mask],
            files=self.files[rows], places=self.places[rows], owner=number[self.owner[rows]],
        )  # fmt: skip

    def corrected(self, keys: Int64s, source_rows: Int64s, prints: Keys | None) -> Difference:
        """Return what differs if the source has other rows of some keys than it had when it was read.

        Args:
            keys: The keys, as indices.
            source_rows: How many rows the source has of each.
            prints: Sums of their fingerprints; anything where there is no row. None: a key says all of its rows.
        """
        kinds, rows = self.kinds.copy(), self.source_rows.copy()
        lake_rows = self.lake_rows[keys]
        rows[keys] = source_rows
        kinds[keys] = _kinds(source_rows, lake_rows)
        is_equal = source_rows == lake_rows
        if prints is not None:
            is_same = (self.lake_hi[keys] == prints.hi) & (self.lake_lo[keys] == prints.lo)
            is_equal &= (source_rows == 0) | is_same
        mask = np.ones(len(self), np.bool_)
        mask[keys[is_equal]] = False
        return dataclasses.replace(self, kinds=kinds, source_rows=rows).keep(mask)

    @staticmethod
    def concat(parts: list[Difference]) -> Difference:
        """Return the differences of all parts, which have no key in common."""
        if not parts:
            return difference(Listing.empty(), Listing.empty())
        first = np.cumsum([0, *[len(part) for part in parts[:-1]]])
        joined = Difference(
            keys=Keys.concat([part.keys for part in parts]),
            kinds=np.concatenate([part.kinds for part in parts]),
            source_rows=np.concatenate([part.source_rows for part in parts]),
            lake_rows=np.concatenate([part.lake_rows for part in parts]),
            lake_hi=np.concatenate([part.lake_hi for part in parts]),
            lake_lo=np.concatenate([part.lake_lo for part in parts]),
            files=np.concatenate([part.files for part in parts]),
            places=np.concatenate([part.places for part in parts]),
            owner=np.concatenate([part.owner + start for part, start in zip(parts, first, strict=True)]),
        )
        order = np.lexsort((joined.keys.lo, joined.keys.hi))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return dataclasses.replace(
            joined, keys=joined.keys.take(order), kinds=joined.kinds[order], source_rows=joined.source_rows[order],
            lake_rows=joined.lake_rows[order], lake_hi=joined.lake_hi[order], lake_lo=joined.lake_lo[order],
            owner=rank[joined.owner],
        )  # fmt: skip


def difference(source: Listing, lake: Listing) -> Difference:
    """Return where two lists of rows differ, whatever their order."""
    both = np.concatenate([_structured(source.keys), _structured(lake.keys)])
    keys, number = np.unique(both, return_inverse=True)
    of_source, of_lake = number[: len(source)], number[len(source) :]
    count = len(keys)
    source_rows = np.bincount(of_source, minlength=count)
    lake_rows = np.bincount(of_lake, minlength=count)
    source_hi, source_lo = _sums(of_source, source.prints, count)
    lake_hi, lake_lo = _sums(of_lake, lake.prints, count)
    differs = (source_rows != lake_rows) | (source_hi != lake_hi) | (source_lo != lake_lo)
    whole = Difference(
        keys=Keys(hi=np.ascontiguousarray(keys["hi"]), lo=np.ascontiguousarray(keys["lo"])),
        kinds=_kinds(source_rows, lake_rows), source_rows=source_rows.astype(np.int64),
        lake_rows=lake_rows.astype(np.int64), lake_hi=lake_hi, lake_lo=lake_lo,
        files=lake.files, places=lake.places, owner=of_lake.astype(np.int64),
    )  # fmt: skip
    return whole.keep(differs)


def uncontained(source: Listing, lake: Listing) -> Difference:
    """Return the source's rows that are not among the lake's rows of their key, as keys that differ."""
    rows = np.concatenate([_whole(source), _whole(lake)])
    _, number = np.unique(rows, return_inverse=True)
    is_there = np.isin(number[: len(source)], number[len(source) :])
    wanted = source.take(~is_there)
    mine = np.isin(_structured(lake.keys), _structured(wanted.keys))
    found = difference(wanted, lake.take(mine))
    return dataclasses.replace(
        found, kinds=np.where(found.lake_rows, DifferenceKind.CHANGED, DifferenceKind.MISSING).astype(np.uint8)
    )


def _kinds(source_rows: Int64s, lake_rows: Int64s) -> UInt8s:
    """Return how keys differ, if they do."""
    return np.select(
        [source_rows == 0, lake_rows < source_rows, lake_rows > source_rows],
        [DifferenceKind.EXTRA, DifferenceKind.MISSING, DifferenceKind.DOUBLED],
        DifferenceKind.CHANGED,
    ).astype(np.uint8)


def distinct(keys: Keys) -> Int64s:
    """Return the rows with which keys ascend, each once."""
    order = np.lexsort((keys.lo, keys.hi))
    hi, lo = keys.hi[order], keys.lo[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    return order[is_first]


def find(wanted: Keys, keys: Keys) -> Int64s:
    """Return for each of `keys` its index in `wanted`, which is ascending and without repetition, or -1."""
    if len(wanted) == 0 or len(keys) == 0:
        return np.full(len(keys), -1, np.int64)
    # Keys of one integer column and source share `hi`; the other ones are random in both halves. Runs of equal `hi`
    # are found first and `lo` within them, so that both are looked up in sorted arrays of plain words.
    low = np.searchsorted(wanted.hi, keys.hi, side="left")
    high = np.searchsorted(wanted.hi, keys.hi, side="right")
    at = low.astype(np.int64)
    runs, run_of = np.unique(low, return_inverse=True)
    if len(runs) <= _FEW_RUNS:
        for run, start in enumerate(runs.tolist()):
            mine = np.flatnonzero(run_of == run)
            end = int(high[mine[0]])
            at[mine] = start + np.searchsorted(wanted.lo[start:end], keys.lo[mine])
    else:
        _halve(at, high.astype(np.int64), wanted.lo, keys.lo)
    within = (at < high) & (low < high)
    safe = np.where(within, at, 0)
    is_found = within & (wanted.hi[safe] == keys.hi) & (wanted.lo[safe] == keys.lo)
    return np.where(is_found, safe, -1)


#: With more runs than this all are searched side by side: most are hashes, each alone, or they are of many sources.
_FEW_RUNS = 64


def _halve(low: Int64s, high: Int64s, words: UInt64s, sought: UInt64s) -> None:
    """Search each of some words between bounds of its own; `low` becomes the first place of one that is no smaller.

    Args:
        low: Where each search begins.
        high: Where it ends; overwritten.
        words: Ascending between any pair of bounds.
        sought: The words.
    """
    while len(open_ones := np.flatnonzero(low < high)):
        middle = (low[open_ones] + high[open_ones]) // 2
        is_below = words[middle] < sought[open_ones]
        low[open_ones[is_below]] = middle[is_below] + 1
        high[open_ones[~is_below]] = middle[~is_below]


def _structured(keys: Keys) -> np.ndarray:
    pairs = np.empty(len(keys), _KEY)
    pairs["hi"], pairs["lo"] = keys.hi, keys.lo
    return pairs


def _whole(rows: Listing) -> np.ndarray:
    whole = np.empty(len(rows), [*_KEY.descr, ("print_hi", "<u8"), ("print_lo", "<u8")])
    whole["hi"], whole["lo"] = rows.keys.hi, rows.keys.lo
    whole["print_hi"], whole["print_lo"] = rows.prints.hi, rows.prints.lo
    return whole


def _sums(number: np.ndarray, prints: Keys, count: int) -> tuple[np.ndarray, np.ndarray]:
    hi, lo = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    np.add.at(hi, number, prints.hi)
    np.add.at(lo, number, prints.lo)
    return hi, lo
