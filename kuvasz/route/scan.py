"""Split a gulp into rows per relation: the kernels under `kuvasz.route.assembler`.

A *gulp* is everything one wake-up took from the socket: CopyData payloads one after another, and the length of
each. `classify` walks the messages once and handles Begin, Commit, Insert, Update, Delete and keepalive by itself,
so that a stream of tiny transactions costs no more Python than one of large ones; it stops at the rare message
that Python must see. `group` then sorts the rows by lane (a *lane* is one relation version), and `gather` copies
the rows of one lane next to each other and notes where each transaction ends.

Formats: PostgreSQL 16 manual, sections 55.4 and 55.9. Hostile bytes: every read is checked against the message's
length, and the lengths against the gulp, before the kernels start.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

from kuvasz import errors
from kuvasz.decode.messages import (
    BEGIN,
    BEGIN_BYTES,
    COMMIT,
    COMMIT_BYTES,
    FIRST_COMMIT_US,
    KEEPALIVE,
    KEEPALIVE_BYTES,
    KEEPALIVE_LSN,
    KEEPALIVE_REPLY,
    LAST_COMMIT_US,
    LAST_LSN,
    LOGICAL_MESSAGE,
    ORIGIN,
    RELATION,
    TRUNCATE,
    TYPE,
    XLOGDATA,
    XLOGDATA_HEADER_BYTES,
)
from kuvasz.decode.tuples import DELETE, HEAD_BYTES, INSERT, UPDATE

if TYPE_CHECKING:
    from kuvasz.model import Int32s, Int64s, UInt8s, UInt32s, UInt64s

# Fields of the cursor: where classify stands, and what it found.
MESSAGE, OFFSET, ROWS, TRANSACTIONS, IN_TRANSACTION, DROPPED_ROWS, REPLY_WANTED, OPEN_ROW, ENDED = range(9)
CURSOR_FIELDS = 9
# Fields of the marks: LSNs that outlive a gulp.
RECEIVED_LSN, LAST_END_LSN = range(2)
MARK_FIELDS = 2

# What classify returns.
DONE = 0
STOPPED = 1  # at a message for Python
NEEDS_LANE = 10  # at a row whose relation is stale
_TRUNCATED, _BAD_ENVELOPE, _ROW_OUTSIDE, _BEGIN_INSIDE, _COMMIT_OUTSIDE, _COMMIT_DIFFERS, _UNKNOWN_RELATION = range(
    2, 9
)
_BAD_TAG = 9
_LSN_TOO_LATE = 11

#: The tag of a message of a relation, and what follows it.
_TAG_AND_OID_BYTES = 5

_REASONS = {
    _TRUNCATED: "message is shorter than its kind needs",
    _BAD_ENVELOPE: "neither XLogData nor keepalive",
    _ROW_OUTSIDE: "row outside of a transaction",
    _BEGIN_INSIDE: "Begin inside of a transaction",
    _COMMIT_OUTSIDE: "Commit outside of a transaction",
    _COMMIT_DIFFERS: "Commit of another transaction than the one begun",
    _UNKNOWN_RELATION: "row of a relation that was not described",
    _BAD_TAG: "unexpected message tag",
    _LSN_TOO_LATE: "an LSN beyond all that the lake can count",
}

#: Lane of a relation that the map does not want.
NO_LANE = -1
#: Lane of a relation that needs a new one before its next row.
STALE_LANE = -3
_UNKNOWN_LANE = -2
_EMPTY = 0  # no relation has oid 0 (InvalidOid)

# Where fields lie in their messages, from the tag on.
_ROW_OID: Final = 1
_ROW_TUPLE: Final = 5
_BEGIN_LSN: Final = 1
_BEGIN_TIME: Final = 9
_BEGIN_XID: Final = 17
_COMMIT_LSN: Final = 2
_COMMIT_END: Final = 10

_FEW_KEEPALIVES: Final = 64
#: Knuth's multiplicative hash; the lowest bits of its products are the worst ones.
_HASH_FACTOR: Final = 2654435761
_HASH_SHIFT: Final = 7


class LaneTable:
    """An open-addressing hash table from relation oid to lane, for `classify`; its size is a power of two."""

    def __init__(self) -> None:
        self.oids: UInt32s = np.zeros(8, np.uint32)
        self.lanes: Int32s = np.full(8, _UNKNOWN_LANE, np.int32)
        self._count = 0

    def put(self, oid: int, lane: int) -> None:
        """Set the lane of a relation: a number from 0, `NO_LANE` or `STALE_LANE`."""
        place = self._place(oid)
        if self.oids[place] == _EMPTY:
            self._count += 1
            if self._count * 2 > len(self.oids):
                self._grow()
                place = self._place(oid)
        self.oids[place], self.lanes[place] = oid, lane

    def _place(self, oid: int) -> int:
        mask = len(self.oids) - 1
        # As in _find.
        place = ((oid * _HASH_FACTOR) & 0xFFFFFFFF) >> _HASH_SHIFT & mask
        while self.oids[place] not in (_EMPTY, oid):
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        held = [(int(oid), int(lane)) for oid, lane in zip(self.oids, self.lanes, strict=True) if oid != _EMPTY]
        self.oids, self.lanes = np.zeros(len(self.oids) * 2, np.uint32), np.resize(self.lanes, len(self.oids) * 2)
        self.lanes[:] = _UNKNOWN_LANE
        for oid, lane in held:
            place = self._place(oid)
            self.oids[place], self.lanes[place] = oid, lane


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Room for what `classify` finds in one gulp of m messages; nothing of it outlives the gulp.

    Row i has its lane, its message at ``gulp[offset[i]:offset[i] + length[i]]`` and its transaction.
    """

    lane: Int32s
    offset: Int64s
    length: UInt32s
    transaction: Int32s
    commit_lsn: UInt64s  #: of each transaction; number 0 may have begun in an earlier gulp
    end_lsn: UInt64s
    commit_us: Int64s
    xid: UInt32s


