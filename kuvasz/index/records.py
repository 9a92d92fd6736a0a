"""Records of the position index and the loops over them.

A record is three 64-bit words: `hi` and `lo` of the key, and the place, ``file << 32 | position``. A *run* of
records is a C-contiguous array (n, 3), ascending by (hi, lo) as unsigned numbers, each key once. A place in the
file `ABSENT` says that the key has no row, whatever older runs say.

Everything here is a numba kernel that releases the GIL; arrays that go in are read-only, so that each is compiled
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from kuvasz.model import Int32s, Int64s, UInt8s, UInt32s, UInt64s

ABSENT = 0xFFFF_FFFF
WORDS = 3
RECORD_BYTES = 8 * WORDS
BLOCK = 64  #: records per fence
FILTER_BITS = 8  #: per key; with 4 bits set in one word about 1 unknown key in 30 passes
_GROUP = 16  #: keys searched side by side, so that their cache misses overlap

_U1 = np.uint64(1)
_U32 = np.uint64(32)
_U63 = np.uint64(63)


@numba.njit(cache=True, nogil=True)
def pack(hi: UInt64s, lo: UInt64s, file: UInt32s, position: UInt32s, order: Int64s) -> UInt64s:  # pragma: no cover
    """Return the records of n keys in the given order (empty: as they come); `file` has n values or one."""
    records = np.empty((len(hi), 3), np.uint64)
    for row in range(len(hi)):
        source = order[row] if len(order) else row
        records[row, 0] = hi[source]
        records[row, 1] = lo[source]
        number = file[source] if len(file) > 1 else file[0]
        records[row, 2] = np.uint64(number) << _U32 | np.uint64(position[source])
    return records


@numba.njit(cache=True, nogil=True)
def rises(records: UInt64s) -> bool:  # pragma: no cover
    """Tell whether the keys ascend, each once."""
    for row in range(1, len(records)):
        a, b = records[row - 1, 0], records[row, 0]
        if a > b or (a == b and records[row - 1, 1] >= records[row, 1]):
            return False
    return True


@numba.njit(cache=True, nogil=True)
def merge(
    older: UInt64s,
    at_older: int,
    newer: UInt64s,
    at_newer: int,
    out: UInt64s,
    is_oldest: bool,  # noqa: FBT001 - numba takes keywords slowly
) -> tuple[int, int, int]:  # pragma: no cover
    """Merge two runs from where the last call stopped until `out` is full or both are at their end.

    Of a key in both runs the newer record stays. With `is_oldest` nothing stands below the two runs: records of
    absent keys are left out.

    Returns:
        How far the older and the newer run are used, and the number of records in `out`.
    """
    i, j, k = at_older, at_newer, 0
    n, m, size = len(older), len(newer), len(out)
    while i < n and j < m and k < size:
        a_hi, a_lo = older[i, 0], older[i, 1]
        b_hi, b_lo = newer[j, 0], newer[j, 1]
        is_older = a_hi < b_hi or (a_hi == b_hi and a_lo < b_lo)
        place = older[i, 2] if is_older else newer[j, 2]
        out[k, 0] = a_hi if is_older else b_hi
        out[k, 1] = a_lo if is_older else b_lo
        out[k, 2] = place
        j += not is_older
        i += is_older or (a_hi == b_hi and a_lo == b_lo)
        k += not (is_oldest and place >> _U32 == ABSENT)
    while i < n and j == m and k < size:
        out[k, 0], out[k, 1], out[k, 2] = older[i, 0], older[i, 1], older[i, 2]
        k += not (is_oldest and older[i, 2] >> _U32 == ABSENT)
        i += 1
    while j < m and i == n and k < size:
        out[k, 0], out[k, 1], out[k, 2] = newer[j, 0], newer[j, 1], newer[j, 2]
        k += not (is_oldest and newer[j, 2] >> _U32 == ABSENT)
        j += 1
    return i, j, k


@numba.njit(cache=True, nogil=True, inline="always")
def _filter_slot(hi: np.uint64, lo: np.uint64, words: int) -> tuple[np.uint64, np.uint64]:  # pragma: no cover
    """Return a key's word in the filter and the four bits it needs there."""
    mixed = (lo ^ hi) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> _U32
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    word = (mixed >> _U32) * np.uint64(words) >> _U32
    bits = _U1 << (mixed & _U63)
    bits |= _U1 << (mixed >> np.uint64(6) & _U63)
    bits |= _U1 << (mixed >> np.uint64(12) & _U63)
    bits |= _U1 << (mixed >> np.uint64(18) & _U63)
    return word, bits


