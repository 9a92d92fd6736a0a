"""The hashes that Iceberg's specification gives in its appendix B, and those of PyIceberg's library."""

from __future__ import annotations

import uuid

import mmh3
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.fold import murmur


def _rows(*values: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, 16)


def _texts(*values: bytes) -> list[int]:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int64)
    return murmur.of_texts(np.frombuffer(b"".join(values) or b"\0", np.uint8), ends).tolist()


def test_the_specification_has_these() -> None:
    assert murmur.of_longs(np.array([34, 17_486, 1_510_871_468_000_000])).tolist() == [
        2_017_239_379, -653_330_422, -2_047_944_441,
    ]  # fmt: skip
    assert murmur.of_decimals(_rows((1420).to_bytes(16, "little"))).tolist() == [-500_754_589]
    assert _texts(b"iceberg", bytes(range(4))) == [1_210_000_089, -188_683_207]
    one = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes
    assert murmur.of_rows(_rows(one)).tolist() == [1_488_055_340]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_texts_are_hashed_one_by_one(values: list[bytes]) -> None:
    assert _texts(*values) == [mmh3.hash(value) for value in values]


@given(st.integers(-(2**126), 2**126))
def test_a_decimal_is_hashed_by_the_fewest_bytes_that_hold_it(value: int) -> None:
    least = value.to_bytes(((value if value >= 0 else ~value).bit_length() + 8) // 8, "big", signed=True)
    assert murmur.of_decimals(_rows(value.to_bytes(16, "little", signed=True))).tolist() == [mmh3.hash(least)]