def sheet(messages: int) -> Sheet:
    """Return a sheet for a gulp of so many messages."""
    return Sheet(
        lane=np.empty(messages, np.int32),
        offset=np.empty(messages, np.int64),
        length=np.empty(messages, np.uint32),
        transaction=np.empty(messages, np.int32),
        commit_lsn=np.empty(messages + 1, np.uint64),
        end_lsn=np.empty(messages + 1, np.uint64),
        commit_us=np.empty(messages + 1, np.int64),
        xid=np.empty(messages + 1, np.uint32),
    )


def frozen_view(gulp: bytes | bytearray | UInt8s) -> UInt8s:
    """Return the bytes as a read-only array: one type for the kernels, so that they are compiled once."""
    view = np.frombuffer(gulp, np.uint8)
    view.flags.writeable = False
    return view


def keepalives(gulp: bytes | bytearray | UInt8s, lengths: UInt32s) -> bytes:
    """Return the gulp if it is a few keepalives and nothing else; empty if it is not, or is malformed.

    A walsender sends one whenever any database of its server was written to (walsender.c, WalSndWaitForWal), so most
    gulps of a quiet source are that.
    """
    count = len(lengths)
    if count > _FEW_KEEPALIVES or len(gulp) != count * KEEPALIVE_BYTES:
        return b""
    data = bytes(gulp)
    is_all = data[::KEEPALIVE_BYTES] == bytes([KEEPALIVE]) * count and lengths.tolist() == [KEEPALIVE_BYTES] * count
    return data if is_all else b""