@numba.njit(cache=True, nogil=True)
def key_filter(records: UInt64s) -> UInt64s:  # pragma: no cover
    """Return a Bloom filter of the keys, blocked by 64-bit words."""
    words = len(records) * FILTER_BITS // 64 + 1
    bloom = np.zeros(words, np.uint64)
    for row in range(len(records)):
        word, bits = _filter_slot(records[row, 0], records[row, 1], words)
        bloom[word] |= bits
    return bloom


@numba.njit(cache=True, nogil=True, inline="always")
def _is_below(records: UInt64s, row: int, hi: np.uint64, lo: np.uint64) -> bool:  # pragma: no cover
    """Tell whether the key of `row` is smaller than the given one."""
    is_below: bool = (records[row, 0] < hi) | ((records[row, 0] == hi) & (records[row, 1] < lo))
    return is_below


@numba.njit(cache=True, nogil=True)
def first_from(records: UInt64s, start: int, hi: np.uint64, lo: np.uint64) -> int:  # pragma: no cover
    """Return the first record from `start` on with a key not below the given one; their number if none is."""
    end = len(records)
    while start < end:
        middle = (start + end) // 2
        if _is_below(records, middle, hi, lo):
            start = middle + 1
        else:
            end = middle
    return start


@numba.njit(cache=True, nogil=True)
def find(  # noqa: C901, PLR0912, PLR0915 - one loop, so that its arrays stay in registers
    records: UInt64s, fences: UInt64s, bloom: UInt64s, hi: UInt64s, lo: UInt64s, pending: Int64s, places: UInt64s
) -> int:  # pragma: no cover
    """Look up the keys numbered in `pending`; write the places found, keep the numbers of the others.

    Args:
        records: A run of at least one record.
        fences: Every `BLOCK`-th key of the run, shape (blocks, 2).
        bloom: Its `key_filter`, or empty.
        hi: First words of the keys sought.
        lo: Second words.
        pending: Numbers of keys; overwritten from its start on by those that are not in the run.
        places: By number of key, written where found.

    Returns:
        How many keys were not found.
    """
    blocks, rows = len(fences), len(records)
    last_hi, last_lo = records[rows - 1, 0], records[rows - 1, 1]
    group = np.empty(_GROUP, np.int64)
    base = np.empty(_GROUP, np.int64)
    guess = np.empty(_GROUP, np.int64)
    is_right = np.empty(_GROUP, np.bool_)
    missed, at = 0, 0
    total = len(pending)
    while at < total:
        # 1. The next keys that the filter and the run's range let pass.
        size = 0
        while at < total and size < _GROUP:
            number = pending[at]
            at += 1
            k_hi, k_lo = hi[number], lo[number]
            is_out = k_hi > last_hi or (k_hi == last_hi and k_lo > last_lo)
            is_out |= k_hi < fences[0, 0] or (k_hi == fences[0, 0] and k_lo < fences[0, 1])
            if not is_out and len(bloom):
                word, bits = _filter_slot(k_hi, k_lo, len(bloom))
                is_out = bloom[word] & bits != bits
            group[size] = number
            base[size] = 0
            pending[missed] = number  # never ahead of `at`
            missed += is_out
            size += not is_out
        # 2. Their blocks: binary search in the fences, one step for all at a time.
        left = blocks
        while left > 1:
            half = left // 2
            for g in range(size):
                middle = base[g] + half
                k_hi, k_lo = hi[group[g]], lo[group[g]]
                f_hi, f_lo = fences[middle, 0], fences[middle, 1]
                base[g] = middle if (f_hi < k_hi) | ((f_hi == k_hi) & (f_lo <= k_lo)) else base[g]
            left -= half
        # 3. Their rows: a guess between the fences (keys are hashes or near a sequence), compared for all first.
        for g in range(size):
            block = base[g]
            width = min(BLOCK, rows - block * BLOCK)
            n_hi, n_lo = (fences[block + 1, 0], fences[block + 1, 1]) if block + 1 < blocks else (last_hi, last_lo)
            f_hi, f_lo = fences[block, 0], fences[block, 1]
            if n_hi != f_hi:
                part, whole = hi[group[g]] - f_hi, n_hi - f_hi
            else:
                part, whole = lo[group[g]] - f_lo, n_lo - f_lo
            offset = np.int64(np.float64(part) / (np.float64(whole) + 1.0) * width)
            guess[g] = block * BLOCK + min(offset, width - 1)
            is_right[g] = _is_below(records, guess[g], hi[group[g]], lo[group[g]])
        # 4. A walk from the guess, at worst over the block.
        for g in range(size):
            number, row, start = group[g], guess[g], base[g] * BLOCK
            k_hi, k_lo = hi[number], lo[number]
            if is_right[g]:
                stop = min(start + BLOCK, rows) - 1
                while row < stop and _is_below(records, row, k_hi, k_lo):
                    row += 1
            else:
                while row > start and not _is_below(records, row - 1, k_hi, k_lo):
                    row -= 1
            if records[row, 0] == k_hi and records[row, 1] == k_lo:
                places[number] = records[row, 2]
            else:
                pending[missed] = number
                missed += 1
    return missed


