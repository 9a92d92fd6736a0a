"""What Spark runs to list the rows of tables in which several have one key, with what orders these.

The driver sorts them, a group of keys at a time (`kuvasz.fold.events`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.errors import InternalError
from kuvasz.fold.difference import Listing, find
from kuvasz.fold.digest import group_of
from kuvasz.fold.events import NEVER, Events
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors.comparison_tasks import LakeFiles, Part, Reading, Rows, listing_of
from kuvasz.model import Int64s, TableType
from kuvasz.modes import changelog, history, system_columns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventsDone:
    """What one part holds."""

    groups: dict[int, Events]
    since: tuple[int, int]  #: LSN and number of its last TRUNCATE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListEvents:
    """List the rows of each part, by groups of keys."""

    reading: Reading
    groups: int
    wanted: Keys | None = None  #: only these, ascending

    def result(self, part: Part, chunks: Iterator[Rows]) -> EventsDone:
        """Return what a part holds."""
        del part
        found: dict[int, list[Events]] = {}
        since = NEVER
        for rows in chunks:
            events, last = self._events(rows)
            since = max(since, last)
            if self.wanted is not None:
                events = events.take(find(self.wanted, events.rows.keys) >= 0)
            for group, some in split(events, self.groups):
                found.setdefault(group, []).append(some)
        return EventsDone(groups={group: Events.concat(parts) for group, parts in found.items()}, since=since)

    def _events(self, rows: Rows) -> tuple[Events, tuple[int, int]]:
        mode = self.reading.shape.mode
        if mode is TableType.CHANGELOG:
            return self._changes(rows)
        listing = listing_of(self.reading, rows, np.arange(len(rows.keys)))
        if mode is TableType.HISTORY:
            begin, end = (history.micros(rows.table, name) for name in (system_columns.START, system_columns.END))
            return Events(
                rows=listing, first=begin, second=end, is_end=_true(rows.table.column(system_columns.DELETED))
            ), NEVER
        if mode is TableType.APPEND:
            rank = np.full(len(listing), rows.rank, np.int64)
            none = np.zeros(len(listing), np.bool_)
            return Events(rows=listing, first=rank, second=listing.places.astype(np.int64), is_end=none), NEVER
        raise InternalError(f"rows of a table of type {mode} have no order")

    def _changes(self, rows: Rows) -> tuple[Events, tuple[int, int]]:
        """Return a changelog's events, and those of keys that an UPDATE gave up."""
        op, lsn, ordinal = changes_of(rows.table)
        is_truncation = op == _TRUNCATE
        since = NEVER
        if is_truncation.any():
            since = max(zip(lsn[is_truncation].tolist(), ordinal[is_truncation].tolist(), strict=True))
        kept = np.flatnonzero(~is_truncation)
        events = Events(
            rows=listing_of(self.reading, rows, kept), first=lsn[kept], second=ordinal[kept],
            is_end=op[kept] == _DELETE,
        )  # fmt: skip
        if not self.reading.shape.key:
            return events, since
        moved = np.flatnonzero(rows.table.column(system_columns.OLD_KEY).is_valid().to_numpy())
        if len(moved) == 0:
            return events, since
        keys = changelog.old_keys(self.reading.shape, rows.table.column(system_columns.OLD_KEY).take(pa.array(moved)))
        none = np.zeros(len(moved), np.uint32)
        gone = Listing(keys=keys, prints=Keys.empty(len(moved)), files=none, places=none)
        ends = Events(rows=gone, first=lsn[moved], second=ordinal[moved], is_end=np.ones(len(moved), np.bool_))
        return Events.concat([events, ends]), since


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count the rows that each part says the source has."""

    reading: Reading
    since: tuple[int, int] = NEVER  #: only what a changelog says after this event

    def result(self, part: Part, chunks: Iterator[Rows]) -> int:
        """Return how many they are."""
        is_log = self.reading.shape.mode is TableType.CHANGELOG and isinstance(part, LakeFiles)
        return sum(self._balance(rows) if is_log else len(rows.keys) for rows in chunks)

    def _balance(self, rows: Rows) -> int:
        op, lsn, ordinal = changes_of(rows.table)
        counts = (lsn > self.since[0]) | ((lsn == self.since[0]) & (ordinal > self.since[1]))
        came, gone = counts & np.isin(op, _CAME), counts & (op == _DELETE)
        return int(np.count_nonzero(came)) - int(np.count_nonzero(gone))


_CAME = ("I", "R")
_DELETE, _TRUNCATE = "D", "T"


def changes_of(rows: pa.Table) -> tuple[np.ndarray, Int64s, Int64s]:
    """Return operations, LSNs and numbers of a changelog's rows; copied rows come before the first number."""
    op = rows.column(system_columns.OP).combine_chunks().to_numpy(zero_copy_only=False)
    lsn = rows.column(system_columns.LSN).combine_chunks().to_numpy(zero_copy_only=False)
    ordinal = pc.fill_null(rows.column(system_columns.ORDINAL), -1).combine_chunks().to_numpy(zero_copy_only=False)
    return op, lsn.astype(np.int64), ordinal.astype(np.int64)


def split(events: Events, groups: int) -> Iterator[tuple[int, Events]]:
    """Yield the number of each group that has some of the events, and these."""
    if len(events) == 0:
        return
    of = group_of(events.rows.keys, groups)
    order = np.argsort(of, kind="stable")
    found, starts = np.unique(of[order], return_index=True)
    for group, begin, end in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
        yield group, events.take(order[begin:end])


def _true(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.combine_chunks().to_numpy(zero_copy_only=False).astype(np.bool_)
    return values


__all__ = ["Count", "EventsDone", "ListEvents", "changes_of", "split"]