@numba.njit(cache=True, nogil=True)
def has_relation(gulp: UInt8s, lengths: UInt32s) -> bool:
    """Tell whether any message is a Relation message, so that routing it may ask the catalog.

    Malformed messages count as something else; `classify` finds them.
    """
    start = 0
    for length in lengths:
        size = np.int64(length)
        body = start + XLOGDATA_HEADER_BYTES
        if size > XLOGDATA_HEADER_BYTES and body < len(gulp) and gulp[body] == RELATION:
            return True
        start += size  # type: ignore[assignment]
    return False


def relation_oids(gulp: UInt8s, lengths: UInt32s) -> list[int]:
    """Return the OIDs of the Relation messages of a gulp, in their order; malformed ones are left to `classify`."""
    ends = np.cumsum(lengths, dtype=np.int64)
    bodies = ends - lengths + XLOGDATA_HEADER_BYTES
    bodies = bodies[bodies + _TAG_AND_OID_BYTES <= np.minimum(ends, len(gulp))]
    bodies = bodies[gulp[bodies] == RELATION]
    return [int.from_bytes(gulp[body + 1 : body + _TAG_AND_OID_BYTES].tobytes(), "big") for body in bodies.tolist()]


def check(gulp: UInt8s, lengths: UInt32s) -> None:
    """Raise unless the lengths sum to the gulp: what every later read relies on.

    Raises:
        DecodeError: The sum is another one.
    """
    total = int(lengths.sum(dtype=np.int64))
    if total != len(gulp):
        raise errors.DecodeError(f"messages of {total} bytes in a gulp of {len(gulp)}")


def refuse(code: int, gulp: UInt8s, lengths: UInt32s, cursor: Int64s) -> errors.DecodeError:
    """Return the error for a code of `classify` that names something wrong."""
    start, size = int(cursor[OFFSET]), int(lengths[cursor[MESSAGE]])
    head = gulp[start : start + min(size, XLOGDATA_HEADER_BYTES + HEAD_BYTES)].tobytes()
    return errors.DecodeError(
        f"{_REASONS[code]}: {head!r} ({size} bytes)",
        hint="the stream is damaged or speaks another protocol version; kuvasz reconnects and reads it again",
    )


@numba.njit(cache=True, nogil=True, inline="always")
def _find(oids: UInt32s, lanes: Int32s, oid: int) -> int:
    mask = len(oids) - 1
    place = ((np.uint64(oid) * np.uint64(_HASH_FACTOR)) & np.uint64(0xFFFFFFFF)) >> np.uint64(_HASH_SHIFT)
    index = np.int64(place) & mask
    while oids[index] != _EMPTY:
        if oids[index] == oid:
            return lanes[index]  # type: ignore[no-any-return]
        index = (index + 1) & mask
    return _UNKNOWN_LANE


@numba.njit(cache=True, nogil=True)
def uint(data: UInt8s, start: int, size: int) -> np.uint64:
    """Return the number in so many bytes."""
    value = np.uint64(0)
    for index in range(size):
        value = (value << np.uint64(8)) | np.uint64(data[start + index])
    return value


