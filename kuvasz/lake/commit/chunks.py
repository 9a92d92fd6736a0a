"""A mini-transaction's changes of one target, cut into chunks for the executors. Pure.

Rows before the source's position are left out; what is left keeps its order per source. A chunk holds rows of one
relation version of one source; a truncation stands between chunks, but in tables from which it takes nothing away. Of
several truncations that a table shows at once the last one takes away what all of them do, so rows before it share
chunks; see `_Shown`.

For the table types that show transactions, chunks carry the facts of theirs. For a history, where of several
changes of a key in one transaction only the last counts, no chunk mixes part of a transaction with others: one whose
rows come in several changes is cut like one that goes on in later work, and taken in when it is whole.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from kuvasz.model import (
    Int64s,
    Relation,
    Segment,
    SourcePosition,
    TableName,
    TableType,
    Transactions,
    Truncation,
    UInt32s,
)
from kuvasz.modes.transaction_facts import Facts

#: (source, its table) -> commit LSN of a transaction, and how many events of the table it had so far.
Events = dict[tuple[str, TableName], tuple[int, int]]

_WITH_FACTS = frozenset({TableType.HISTORY, TableType.CHANGELOG})

#: Column of `Chunk.runs` with the index one past a run's last row.
_ROW_END = 3

#: A history's chunk takes all there is: chunks of one table would have to be worked out one after another.
_NO_LIMIT = 1 << 60


#: Where a source is of which nothing is known.
_NOWHERE = SourcePosition(lsn=0)


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
    #: (first row here, the transactions of its segment, number of that row there)
    origins: list[tuple[int, Transactions, int]] = dataclasses.field(default_factory=list)
    runs: list[Int64s] = dataclasses.field(default_factory=list)  #: as `Facts.of` takes them

    @property
    def facts(self) -> Facts | None:
        """What the rows have of their transactions; None for table types that do not ask."""
        return Facts.of(np.concatenate(self.runs)) if self.runs else None

    def join(self, other: Chunk) -> None:
        """Take in the rows of a chunk behind its own."""
        self.parts += other.parts
        self.runs += [moved(run, self.rows) for run in other.runs]
        self.lengths += other.lengths
        self.origins += [(self.rows + first, transactions, begin) for first, transactions, begin in other.origins]
        self.size += other.size
        self.rows += other.rows

    def commit_lsn_of(self, row: int) -> int:
        """Return the commit LSN of a row's transaction, 0 if there is no such row."""
        if row >= self.rows:
            return 0
        first, transactions, begin = next(origin for origin in reversed(self.origins) if origin[0] <= row)
        number = np.searchsorted(transactions.row_end, begin + row - first, side="right")
        return int(transactions.commit_lsn[number])


def moved(run: Int64s, rows: int) -> Int64s:
    """Return a run of a chunk's facts whose rows stand behind so many others."""
    found = run.copy()
    found[:, _ROW_END] += rows
    return found


