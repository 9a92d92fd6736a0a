"""What the assembler keeps: the cut being worked on, and one lane per relation version."""

from __future__ import annotations

import dataclasses

import numpy as np

from kuvasz.decode import messages
from kuvasz.model import Int32s, Relation, Segment, Transactions, Truncation, UInt8s, UInt32s
from kuvasz.route import scan

_XLOGDATA = ord("w")

#: Insert, Update, Delete: the tag is followed by the relation's OID.
_ROW_TAGS = frozenset(b"IUD")
_ROW_HEAD_BYTES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A transaction that is still open."""

    commit_lsn: int
    commit_us: int
    xid: int
    is_applied: bool = False  #: by a subscription, say, and its time is that of another server


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PendingTruncation:
    """A TRUNCATE until its transaction goes out."""

    place: int  #: lanes from this number on hold what came after it
    worker: int
    relation: Relation
    transaction: int  #: number in the cut; a transaction open since an earlier gulp is number 0


class Gulp:
    """One gulp and what `scan.classify` finds in it.

    Args:
        gulp: CopyData payloads one after another, read-only.
        lengths: Bytes of each.
        begun: The transaction that was open when the gulp began; it is number 0.
    """

    def __init__(self, gulp: UInt8s, lengths: UInt32s, begun: Begun | None) -> None:
        self.gulp = gulp
        self.lengths = lengths
        self.sheet = scan.sheet(len(lengths))
        self.cursor = np.zeros(scan.CURSOR_FIELDS, np.int64)
        self._applied: set[int] = {0} if begun is not None and begun.is_applied else set()
        if begun is not None:
            self.cursor[[scan.IN_TRANSACTION, scan.TRANSACTIONS]] = 1
            self.sheet.commit_lsn[0], self.sheet.end_lsn[0] = begun.commit_lsn, begun.commit_lsn + 1
            self.sheet.commit_us[0], self.sheet.xid[0] = begun.commit_us, begun.xid

    @property
    def is_open(self) -> bool:
        """Whether the cursor stands within a transaction."""
        return bool(self.cursor[scan.IN_TRANSACTION])

    @property
    def has_ended(self) -> bool:
        """Whether a transaction ended in this gulp; the one open before it is then the first that did."""
        return bool(self.cursor[scan.ENDED])

    @property
    def last_transaction(self) -> int:
        """Number of the last transaction begun, -1 if there is none."""
        return int(self.cursor[scan.TRANSACTIONS]) - 1

    def note_origin(self) -> None:
        """Note that the last transaction begun was applied here, and has the time of the server that it is of."""
        self._applied.add(self.last_transaction)

    @property
    def commit_us(self) -> int | None:
        """When the last transaction that ended was committed, by the source's own clock; None: that does not tell."""
        last = self.last_transaction - self.is_open
        return int(self.sheet.commit_us[last]) if self.has_ended and last not in self._applied else None

    def begun(self) -> Begun | None:
        """Return the transaction that is open at the end."""
        if not self.is_open:
            return None
        last, sheet = self.last_transaction, self.sheet
        return Begun(
            commit_lsn=int(sheet.commit_lsn[last]), commit_us=int(sheet.commit_us[last]), xid=int(sheet.xid[last]),
            is_applied=last in self._applied,
        )  # fmt: skip

    def message(self) -> bytes:
        """Return the pgoutput message at the cursor."""
        start = int(self.cursor[scan.OFFSET])
        end = start + int(self.lengths[self.cursor[scan.MESSAGE]])
        return self.gulp[start + messages.XLOGDATA_HEADER_BYTES : end].tobytes()

    def row_behind(self) -> tuple[bool, int]:
        """Return whether a next message is there, keepalives left out; and the relation OID of a row, else 0."""
        at = int(self.cursor[scan.OFFSET])
        for length in self.lengths[self.cursor[scan.MESSAGE] :].tolist():
            if self.gulp[at] == _XLOGDATA:
                body = self.gulp[at + messages.XLOGDATA_HEADER_BYTES : at + length]
                is_row = len(body) >= _ROW_HEAD_BYTES and body[0] in _ROW_TAGS
                return True, int.from_bytes(body[1:_ROW_HEAD_BYTES].tobytes(), "big") if is_row else 0
            at += length
        return False, 0

    def skip(self) -> None:
        """Move the cursor past its message."""
        self.cursor[scan.OFFSET] += self.lengths[self.cursor[scan.MESSAGE]]
        self.cursor[scan.MESSAGE] += 1

    def transactions(self, numbers: Int32s, row_end: UInt32s) -> Transactions:
        """Return the runs of transactions with these numbers."""
        sheet = self.sheet
        return Transactions(
            commit_lsn=sheet.commit_lsn[numbers],
            end_lsn=sheet.end_lsn[numbers],
            commit_us=sheet.commit_us[numbers],
            xid=sheet.xid[numbers],
            row_end=row_end,
        )

    def truncation(self, source: str, pending: PendingTruncation) -> Truncation:
        """Return a TRUNCATE whose transaction goes out now."""
        number, sheet = pending.transaction, self.sheet
        return Truncation(
            source=source,
            relation=pending.relation,
            commit_lsn=int(sheet.commit_lsn[number]),
            end_lsn=int(sheet.end_lsn[number]),
            commit_us=int(sheet.commit_us[number]),
            xid=int(sheet.xid[number]),
        )


