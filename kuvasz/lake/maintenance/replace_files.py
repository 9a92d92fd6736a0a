"""Files of a table exchanged for others that hold the same rows, while the stream goes on.

Three steps: `Rewrite.plan` under the table's lock notes the files and which of their rows are dead; a Spark job
writes the live ones anew, without the lock; `Rewrite.commit` under the lock carries over what died meanwhile and
commits. The stream resolves and commits under the same lock, so there is nothing to conflict with; what it has
written and not resolved yet names keys, never places.

The position index learns the new places as it learns those of any new rows, by an insert of the live ones: that
costs what was moved, where giving every record of the index its new place would cost what the table holds.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, InternalError, LakeError
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.rewrite_tasks import RewriteDone, RewriteFiles, RewriteInput, RewriteTask, positions_of
from kuvasz.lake.executors.tasks import ReadKeys
from kuvasz.lake.files.data_file import DataFile, remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.files import Changeset, FileEntry, read_dead
from kuvasz.lake.format import member, naming
from kuvasz.lake.format.layout import Values
from kuvasz.lake.maintenance.compaction_policy import FileFacts, FileGroup
from kuvasz.lake.table.commit_builder import data_json
from kuvasz.lake.table.commits import may_be_there
from kuvasz.lake.table.recovery import insert_found
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import Int64s, TableType

#: Attempts at a commit that meets another process's; each works out anew what died meanwhile.
_ATTEMPTS = 5


def facts(table: LakeTable, entries: Sequence[FileEntry], target_bytes: int) -> list[FileFacts]:
    """Return what counts of live files of a table, which may change meanwhile: there may be a hundred thousand.

    Args:
        table: The table.
        entries: The files.
        target_bytes: The size of a file. A source that fills half of one has files of its own, smaller ones share.
    """
    keeps_order = table.definition.keeps_order
    dead = [entry.dead_rows for entry in entries]
    pool_of = _pools(table, entries, dead, target_bytes) if shares_files(table) else {}
    return [
        FileFacts(
            number=entry.number,
            key=(pool_of.get(entry.sid, entry.sid), member.in_path(entry.path), entry.spec_id, entry.partition),
            rows=entry.rows,
            dead=count,
            size=entry.size,
            age=(entry.sequence, entry.path.rpartition("/")[2]) if keeps_order else None,
        )
        for entry, count in zip(entries, dead, strict=True)
    ]


def shares_files(table: LakeTable) -> bool:
    """Whether a file may hold rows of several sources."""
    target = table.target
    return target.has_sid and not target.has_members and target.type is not TableType.HISTORY


def _pools(
    table: LakeTable, entries: Iterable[FileEntry], dead: Iterable[int], target_bytes: int
) -> dict[str | None, str | None]:
    """Return the sids whose files are merged with those of others: all with None in place of their own.

    Where the order of rows counts, a file of several sources has a place among those of each, so only files of all
    of them together have neighbours in age.
    """
    filled: dict[str | None, int] = collections.defaultdict(int)
    for entry, count in zip(entries, dead, strict=True):
        filled[entry.sid] += entry.size * (entry.rows - count) // max(1, entry.rows)
    small = {sid for sid, size in filled.items() if sid is None or 2 * size < target_bytes}
    is_joint = table.definition.keeps_order and (None in small or len(small) > 1)
    return dict.fromkeys(filled if is_joint else small)


def read_ahead(table: LakeTable, groups: Iterable[FileGroup]) -> None:
    """Read the delete files of groups without the table's lock: after a start none of them is in memory."""
    numbers = [file.number for group in groups for file in group.files]
    with table.lock:
        known = [table.index.files[number] for number in numbers if number in table.index.files]
        wanted = [(entry, entry.all_deletes) for entry in known if entry.dead is None and entry.all_deletes]
    for entry, deletes in wanted:
        dead = read_dead(table.definition.io_properties, entry.path, deletes)
        with table.lock:
            if entry.dead is None and entry.all_deletes == deletes:
                entry.dead = dead


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    path: str
    data: str  #: its JSON
    deletes: tuple[str, ...]  #: those of its own delete files
    rows: int
    dead: BitMap64  #: when it was planned

    def places(self, first: int) -> Int64s:
        """Return the new place of each row, -1 if it is dead: live rows are counted on from `first`."""
        alive = np.ones(self.rows, np.bool_)
        alive[positions_of(self.dead)] = False
        places = np.cumsum(alive, dtype=np.int64) + (first - 1)
        places[~alive] = -1
        return places


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One group on its way."""

    sid: str | None
    inputs: tuple[_Input, ...]
    path: str
    spec_id: int
    partition: Values
    passes: int = 0  #: as in `RewriteTask`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """A written file and where its rows came from."""

    file: DataFile
    sid: str | None
    keys: Keys | None  #: in ascending order, so that taking them in under the lock is cheap
    key_rows: npt.NDArray[np.uint32]  #: the row of each key
    places: tuple[tuple[_Input, Int64s], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Swapped:
    """What a rewrite did."""

    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    bytes: int = 0  #: written
    carried: int = 0  #: rows that died while the new files were being written
    is_whole: bool = True  #: every new file was needed


#: Of what several sources share, sorted by sid at a time: in memory it is several times as large.
_PASS_BYTES = 32 << 20

#: The files as they were planned, their delete files, and the new ones, as JSON for a commit.
Outcome: TypeAlias = tuple[list[str], list[str], list[str]]


class Rewrite:
    """Some groups of files of one table. Use once: `plan`, `write`, `commit`; `abandon` if it goes no further."""

    def __init__(
        self, table: LakeTable, parts: Sequence[_Part], job: RewriteFiles, sequence: int | None = None
    ) -> None:
        self._table = table
        self._parts = parts
        self._job = job
        self._sequence = sequence
        self._properties = job.properties
        self._outputs: list[_Output] = []
        self._may_be_there = False  #: in the table, whatever failed behind that

    @classmethod
    def plan(
        cls, table: LakeTable, groups: Iterable[FileGroup], keys: ReadKeys | None, sort_by: Sequence[str] = ()
    ) -> Rewrite:
        """Note what is to be rewritten; the table's lock must be held.

        Args:
            table: The table.
            groups: Groups of its files. One alone if the order of rows counts: a commit's files are of one age.
            keys: Hashes keys for the index; None if the table has none.
            sort_by: Columns to sort the rows of each file by.
        """
        parts = []
        groups = list(groups)
        is_ordered = table.definition.keeps_order and len(groups) == 1
        sequence = None
        for group in groups:
            entries = [table.index.files[file.number] for file in group.files if file.number in table.index.files]
            if entries:
                inputs = tuple(
                    _Input(
                        path=entry.path,
                        data=data_json(entry),
                        rows=entry.rows,
                        deletes=tuple(entry.own_deletes),
                        dead=BitMap64(table.index.files.dead(entry.number)),
                    )
                    for entry in entries
                )
                path = naming.merged(
                    table.definition.location, [entry.path for entry in entries], is_ordered=is_ordered
                )
                sequence = entries[-1].sequence if is_ordered else None
                first, sids = entries[0], {entry.sid for entry in entries}
                is_shared = shares_files(table) and (None in sids or len(sids) > 1)
                parts.append(_Part(sid=first.sid if len(sids) == 1 else None, inputs=inputs, path=path,
                                   spec_id=first.spec_id, partition=first.partition,
                                   passes=1 + group.live_bytes // _PASS_BYTES if is_shared else 0))  # fmt: skip
        definition = table.definition
        job = RewriteFiles(
            properties=definition.io_properties, schema=definition.schema.arrow(), bounded=definition.bounded,
            keys=keys, sort_by=tuple(sort_by), layout=dataclasses.replace(definition.layout, partition=()),
        )  # fmt: skip
        return cls(table, parts, job, sequence)

    @property
    def paths(self) -> list[str]:
        """What will have been written."""
        return [part.path for part in self._parts]

    @property
    def outcome(self) -> Outcome:
        """The exchange as it was planned."""
        inputs = [each for part in self._parts for each in part.inputs]
        deletes = [text for each in inputs for text in each.deletes]
        return [each.data for each in inputs], deletes, [output.file.json for output in self._outputs]

    def write(self, jobs: Jobs, slots: int) -> None:
        """Write the new files; without the lock.

        Raises:
            LakeError: Spark or the store failed.
        """
        tasks = [
            (
                number,
                RewriteTask(
                    inputs=tuple(RewriteInput(path=i.path, dead=i.dead.serialize()) for i in part.inputs),
                    path=part.path,
                    spec_id=part.spec_id,
                    partition=part.partition,
                    passes=part.passes,
                ),
            )
            for number, part in enumerate(self._parts)
        ]
        if not tasks:
            return
        failpoints.hit("before_rewrite", LakeError)
        sizes = [sum(i.rows - len(i.dead) for i in part.inputs) for part in self._parts]
        for number, done in jobs.run(self._job, tasks, sizes, slots=slots):
            if done.error is not None:
                raise done.error
            if done.file is not None:
                self._outputs.append(_output(self._parts[number], done))
        failpoints.hit("after_rewrite", LakeError)

    def abandon(self) -> None:
        """Remove what was written; it was not committed."""
        remove(file_io(self._properties, self._table.definition.location), self.paths)

    def commit(self, summary: Callable[[Swapped], Mapping[str, str]]) -> Swapped | None:
        """Exchange the files; the table's lock must be held. None if the files are no longer what they were.

        Raises:
            ForeignChange: Another process changed the table again and again; nothing was done.
            LakeError: Catalog or store failed. Where nobody knows whether it was done, the new files stay.
        """
        try:
            for _ in range(_ATTEMPTS - 1):
                with contextlib.suppress(ForeignChange):
                    return self._commit(summary)
            return self._commit(summary)
        except BaseException:
            if not self._may_be_there:
                self.abandon()
            raise

    def _commit(self, summary: Callable[[Swapped], Mapping[str, str]]) -> Swapped | None:
        table = self._table
        table.follow()
        old = {each.path: entry for part in self._parts for each in part.inputs
               if (entry := table.index.files.find(each.path)) is not None}  # fmt: skip
        if not old or any(each.dead - table.index.files.dead(old[each.path].number) for part in self._parts
                          for each in part.inputs if each.path in old):  # fmt: skip
            self.abandon()  # a TRUNCATE took the files away, or someone brought dead rows back to life
            return None
        changeset = Changeset()
        changeset.is_rewrite = True
        changeset.sequence = self._sequence
        changeset.dropped.update(entry.number for entry in old.values())
        numbers: dict[str, int] = {}
        for output in self._outputs:
            dead = self._died(output)
            if len(dead) < output.file.rows:
                numbers[output.file.path] = self._take(output, dead, changeset)
        if self._sequence is not None and changeset.deletes and not any(entry.own_deletes for entry in old.values()):
            self.abandon()  # Iceberg takes such a commit for new rows; nobody but another engine deletes any here
            return None
        if self._grows(old.values(), changeset):
            table.index.undo()
            self.abandon()
            return None
        if not table.definition.has_unique_keys:
            table.index.places.remap(self._moves(old, numbers))
        swapped = self._facts(old.values(), changeset)
        changeset.summary = dict(summary(swapped))
        try:
            table.commits.make(changeset, {})
        except BaseException as error:
            self._take_back(changeset, error)
            raise
        self._may_be_there = True
        self._move_open(old, numbers)
        taken = set(numbers)
        remove(
            file_io(self._properties, table.definition.location), [path for path in self.paths if path not in taken]
        )
        return swapped

    @staticmethod
    def _grows(old: Collection[FileEntry], changeset: Changeset) -> bool:
        """Whether Iceberg would refuse the exchange: its REPLACE may not add rows, dead ones included.

        It does if all rows of a file have died since, so that the file is gone, and delete files go with the others
        (SnapshotProducer, "Invalid REPLACE operation").
        """
        added = sum(file.rows for file, _ in changeset.added.values())
        return added > sum(entry.rows for entry in old) and any(entry.own_deletes for entry in old)

    def _died(self, output: _Output) -> BitMap64:
        """Return the places of rows in a new file that died since they were read."""
        died = BitMap64()
        for each, places in output.places:
            entry = self._table.index.files.find(each.path)
            if entry is None:
                died |= BitMap64(places[places >= 0].astype(np.uint64))
                continue
            fresh = positions_of(self._table.index.files.dead(entry.number) - each.dead)
            died |= BitMap64(places[fresh].astype(np.uint64))
        return died

    def _take(self, output: _Output, dead: BitMap64, changeset: Changeset) -> int:
        """Put a new file into the commit, and its live rows into the index."""
        table = self._table
        number = table.index.files.reserve()
        changeset.add(number, output.file, table.index.owner_of(output.file, output.sid))
        if len(dead):
            changeset.deletes[number] = dead
        if output.keys is not None:
            keys, rows = output.keys, output.key_rows
            if len(dead):
                alive = np.ones(output.file.rows, np.bool_)
                alive[positions_of(dead)] = False
                kept = alive[rows]
                keys, rows = keys.take(kept), rows[kept]
            insert_found(table.name, table.index.places, keys, number, rows)
        return number

    def _moves(
        self, old: Mapping[str, FileEntry], numbers: Mapping[str, int]
    ) -> dict[int, tuple[int, npt.NDArray[np.int32]]]:
        """Return where the rows of old files are, for tables in which a key may have several."""
        return {
            old[each.path].number: (numbers[output.file.path], places.astype(np.int32))
            for output in self._outputs
            if output.file.path in numbers
            for each, places in output.places
            if each.path in old
        }

    def _facts(self, old: Iterable[FileEntry], changeset: Changeset) -> Swapped:
        entries = list(old)
        files = [file for file, _ in changeset.added.values()]
        return Swapped(
            files_before=len(entries),
            files_after=len(files),
            rows=sum(file.rows for file in files),
            bytes=sum(file.size for file in files),
            carried=sum(len(dead) for dead in changeset.deletes.values()),
            is_whole=len(files) == len(self._outputs),
        )

    def _take_back(self, changeset: Changeset, error: BaseException) -> None:
        """Forget a commit that failed; where nobody knows, the files stay and the table is looked at again."""
        table = self._table
        table.index.undo()
        changeset.is_outcome_unknown = may_be_there(changeset, error)
        self._may_be_there |= changeset.is_outcome_unknown
        table.commits.discard(changeset, keep=self.paths)

    def _move_open(self, old: Mapping[str, FileEntry], numbers: Mapping[str, int]) -> None:
        """Let open transactions, which name places in the old files, name the new ones."""
        for pending in self._table.open.values():
            deletes = pending.changeset.deletes
            for output in self._outputs:
                number = numbers.get(output.file.path)
                for each, places in output.places:
                    named = deletes.get(old[each.path].number) if each.path in old else None
                    if named is None or number is None:
                        continue
                    moved = places[positions_of(named)]
                    fresh = BitMap64(moved[moved >= 0].astype(np.uint64))
                    deletes[number] = deletes[number] | fresh if number in deletes else fresh
            for entry in old.values():
                deletes.pop(entry.number, None)


def _output(part: _Part, done: RewriteDone) -> _Output:
    assert done.file is not None
    inverse = None
    if done.order is not None:
        inverse = np.empty(len(done.order), np.int64)
        inverse[done.order] = np.arange(len(done.order), dtype=np.int64)
    places = []
    first = 0
    for each in part.inputs:
        mine = each.places(first)
        first += each.rows - len(each.dead)
        if inverse is not None:
            mine = np.where(mine >= 0, inverse[mine], -1)
        places.append((each, mine))
    if first != done.file.rows:
        raise InternalError(f"{done.file.path} has {done.file.rows} rows instead of {first}")
    keys, rows = done.keys, np.empty(0, np.uint32)
    if keys is not None:
        by_key = bulk.order(keys)
        keys, rows = keys.take(by_key), by_key.astype(np.uint32)
    return _Output(file=done.file, sid=part.sid, keys=keys, key_rows=rows, places=tuple(places))