@numba.njit(cache=True, nogil=True)
def checksum(records: UInt64s, state: UInt64s) -> None:  # pragma: no cover
    """Take records into the three words of `state` (zeros at first), whatever slices they come in."""
    a, b, c = state[0], state[1], state[2]
    for row in range(len(records)):
        a = (a ^ records[row, 0]) * np.uint64(0x9E3779B97F4A7C15)
        a ^= a >> _U32
        b = (b ^ records[row, 1]) * np.uint64(0xC2B2AE3D27D4EB4F)
        b ^= b >> _U32
        c = (c ^ records[row, 2]) * np.uint64(0x165667B19E3779F9) + np.uint64(1)
        c ^= c >> _U32
    state[0], state[1], state[2] = a, b, c


@numba.njit(cache=True, nogil=True, inline="always")
def _file_slot(files: UInt32s, file: np.uint64) -> int:  # pragma: no cover
    """Return the index of `file` in the ascending `files`, or -1."""
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        if files[middle] < file:
            low = middle + 1
        else:
            high = middle
    return low if low < len(files) and files[low] == file else -1


@numba.njit(cache=True, nogil=True)
def move(
    records: UInt64s, files: UInt32s, targets: UInt32s, starts: Int64s, positions: Int32s
) -> int:  # pragma: no cover
    """Give the records of moved files their new places, in place.

    Args:
        records: Any records.
        files: Old file numbers, ascending.
        targets: New file number of each.
        starts: Where each one's positions start; one entry more at the end.
        positions: New position per old position, file after file; negative where the row was dropped.

    Returns:
        The number of records changed. Rows dropped or beyond their file's positions become absent.
    """
    changed, last, slot = 0, np.uint64(ABSENT), -1
    for row in range(len(records)):
        file = records[row, 2] >> _U32
        if file != last:
            slot, last = _file_slot(files, file), file
        if slot < 0 or file == ABSENT:
            continue
        at = starts[slot] + np.int64(records[row, 2] & np.uint64(0xFFFFFFFF))
        if at < starts[slot + 1] and positions[at] >= 0:
            records[row, 2] = np.uint64(targets[slot]) << _U32 | np.uint64(positions[at])
        else:
            records[row, 2] = np.uint64(ABSENT) << _U32
        changed += 1
    return changed


@numba.njit(cache=True, nogil=True)
def bury(records: UInt64s, files: UInt32s, starts: Int64s, bits: UInt8s) -> int:  # pragma: no cover
    """Make the records of dead rows absent, in place; return their number.

    Args:
        records: Any records.
        files: File numbers with dead rows, ascending.
        starts: First byte of each one's bits; one entry more at the end.
        bits: One bit per row, 1 where dead, lowest bit first; rows beyond are alive.
    """
    changed, last, slot = 0, np.uint64(ABSENT), -1
    for row in range(len(records)):
        file = records[row, 2] >> _U32
        if file != last:
            slot, last = _file_slot(files, file), file
        if slot < 0 or file == ABSENT:
            continue
        position = np.int64(records[row, 2] & np.uint64(0xFFFFFFFF))
        at = starts[slot] + (position >> 3)
        if at < starts[slot + 1] and bits[at] >> np.uint8(position & 7) & 1:
            records[row, 2] = np.uint64(ABSENT) << _U32
            changed += 1
    return changed
