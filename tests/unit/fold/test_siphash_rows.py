from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.fold import siphash, siphash_rows
from kuvasz.fold.keys import frozen

SEED = bytes(range(16))
NONE = frozen(np.empty(0, np.uint8))


def begun(rows: int) -> np.ndarray:
    """Return the state of rows of which nothing was taken: the start of SipHash's paper, for 128 bits."""
    k0, k1 = struct.unpack("<2Q", SEED)
    words = (0x736F6D6570736575 ^ k0, 0x646F72616E646F6D ^ k1 ^ 0xEE, 0x6C7967656E657261 ^ k0,
             0x7465646279746573 ^ k1, 0)  # fmt: skip
    return np.tile(np.array(words, np.uint64), (rows, 1))


def finished(state: np.ndarray) -> list[tuple[int, int]]:
    hi, lo = np.empty(len(state), np.uint64), np.empty(len(state), np.uint64)
    siphash_rows.finish(state, hi, lo)
    return list(zip(hi.tolist(), lo.tolist(), strict=True))


@settings(deadline=None)  # the first example compiles
@given(values=st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=6))
def test_bytes_are_hashed_as_one_message_of_a_header_and_whole_words(values: list[bytes | None]) -> None:
    data = b"".join(value or b"" for value in values) + b"."
    offsets = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int64)
    valid = np.array([value is not None for value in values], np.uint8)
    state = begun(len(values))
    siphash_rows.absorb_bytes(state, np.frombuffer(data, np.uint8), frozen(offsets), frozen(valid))
    messages = [
        bytes(8)
        if value is None
        else struct.pack("<Q", siphash_rows.PRESENT | len(value)) + value + bytes(-len(value) % 8)
        for value in values
    ]
    assert finished(state) == [siphash.hash128(SEED, message) for message in messages]


@settings(deadline=None)
@given(values=st.lists(st.none() | st.integers(0, (1 << 64) - 1), min_size=1, max_size=6))
def test_words_are_hashed_as_their_bytes(values: list[int | None]) -> None:
    words = np.array([[value or 0] for value in values], np.uint64)
    valid = np.array([value is not None for value in values], np.uint8)
    header = siphash_rows.PRESENT | 8
    state = begun(len(values))
    siphash_rows.absorb_words(state, frozen(words), np.uint64(header), frozen(valid))
    messages = [bytes(8) if value is None else struct.pack("<2Q", header, value) for value in values]
    assert finished(state) == [siphash.hash128(SEED, message) for message in messages]


def test_without_a_mask_every_value_is_there() -> None:
    words = frozen(np.array([[7]], np.uint64))
    masked, plain = begun(1), begun(1)
    header = np.uint64(siphash_rows.PRESENT)
    siphash_rows.absorb_words(masked, words, header, frozen(np.ones(1, np.uint8)))
    siphash_rows.absorb_words(plain, words, header, NONE)
    assert finished(masked) == finished(plain)
