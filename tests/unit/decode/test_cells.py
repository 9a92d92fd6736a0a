from __future__ import annotations

import numpy as np
import pytest

from kuvasz.decode.cells import UNCHANGED, byte_array, wide
from tests.support import wires


def test_bytes_are_seen_without_a_copy_and_read_only() -> None:
    data = bytearray(b"abc")
    array = byte_array(data)
    data[0] = ord("x")
    assert array.tobytes() == b"xbc"
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    own = np.zeros(2, np.uint8)
    assert not byte_array(own).flags.writeable
    assert own.flags.writeable


def test_a_strip_is_one_column_of_the_rows_wanted() -> None:
    cells = wires.one_column([b"a", None, b"ccc"])
    assert (cells.column_count, cells.row_count) == (1, 3)
    strip = cells.strip(0, np.array([2, 1], np.int32))
    assert [strip.text(row) for row in range(strip.row_count)] == [b"ccc", None]
    assert strip.present().tolist() == [True, False]


def test_unchanged_has_no_text() -> None:
    cells = wires.one_column([b"a"])
    cells.length[0, 0] = UNCHANGED
    assert cells.text(0, 0) is None


def test_bytes_become_signed() -> None:
    assert wide(np.uint8(200)) - 201 == -1
