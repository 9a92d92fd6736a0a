"""Cells: where the text of every value of many rows lies in one run of bytes.

The splitters of stream and COPY build them, the column kernels read them. Column by column in memory, so that a
kernel runs down one column; the bytes themselves stay where they came.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kuvasz.model import Int32s, Int64s, UInt8s

#: Length of a cell that is SQL NULL.
NULL: Final = -1
#: Length of a cell of an UPDATE whose TOASTed value did not change and was not sent.
UNCHANGED: Final = -2
#: Length of a cell whose value was cut away, because it made its row too large (`kuvasz.route.row_limit`).
CUT: Final = -3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of a table: `start` and `length` have shape (columns, rows).

    Every (start, length) with a length of 0 or more lies inside `data`: whoever builds cells has checked that, and
    the kernels rely on it.
    """

    data: UInt8s  #: read-only
    start: Int64s  #: offset of the text in `data`; 0 where there is none
    length: Int32s  #: bytes of text, or `NULL`, `UNCHANGED` or `CUT`
    computed: tuple[pa.Array, ...] = ()  #: columns that expressions gave, one value per row; see `modes.row_rules`
    unknown: tuple[npt.NDArray[np.bool_], ...] = ()  #: per computed column: rows where it is what it was before
    whose: Int32s | None = None  #: per row: of which of several sources it is; None: all are of one

    @property
    def column_count(self) -> int:
        """Number of columns."""
        return int(self.length.shape[0])

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return int(self.length.shape[1])

    def text(self, column: int, row: int) -> bytes | None:
        """Return one cell's text, None for NULL and unchanged: for messages and tests, not for loops."""
        return self.strip(column).text(row)

    def strip(self, column: int, rows: Int32s | None = None) -> Strip:
        """Return one column, or the given rows of it in the given order."""
        start, length = self.start[column], self.length[column]
        if rows is None:
            return Strip(data=self.data, start=start, length=length)
        return Strip(data=self.data, start=start[rows], length=length[rows])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One column of cells, n rows."""

    data: UInt8s
    start: Int64s
    length: Int32s

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.length)

    def text(self, row: int) -> bytes | None:
        """Return one cell's text, None for NULL and unchanged."""
        if self.length[row] < 0:
            return None
        start = int(self.start[row])
        return self.data[start : start + int(self.length[row])].tobytes()

    def present(self) -> npt.NDArray[np.bool_]:
        """Return which rows have a value."""
        return self.length >= 0


def empty_cells(column_count: int, row_count: int, data: UInt8s) -> Cells:
    """Return cells whose content is still to be written."""
    shape = (column_count, row_count)
    return Cells(data=data, start=np.empty(shape, np.int64), length=np.empty(shape, np.int32))


def byte_array(data: bytes | bytearray | memoryview | UInt8s) -> UInt8s:
    """Return the bytes as a read-only array without a copy.

    Always read-only: numba compiles a kernel once for writable and once for read-only arrays, and ``bytes`` can
    only be the latter.
    """
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


@numba.njit(cache=True, nogil=True)
def wide(number: int) -> int:
    """Return a byte or a 32-bit number as a signed 64-bit one, for kernels.

    Not ``int()``: numba keeps that unsigned for bytes, and unsigned with signed gives a float (NumPy's rules).
    """
    return np.int64(number)  # type: ignore[return-value]