@numba.njit(cache=True, nogil=True)
def classify(  # noqa: C901, PLR0912, PLR0915 - one loop over bytes: splitting it costs calls
    gulp: UInt8s,
    lengths: UInt32s,
    table_oids: UInt32s,
    table_lanes: Int32s,
    cursor: Int64s,
    marks: UInt64s,
    rows: tuple[Int32s, Int64s, UInt32s, Int32s],
    transactions: tuple[UInt64s, UInt64s, Int64s, UInt32s],
) -> int:
    """Walk the messages from the cursor on; return DONE, STOPPED, NEEDS_LANE or the code of what is wrong.

    Args:
        gulp: The payloads; `check` has passed.
        lengths: Bytes of each.
        table_oids: The oids of the `LaneTable`.
        table_lanes: The lanes of the `LaneTable`.
        cursor: Changed in place. A transaction left open has number TRANSACTIONS - 1.
        marks: Changed in place.
        rows: lane, offset, length, transaction of the `Sheet`.
        transactions: commit_lsn, end_lsn, commit_us, xid of the `Sheet`.
    """
    row_lane, row_offset, row_length, row_transaction = rows
    commit_lsn, end_lsn, commit_us, xid = transactions
    message, start = cursor[MESSAGE], cursor[OFFSET]
    row, transaction, inside = cursor[ROWS], cursor[TRANSACTIONS] - 1, cursor[IN_TRANSACTION]
    open_row, dropped, reply = cursor[OPEN_ROW], cursor[DROPPED_ROWS], cursor[REPLY_WANTED]
    ended, received, last_end = cursor[ENDED], marks[RECEIVED_LSN], marks[LAST_END_LSN]
    last_oid, last_lane = np.int64(0), np.int64(_UNKNOWN_LANE)
    code = DONE
    while message < len(lengths):
        size = np.int64(lengths[message])
        if size == 0:
            code = _BAD_ENVELOPE
            break
        if gulp[start] == KEEPALIVE:
            if size != KEEPALIVE_BYTES:
                code = _TRUNCATED
                break
            if gulp[start + KEEPALIVE_REPLY] == 1:
                reply = 1
            heard = uint(gulp, start + KEEPALIVE_LSN, 8)
            if heard > np.uint64(LAST_LSN):
                code = _LSN_TOO_LATE
                break
            # Within a transaction the server's position may not be taken as received: its rows are still coming.
            if inside == 0:
                received = max(received, heard)
        elif gulp[start] != XLOGDATA:
            code = _BAD_ENVELOPE
            break
        elif size <= XLOGDATA_HEADER_BYTES:
            code = _TRUNCATED
            break
        else:
            body, body_size = start + XLOGDATA_HEADER_BYTES, size - XLOGDATA_HEADER_BYTES
            tag = gulp[body]
            if tag == INSERT or tag == UPDATE or tag == DELETE:  # noqa: SIM109 (a kernel compares one by one)
                if body_size < _ROW_TUPLE:
                    code = _TRUNCATED
                    break
                if inside == 0:
                    code = _ROW_OUTSIDE
                    break
                oid = np.int64(uint(gulp, body + _ROW_OID, 4))
                if oid != last_oid:
                    last_oid = oid
                    last_lane = np.int64(_find(table_oids, table_lanes, oid))  # type: ignore[arg-type]
                if last_lane == _UNKNOWN_LANE:
                    code = _UNKNOWN_RELATION
                    break
                if last_lane == STALE_LANE:
                    code = NEEDS_LANE
                    break
                if last_lane == NO_LANE:
                    dropped += 1
                else:
                    row_lane[row] = last_lane
                    row_offset[row] = body
                    row_length[row] = body_size
                    row_transaction[row] = transaction
                    row += 1
            elif tag == BEGIN:
                if body_size != BEGIN_BYTES:
                    code = _TRUNCATED
                    break
                if inside == 1:
                    code = _BEGIN_INSIDE
                    break
                if uint(gulp, body + _BEGIN_LSN, 8) >= np.uint64(LAST_LSN):
                    code = _LSN_TOO_LATE
                    break
                transaction += 1
                inside = 1
                open_row = row
                commit_lsn[transaction] = uint(gulp, body + _BEGIN_LSN, 8)
                end_lsn[transaction] = commit_lsn[transaction] + np.uint64(1)
                us = np.int64(uint(gulp, body + _BEGIN_TIME, 8))
                commit_us[transaction] = min(max(us, np.int64(FIRST_COMMIT_US)), np.int64(LAST_COMMIT_US))
                xid[transaction] = uint(gulp, body + _BEGIN_XID, 4)
            elif tag == COMMIT:
                if body_size != COMMIT_BYTES:
                    code = _TRUNCATED
                    break
                if inside == 0:
                    code = _COMMIT_OUTSIDE
                    break
                end = uint(gulp, body + _COMMIT_END, 8)
                if uint(gulp, body + _COMMIT_LSN, 8) != commit_lsn[transaction] or end <= commit_lsn[transaction]:
                    code = _COMMIT_DIFFERS
                    break
                if end > np.uint64(LAST_LSN):
                    code = _LSN_TOO_LATE
                    break
                end_lsn[transaction] = end
                inside = 0
                ended += 1
                last_end = end
                received = max(received, end)
            elif tag == RELATION or tag == TYPE or tag == TRUNCATE or tag == ORIGIN or tag == LOGICAL_MESSAGE:  # noqa: SIM109
                code = STOPPED
                break
            else:
                code = _BAD_TAG
                break
        message += 1
        start += size
    cursor[MESSAGE], cursor[OFFSET] = message, start
    cursor[ROWS], cursor[TRANSACTIONS], cursor[IN_TRANSACTION] = row, transaction + 1, inside
    cursor[OPEN_ROW], cursor[DROPPED_ROWS], cursor[REPLY_WANTED], cursor[ENDED] = open_row, dropped, reply, ended
    marks[RECEIVED_LSN], marks[LAST_END_LSN] = received, last_end
    return code


