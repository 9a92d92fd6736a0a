"""A small gulp, read without kernels: a few messages that make whole transactions, as most sources of a fleet bring.

Arrays and calls of kernels cost the same for three messages as for three thousand; to walk three in Python takes a
fourth of that. Whatever is rare, open or wrong is left to `kuvasz.route.scan`, which says what it is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from kuvasz.decode import messages
from kuvasz.decode.tuples import DELETE, INSERT, UPDATE
from kuvasz.model import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.model import UInt32s

#: More of them are faster by kernels.
MOST_MESSAGES: Final = 24

#: And more bytes, which would be copied once more here.
MOST_BYTES: Final = 64 << 10

_ROWS: Final = frozenset((INSERT, UPDATE, DELETE))
_BEGIN: Final = struct.Struct(">QqI")  # final LSN, time, xid; behind the tag
_COMMIT: Final = struct.Struct(">BQQ")  # flags, LSN, end LSN; behind the tag
_LSN: Final = struct.Struct(">Q")
_OID: Final = struct.Struct(">I")
_ROW_HEAD_BYTES: Final = 5


class SmallLane:
    """The rows of one lane in a small gulp."""

    __slots__ = ("_ends", "_numbers", "lengths", "rows")

    def __init__(self) -> None:
        self.rows: list[bytes] = []  #: messages from their tag on
        self.lengths: list[int] = []
        self._numbers: list[int] = []
        self._ends: list[int] = []

    def append(self, row: bytes, transaction: int) -> None:
        """Add a row of a transaction, by its number in the gulp."""
        self.rows.append(row)
        self.lengths.append(len(row))
        if self._numbers and self._numbers[-1] == transaction:
            self._ends[-1] += 1
        else:
            self._numbers.append(transaction)
            self._ends.append(len(self.rows))

    def transactions(self, whole: list[tuple[int, int, int, int]]) -> Transactions:
        """Return the runs of transactions that the rows are of.

        Args:
            whole: Commit LSN, end LSN, commit time and xid of each transaction of the gulp.
        """
        commit_lsn, end_lsn, commit_us, xid = zip(*[whole[number] for number in self._numbers], strict=True)
        return Transactions(
            commit_lsn=np.array(commit_lsn, np.uint64), end_lsn=np.array(end_lsn, np.uint64),
            commit_us=np.array(commit_us, np.int64), xid=np.array(xid, np.uint32),
            row_end=np.array(self._ends, np.uint32),
        )  # fmt: skip


class SmallGulp:
    """What a small gulp holds that begins and ends between two transactions.

    Args:
        lane_of: Relation OID -> number of its lane.
        no_lane: The number of a relation without a route.
        received_lsn: Up to where the source was heard out before it.
    """

    __slots__ = ("_begun", "_lane_of", "_no_lane", "dropped_rows", "is_reply_wanted", "lanes", "received_lsn",
                 "transactions")  # fmt: skip

    def __init__(self, lane_of: Mapping[int, int], no_lane: int, received_lsn: int) -> None:
        self._lane_of = lane_of
        self._no_lane = no_lane
        self._begun: tuple[int, int, int] | None = None  # commit LSN, time, xid
        self.received_lsn = received_lsn
        self.is_reply_wanted = False
        self.dropped_rows = 0  #: of relations without a route
        self.lanes: dict[int, SmallLane] = {}  #: by number
        self.transactions: list[tuple[int, int, int, int]] = []  #: commit LSN, end LSN, commit time, xid

    def read(self, data: bytes, lengths: UInt32s) -> bool:
        """Read a gulp; returns False if kernels have to look at it, and what was found of it counts for nothing.

        Args:
            data: The payloads one after another.
            lengths: Bytes of each.
        """
        at = 0
        for length in lengths.tolist():
            end = at + length
            if end > len(data) or not self._take(data, at, end):
                return False
            at = end
        return self._begun is None and at == len(data)

    def _take(self, data: bytes, at: int, end: int) -> bool:
        kind, body = data[at : at + 1], at + messages.XLOGDATA_HEADER_BYTES
        if kind == b"w" and body < end:
            tag = data[body]
            if tag in _ROWS:
                return self._take_row(data, body, end)
            if tag == messages.BEGIN:
                return self._begin(data, body, end)
            return tag == messages.COMMIT and self._commit(data, body, end)
        return kind == b"k" and end - at == messages.KEEPALIVE_BYTES and self._hear(data, at)

    def _take_row(self, data: bytes, body: int, end: int) -> bool:
        if self._begun is None or end - body < _ROW_HEAD_BYTES:
            return False
        lane = self._lane_of.get(_OID.unpack_from(data, body + 1)[0])
        if lane is None:
            return False
        if lane == self._no_lane:
            self.dropped_rows += 1
            return True
        if lane not in self.lanes:
            self.lanes[lane] = SmallLane()
        self.lanes[lane].append(data[body:end], len(self.transactions))
        return True

    def _begin(self, data: bytes, body: int, end: int) -> bool:
        if self._begun is not None or end - body != messages.BEGIN_BYTES:
            return False
        lsn, us, xid = _BEGIN.unpack_from(data, body + 1)
        self._begun = lsn, min(max(us, messages.FIRST_COMMIT_US), messages.LAST_COMMIT_US), xid
        return bool(lsn < messages.LAST_LSN)

    def _commit(self, data: bytes, body: int, end: int) -> bool:
        if self._begun is None or end - body != messages.COMMIT_BYTES:
            return False
        begun_lsn, us, xid = self._begun
        _, lsn, end_lsn = _COMMIT.unpack_from(data, body + 1)
        self.transactions.append((lsn, end_lsn, us, xid))
        self.received_lsn = max(self.received_lsn, end_lsn)
        self._begun = None
        return bool(begun_lsn == lsn < end_lsn <= messages.LAST_LSN)

    def _hear(self, data: bytes, at: int) -> bool:
        (lsn,) = _LSN.unpack_from(data, at + messages.KEEPALIVE_LSN)
        self.is_reply_wanted |= data[at + messages.KEEPALIVE_REPLY] == 1
        if self._begun is None:  # within a transaction its rows are still coming
            self.received_lsn = max(self.received_lsn, lsn)
        return bool(lsn <= messages.LAST_LSN)


__all__ = ["MOST_BYTES", "MOST_MESSAGES", "SmallGulp", "SmallLane"]
