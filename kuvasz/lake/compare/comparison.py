"""A source table under a snapshot against a snapshot of its lake table: where do they differ, key by key.

Where the lake is to have just the source's rows, both sides are first summed up by bucket of the key, which moves no
rows. Only the rows of buckets that differ are then listed, by key and fingerprint, to files on local disk in groups
that fit into memory, and compared group by group. Where the lake has several rows of a key, all of them are listed,
each group is sorted, and what is newest in it is compared. What is held at a time is a few megabytes of buckets and
one group, whatever the size of the table; on disk are at most 57 bytes a row.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kuvasz.errors import TableError, place_of
from kuvasz.fold.difference import Difference, DifferenceKind, Listing, difference, distinct, find
from kuvasz.fold.digest import Buckets, bucket_count
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.comparison_tasks import (
    Fetch,
    Fetched,
    Job,
    LakeFile,
    LakeFiles,
    List,
    NumberedRange,
    Outcome,
    Part,
    Reading,
    RunEvaluated,
    RunParts,
    Show,
    Summarize,
    pairs,
    request_of,
)
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.refused_rows import RefusedRows, unpacked
from kuvasz.lake.executors.spill import Spill
from kuvasz.lake.executors.tasks import from_ipc
from kuvasz.lake.files.data_file import remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.files import FileTable
from kuvasz.lake.format import member, naming
from kuvasz.lake.table.table import LakeTable
from kuvasz.ports import CopyRequest

#: Rows of both sides that are compared in memory at a time: some 100 MB.
_GROUP_ROWS = 1 << 20

#: Differing keys above which comparing is the wrong tool: a copy is cheaper.
MOST_KEYS = 4_000_000

#: Rows of the lake that make a task, if its files are smaller.
_TASK_ROWS = 512 * 1024

#: Of a value that is shown to people.
_SHOWN_CHARACTERS = 200

_SIDES = ("source", "lake")
Side = Literal["source", "lake"]

#: Phase, parts done, parts in all; called from any thread.
OnProgress = Callable[[str, int, int], None]


class TooDifferent(TableError):
    """So many keys differ that copying the table again is cheaper."""


def lake_files(files: FileTable, source: str, sid: str | None, *, has_sid: bool) -> list[LakeFile]:
    """Return the data files of a table that hold rows of one source, or of one of its tables, as they are now."""
    found: list[LakeFile] = []
    age: dict[int, tuple[int, str]] = {}
    mine = member.of(source)
    for entry in files:
        if mine and member.in_path(entry.path) != mine:
            continue
        if has_sid and entry.sid is not None and entry.sid != sid:
            continue
        dead = files.dead(entry.number)
        age[entry.number] = (entry.sequence, entry.path.rpartition("/")[2])
        found.append(
            LakeFile(number=entry.number, path=entry.path, rows=entry.rows,
                     dead=dead.serialize() if len(dead) else None, is_mixed=has_sid and entry.sid is None)
        )  # fmt: skip
    ranks = {number: rank for rank, number in enumerate(sorted(age, key=age.__getitem__))}
    return [dataclasses.replace(file, rank=ranks[file.number]) for file in found]


def batches(files: Sequence[LakeFile], rows: int = _TASK_ROWS) -> list[LakeFiles]:
    """Put small files together, up to so many rows."""
    found: list[list[LakeFile]] = []
    room = 0
    for file in sorted(files, key=lambda file: -file.wanted):
        if not found or file.wanted > room:
            found.append([])
            room = rows
        found[-1].append(file)
        room -= file.wanted
    return [LakeFiles(files=tuple(batch)) for batch in found]


class Comparison:
    """One comparison. `close` removes its files.

    Args:
        jobs: Runs the tasks.
        reading: How rows are got at.
        requests: All of the source's rows, under one snapshot.
        files: All of the lake's rows of that source, of one snapshot.
        parallelism: Parts read side by side.
        folder: On local disk, for what does not fit into memory.
        on_progress: Told of every part that is done.
        keep_rejected: Writes down the source's rows that do not fit the table (`kuvasz.modes.rejects.RECORD`).
    """

    def __init__(
        self,
        jobs: Jobs,
        reading: Reading,
        requests: Sequence[CopyRequest],
        files: Sequence[LakeFile],
        *,
        parallelism: int | None,
        folder: Path,
        on_progress: OnProgress = lambda *_: None,
        keep_rejected: Callable[[pa.Table], None] = lambda _: None,
    ) -> None:
        self._jobs = jobs
        self._reading = reading
        self._lake_rows = sum(file.rows for file in files)
        self._parts: dict[str, Sequence[Any]] = {"source": requests, "lake": batches(files)}
        self._parallelism = parallelism or jobs.parallelism
        self._spill = Spill(folder)
        self._on_progress = on_progress
        self.rows: dict[str, int] = {}  #: side -> rows it has
        self.rejected = RefusedRows(keep_rejected)  #: the source's rows that do not fit, once they were compared
        self._rejecting: str | None = None  #: the phase that found them; others read them again
        self._stale: list[Keys] = []  #: their keys, where the lake may have earlier versions of them

    def close(self) -> None:
        """Remove what was put on disk."""
        self._spill.close()

    def difference(self) -> Difference:
        """Compare everything.

        Raises:
            TooDifferent: More than `MOST_KEYS` keys differ.
            SourceError, LakeError: A side could not be read.
        """
        summed = {side: self._summed(side) for side in _SIDES}
        self.rows = {side: int(buckets.rows.sum()) for side, buckets in summed.items()}
        differing = summed["source"].differing(summed["lake"])
        if len(differing) == 0:
            return difference(Listing.empty(), Listing.empty())
        rows = summed["source"].rows[differing] + summed["lake"].rows[differing]
        group_of = np.full(len(summed["source"]), -1, np.int32)
        group_of[differing] = np.cumsum(rows) // _GROUP_ROWS
        return self._listed(List(reading=self._reading, group_of=group_of))

    def difference_of(self, keys: Keys) -> Difference:
        """Compare the rows of some keys, ascending."""
        return self._listed(List(reading=self._reading, wanted=keys))

    def _summed(self, side: str) -> Buckets:
        count = self._bucket_count()
        total = Buckets.empty(count)
        self._each(f"sum up the {side}", Summarize(reading=self._reading, buckets=count), side, total.merge)
        return total

    def _bucket_count(self) -> int:
        # The lake's number of rows is known; where it is far from the source's, everything differs anyway.
        return bucket_count(self._lake_rows)

    def judged(self, found: Difference) -> Difference:
        """Return those of the differences that are none the lake may have."""
        return found

    @property
    def is_ordered(self) -> bool:
        """Whether what a key is now in the lake can be told from what it was."""
        return self._reading.is_ordered

    def _listed(self, job: List) -> Difference:
        groups: set[int] = set()
        self._stale.clear()
        for side in _SIDES:
            groups |= self._list_rows(job, side)
        parts = ((self._spill.rows("source", group), self._spill.rows("lake", group)) for group in sorted(groups))
        try:
            return _without_stale(self._joined(difference(source, lake) for source, lake in parts), self._stale)
        finally:
            self._spill.remove(groups, _SIDES)

    def _list_rows(self, job: List, side: str) -> set[int]:
        """List the rows of a side to disk; return the groups they are of."""
        groups: set[int] = set()

        def take(found: dict[int, Listing]) -> None:
            for group, listing in found.items():
                groups.add(group)
                self._spill.add_rows(side, group, listing)

        self._each(f"list the {side}", job, side, take)
        return groups

    def _joined(self, parts: Iterable[Difference]) -> Difference:
        found: list[Difference] = []
        for part in parts:
            found.append(part)
            if sum(map(len, found)) > MOST_KEYS:
                message = f"{place_of(self._reading.shape.source, self._reading.shape.table)}: more than"
                raise TooDifferent(f"{message} {MOST_KEYS:,} keys differ", hint="copy the table again: kuvasz resync")
        return Difference.concat([part for part in found if len(part)])

    def fetch(self, keys: Keys, table: LakeTable) -> list[Fetched]:
        """Write the source's rows of some keys, ascending, to data files of a table; no snapshot knows them yet."""
        path = naming.of_copy(table.definition.location, self._reading.shape.source)
        job = Fetch(
            reading=self._reading,
            wanted=keys,
            bounded=table.definition.bounded,
            layout=table.definition.layout,
            path=path,
        )
        parts = [NumberedRange(number=number, request=one) for number, one in enumerate(self._parts["source"])]
        found: list[Fetched] = []
        try:
            self._run("fetch from the source", job, parts, found.append)
        except BaseException:
            self.discard(found)
            raise
        return found

    def discard(self, fetched: Sequence[Fetched]) -> None:
        """Remove fetched files that are not wanted."""
        paths = [file.path for file, _ in pairs(fetched)]
        if paths:
            remove(file_io(self._reading.properties, paths[0]), paths)

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns by which people know a row: those of the key, or all of them where there is none."""
        return tuple(self._reading.shape.bindings[index].name for index in self._reading.shown)

    def key_values(self, keys: Keys, side: Side) -> dict[int, tuple[str, ...]]:
        """Return the values of some keys' columns, as text: index into `keys` -> values; see `shown`."""
        return self._values(Show(reading=self._reading, wanted=keys), side)

    def _values(self, job: Show, side: Side) -> dict[int, tuple[str, ...]]:
        values: dict[int, tuple[str, ...]] = {}

        def take(found: list[tuple[bytes, np.ndarray]]) -> None:
            for data, which in found:
                rows = zip(*(_texts(column) for column in from_ipc(data).columns), strict=True)
                values.update(zip(which.tolist(), rows, strict=True))

        self._each(f"look keys up at the {side}", job, side, take)
        return values

    def _each(self, phase: str, job: Job, side: str, take: Callable[[Any], None]) -> None:
        self._run(phase, job, self._parts[side], take)

    def _run(self, phase: str, job: Job, parts: Sequence[Any], take: Callable[[Any], None]) -> None:
        """Run a job over all parts, some at a time; `take` gets each result, one at a time."""
        total = len(parts)
        self._on_progress(phase, 0, total)
        with concurrent.futures.ThreadPoolExecutor(
            self._parallelism, thread_name_prefix="compare", initializer=self._jobs.join
        ) as pool:  # fmt: skip
            waiting: set[concurrent.futures.Future[Outcome]] = set()
            left = iter(parts)
            done = 0
            try:
                for part in left:
                    waiting.add(pool.submit(self._one, job, part))
                    if len(waiting) >= 2 * self._parallelism:
                        waiting, done = self._settle(waiting, take, phase, done, total)
                while waiting:
                    waiting, done = self._settle(waiting, take, phase, done, total)
            except BaseException:
                for future in waiting:
                    future.cancel()
                raise

    def _one(self, job: Job, part: Part) -> Outcome:
        request = request_of(part)
        if request is not None and self._reading.needs_spark:
            run, reading = RunEvaluated(job=job, part=part), self._reading
            evaluated: Outcome = expression_jobs.read_range(
                self._jobs.session, reading.shape, request, reading.chunk_bytes, run
            )
            return evaluated
        outcome: Outcome = self._jobs.run(RunParts(job=job), [part], [1])[0]
        return outcome

    def _settle(
        self,
        waiting: set[concurrent.futures.Future[Outcome]],
        take: Callable[[Any], None],
        phase: str,
        done: int,
        total: int,
    ) -> tuple[set[concurrent.futures.Future[Outcome]], int]:
        ready, rest = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in ready:
            outcome = future.result()
            if outcome.error is not None:
                raise outcome.error
            take(outcome.value)
            if outcome.stale is not None:
                self._stale.append(outcome.stale)
            if outcome.rejected is not None and self._rejecting in {None, phase}:
                self._rejecting = phase
                self.rejected.add(unpacked(outcome.rejected))
            done += 1
        self._on_progress(phase, done, total)
        return rest, done


def _without_stale(found: Difference, stale: Sequence[Keys]) -> Difference:
    """Return the differences but for versions that stay because what replaced them does not fit."""
    if not stale or not len(found):
        return found
    keys = Keys.concat(list(stale))
    is_stale = find(keys.take(distinct(keys)), found.keys) >= 0
    return found.keep(~is_stale | (found.kinds != DifferenceKind.EXTRA))


def _texts(column: pa.ChunkedArray) -> list[str]:
    return ["NULL" if value is None else value.hex() if isinstance(value, bytes) else str(value)[:_SHOWN_CHARACTERS]
            for value in column.to_pylist()]  # fmt: skip


__all__ = ["Comparison", "Outcome", "TooDifferent", "lake_files"]
