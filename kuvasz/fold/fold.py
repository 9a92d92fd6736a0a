"""The fold of one chunk: of several operations on a key the last one counts.

Enters: the operations of a chunk in stream order with the keys of their new and old tuples. Leaves: the rows to
write, each key touched once, and for every UPDATE where its earlier version stands (unchanged TOAST values and
history need it).

    I         the row takes its key
    U         without an old key, or with an equal one: the row takes its key from its earlier version
    U, moved  the old key is given up, the row takes the new one; its earlier version stood under the old key
    D         the old key is given up
"""

from __future__ import annotations

import dataclasses

import numba
import numpy as np
import numpy.typing as npt

from kuvasz.errors import InternalError
from kuvasz.fold.keys import Keys, frozen
from kuvasz.model import Int32s, Int64s, UInt8s, UInt64s

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_UNTOUCHED, _GONE = -1, -2  #: of a key's holder, else the row of the chunk that holds it
_BAD_TAG, _NO_OLD = 1, 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What remains of a chunk of n rows that touches k keys."""

    keep: Int32s  #: rows to be written, ascending
    keys: Keys  #: the k keys touched, in the order of their first touch
    written: (
        Int32s  #: per key: index into `keep`, which is the row's position in the file; -1 if the key ends deleted
    )
    previous: Int32s  #: per row: the row of the chunk that held an UPDATE's earlier version, else -1
    root: Int32s  #: per row: index into `keys` of the key under which the lake holds an UPDATE's earliest version
    taken: Int32s  #: per row: index into `keys` of the key it has from then on; -1 for D
    given_up: Int32s  #: per row: index into `keys` of the key that nobody has from then on; -1 if there is none
    gone_by: Int32s  #: per key that ends deleted: the row that gave it up; -1 for others
    gone_from: Int32s  #: per such key: the row of the chunk that had it then; -1: the lake alone knows it


def fold(tag: UInt8s, new: Keys, old: Keys, old_row: Int32s) -> Folded:
    """Return what remains of a chunk.

    Args:
        tag: n operations: ``I``, ``U`` or ``D`` as ASCII.
        new: n keys of the new tuples; those of D rows are not looked at.
        old: m keys of the old tuples.
        old_row: n indices into `old`, -1 where the row carries no old tuple; never -1 for D.

    Raises:
        InternalError: The lengths differ, a tag is none of the three, or a D has no old tuple.
    """
    count = len(tag)
    if len(new) != count or len(old_row) != count:
        raise InternalError(
            f"a chunk of {count} tags with {len(new)} keys and {len(old_row)} old rows cannot be folded"
        )
    tags = frozen(np.asarray(tag, np.uint8))
    old_rows = frozen(np.asarray(old_row, np.int32))
    found, taken, given_up, fault, row = _number(tags, _pairs(new), _pairs(old), old_rows)
    if fault:
        what = f"tag {tag[row]}" if fault == _BAD_TAG else f"old tuple {old_row[row]} of {len(old)}"
        raise InternalError(f"row {row} of the chunk cannot be folded: {what}")
    keep, written, previous, root, gone_by, gone_from = _fold(tags, len(found), taken, given_up)
    keys = Keys(hi=found[:, 0].copy(), lo=found[:, 1].copy())
    return Folded(
        keep=keep, keys=keys, written=written, previous=previous, root=root, taken=taken, given_up=given_up,
        gone_by=gone_by, gone_from=gone_from,
    )  # fmt: skip


def duplicates(keys: Keys) -> Int32s:
    """Return the rows whose key occurred in an earlier row, ascending."""
    return _duplicates(_pairs(keys))


def newest(keys: Keys) -> npt.NDArray[np.bool_]:
    """Return which rows are the last ones of their keys."""
    is_newest = np.ones(len(keys), np.bool_)
    backwards = Keys(hi=np.ascontiguousarray(keys.hi[::-1]), lo=np.ascontiguousarray(keys.lo[::-1]))
    is_newest[len(keys) - 1 - duplicates(backwards)] = False
    return is_newest


def _pairs(keys: Keys) -> UInt64s:
    """Return keys side by side, shape (n, 2): one cache line per key in random access."""
    pairs = np.empty((len(keys), 2), np.uint64)
    pairs[:, 0] = keys.hi
    pairs[:, 1] = keys.lo
    return frozen(pairs)


# --- Kernels


@numba.njit(cache=True, nogil=True, inline="always")
def _spread(hi: np.uint64, lo: np.uint64) -> np.uint64:  # pragma: no cover
    """Return 64 well mixed bits of a key.

    Integer keys come unhashed, and an enemy may choose them; but `hi` is then a secret of the table (half of a keyed
    hash), so it serves as offset and as odd factor.
    """
    mixed = (lo ^ hi) * (hi | np.uint64(1))
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ mixed >> np.uint64(32)


@numba.njit(cache=True, nogil=True)
def _find_or_add(hi: np.uint64, lo: np.uint64, slots: Int64s, found: UInt64s, count: int) -> int:  # pragma: no cover
    """Return the number of a key; `count` if it is new and was added to `found` as that number.

    A slot holds 0 or (31 bits of the key's hash, number + 1): other keys are told apart without looking at them.
    """
    mask = np.uint64(len(slots) - 1)
    mixed = _spread(hi, lo)
    at = mixed & mask
    print_ = np.int64(mixed >> np.uint64(33)) << 32
    while True:
        slot = slots[at]
        if slot == 0:
            slots[at] = print_ | (count + 1)
            found[count, 0] = hi
            found[count, 1] = lo
            return count
        if slot >> 32 << 32 == print_:
            number: int = (slot & 0xFFFFFFFF) - 1
            if found[number, 0] == hi and found[number, 1] == lo:
                return number
        at = (at + np.uint64(1)) & mask


@numba.njit(cache=True, nogil=True)
def _empty_slots(keys: int) -> Int64s:  # pragma: no cover
    """Return the slots of a hash map that will be at most half full."""
    size = 16
    while size < 2 * keys:
        size *= 2
    return np.zeros(size, np.int64)


@numba.njit(cache=True, nogil=True)
def _duplicates(keys: UInt64s) -> Int32s:  # pragma: no cover
    slots, found = _empty_slots(len(keys)), np.empty((len(keys), 2), np.uint64)
    rows = np.empty(len(keys), np.int32)
    count, repeated = 0, 0
    for row in range(len(keys)):
        if _find_or_add(keys[row, 0], keys[row, 1], slots, found, count) == count:
            count += 1
        else:
            rows[repeated] = row
            repeated += 1
    return rows[:repeated].copy()


_Numbered = tuple[UInt64s, Int32s, Int32s, int, int]
_Linked = tuple[Int32s, Int32s, Int32s, Int32s, Int32s, Int32s]


@numba.njit(cache=True, nogil=True)
def _number(tag: UInt8s, new: UInt64s, old: UInt64s, old_row: Int32s) -> _Numbered:  # pragma: no cover
    """Number the keys in the order of their first touch.

    Returns:
        The keys; per row the number of the key it takes (-1 for D) and of the key it gives up (-1: none); and a
        fault (0: none) with its row.
    """
    count, touched = len(tag), 0
    slots = _empty_slots(count + len(old))
    found = np.empty((count + len(old), 2), np.uint64)
    taken, given_up = np.empty(count, np.int32), np.full(count, -1, np.int32)
    for row in range(count):
        kind, at = tag[row], old_row[row]
        is_delete = kind == _DELETE
        if at >= len(old) or (is_delete and at < 0):
            return found, taken, given_up, _NO_OLD, row
        if kind != _INSERT and kind != _UPDATE and not is_delete:
            return found, taken, given_up, _BAD_TAG, row
        if kind == _UPDATE and at >= 0 and (old[at, 0] != new[row, 0] or old[at, 1] != new[row, 1]):
            key = _find_or_add(old[at, 0], old[at, 1], slots, found, touched)
            touched += key == touched
            given_up[row] = key
        # One look-up for all kinds: a branch on the kind would be guessed wrong every other time.
        hi, lo = (old[at, 0], old[at, 1]) if is_delete else (new[row, 0], new[row, 1])
        key = _find_or_add(hi, lo, slots, found, touched)
        touched += key == touched
        taken[row] = -1 if is_delete else key
        given_up[row] = key if is_delete else given_up[row]
    return found[:touched].copy(), taken, given_up, 0, 0


@numba.njit(cache=True, nogil=True)
def _fold(tag: UInt8s, keys: int, taken: Int32s, given_up: Int32s) -> _Linked:  # pragma: no cover
    """Return keep, written, previous, root, gone_by and gone_from of numbered keys."""
    count = len(tag)
    holder = np.full(keys, _UNTOUCHED, np.int32)
    gone_by, gone_from = np.full(keys, -1, np.int32), np.full(keys, -1, np.int32)
    previous, root = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    for row in range(count):
        source = taken[row] if given_up[row] < 0 else given_up[row]
        before = holder[source]
        is_update = tag[row] == _UPDATE
        if given_up[row] >= 0 and before != _GONE:
            gone_by[source], gone_from[source] = row, max(before, -1)
        holder[source] = _GONE
        if taken[row] >= 0:
            holder[taken[row]] = row
        previous[row] = before if is_update and before >= 0 else -1
        if is_update:
            root[row] = root[before] if before >= 0 else source if before == _UNTOUCHED else -1
    rank = np.zeros(count, np.int32)
    for key in range(keys):
        if holder[key] >= 0:
            rank[holder[key]] = 1
            gone_by[key] = gone_from[key] = -1
    keep = np.empty(count, np.int32)
    kept = 0
    for row in range(count):
        keep[kept] = row  # overwritten by the next row if this one is not kept
        is_kept = rank[row]
        rank[row] = kept
        kept += is_kept
    written = np.full(keys, -1, np.int32)
    for key in range(keys):
        if holder[key] >= 0:
            written[key] = rank[holder[key]]
    return keep[:kept].copy(), written, previous, root, gone_by, gone_from
