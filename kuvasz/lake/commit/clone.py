"""Steps of a mini-transaction into a table whose rows are replaced or only added: clone, append and changelog.

The executors have written new rows before anything is known of the lake; here earlier versions of them die. A row
that leaves out a large value which did not change waits for its earlier version, which may itself wait for another:
all that wait are completed in as few jobs as can be, one for each level.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from kuvasz.index.positions import ABSENT
from kuvasz.lake.commit.bundles import Step, chunks_of, open_lsn, owner_finder, owners_of, sources_of
from kuvasz.lake.commit.history import HistoryWriter
from kuvasz.lake.commit.keyless import KeylessRows
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.executors.refused_rows import packed
from kuvasz.lake.executors.tasks import ChunkDone, CompleteRows, CompleteTask, from_ipc
from kuvasz.lake.format import naming
from kuvasz.lake.format.binding import no_earlier_value, no_earlier_version
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.model import POSTGRES_EPOCH_US, TableType, Truncation
from kuvasz.modes.clone import EarlierLost
from kuvasz.modes.rejects import orphaned
from kuvasz.modes.soft import DELETED_AT, EarlierDeleted

if TYPE_CHECKING:
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.table_index import TableRows

#: File number and position of rows, one after another.
_Places: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiting:
    """A chunk's rows that wait for their earlier versions."""

    step: Step
    number: int  #: reserved for the file they will be written to
    level: int  #: 1 if all earlier versions are written, 2 if some come with level 1, …
    done: ChunkDone
    earlier: _Places
    layer: Changeset
    sid: str | None

    def is_of(self, source: str) -> bool:
        """Whether all rows are of a source."""
        return sources_of(self.step) == (source,)