@numba.njit(cache=True, nogil=True)
def group(lane: Int32s, length: UInt32s, row_count: int, open_row: int, lane_count: int) -> tuple[Int32s, Int64s]:
    """Sort the rows by lane, keeping stream order within a lane.

    Args:
        lane: The lane of each row.
        length: The length of each row, in bytes.
        row_count: How many rows there are.
        open_row: First row of the transaction that is still open; `row_count` if none is.
        lane_count: How many lanes there are.

    Returns:
        Row numbers in lane order, and per lane [first place in that order, rows, bytes, rows of whole
        transactions, bytes of those].
    """
    lanes = np.zeros((lane_count, 5), np.int64)
    for row in range(row_count):
        one = lanes[lane[row]]
        one[1] += 1
        one[2] += length[row]
        if row < open_row:
            one[3] += 1
            one[4] += length[row]
    place = 0
    following = np.empty(lane_count, np.int64)
    for number in range(lane_count):
        lanes[number, 0] = place
        following[number] = place
        place += lanes[number, 1]
    order = np.empty(row_count, np.int32)
    for row in range(row_count):
        order[following[lane[row]]] = row
        following[lane[row]] += 1
    return order, lanes


@numba.njit(cache=True, nogil=True)
def gather(
    gulp: UInt8s,
    order: Int32s,
    offset: Int64s,
    length: UInt32s,
    transaction: Int32s,
    data: UInt8s,
    carried_rows: int,
) -> tuple[UInt32s, Int32s, UInt32s]:
    """Copy rows next to each other and note the runs of their transactions.

    Args:
        gulp: The payloads.
        order: The rows to copy, of one lane.
        offset: The offset of each row of the sheet.
        length: The length of each row of the sheet, in bytes.
        transaction: The transaction of each row of the sheet.
        data: Where the rows go; as long as their lengths together.
        carried_rows: Rows that precede these and belong to transaction 0.

    Returns:
        The lengths of the rows copied; number and end row of each run of one transaction.
    """
    lengths = np.empty(len(order), np.uint32)
    run_transaction = np.empty(len(order) + 1, np.int32)
    run_end = np.empty(len(order) + 1, np.uint32)
    runs = 0
    if carried_rows > 0:
        run_transaction[0], run_end[0] = 0, carried_rows
        runs = 1
    to = 0
    for index in range(len(order)):
        row = order[index]
        size = np.int64(length[row])
        start = offset[row]
        data[to : to + size] = gulp[start : start + size]
        to += size  # type: ignore[assignment]
        lengths[index] = size
        if runs == 0 or run_transaction[runs - 1] != transaction[row]:
            run_transaction[runs] = transaction[row]
            runs += 1
        run_end[runs - 1] = carried_rows + index + 1
    return lengths, run_transaction[:runs], run_end[:runs]
