"""SipHash-1-3-128 of many rows at once, one column after another.

A row's state is five words: v0 to v3 and the number of bytes taken so far. Each column adds a header word and then
whole words; see `kuvasz.fold.keys` for the message and `kuvasz.fold.siphash` for the plain twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from kuvasz.model import Int64s, UInt8s, UInt64s

PRESENT = 1 << 56  #: in the header of a value that is not NULL


@numba.njit(cache=True, nogil=True, inline="always")
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:  # pragma: no cover
    v0 += v1
    v1 = (v1 << np.uint64(13) | v1 >> np.uint64(51)) ^ v0
    v0 = v0 << np.uint64(32) | v0 >> np.uint64(32)
    v2 += v3
    v3 = (v3 << np.uint64(16) | v3 >> np.uint64(48)) ^ v2
    v0 += v3
    v3 = (v3 << np.uint64(21) | v3 >> np.uint64(43)) ^ v0
    v2 += v1
    v1 = (v1 << np.uint64(17) | v1 >> np.uint64(47)) ^ v2
    v2 = v2 << np.uint64(32) | v2 >> np.uint64(32)
    return v0, v1, v2, v3


@numba.njit(cache=True, nogil=True)
def absorb_words(state: UInt64s, words: UInt64s, header: np.uint64, valid: UInt8s) -> None:  # pragma: no cover
    """Take the header and `words` (n, w) of one column; only a zero where `valid` is given and 0."""
    for row in range(len(state)):
        is_valid = len(valid) == 0 or valid[row] != 0
        v0, v1, v2, v3 = state[row, 0], state[row, 1], state[row, 2], state[row, 3]
        head = header if is_valid else np.uint64(0)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ head)
        v0 ^= head
        total = np.uint64(8)
        if is_valid:
            for at in range(words.shape[1]):
                word = words[row, at]
                v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
                v0 ^= word
                total += np.uint64(8)
        state[row, 0], state[row, 1], state[row, 2], state[row, 3] = v0, v1, v2, v3
        state[row, 4] += total


@numba.njit(cache=True, nogil=True)
def absorb_bytes(state: UInt64s, data: UInt8s, offsets: Int64s, valid: UInt8s) -> None:  # pragma: no cover
    """Take the header and bytes of one column; only a zero where `valid` is given and 0."""
    for row in range(len(state)):
        is_valid = len(valid) == 0 or valid[row] != 0
        start = np.uint64(offsets[row])
        size = np.uint64(offsets[row + 1]) - start if is_valid else np.uint64(0)
        v0, v1, v2, v3 = state[row, 0], state[row, 1], state[row, 2], state[row, 3]
        head = np.uint64(PRESENT) | size if is_valid else np.uint64(0)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ head)
        v0 ^= head
        stop = start + (size & ~np.uint64(7))
        at = start
        while at < stop:
            word = (
                np.uint64(data[at])
                | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
                | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
                | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
                | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
                | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
                | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
                | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
            )
            v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
            v0 ^= word
            at += np.uint64(8)
        total = np.uint64(8) + (size & ~np.uint64(7))
        if size & np.uint64(7):
            word = np.uint64(0)
            shift = np.uint64(0)
            while at < start + size:
                word |= np.uint64(data[at]) << shift
                shift += np.uint64(8)
                at += np.uint64(1)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
            v0 ^= word
            total += np.uint64(8)
        state[row, 0], state[row, 1], state[row, 2], state[row, 3] = v0, v1, v2, v3
        state[row, 4] += total


@numba.njit(cache=True, nogil=True)
def finish(state: UInt64s, hi: UInt64s, lo: UInt64s) -> None:  # pragma: no cover
    """Take the length word and give the two words of the hash."""
    for row in range(len(state)):
        v0, v1, v2, v3 = state[row, 0], state[row, 1], state[row, 2], state[row, 3]
        word = state[row, 4] << np.uint64(56)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0 ^= word
        v2 ^= np.uint64(0xEE)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        hi[row] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        lo[row] = v0 ^ v1 ^ v2 ^ v3
