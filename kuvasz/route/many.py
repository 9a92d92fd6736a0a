"""Small gulps of many sources, read by one call of a kernel: keepalives, and a few whole transactions of rows.

That is what most sources of a fleet bring at most looks. Arrays and calls of kernels cost the same for the rows of
one source as for those of a hundred, and a walk in Python four times as much. Whatever is rare, open, large or wrong
is left to the source's own assembler, which says what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numba
import numpy as np

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
    XLOGDATA,
    XLOGDATA_HEADER_BYTES,
)
from kuvasz.decode.tuples import DELETE, INSERT, UPDATE
from kuvasz.model import Transactions
from kuvasz.route.scan import frozen_view, uint

if TYPE_CHECKING:
    from kuvasz.model import Int64s, UInt8s, UInt32s, UInt64s

#: Of one source; more are sorted by lane sooner than by comparing each with each.
MOST_MESSAGES: Final = 64

#: What a gulp is.
_OTHER, _SMALL = range(2)

# Columns of what is found of each gulp.
_KIND, _REPLY, _ENDED, _COMMIT_US, _RUN_END = range(5)

# Where fields lie in their messages, from the tag on.
_ROW_OID, _ROW_HEAD_BYTES = 1, 5
_BEGIN_LSN, _BEGIN_TIME, _BEGIN_XID = 1, 9, 17
_COMMIT_LSN, _COMMIT_END = 2, 10


class RelationRun(NamedTuple):
    """Rows of one relation in a small gulp."""

    oid: int
    data: bytes  #: messages from their tag on
    lengths: UInt32s
    transactions: Transactions


class FoundGulp(NamedTuple):
    """What a small gulp holds that begins and ends between two transactions."""

    received_lsn: int  #: up to which the source is heard out by it
    is_reply_wanted: bool
    transactions: int  #: that ended
    end_lsn: int  #: of the last of them
    commit_us: int  #: of the same
    runs: list[RelationRun]  #: one for each relation, in the order in which they came


def read(payloads: UInt8s, lengths: UInt32s, message_ends: Int64s) -> list[FoundGulp | None]:
    """Return what each of many gulps holds; None for one that is to be read by itself.

    Args:
        payloads: The gulps one after another.
        lengths: Bytes of each message.
        message_ends: Per gulp: the number of messages up to its last one.
    """
    messages = len(lengths)
    sheet = _Sheet(
        facts=np.zeros((len(message_ends), 5), np.int64), lsns=np.zeros((len(message_ends), 2), np.uint64),
        runs=np.empty((messages, 4), np.int64), data=np.empty(len(payloads), np.uint8),
        lengths=np.empty(messages, np.uint32), commit_lsn=np.empty(messages, np.uint64),
        end_lsn=np.empty(messages, np.uint64), commit_us=np.empty(messages, np.int64),
        xid=np.empty(messages, np.uint32), row_end=np.empty(messages, np.uint32),
    )  # fmt: skip
    _read(frozen_view(payloads), lengths, message_ends, *sheet)
    facts = sheet.facts.tolist()
    runs = _runs(sheet, facts[-1][_RUN_END] if facts else 0)
    found: list[FoundGulp | None] = []
    at = 0
    for (kind, reply, ended, commit_us, run_end), (received, end_lsn) in zip(facts, sheet.lsns.tolist(), strict=True):
        found.append(
            None if kind == _OTHER else FoundGulp(received, bool(reply), ended, end_lsn, commit_us, runs[at:run_end])
        )
        at = run_end
    return found


class _Sheet(NamedTuple):
    """Room for what the kernel finds; parts of it go on as they are."""

    facts: Int64s  #: of each gulp, by the numbers above
    lsns: UInt64s  #: of each gulp: up to which the source is heard out, and the end of its last transaction
    runs: Int64s  #: of each run: relation, and where its rows, bytes and transactions end
    data: UInt8s
    lengths: UInt32s
    commit_lsn: UInt64s  #: and the following: of each transaction of each run
    end_lsn: UInt64s
    commit_us: Int64s
    xid: UInt32s
    row_end: UInt32s


def _runs(sheet: _Sheet, count: int) -> list[RelationRun]:
    found = []
    row = byte = part = 0
    for oid, row_end, byte_end, part_end in sheet.runs[:count].tolist():
        transactions = Transactions(
            commit_lsn=sheet.commit_lsn[part:part_end], end_lsn=sheet.end_lsn[part:part_end],
            commit_us=sheet.commit_us[part:part_end], xid=sheet.xid[part:part_end],
            row_end=sheet.row_end[part:part_end],
        )  # fmt: skip
        found.append(RelationRun(oid, sheet.data[byte:byte_end].tobytes(), sheet.lengths[row:row_end], transactions))
        row, byte, part = row_end, byte_end, part_end
    return found


@numba.njit(cache=True, nogil=True)
def _read(  # noqa: C901, PLR0912, PLR0913, PLR0915 - one loop over bytes: splitting it costs calls
    payloads: UInt8s,
    lengths: UInt32s,
    message_ends: Int64s,
    facts: Int64s,
    lsns: UInt64s,
    runs: Int64s,
    data: UInt8s,
    row_lengths: UInt32s,
    commit_lsn: UInt64s,
    end_lsn: UInt64s,
    commit_us: Int64s,
    xid: UInt32s,
    row_end: UInt32s,
) -> None:
    # What one gulp holds, before it is sorted.
    oid_of, start_of = np.empty(MOST_MESSAGES, np.int64), np.empty(MOST_MESSAGES, np.int64)
    size_of, number_of = np.empty(MOST_MESSAGES, np.int64), np.empty(MOST_MESSAGES, np.int64)
    lsn_of, end_of = np.empty(MOST_MESSAGES, np.uint64), np.empty(MOST_MESSAGES, np.uint64)
    us_of, xid_of = np.empty(MOST_MESSAGES, np.int64), np.empty(MOST_MESSAGES, np.uint32)
    message = start = run = row = byte = part = 0
    for gulp in range(len(message_ends)):
        rows, number, inside, reply = 0, -1, False, 0
        received, is_small = np.uint64(0), message_ends[gulp] - message <= MOST_MESSAGES
        while message < message_ends[gulp]:
            size = np.int64(lengths[message])
            body, body_size = start + XLOGDATA_HEADER_BYTES, size - XLOGDATA_HEADER_BYTES
            message += 1
            if not is_small:
                start += size  # type: ignore[assignment]
                continue
            if size == KEEPALIVE_BYTES and payloads[start] == KEEPALIVE:
                heard = uint(payloads, start + KEEPALIVE_LSN, 8)
                is_small = heard <= np.uint64(LAST_LSN)
                if payloads[start + KEEPALIVE_REPLY] == 1:
                    reply = 1
                if not inside:  # within a transaction its rows are still coming
                    received = max(received, heard)
            elif body_size <= 0 or payloads[start] != XLOGDATA:
                is_small = False
            else:
                tag = payloads[body]
                if tag == INSERT or tag == UPDATE or tag == DELETE:  # noqa: SIM109 (a kernel compares one by one)
                    is_small = inside and body_size >= _ROW_HEAD_BYTES
                    if is_small:
                        oid_of[rows] = np.int64(uint(payloads, body + _ROW_OID, 4))
                        start_of[rows], size_of[rows], number_of[rows] = body, body_size, number
                        rows += 1
                elif tag == BEGIN and body_size == BEGIN_BYTES and not inside:
                    number += 1
                    inside = True
                    lsn_of[number] = uint(payloads, body + _BEGIN_LSN, 8)
                    us = np.int64(uint(payloads, body + _BEGIN_TIME, 8))
                    us_of[number] = min(max(us, np.int64(FIRST_COMMIT_US)), np.int64(LAST_COMMIT_US))
                    xid_of[number] = np.uint32(uint(payloads, body + _BEGIN_XID, 4))
                    is_small = lsn_of[number] < np.uint64(LAST_LSN)
                elif tag == COMMIT and body_size == COMMIT_BYTES and inside:
                    end = uint(payloads, body + _COMMIT_END, 8)
                    is_same = uint(payloads, body + _COMMIT_LSN, 8) == lsn_of[number]
                    is_small = is_same and lsn_of[number] < end and end <= np.uint64(LAST_LSN)
                    end_of[number] = end
                    inside = False
                    received = max(received, end)
                else:
                    is_small = False
            start += size  # type: ignore[assignment]
        if is_small and not inside:
            facts[gulp, _KIND], facts[gulp, _REPLY], facts[gulp, _ENDED] = _SMALL, reply, number + 1
            lsns[gulp, 0] = received
            if number >= 0:
                lsns[gulp, 1], facts[gulp, _COMMIT_US] = end_of[number], us_of[number]
            for first in range(rows):
                oid = oid_of[first]
                if oid < 0:
                    continue
                begin, last = row, -1
                for place in range(first, rows):
                    if oid_of[place] != oid:
                        continue
                    oid_of[place] = -1
                    data[byte : byte + size_of[place]] = payloads[start_of[place] : start_of[place] + size_of[place]]
                    byte += size_of[place]
                    row_lengths[row] = size_of[place]
                    row += 1
                    if number_of[place] != last:
                        last = number_of[place]
                        commit_lsn[part], end_lsn[part] = lsn_of[last], end_of[last]
                        commit_us[part], xid[part] = us_of[last], xid_of[last]
                        part += 1
                    row_end[part - 1] = row - begin
                runs[run, 0], runs[run, 1], runs[run, 2], runs[run, 3] = oid, row, byte, part
                run += 1
        facts[gulp, _RUN_END] = run


__all__ = ["MOST_MESSAGES", "FoundGulp", "RelationRun", "read"]
