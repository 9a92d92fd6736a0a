"""Iceberg's 32-bit hash of whole columns: Murmur3, x86 variant, seed 0 (Iceberg spec, appendix B).

NumPy in and out, compiled at installation. Pure; runs on executors.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from kuvasz.model import Int32s, Int64s, UInt8s


@numba.njit(cache=True, nogil=True)
def _mix(state: np.uint32, word: np.uint32) -> np.uint32:
    word = np.uint32(word * np.uint32(0xCC9E2D51))
    word = np.uint32((word << np.uint32(15)) | (word >> np.uint32(17)))
    state = np.uint32(state ^ np.uint32(word * np.uint32(0x1B873593)))
    state = np.uint32((state << np.uint32(13)) | (state >> np.uint32(19)))
    return np.uint32(state * np.uint32(5) + np.uint32(0xE6546B64))


@numba.njit(cache=True, nogil=True)
def _finish(state: np.uint32, size: int) -> np.int32:
    state = np.uint32(state ^ np.uint32(size))
    state = np.uint32((state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    state = np.uint32((state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.int32(np.uint32(state ^ (state >> np.uint32(16))))


@numba.njit(cache=True, nogil=True)
def _murmur(data: UInt8s, begin: int, end: int) -> np.int32:
    state = np.uint32(0)
    at = begin
    while at + 4 <= end:
        word = np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
        word |= np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24)
        state = _mix(state, np.uint32(word))
        at += 4
    if at < end:
        word = np.uint32(0)
        for place in range(end - at):
            word |= np.uint32(data[at + place]) << np.uint32(8 * place)
        word = np.uint32(np.uint32(word) * np.uint32(0xCC9E2D51))
        word = np.uint32((word << np.uint32(15)) | (word >> np.uint32(17)))
        state = np.uint32(state ^ np.uint32(word * np.uint32(0x1B873593)))
    return _finish(state, end - begin)


@numba.njit(cache=True, nogil=True)
def of_longs(values: Int64s) -> Int32s:
    """Hash integers, days and microseconds, each as 8 bytes, little-endian."""
    found = np.empty(len(values), np.int32)
    for row in range(len(values)):
        value = np.uint64(values[row])
        state = _mix(np.uint32(0), np.uint32(value & np.uint64(0xFFFFFFFF)))
        found[row] = _finish(_mix(state, np.uint32(value >> np.uint64(32))), 8)
    return found


@numba.njit(cache=True, nogil=True)
def of_texts(data: UInt8s, ends: Int64s) -> Int32s:
    """Hash the values between each end and the next, of which there is one more than values."""
    found = np.empty(len(ends) - 1, np.int32)
    for row in range(len(found)):
        found[row] = _murmur(data, ends[row], ends[row + 1])
    return found


@numba.njit(cache=True, nogil=True)
def of_rows(rows: np.ndarray[Any, Any]) -> Int32s:
    """Hash rows of 16 bytes."""
    found = np.empty(len(rows), np.int32)
    for row in range(len(rows)):
        found[row] = _murmur(rows[row], 0, 16)
    return found


@numba.njit(cache=True, nogil=True)
def of_decimals(rows: np.ndarray[Any, Any]) -> Int32s:
    """Hash the fewest big-endian bytes of two's complement that hold each unscaled value, of 16 little-endian."""
    found = np.empty(len(rows), np.int32)
    turned = np.empty(16, np.uint8)
    for row in range(len(rows)):
        for place in range(16):
            turned[place] = rows[row, 15 - place]
        begin = 0
        filling = np.uint8(255) if turned[0] >= 128 else np.uint8(0)
        while begin < 15 and turned[begin] == filling and (turned[begin + 1] >= 128) == (filling == 255):
            begin += 1
        found[row] = _murmur(turned, begin, 16)
    return found


__all__ = ["of_decimals", "of_longs", "of_rows", "of_texts"]
