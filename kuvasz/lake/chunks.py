"""A mini-transaction's changes of one target, cut into chunks for the executors. Pure.

Rows before the source's position are left out; what is left keeps its order per source. A chunk holds rows of one
relation version of one source; a truncation stands between chunks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from kuvasz.model import Position, Relation, Segment, Truncation, UInt32s


@dataclasses.dataclass(slots=True, kw_only=True)
class Chunk:
    """Row messages of one relation version of one source."""

    source: str
    relation: Relation
    open_lsn: int  #: commit LSN of the one transaction of all rows, which goes on in later work; 0: whole ones
    parts: list[bytes | bytearray | memoryview]
    lengths: list[UInt32s]
    size: int = 0
    rows: int = 0
    commit_lsns: list[tuple[int, int]] = dataclasses.field(default_factory=list)  #: (rows up to here, commit LSN)

    def commit_lsn_of(self, row: int) -> int:
        """Return the commit LSN of a row's transaction, 0 if unknown."""
        return next((commit_lsn for end, commit_lsn in self.commit_lsns if row < end), 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The outcome of cutting."""

    steps: tuple[Chunk | Truncation, ...]
    positions: dict[str, Position]  #: per source, after its last whole transaction here
    rows: int
    rows_of: dict[str, int]  #: source -> its part of `rows`
    skipped: int  #: rows that the target has already
    commit_us: int


def open_lsn(step: Chunk | Truncation) -> int:
    """Return the commit LSN of the unfinished transaction a step belongs to, 0 if it is of whole ones."""
    if isinstance(step, Chunk):
        return step.open_lsn
    return step.commit_lsn if step.end_lsn == step.commit_lsn + 1 else 0


def reached(cut: Cut, through: Mapping[str, int], known: Mapping[str, Position]) -> dict[str, Position]:
    """Return the positions of a target's sources after a mini-transaction.

    Args:
        cut: Its changes.
        through: As in `TableWork.through`: often beyond the last transaction that touched this target.
        known: The positions before.
    """
    positions = {}
    for source in cut.positions.keys() | (through.keys() & known.keys()):
        before = known.get(source, Position(lsn=0))
        last = cut.positions.get(source, before)
        lsn = max(before.lsn, last.lsn, through.get(source, 0))
        positions[source] = dataclasses.replace(last, lsn=lsn, system_id=before.system_id)
    return positions


def cut(changes: Iterable[Segment | Truncation], accepted: dict[str, int], chunk_bytes: int) -> Cut:
    """Cut changes into chunks of about `chunk_bytes`.

    Args:
        changes: In order per source.
        accepted: Source -> LSN before which everything is in the target already.
        chunk_bytes: Size at which a chunk is full.
    """
    steps: list[Chunk | Truncation] = []
    filling: dict[str, Chunk] = {}
    positions: dict[str, Position] = {}
    rows_of: dict[str, int] = {}
    skipped = commit_us = 0
    for change in changes:
        floor = accepted.get(change.source, 0)
        if isinstance(change, Truncation):
            if change.commit_lsn >= floor:
                filling.pop(change.source, None)
                steps.append(change)
                if not open_lsn(change):
                    positions[change.source] = Position(lsn=change.end_lsn, commit_lsn=change.commit_lsn)
                commit_us = max(commit_us, change.commit_us)
            continue
        first, start = _after(change, floor)
        skipped += start
        total = len(change.lengths)
        if start == total:
            continue
        transactions = change.transactions
        commit_us = max(commit_us, int(transactions.commit_us[-1]))
        is_open = bool(transactions.end_lsn[-1] == transactions.commit_lsn[-1] + 1)
        whole = total if not is_open else int(transactions.row_end[-2]) if len(transactions.row_end) > 1 else 0
        last = len(transactions.row_end) - (2 if is_open else 1)
        if last >= first:
            positions[change.source] = Position(
                lsn=int(transactions.end_lsn[last]),
                commit_lsn=int(transactions.commit_lsn[last]),
                rows=int(transactions.row_end[last]) - (int(transactions.row_end[last - 1]) if last else 0),
            )
        rows_of[change.source] = rows_of.get(change.source, 0) + total - start
        unfinished = int(transactions.commit_lsn[-1])
        for begin, end, of in ((start, max(start, whole), 0), (max(start, whole), total, unfinished)):
            _take(change, begin, end, filling, steps, chunk_bytes, open_lsn=of)
    return Cut(
        steps=tuple(steps),
        positions=positions,
        rows=sum(rows_of.values()),
        rows_of=rows_of,
        skipped=skipped,
        commit_us=commit_us,
    )


def _after(segment: Segment, floor: int) -> tuple[int, int]:
    """Return the first transaction at or after an LSN, and its first row."""
    first = int(np.searchsorted(segment.transactions.commit_lsn, floor, side="left"))
    return first, int(segment.transactions.row_end[first - 1]) if first else 0


def _take(
    segment: Segment,
    begin: int,
    end: int,
    filling: dict[str, Chunk],
    steps: list[Chunk | Truncation],
    chunk_bytes: int,
    *,
    open_lsn: int,
) -> None:
    if begin >= end:
        return
    ends = np.cumsum(segment.lengths, dtype=np.int64)
    view = memoryview(segment.data)
    while begin < end:
        chunk = filling.get(segment.source)
        if (
            chunk is None
            or chunk.size >= chunk_bytes
            or chunk.open_lsn != open_lsn
            or (chunk.relation is not segment.relation and chunk.relation != segment.relation)
        ):
            chunk = Chunk(source=segment.source, relation=segment.relation, open_lsn=open_lsn, parts=[], lengths=[])
            filling[segment.source] = chunk
            steps.append(chunk)
        offset = int(ends[begin - 1]) if begin else 0
        room = max(chunk_bytes - chunk.size, 1)
        stop = min(end, max(begin + 1, int(np.searchsorted(ends, offset + room, side="left")) + 1))
        size = int(ends[stop - 1]) - offset
        if chunk.size and size > room and chunk.size + size > 2 * chunk_bytes:
            chunk.size = max(chunk.size, chunk_bytes)  # full: the next turn opens another
            continue
        chunk.parts.append(view[offset : offset + size])
        chunk.lengths.append(segment.lengths[begin:stop])
        chunk.size += size
        _note(chunk, segment, begin, stop)
        chunk.rows += stop - begin
        begin = stop


def _note(chunk: Chunk, segment: Segment, begin: int, stop: int) -> None:
    """Remember which commit LSN the rows belong to, a few entries a segment: for error messages alone."""
    transactions = segment.transactions
    first = int(np.searchsorted(transactions.row_end, begin, side="right"))
    last = int(np.searchsorted(transactions.row_end, stop - 1, side="right"))
    for index in range(first, min(last, first + 64) + 1):
        end = min(int(transactions.row_end[index]), stop) - begin
        chunk.commit_lsns.append((chunk.rows + end, int(transactions.commit_lsn[index])))