class CloneWriter:
    """Works one mini-transaction of one table out. Use once.

    Args:
        table: The rows of the table, whose lock is held.
        jobs: Where rows that wait are completed.
        properties: The properties of the FileIO.
        changeset: Takes the outcome, beside those of open transactions.
    """

    def __init__(self, table: TableRows, jobs: Jobs, properties: Mapping[str, str], changeset: Changeset) -> None:
        self._table = table
        self._jobs = jobs
        self._properties = properties
        self._changeset = changeset
        self._resolution = Resolution(table, changeset)
        self._waiting: list[_Waiting] = []
        self._level_of: dict[int, int] = {}  # number of a file to come -> its level
        self.rejected: list[bytes] = []  #: what was left out here: see `kuvasz.lake.executors.refused_rows`
        self._settled: dict[int, _Places] = {}  # number of a file to come -> where its rows are, now that they are

    def apply(self, step: Step, result: ChunkDone | Truncation, sid: str | None) -> None:
        """Apply one step with its result, in order; `sid` is that of its rows, None if they are of several sources.

        Raises:
            TableError: A row waits for an earlier version that is not there.
        """
        for source in sources_of(step):
            self._take_turn(source, open_lsn(step))
        if isinstance(result, Truncation):
            self._truncate(step.source, sid, result.commit_us + POSTGRES_EPOCH_US)
        else:  # that of a TRUNCATE, too, where it is a row
            self._resolve(step, result, sid)

    def conclude(self, whole: Collection[str]) -> None:
        """Write the rows that wait, and close open transactions; after the last step.

        Args:
            whole: Sources of which nothing goes on in later work.

        Raises:
            TableError: An earlier version is not there.
        """
        self._complete_all()
        for source in self._table.open.keys() & whole:
            self._conclude(source)

    def _conclude(self, source: str, reserved: Sequence[int] = ()) -> None:
        """Take a transaction that is now whole into the commit; `reserved` as for `SourceFiles.truncate`."""
        pending = self._table.open[source]
        if self._is_soft and pending.truncates is not None:
            self._delete_all(source, pending.truncates[0], pending.us)
            for keys, _, _ in pending.entries:  # rows of these came since
                files, rows = self._table.index.places.lookup(keys)
                files, rows = self._table.index.files.alive(files, rows, self._changeset)
                self._changeset.delete(files[files != ABSENT], rows[files != ABSENT])
            pending.truncates = None
        self._table.index.sources.conclude(source, self._changeset, reserved)

    def _take_turn(self, source: str, of: int) -> None:
        """Close a source's open transaction if a step shows that it is whole, open the step's own if it begins one.

        Rows of the closed transaction that wait do so in the commit's own changeset from now on.

        Args:
            source: The source.
            of: Commit LSN of the transaction that the step is part of, 0 if it is of whole ones.
        """
        changeset = self._changeset
        pending = self._table.open.get(source)
        if pending is not None and pending.commit_lsn != of:
            if pending.truncates is not None:
                self._part_from_others(source)
            mine = [item for item in self._waiting if item.is_of(source) and item.layer is changeset]
            self._conclude(source, [item.number for item in mine])
            self._waiting = [
                dataclasses.replace(item, layer=changeset) if item.layer is not changeset and item.is_of(source)
                else item
                for item in self._waiting
                if pending.truncates is None or item not in mine
            ]  # fmt: skip
            pending = None
        if pending is None and of:
            self._table.open[source] = OpenTransaction(of)

    def _layer(self, source: str) -> Changeset:
        pending = self._table.open.get(source)
        return self._changeset if pending is None else pending.changeset

    @property
    def _is_soft(self) -> bool:
        return self._table.definition.target.is_soft

    def _truncate(self, source: str, sid: str | None, us: int) -> None:
        if self._table.definition.target.type is TableType.APPEND:
            return
        pending = self._table.open.get(source)
        if self._is_soft and pending is None:
            self._delete_all(source, sid, us)
            return
        if pending is not None:
            pending.us = us
        self._part_from_others(source)
        layer = self._layer(source)
        gone = [item for item in self._waiting if item.is_of(source) and item.layer is layer]
        self._table.index.sources.truncate(source, sid, layer, [item.number for item in gone])
        self._waiting = [item for item in self._waiting if item not in gone]

    def _delete_all(self, source: str, sid: str | None, us: int) -> None:
        """Delete all rows of a source where deleted rows stay.

        Those that wait are completed before: some are of the source, some have their earlier versions in its files.
        """
        self._complete_all()
        self._waiting.clear()
        writer = HistoryWriter(self._table, self._jobs, self._properties, self._changeset)
        writer.truncate(source, sid, us, is_soft=True)

    def _part_from_others(self, source: str) -> None:
        """Write the rows that wait, if some of a source do so with others': in a file its own can be told apart."""
        if any(source in sources_of(item.step) and not item.is_of(source) for item in self._waiting):
            self._complete_all()
            self._waiting.clear()

    def _resolve(self, step: Step, result: ChunkDone, sid: str | None) -> None:
        table, layer, source = self._table, self._layer(step.source), step.source
        number = table.index.files.reserve()
        source_of = owner_finder(step, result)
        if table.definition.is_bag:
            KeylessRows(table.definition.name, table.index, (self._changeset, layer), table.open.get(source)).apply(
                result, source_of, sid
            )
            return
        if self._is_soft and result.sources is not None:
            assert result.aside is not None
            unknown = result.unchanged[pa.ipc.open_stream(result.aside).schema.get_field_index(DELETED_AT)]
            result, _ = self._resolution.without_lost(result, source, layer, self._level_of, unknown)
        elif result.waiting is not None and result.sources is not None:
            result = self._without_lost(step, result)
        earlier = self._resolution.apply(result, source, number, layer, sid, source_of)
        if earlier is not None:
            level = 1 + max((self._level_of.get(int(file), 0) for file in np.unique(earlier[0])), default=0)
            self._level_of[number] = level
            self._waiting.append(_Waiting(step=step, number=number, level=level, done=result,
                                          earlier=earlier, layer=layer, sid=sid))  # fmt: skip

    def _without_lost(self, step: Step, result: ChunkDone) -> ChunkDone:
        """Leave the rows out that wait for a version which was rejected, and note what is written down of them."""
        assert not isinstance(step, Truncation)
        assert result.waiting is not None
        assert result.aside is not None
        assert result.sources is not None
        layer = self._layer(step.source)
        left, lost = self._resolution.without_lost(result, step.source, layer, self._level_of)
        which = np.flatnonzero(lost)
        if len(which) == 0:
            return result
        names = {chunk.source: str(chunk.relation.table) for chunk in chunks_of(step)}
        whose = owners_of(step, result, result.sources.take(which))
        rows, origins = (from_ipc(data).take(pa.array(which)) for data in (result.aside, result.waiting))
        unsent = [mask[which] if len(mask) else mask for mask in result.unchanged]
        notes = orphaned(rows, origins, self._table.definition.key, unsent)
        notes = notes.set_column(0, "source", pa.array(whose, pa.string()))
        notes = notes.set_column(1, "table_name", pa.array([names[one] for one in whose], pa.string()))
        self.rejected.append(packed(notes))
        return left

    def _complete_all(self) -> None:
        for level in sorted({item.level for item in self._waiting}):
            self._complete([item for item in self._waiting if item.level == level])

    def _complete(self, waiting: Sequence[_Waiting]) -> None:
        tasks = [(item.number, self._task(item)) for item in waiting]
        results = dict(self._jobs.run(CompleteRows(properties=self._properties), tasks, [1] * len(tasks)))
        for item in waiting:  # all files first: an error removes what the changesets know
            completed = results[item.number]
            if self._table.definition.layout.is_plain:
                for file in completed.files:
                    item.layer.add(item.number, file, self._table.index.owner_of(file, item.sid))
            elif completed.error is None:
                self._settled[item.number] = self._resolution.complete(
                    item.number, item.done, completed, item.step.source, item.layer, item.sid
                )
        for item in waiting:
            error = results[item.number].error
            if isinstance(error, EarlierDeleted | EarlierLost):
                assert item.done.sources is not None
                key = item.done.sources.take(np.array([error.row], np.int32))
                source, name = owner_finder(item.step, item.done)(key), self._table.definition.name
                if isinstance(error, EarlierLost):
                    raise no_earlier_value(source, name, error.field)
                raise no_earlier_version(source, name, 1)
            if error is not None:
                raise error

    def _task(self, item: _Waiting) -> CompleteTask:
        files, positions = self._where_now(item.earlier)
        numbers, file_of = np.unique(files, return_inverse=True)
        assert item.done.aside is not None
        return CompleteTask(
            aside=item.done.aside,
            unchanged=item.done.unchanged,
            files=tuple(self._path(item, int(number)) for number in numbers),
            file_of=file_of.astype(np.int32),
            position_of=positions.astype(np.int32),
            path=naming.fresh(self._table.definition.location, item.step.source, item.done.order),
            bounded=self._table.definition.bounded,
            layout=self._table.definition.layout,
            waits=item.done.waits,
            is_value=item.done.is_value,
            is_soft=self._table.definition.target.is_soft,
            table_type=self._table.definition.target.type,
        )

    def _where_now(self, earlier: _Places) -> _Places:
        """Return places with those of rows that have waited themselves replaced by where they are now."""
        files, positions = earlier
        for number, (file, position) in self._settled.items():
            mine = files == number
            if mine.any():
                at = positions[mine]
                files, positions = files.copy(), positions.copy()
                files[mine], positions[mine] = file[at], position[at]
        return files, positions

    def _path(self, item: _Waiting, number: int) -> str:
        table = self._table
        for layer in (self._changeset, item.layer):
            if number in layer.added:
                return layer.added[number][0].path
        if number not in table.index.files:  # the index does not forget rows of files that went as a whole
            lost = item.earlier[0] == number
            assert item.done.sources is not None
            source = owner_finder(item.step, item.done)(item.done.sources.take(np.flatnonzero(lost)[:1]))
            raise no_earlier_version(source, table.definition.name, int(np.count_nonzero(lost)))
        return table.index.files[number].path


__all__ = ["CloneWriter"]
