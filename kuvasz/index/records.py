"""Records of the position index and the loops over them.

A record is two 64-bit words: the 96 lower bits of a key, and in the lower half of the second word a *code* of 32
bits for the place of its row, which the extents of the run translate (`kuvasz.index.extents`). A *run* of records is
a C-contiguous array (n, 2), ascending by the bits of the key as an unsigned number, each key once. The code `ABSENT`
says that the key has no row, whatever older runs say.

A *place* is ``file << 32 | position``, and `NOWHERE` is none.

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
NOWHERE = 0xFFFF_FFFF_FFFF_FFFF
WORDS = 2
RECORD_BYTES = 8 * WORDS
BLOCK = 64  #: records per fence
FILTER_BITS = 8  #: per key; with 4 bits set in one word about 1 unknown key in 30 passes
_GROUP = 16  #: keys searched side by side, so that their cache misses overlap

_U1 = np.uint64(1)
_U32 = np.uint64(32)
_U63 = np.uint64(63)
_CODE = np.uint64(ABSENT)  #: the bits of a record's second word that are no key
_NOWHERE = np.uint64(NOWHERE)


@numba.njit(cache=True, nogil=True, inline="always")
def _words(hi: np.uint64, lo: np.uint64) -> tuple[np.uint64, np.uint64]:  # pragma: no cover
    """Return the two words that the record of a key has, without a code."""
    return hi << _U32 | lo >> _U32, lo << _U32


@numba.njit(cache=True, nogil=True)
def pack(hi: UInt64s, lo: UInt64s, codes: UInt32s, order: Int64s) -> UInt64s:  # pragma: no cover
    """Return the records of n keys in the given order (empty: as they come)."""
    records = np.empty((len(hi), 2), np.uint64)
    for row in range(len(hi)):
        source = order[row] if len(order) else row
        first, second = _words(hi[source], lo[source])
        records[row, 0] = first
        records[row, 1] = second | np.uint64(codes[source])
    return records


@numba.njit(cache=True, nogil=True)
def rises(records: UInt64s) -> bool:  # pragma: no cover
    """Tell whether the keys ascend, each once."""
    for row in range(1, len(records)):
        a, b = records[row - 1, 0], records[row, 0]
        if a > b or (a == b and records[row - 1, 1] >> _U32 >= records[row, 1] >> _U32):
            return False
    return True


@numba.njit(cache=True, nogil=True)
def top(records: UInt64s) -> int:  # pragma: no cover
    """Return the first code above those of all records; absent keys do not count."""
    highest = np.int64(-1)
    for row in range(len(records)):
        code = records[row, 1] & _CODE
        highest = max(highest, np.int64(code) if code != _CODE else np.int64(-1))
    return int(highest) + 1


@numba.njit(cache=True, nogil=True)
def merge(
    older: UInt64s,
    at_older: int,
    newer: UInt64s,
    at_newer: int,
    out: UInt64s,
    shift: np.uint64,
    is_oldest: bool,  # noqa: FBT001 - numba takes keywords slowly
) -> tuple[int, int, int]:  # pragma: no cover
    """Merge two runs from where the last call stopped until `out` is full or both are at their end.

    Of a key in both runs the newer record stays. With `is_oldest` nothing stands below the two runs: records of
    absent keys are left out. To the codes of newer records `shift` is added, and none is beyond 32 bits then.

    Returns:
        How far the older and the newer run are used, and the number of records in `out`.
    """
    i, j, k = at_older, at_newer, 0
    n, m, size = len(older), len(newer), len(out)
    while i < n and j < m and k < size:
        a, b = older[i, 0], newer[j, 0]
        a_rest, b_rest = older[i, 1], newer[j, 1]
        is_older = a < b or (a == b and a_rest >> _U32 < b_rest >> _U32)
        is_same = a == b and a_rest >> _U32 == b_rest >> _U32
        rest = a_rest if is_older else b_rest
        is_there = rest & _CODE != _CODE
        out[k, 0] = a if is_older else b
        out[k, 1] = rest + (np.uint64(0) if is_older or not is_there else shift)
        j += not is_older
        i += is_older or is_same
        k += is_there or not is_oldest
    while i < n and j == m and k < size:
        out[k, 0], out[k, 1] = older[i, 0], older[i, 1]
        k += not (is_oldest and older[i, 1] & _CODE == _CODE)
        i += 1
    while j < m and i == n and k < size:
        is_there = newer[j, 1] & _CODE != _CODE
        out[k, 0], out[k, 1] = newer[j, 0], newer[j, 1] + (shift if is_there else np.uint64(0))
        k += is_there or not is_oldest
        j += 1
    return i, j, k


@numba.njit(cache=True, nogil=True, inline="always")
def _filter_slot(first: np.uint64, second: np.uint64, words: int) -> tuple[np.uint64, np.uint64]:  # pragma: no cover
    """Return the word in the filter and the four bits in it of a key that has these two words, without a code."""
    mixed = (first ^ second) * np.uint64(0x9E3779B97F4A7C15)
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
        word, bits = _filter_slot(records[row, 0], records[row, 1] & ~_CODE, words)
        bloom[word] |= bits
    return bloom


@numba.njit(cache=True, nogil=True)
def fences(records: UInt64s) -> UInt64s:  # pragma: no cover
    """Return every `BLOCK`-th key, without its code."""
    found = np.empty(((len(records) + BLOCK - 1) // BLOCK, 2), np.uint64)
    for block in range(len(found)):
        found[block, 0] = records[block * BLOCK, 0]
        found[block, 1] = records[block * BLOCK, 1] & ~_CODE
    return found


@numba.njit(cache=True, nogil=True, inline="always")
def _is_below(records: UInt64s, row: int, first: np.uint64, second: np.uint64) -> bool:  # pragma: no cover
    """Tell whether the key of `row` is smaller than one that has these words, without a code."""
    is_below: bool = (records[row, 0] < first) | ((records[row, 0] == first) & (records[row, 1] < second))
    return is_below


@numba.njit(cache=True, nogil=True)
def first_from(records: UInt64s, start: int, first: np.uint64, second: np.uint64) -> int:  # pragma: no cover
    """Return the first record from `start` on with a key not below that of two words; their number if none is."""
    end = len(records)
    while start < end:
        middle = (start + end) // 2
        if _is_below(records, middle, first, second):
            start = middle + 1
        else:
            end = middle
    return start


@numba.njit(cache=True, nogil=True, inline="always")
def _extent_of(bounds: UInt64s, word: int, value: np.uint64) -> int:  # pragma: no cover
    """Return the last of ascending extents of which the given word is not above `value`; the first if all are."""
    base, left = 0, len(bounds) - 1
    while left > 1:
        half = left // 2
        base = base + half if bounds[base + half, word] <= value else base
        left -= half
    return base


@numba.njit(cache=True, nogil=True, inline="always")
def _place_of(bounds: UInt64s, code: np.uint64) -> np.uint64:  # pragma: no cover
    """Return the place that a code stands for."""
    if code == _CODE:
        return _NOWHERE
    extent = _extent_of(bounds, 1, code)
    place: np.uint64 = bounds[extent, 0] + (code - bounds[extent, 1])
    return place


@numba.njit(cache=True, nogil=True)
def find(  # noqa: C901, PLR0912, PLR0915 - one loop, so that its arrays stay in registers
    records: UInt64s,
    fences: UInt64s,
    bloom: UInt64s,
    bounds: UInt64s,
    hi: UInt64s,
    lo: UInt64s,
    pending: Int64s,
    places: UInt64s,
) -> int:  # pragma: no cover
    """Look up the keys numbered in `pending`; write the places found, keep the numbers of the others.

    Args:
        records: A run of at least one record.
        fences: Its `fences`.
        bloom: Its `key_filter`, or empty.
        bounds: The bounds of its extents.
        hi: Upper words of the keys sought.
        lo: Lower words.
        pending: Numbers of keys; overwritten from its start on by those that are not in the run.
        places: By number of key, written where found: `NOWHERE` if the key is absent.

    Returns:
        How many keys were not found.
    """
    blocks, rows = len(fences), len(records)
    last_a, last_b = records[rows - 1, 0], records[rows - 1, 1] & ~_CODE
    group = np.empty(_GROUP, np.int64)
    first = np.empty(_GROUP, np.uint64)
    second = np.empty(_GROUP, np.uint64)
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
            a, b = _words(hi[number], lo[number])
            is_out = a > last_a or (a == last_a and b > last_b)
            is_out |= a < fences[0, 0] or (a == fences[0, 0] and b < fences[0, 1])
            if not is_out and len(bloom):
                word, bits = _filter_slot(a, b, len(bloom))
                is_out = bloom[word] & bits != bits
            group[size], first[size], second[size] = number, a, b
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
                a, b = first[g], second[g]
                f_a, f_b = fences[middle, 0], fences[middle, 1]
                base[g] = middle if (f_a < a) | ((f_a == a) & (f_b <= b)) else base[g]
            left -= half
        # 3. Their rows: a guess between the fences (keys are hashes or near a sequence), compared for all first.
        for g in range(size):
            block = base[g]
            width = min(BLOCK, rows - block * BLOCK)
            n_a, n_b = (fences[block + 1, 0], fences[block + 1, 1]) if block + 1 < blocks else (last_a, last_b)
            f_a, f_b = fences[block, 0], fences[block, 1]
            if n_a != f_a:
                part, whole = first[g] - f_a, n_a - f_a
            else:
                part, whole = second[g] - f_b, n_b - f_b
            offset = np.int64(np.float64(part) / (np.float64(whole) + 1.0) * width)
            guess[g] = block * BLOCK + min(offset, width - 1)
            is_right[g] = _is_below(records, guess[g], first[g], second[g])
        # 4. A walk from the guess, at worst over the block.
        for g in range(size):
            number, row, start = group[g], guess[g], base[g] * BLOCK
            a, b = first[g], second[g]
            if is_right[g]:
                stop = min(start + BLOCK, rows) - 1
                while row < stop and _is_below(records, row, a, b):
                    row += 1
            else:
                while row > start and not _is_below(records, row - 1, a, b):
                    row -= 1
            rest = records[row, 1]
            if records[row, 0] == a and rest & ~_CODE == b:
                places[number] = _place_of(bounds, rest & _CODE)
            else:
                pending[missed] = number
                missed += 1
    return missed


@numba.njit(cache=True, nogil=True)
def places_of(records: UInt64s, bounds: UInt64s) -> UInt64s:  # pragma: no cover
    """Return the place of each record, `NOWHERE` for absent keys, by the bounds of their extents."""
    places = np.empty(len(records), np.uint64)
    for row in range(len(records)):
        places[row] = _place_of(bounds, records[row, 1] & _CODE)
    return places


@numba.njit(cache=True, nogil=True)
def codes_of(places: UInt64s, bounds: UInt64s) -> UInt32s:  # pragma: no cover
    """Return the code of each place by the bounds of extents with ascending places; `ABSENT` where none has it."""
    codes = np.empty(len(places), np.uint32)
    low = high = start = np.uint64(0)
    for row in range(len(places)):
        place = places[row]
        if place < low or place >= high:
            extent = _extent_of(bounds, 0, place)
            low, start = bounds[extent, 0], bounds[extent, 1]
            high = low if len(bounds) == 1 else low + (bounds[extent + 1, 1] - start)
        is_in = place >= low and place < high
        codes[row] = np.uint32(start + (place - low)) if is_in else np.uint32(ABSENT)
    return codes


@numba.njit(cache=True, nogil=True)
def with_codes(records: UInt64s, codes: UInt32s) -> UInt64s:  # pragma: no cover
    """Return records of the same keys with other codes."""
    found = np.empty_like(records)
    for row in range(len(records)):
        found[row, 0] = records[row, 0]
        found[row, 1] = records[row, 1] & ~_CODE | np.uint64(codes[row])
    return found


@numba.njit(cache=True, nogil=True)
def checksum(records: UInt64s, state: UInt64s) -> None:  # pragma: no cover
    """Take records into the two words of `state` (zeros at first), whatever slices they come in."""
    a, b = state[0], state[1]
    for row in range(len(records)):
        a = (a ^ records[row, 0]) * np.uint64(0x9E3779B97F4A7C15)
        a ^= a >> _U32
        b = (b ^ records[row, 1]) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(1)
        b ^= b >> _U32
    state[0], state[1] = a, b


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
    places: UInt64s, files: UInt32s, targets: UInt32s, starts: Int64s, positions: Int32s
) -> None:  # pragma: no cover
    """Give rows of moved files their new places, in place. Rows dropped or beyond their file's positions have none.

    Args:
        places: Any places.
        files: Old file numbers, ascending.
        targets: New file number of each.
        starts: Where each one's positions start; one entry more at the end.
        positions: New position per old position, file after file; negative where the row was dropped.
    """
    last, slot = np.uint64(ABSENT), -1
    for row in range(len(places)):
        file = places[row] >> _U32
        if file != last:
            slot, last = _file_slot(files, file), file
        if slot < 0 or file == ABSENT:
            continue
        at = starts[slot] + np.int64(places[row] & np.uint64(0xFFFFFFFF))
        if at < starts[slot + 1] and positions[at] >= 0:
            places[row] = np.uint64(targets[slot]) << _U32 | np.uint64(positions[at])
        else:
            places[row] = _NOWHERE


@numba.njit(cache=True, nogil=True)
def bury(places: UInt64s, files: UInt32s, starts: Int64s, bits: UInt8s) -> None:  # pragma: no cover
    """Take their places from dead rows, in place.

    Args:
        places: Any places.
        files: File numbers with dead rows, ascending.
        starts: First byte of each one's bits; one entry more at the end.
        bits: One bit per row, 1 where dead, lowest bit first; rows beyond are alive.
    """
    last, slot = np.uint64(ABSENT), -1
    for row in range(len(places)):
        file = places[row] >> _U32
        if file != last:
            slot, last = _file_slot(files, file), file
        if slot < 0 or file == ABSENT:
            continue
        position = np.int64(places[row] & np.uint64(0xFFFFFFFF))
        at = starts[slot] + (position >> 3)
        if at < starts[slot + 1] and bits[at] >> np.uint8(position & 7) & 1:
            places[row] = _NOWHERE