def facts_of(truncation: Truncation) -> Facts:
    """Return the facts of a truncation that is a row, and of the others that are rows with it."""
    return Facts.of(
        np.array(
            [
                [one.commit_lsn, one.commit_us, one.xid, number, one.ordinal]
                for number, one in enumerate((truncation, *truncation.others), 1)
            ],
            np.int64,
        )
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The outcome of cutting."""

    steps: tuple[Chunk | Truncation, ...]
    positions: dict[str, SourcePosition]  #: per source, after its last whole transaction here
    rows: int
    rows_of: dict[str, int]  #: source -> its part of `rows`
    bytes_of: dict[str, int] = dataclasses.field(default_factory=dict)  #: source -> what these had on the wire
    skipped: int  #: rows that the target has already
    commit_us: int
    #: source -> newest commit time of its whole transactions here, which need not be the last one's
    newest_us: dict[str, int] = dataclasses.field(default_factory=dict)
    events: Events = dataclasses.field(default_factory=dict)  #: how far transactions are counted, for the next cut

    def without(self, sources: Collection[str]) -> Cut:
        """Return what was cut of all sources but some."""
        if not sources:
            return self
        rows_of = {source: rows for source, rows in self.rows_of.items() if source not in sources}
        positions = {source: at for source, at in self.positions.items() if source not in sources}
        return dataclasses.replace(
            self,
            steps=tuple(step for step in self.steps if step.source not in sources),
            positions=positions,
            rows=sum(rows_of.values()),
            rows_of=rows_of,
            bytes_of={source: size for source, size in self.bytes_of.items() if source not in sources},
            commit_us=max((at.commit_us for at in positions.values()), default=0),
            newest_us={source: us for source, us in self.newest_us.items() if source not in sources},
            events={key: value for key, value in self.events.items() if key[0] not in sources},
        )


def open_lsn(step: Chunk | Truncation) -> int:
    """Return the commit LSN of the unfinished transaction a step belongs to, 0 if it is of whole ones."""
    if isinstance(step, Chunk):
        return step.open_lsn
    return step.commit_lsn if _is_open(step) else 0


def _is_open(change: Truncation) -> bool:
    return change.end_lsn == change.commit_lsn + 1


def reached(cut: Cut, through: Mapping[str, int], known: Mapping[str, SourcePosition]) -> dict[str, SourcePosition]:
    """Return the positions of a target's sources after a mini-transaction.

    Args:
        cut: Its changes.
        through: As in `TableWork.through`: often beyond the last transaction that touched this target.
        known: The positions before.
    """
    positions = {}
    for source, last in cut.positions.items():  # without `replace`, which takes nearly twice as long
        before = known.get(source, _NOWHERE)
        positions[source] = SourcePosition(
            lsn=max(before.lsn, last.lsn, through.get(source, 0)), commit_lsn=last.commit_lsn, rows=last.rows,
            xid=last.xid, commit_us=last.commit_us, system_id=before.system_id, history=before.history,
        )  # fmt: skip
    for source in through.keys() & known.keys():
        if source not in positions:
            before = known[source]
            is_there = through[source] <= before.lsn
            positions[source] = before if is_there else dataclasses.replace(before, lsn=through[source])
    return positions


def cut(
    changes: Iterable[Segment | Truncation],
    accepted: dict[str, int],
    chunk_bytes: int,
    table_type: TableType = TableType.CLONE,
    events: Mapping[tuple[str, TableName], tuple[int, int]] | None = None,
    *,
    counts: bool = False,
    is_soft: bool = False,
) -> Cut:
    """Cut changes into chunks of about `chunk_bytes`.

    Args:
        changes: In order per source.
        accepted: Source -> LSN before which everything is in the target already.
        chunk_bytes: Size at which a chunk is full.
        table_type: The table type of the target.
        events: What the last cut of the target's changes gave: a transaction may go on from there.
        counts: Whether chunks carry the facts of their transactions whatever the table type.
        is_soft: Whether deleted rows stay in the target.
    """
    counter = _Counter(dict(events or {})) if counts or table_type in _WITH_FACTS else None
    split: set[tuple[str, int]] = set()
    if table_type is TableType.HISTORY:
        changes, chunk_bytes = list(changes), _NO_LIMIT
        split = _split(changes, accepted, events or {})
    steps: list[Chunk | Truncation] = []
    filling: dict[str, Chunk] = {}
    truncations = _Truncations(steps, filling, chunk_bytes, _Shown.by(table_type, is_soft=is_soft))
    positions: dict[str, SourcePosition] = {}
    rows_of: dict[str, int] = {}
    bytes_of: dict[str, int] = {}
    newest_us: dict[str, int] = {}
    skipped = commit_us = 0
    for change in changes:
        floor = accepted.get(change.source, 0)
        if isinstance(change, Truncation):
            if change.commit_lsn >= floor:
                step = change if counter is None else counter.count_truncation(change)
                if (change.source, change.commit_lsn) in split:
                    step = dataclasses.replace(step, end_lsn=change.commit_lsn + 1)
                truncations.add(step)
                if not open_lsn(change):
                    positions[change.source] = SourcePosition(
                        lsn=change.end_lsn, commit_lsn=change.commit_lsn, xid=change.xid, commit_us=change.commit_us
                    )  # fmt: skip
                    newest_us[change.source] = max(newest_us.get(change.source, 0), change.commit_us)
                commit_us = max(commit_us, change.commit_us)
            continue
        first, start = _after(change, floor)
        skipped += start
        total = len(change.lengths)
        if start == total:
            continue
        source, runs = change.source, change.transactions
        ends = _LastTransactions.of(runs)
        commit_us = max(commit_us, ends.commit_us[-1])
        is_open = ends.end_lsn[-1] == ends.commit_lsn[-1] + 1
        at = -2 if is_open else -1  # of the last whole one
        last = len(runs.row_end) + at
        if last >= first:
            positions[source] = ends.position(at, last)
            newest_us[source] = max(
                newest_us.get(source, 0),
                ends.commit_us[at] if last == first else int(runs.commit_us[first : last + 1].max()),
            )
        rows_of[source] = rows_of.get(source, 0) + total - start
        bytes_of[source] = bytes_of.get(source, 0) + (
            int(change.lengths[start:].sum()) if start else len(change.data)
        )
        counted = 0 if counter is None else counter.count(change, first)
        whole = max(start, ends.row_end[at] if last >= 0 else 0)
        spans: Iterable[tuple[int, int, int]] = ((start, whole, 0), (whole, total, ends.commit_lsn[-1]))
        if split:
            spans = _spans(change, first, start, split)
        for begin, end, of in spans:
            if begin < end:
                taking = _Taking(segment=change, open_lsn=of, first=None if counter is None else (first, counted))
                _take(taking, begin, end, filling, steps, chunk_bytes)
    return Cut(
        steps=truncations.left(),
        positions=positions,
        rows=sum(rows_of.values()),
        rows_of=rows_of,
        bytes_of=bytes_of,
        skipped=skipped,
        commit_us=commit_us,
        newest_us=newest_us,
        events={} if counter is None else counter.events,
    )


class _Shown(enum.Enum):
    """What a table shows of truncations."""

    NOTHING = enum.auto()  #: rows stay
    ROWS = enum.auto()  #: each is a row
    LAST = enum.auto()  #: what is there is what came behind the last one
    ENDS = enum.auto()  #: rows that end by it stay, with its time, which is one for all of a transaction

    @staticmethod
    def by(table_type: TableType, *, is_soft: bool) -> _Shown:
        """Return what a type of table shows."""
        if is_soft:
            return _Shown.ENDS
        return {
            TableType.APPEND: _Shown.NOTHING,
            TableType.CHANGELOG: _Shown.ROWS,
            TableType.CLONE: _Shown.LAST,
            TableType.HISTORY: _Shown.ENDS,
        }[table_type]


class _Truncations:
    """Leaves out truncations that another one follows, and joins the chunks that they parted: each is a file.

    All rows stay, and with them what is counted of them and what is found to be wrong with one. Those that are rows
    themselves are put together, for each would be a file, too.

    Args:
        steps: The steps of a cut so far.
        filling: Source -> the chunk that its next rows go into.
        chunk_bytes: Size at which a chunk is full.
        shown: What the target shows of them.
    """

    def __init__(
        self, steps: list[Chunk | Truncation], filling: dict[str, Chunk], chunk_bytes: int, shown: _Shown
    ) -> None:
        self._shown = shown
        self._steps = steps
        self._filling = filling
        self._chunk_bytes = chunk_bytes
        self._looked_at = 0  # of the steps
        self._last: dict[str, list[int]] = {}  # source -> its last chunk, truncation and what came behind that
        self._left_out: set[int] = set()
        self._others: dict[int, list[Truncation]] = {}  # number of a step -> those that are rows with it

    def add(self, truncation: Truncation) -> None:
        """Add the next step, which is a truncation."""
        if self._shown is _Shown.NOTHING:
            self._steps.append(truncation)
            return
        if self._shown is not _Shown.ROWS:
            self._filling.pop(truncation.source, None)
        last = self._since(truncation.source)
        at = next((place for place, number in enumerate(last) if self._is_truncation(number)), None)
        follows = at is not None and all(self._is_of(self._steps[number], truncation) for number in last[at:])
        if self._shown is _Shown.ROWS:
            self._gather(truncation, last[at] if follows and at is not None else None)
            return
        if follows and at is not None and self._hides(truncation, self._steps[last[at]]):
            self._left_out.add(last.pop(at))
            self._join(last, at)
        self._last[truncation.source] = [number for number in last[-1:] if not self._is_truncation(number)]
        self._steps.append(truncation)

    def _since(self, source: str) -> list[int]:
        """Return the numbers of a source's steps that were not looked at before."""
        for number in range(self._looked_at, len(self._steps)):
            self._last.setdefault(self._steps[number].source, []).append(number)
        self._looked_at = len(self._steps)
        return self._last.get(source, [])

    def _gather(self, truncation: Truncation, first: int | None) -> None:
        """Put one that is a row to the rows of another one, if there is one."""
        if first is None or self._steps[first].relation != truncation.relation:
            self._last[truncation.source] = []
            self._steps.append(truncation)
            return
        self._others.setdefault(first, []).append(truncation)
        self._last[truncation.source] = [first]

    def _hides(self, truncation: Truncation, before: Chunk | Truncation) -> bool:
        """Whether nothing is seen of one behind which another one comes."""
        assert isinstance(before, Truncation)
        return self._shown is _Shown.LAST or before.commit_lsn == truncation.commit_lsn

    def left(self) -> tuple[Chunk | Truncation, ...]:
        """Return the other steps."""
        return tuple(self._whole(number) for number in range(len(self._steps)) if number not in self._left_out)

    def _whole(self, number: int) -> Chunk | Truncation:
        step, others = self._steps[number], self._others.get(number, ())
        return dataclasses.replace(step, others=tuple(others)) if isinstance(step, Truncation) and others else step

    def _join(self, last: list[int], at: int) -> None:
        """Join the chunk behind a truncation that is left out with the one before, if both are one by their size."""
        if not 0 < at < len(last):
            return
        before, behind = self._steps[last[at - 1]], self._steps[last[at]]
        assert isinstance(before, Chunk)
        assert isinstance(behind, Chunk)
        is_alike = before.relation == behind.relation and before.open_lsn == behind.open_lsn
        if is_alike and before.size + behind.size <= self._chunk_bytes:
            before.join(behind)
            self._left_out.add(last.pop(at))

    def _is_truncation(self, number: int) -> bool:
        return isinstance(self._steps[number], Truncation)

    @staticmethod
    def _is_of(step: Chunk | Truncation, truncation: Truncation) -> bool:
        """Whether a step is of the same table, and shows when a truncation does."""
        return step.relation.oid == truncation.relation.oid and open_lsn(step) == open_lsn(truncation)


class _Counter:
    """Numbers the events of each transaction, table by table, whatever pieces it comes in."""

    def __init__(self, events: Events) -> None:
        self.events = events

    def count(self, segment: Segment, first: int) -> int:
        """Count a segment from a transaction on; return how many events that one had before."""
        key = (segment.source, segment.relation.table)
        transactions = segment.transactions
        before = self._before(key, int(transactions.commit_lsn[first]))
        last = len(transactions.row_end) - 1
        rows = int(transactions.row_end[last]) - (int(transactions.row_end[last - 1]) if last else 0)
        self.events[key] = (int(transactions.commit_lsn[last]), rows + (before if last == first else 0))
        return before

    def count_truncation(self, change: Truncation) -> Truncation:
        """Count a truncation; return it with its number."""
        key = (change.source, change.relation.table)
        before = self._before(key, change.commit_lsn)
        self.events[key] = (change.commit_lsn, before + 1)
        return dataclasses.replace(change, ordinal=before)

    def _before(self, key: tuple[str, TableName], commit_lsn: int) -> int:
        lsn, count = self.events.get(key, (0, 0))
        return count if lsn == commit_lsn else 0


def _split(
    changes: Iterable[Segment | Truncation],
    accepted: Mapping[str, int],
    events: Mapping[tuple[str, TableName], tuple[int, int]],
) -> set[tuple[str, int]]:
    """Return (source, commit LSN) of the transactions that come in several pieces, now or with earlier work."""
    pieces = collections.Counter((source, table, lsn) for (source, table), (lsn, _) in events.items())
    for change in changes:
        if isinstance(change, Truncation):
            lsns = {change.commit_lsn}
            goes_on = change.commit_lsn if _is_open(change) else 0
        else:
            runs = change.transactions
            lsns = {int(runs.commit_lsn[0]), int(runs.commit_lsn[-1])}
            goes_on = int(runs.commit_lsn[-1]) if runs.end_lsn[-1] == runs.commit_lsn[-1] + 1 else 0
        for lsn in lsns:
            if lsn >= accepted.get(change.source, 0):
                pieces[change.source, change.relation.table, lsn] += 2 if lsn == goes_on else 1
    return {(source, lsn) for (source, _, lsn), count in pieces.items() if count > 1}


def _spans(segment: Segment, first: int, start: int, split: set[tuple[str, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (first row, end, commit LSN of a transaction in pieces, else 0): whole transactions together."""
    begin = end = start
    for lsn, row_end in zip(
        segment.transactions.commit_lsn[first:].tolist(), segment.transactions.row_end[first:].tolist(), strict=True
    ):
        if (segment.source, lsn) in split:
            yield begin, end, 0
            yield end, row_end, lsn
            begin = row_end
        end = row_end
    yield begin, end, 0


def _after(segment: Segment, floor: int) -> tuple[int, int]:
    """Return the first transaction at or after an LSN, and its first row."""
    if segment.transactions.commit_lsn[0] >= floor:  # nearly always, and a search takes as long as all else here
        return 0, 0
    first = int(np.searchsorted(segment.transactions.commit_lsn, floor, side="left"))
    return first, int(segment.transactions.row_end[first - 1]) if first else 0


class _LastTransactions(NamedTuple):
    """The last three transactions of a segment, in Python's numbers: of most segments of a fleet, all that it has."""

    commit_lsn: list[int]
    end_lsn: list[int]
    commit_us: list[int]
    xid: list[int]
    row_end: list[int]

    @staticmethod
    def of(runs: Transactions) -> _LastTransactions:
        """Return those of a segment."""
        if len(runs.row_end) == 1:  # without views: half of the time
            return _LastTransactions(
                [runs.commit_lsn.item()], [runs.end_lsn.item()], [runs.commit_us.item()], [runs.xid.item()],
                [runs.row_end.item()],
            )  # fmt: skip
        return _LastTransactions(
            runs.commit_lsn[-3:].tolist(), runs.end_lsn[-3:].tolist(), runs.commit_us[-3:].tolist(),
            runs.xid[-3:].tolist(), runs.row_end[-3:].tolist(),
        )  # fmt: skip

    def position(self, at: int, number: int) -> SourcePosition:
        """Return where a source is behind one of them.

        Args:
            at: Its place, from the end.
            number: Its number in the segment.
        """
        return SourcePosition(
            lsn=self.end_lsn[at], commit_lsn=self.commit_lsn[at], xid=self.xid[at], commit_us=self.commit_us[at],
            rows=self.row_end[at] - (self.row_end[at - 1] if number else 0),
        )  # fmt: skip


class _Taking(NamedTuple):
    """Rows of a segment on their way into chunks."""

    segment: Segment
    open_lsn: int
    first: tuple[int, int] | None  #: a transaction, and how many events it had before the segment; None: no facts


def _take(
    taking: _Taking,
    begin: int,
    end: int,
    filling: dict[str, Chunk],
    steps: list[Chunk | Truncation],
    chunk_bytes: int,
) -> None:
    segment = taking.segment
    if end - begin == len(segment.lengths):
        chunk = _chunk_for(taking, filling, steps, chunk_bytes)
        if chunk.size + len(segment.data) <= chunk_bytes:
            _put(chunk, taking, 0, end, memoryview(segment.data))
            return
    ends = np.cumsum(segment.lengths, dtype=np.int64)
    view = memoryview(segment.data)
    while begin < end:
        chunk = _chunk_for(taking, filling, steps, chunk_bytes)
        offset = int(ends[begin - 1]) if begin else 0
        room = max(chunk_bytes - chunk.size, 1)
        stop = min(end, max(begin + 1, int(np.searchsorted(ends, offset + room, side="left")) + 1))
        size = int(ends[stop - 1]) - offset
        if chunk.size and size > room and chunk.size + size > 2 * chunk_bytes:
            del filling[segment.source]  # full: the next turn opens another
            continue
        _put(chunk, taking, begin, stop, view[offset : offset + size])
        begin = stop


def _chunk_for(
    taking: _Taking, filling: dict[str, Chunk], steps: list[Chunk | Truncation], chunk_bytes: int
) -> Chunk:
    """Return the chunk that the next rows go into, a new one if need be."""
    segment, open_lsn = taking.segment, taking.open_lsn
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
    return chunk


def _put(chunk: Chunk, taking: _Taking, begin: int, stop: int, data: memoryview) -> None:
    """Put rows of a segment into a chunk."""
    segment = taking.segment
    chunk.parts.append(data)
    chunk.lengths.append(segment.lengths[begin:stop])
    chunk.size += len(data)
    chunk.origins.append((chunk.rows, segment.transactions, begin))
    if taking.first is not None:
        _note_facts(chunk, segment, begin, stop, taking.first)
    chunk.rows += stop - begin


def _note_facts(chunk: Chunk, segment: Segment, begin: int, stop: int, counted: tuple[int, int]) -> None:
    """Give a chunk the facts of its rows' transactions."""
    runs = segment.transactions
    first = int(np.searchsorted(runs.row_end, begin, side="right"))
    last = int(np.searchsorted(runs.row_end, stop - 1, side="right"))
    part = slice(first, last + 1)
    row_begin = np.concatenate((runs.row_end[:1] * 0, runs.row_end))[part].astype(np.int64)
    ordinal = np.maximum(begin, row_begin) - row_begin
    if first == counted[0]:
        ordinal[0] += counted[1]
    chunk.runs.append(
        np.stack(
            [
                runs.commit_lsn[part].astype(np.int64),
                runs.commit_us[part],
                runs.xid[part].astype(np.int64),
                chunk.rows + np.minimum(runs.row_end[part].astype(np.int64), stop) - begin,
                ordinal,
            ],
            axis=1,
        )
    )