class Lane:
    """The rows of one relation version that have not gone out yet.

    Between two gulps it holds rows of the open transaction only.
    """

    def __init__(self, worker: int, relation: Relation) -> None:
        self.worker = worker
        self.relation = relation
        self.segments: list[Segment] = []
        self._parts: list[bytearray] = []
        self._bytes = 0
        self._lengths: list[UInt32s] = []
        self._row_count = 0
        self._runs: tuple[Int32s, UInt32s] | None = None  # None: all rows belong to transaction 0

    def serves(self, worker: int, relation: Relation) -> bool:
        """Whether rows of that relation for that worker may go on here."""
        return self.worker == worker and self.relation == relation

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows held."""
        return self._bytes

    def append(self, cut: Gulp, order: Int32s, size: int) -> None:
        """Copy rows of the cut behind those held, which are of transaction 0.

        Args:
            cut: Where the rows are.
            order: Numbers of the rows, in stream order.
            size: Their bytes.
        """
        # Parts, not one buffer: it could not grow while anything, as a kernel being compiled, keeps a view.
        part = bytearray(size)
        target = np.frombuffer(part, np.uint8)
        sheet = cut.sheet
        lengths, numbers, ends = scan.gather(
            cut.gulp, order, sheet.offset, sheet.length, sheet.transaction, target, self._row_count
        )
        self._parts.append(part)
        self._bytes += size
        self._lengths.append(lengths)
        self._row_count += len(lengths)
        self._runs = numbers, ends

    def close(self, cut: Gulp, source: str) -> None:
        """Make a segment of all rows held."""
        runs = self._runs or (np.zeros(1, np.int32), np.full(1, self._row_count, np.uint32))
        self.segments.append(
            Segment(
                source=source,
                relation=self.relation,
                data=self._parts[0] if len(self._parts) == 1 else b"".join(self._parts),
                lengths=self._lengths[0] if len(self._lengths) == 1 else np.concatenate(self._lengths),
                transactions=cut.transactions(*runs),
            )
        )
        self.clear()

    def keep(self) -> None:
        """Hold the rows over to the next gulp, where their transaction is number 0."""
        self._runs = None

    def clear(self) -> None:
        """Drop the rows held."""
        self._parts, self._bytes = [], 0
        self._lengths, self._row_count, self._runs = [], 0, None


__all__ = ["Begun", "Gulp", "Lane", "PendingTruncation"]
