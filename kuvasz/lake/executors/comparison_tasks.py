"""What Spark runs to compare a source table with its lake table: rows in, buckets, listings or wanted rows out.

Both sides meet as Arrow tables in the lake's schema: the source's through the decoder of the copy, expressions and
masks included, the lake's from the data files by field id with their dead rows left out. Memory of a task is a chunk
of rows and what it returns.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kuvasz.errors import InternalError, KuvaszError, LakeError
from kuvasz.fold.difference import Listing, find
from kuvasz.fold.digest import Buckets, bucket_of, fingerprints, group_of
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors.expression_jobs import Chunks
from kuvasz.lake.executors.refused_rows import RefusedPart
from kuvasz.lake.executors.tasks import slim_worker, to_ipc
from kuvasz.lake.files.data_file import DataFile, field_id, remove, write_rows
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import SID
from kuvasz.model import Int32s
from kuvasz.modes import defaults, dispatch, history, keyless, soft
from kuvasz.modes.shape import NO_COLUMN, OWN_COLUMN, SID_COLUMN, Shape
from kuvasz.ports import CopyRequest

#: Rows of a lake file that are in memory at a time.
_BATCH_ROWS = 64 * 1024

#: Fetched rows after which the next data file begins.
_PORTION_BYTES = 64 << 20


#: What is at the place of a column that the source's row does not have.
_NOT_OF_THE_ROW = frozenset({NO_COLUMN, SID_COLUMN, OWN_COLUMN})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """A data file as one snapshot has it."""

    number: int
    path: str
    rows: int
    dead: bytes | None  #: serialized bitmap of its deleted rows
    is_mixed: bool  #: it may hold rows of other sources
    rank: int = 0  #: among the table's files, oldest first; only where the order of rows counts
    begin: int = 0  #: the first row that is to be read,
    end: int | None = None  #: and the one after the last; None: all

    @property
    def wanted(self) -> int:
        """How many rows are to be read."""
        return (self.rows if self.end is None else self.end) - self.begin


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """Data files that are read one after another: many are small."""

    files: tuple[LakeFile, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRange:
    """A part of the source and its number among them."""

    number: int
    request: CopyRequest


Part: TypeAlias = CopyRequest | NumberedRange | LakeFiles


def request_of(part: Part) -> CopyRequest | None:
    """Return what is to be read of the source; None if it is the lake that is read."""
    if isinstance(part, LakeFiles):
        return None
    return part.request if isinstance(part, NumberedRange) else part


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of one side, in the lake's schema, with their keys."""

    table: pa.Table
    keys: Keys
    file: int = 0
    rank: int = 0  #: of the file
    places: np.ndarray | None = None  #: of the lake's rows
    rejected: pa.Table | None = None  #: the source's rows beside them that do not fit
    stale: Keys | None = None  #: the keys of these, where the lake may have earlier versions of them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one task."""

    value: Any = None
    error: KuvaszError | None = None
    rejected: bytes | None = None  #: the source's rows that do not fit: see `kuvasz.lake.executors.refused_rows`
    stale: Keys | None = None  #: their keys, as in `Rows`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a task gets at the rows of either side."""

    shape: Shape
    properties: Mapping[str, str]
    chunk_bytes: int
    lsn: int = 0  #: of the source's snapshot
    at_us: int | None = None  #: of a history: the open versions count, and what the source has begins then
    is_ordered: bool = True  #: where the lake has several rows of a key, files and rows are in the order they came

    @property
    def needs_spark(self) -> bool:
        """Whether the source's rows are what expressions make of them."""
        return self.shape.transform is not None

    def rows(self, part: Part, chunks: Chunks | None = None) -> Iterator[Rows]:
        """Yield all rows of a part, a chunk at a time.

        Args:
            part: A part of either side.
            chunks: What a part of the source has, together with what Spark made of it; read if it is not given.
        """
        request = request_of(part)
        if request is None:
            assert isinstance(part, LakeFiles)
            for file in part.files:
                yield from self._lake_rows(file)
            return
        for data, evaluated in chunks or ((data, None) for data in request.read(self.chunk_bytes)):
            copied = dispatch.read_copy(self.shape, data, evaluated, self.lsn)
            table = copied.rows if self.at_us is None else history.opened(self.shape, copied.rows, self.at_us)
            keys = copied.keys if self.shape.key else self.keys(copied.rows)
            yield Rows(table=table, keys=keys, rejected=copied.rejected, stale=copied.stale)

    def _lake_rows(self, part: LakeFile) -> Iterator[Rows]:
        stored = pq.ParquetFile(file_io(self.properties, part.path).new_input(part.path).open())
        name_of = {field_id(field): field.name for field in stored.schema_arrow if field.metadata}
        wanted = [name_of.get(field_id(field)) for field in self.shape.schema]
        dead = np.zeros(part.rows, np.bool_)
        if part.dead is not None:
            gone = BitMap64.deserialize(part.dead)
            dead[np.fromiter(gone, np.int64, len(gone))] = True
        groups, start = _row_groups(stored, part)
        dead[: part.begin] = True
        dead[part.begin + part.wanted :] = True
        columns = [name for name in wanted if name is not None]
        for batch in stored.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns):
            count = batch.num_rows
            alive = np.flatnonzero(~dead[start : start + count])
            arrays = [
                _plain(batch.column(name)) if name is not None else defaults.column(field, count)
                for name, field in zip(wanted, self.shape.schema, strict=True)
            ]
            table = pa.Table.from_arrays([array.take(pa.array(alive)) for array in arrays], names=self._names)
            places = (alive + start).astype(np.uint32)
            start += count
            if part.is_mixed:
                mine = self._mine(table)
                table, places = table.take(pa.array(mine)), places[mine]
            if self.at_us is not None or self.shape.is_soft:
                counts = np.flatnonzero(soft.is_live(table) if self.shape.is_soft else history.is_open(table))
                table, places = table.take(pa.array(counts)), places[counts]
            if table.num_rows:
                yield Rows(table=table, keys=self.keys(table), file=part.number, rank=part.rank, places=places)

    @property
    def _names(self) -> list[str]:
        return [binding.name for binding in self.shape.bindings]

    def _mine(self, table: pa.Table) -> np.ndarray:
        sids = table.column(SID).to_numpy()
        return np.flatnonzero(sids == self.shape.sid)

    def keys(self, table: pa.Table) -> Keys:
        """Return what rows are known by: the hash of their key, or of all of the row where there is none."""
        if not self.shape.key:
            return keyless.row_keys(self.shape, table)
        return self.shape.hash([table.column(index) for index in self.shape.key], table.num_rows)

    @property
    def shown(self) -> tuple[int, ...]:
        """The columns by which people know a row, as indices into the lake's schema."""
        return self.shape.key or tuple(
            index for index, binding in enumerate(self.shape.bindings) if binding.column not in _NOT_OF_THE_ROW
        )

    def prints(self, rows: Rows) -> Keys:
        """Return the rows' fingerprints."""
        return prints(self.shape, rows.table)


def prints(shape: Shape, rows: pa.Table) -> Keys:
    """Return the fingerprints of rows in the lake's schema.

    Columns that the source does not have are left out: one that it dropped keeps its old values in the lake, and
    kuvasz's own are not the source's to tell.
    """
    columns = [
        rows.column(index) for index, binding in enumerate(shape.bindings) if binding.column not in _NOT_OF_THE_ROW
    ]
    return fingerprints(columns, shape.seed)


def _row_groups(stored: pq.ParquetFile, part: LakeFile) -> tuple[list[int], int]:
    """Return the row groups that hold the wanted rows of a file, and the row with which the first of them begins."""
    sizes = [stored.metadata.row_group(number).num_rows for number in range(stored.metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    last = part.begin + part.wanted
    groups = [number for number in range(len(sizes)) if starts[number] < last and starts[number + 1] > part.begin]
    return groups, int(starts[groups[0]]) if groups else 0


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summarize:
    """Count and sum up the rows of each part by bucket of their key."""

    reading: Reading
    buckets: int

    def result(self, part: Part, chunks: Iterator[Rows]) -> Buckets:
        """Return the buckets of a part."""
        del part
        buckets = Buckets.empty(self.buckets)
        for rows in chunks:
            buckets.add(rows.keys, self.reading.prints(rows))
        return buckets


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """List the rows of some buckets, by groups of buckets; or rows of some keys or all, in so many groups."""

    reading: Reading
    group_of: Int32s | None = None  #: per bucket: number of its group, -1: not wanted
    wanted: Keys | None = None  #: ascending; None: all
    groups: int = 1

    def result(self, part: Part, chunks: Iterator[Rows]) -> dict[int, Listing]:
        """Return group -> listing of a part."""
        del part
        found: dict[int, list[Listing]] = {}
        for rows in chunks:
            groups = self._groups(rows.keys)
            chosen = np.flatnonzero(groups >= 0)
            if len(chosen) == 0:
                continue
            listing = listing_of(self.reading, rows, chosen)
            for group in np.unique(groups[chosen]).tolist():
                found.setdefault(group, []).append(listing.take(groups[chosen] == group))
        return {group: Listing.concat(listings) for group, listings in found.items()}

    def _groups(self, keys: Keys) -> np.ndarray:
        if self.group_of is not None:
            groups: np.ndarray = self.group_of[bucket_of(keys, len(self.group_of))]
            return groups
        found = group_of(keys, self.groups)
        return found if self.wanted is None else np.where(find(self.wanted, keys) >= 0, found, -1)


def listing_of(reading: Reading, rows: Rows, chosen: np.ndarray) -> Listing:
    """Return some rows, as indices, by key and fingerprint."""
    few = Rows(table=rows.table.take(pa.array(chosen)), keys=rows.keys.take(chosen))
    places = np.zeros(len(chosen), np.uint32) if rows.places is None else rows.places[chosen]
    return Listing(
        keys=few.keys, prints=reading.prints(few), files=np.full(len(chosen), rows.file, np.uint32), places=places
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The wanted rows of one part, written as data files."""

    files: tuple[DataFile, ...] = ()
    keys: tuple[Keys, ...] = ()  #: per file, of its rows


def pairs(fetched: Iterable[Fetched]) -> Iterator[tuple[DataFile, Keys]]:
    """Yield all files with the keys of their rows."""
    for entry in fetched:
        yield from zip(entry.files, entry.keys, strict=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Write the rows of some keys to data files."""

    reading: Reading
    wanted: Keys  #: ascending
    bounded: tuple[str, ...]
    layout: Layout
    path: str  #: with a place {} for what tells parts and files apart

    def result(self, part: Part, chunks: Iterator[Rows]) -> Fetched:
        """Return what was found in a part."""
        assert isinstance(part, NumberedRange)
        number = part.number
        files: list[DataFile] = []
        keys: list[Keys] = []
        waiting: list[Rows] = []
        try:
            for rows in chunks:
                chosen = np.flatnonzero(find(self.wanted, rows.keys) >= 0)
                if len(chosen):
                    waiting.append(Rows(table=rows.table.take(pa.array(chosen)), keys=rows.keys.take(chosen)))
                if sum(some.table.nbytes for some in waiting) >= _PORTION_BYTES:
                    self._write(f"{number}-{len(files)}", waiting, files, keys)
            self._write(f"{number}-{len(files)}", waiting, files, keys)
        except BaseException:
            remove(file_io(self.reading.properties, self.path), [file.path for file in files])
            raise
        return Fetched(files=tuple(files), keys=tuple(keys))

    def _write(self, name: str, waiting: list[Rows], files: list[DataFile], keys: list[Keys]) -> None:
        if not waiting:
            return
        table = pa.concat_tables([rows.table for rows in waiting])
        path = self.path.format(name)
        written, places = write_rows(self.reading.properties, path, table, self.bounded, self.layout)
        files.extend(written)
        every = Keys.concat([rows.keys for rows in waiting])
        ordered = every if places is None else every.take(np.argsort(places))
        ends = np.cumsum([file.rows for file in written]).tolist()
        keys.extend(ordered.take(slice(begin, end)) for begin, end in zip([0, *ends], ends, strict=False))
        waiting.clear()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Return the columns by which people know some rows."""

    reading: Reading
    wanted: Keys  #: ascending

    def result(self, part: Part, chunks: Iterator[Rows]) -> list[tuple[bytes, np.ndarray]]:
        """Return Arrow IPC of these columns, and which wanted keys they are of."""
        del part
        found = []
        for rows in chunks:
            which = find(self.wanted, rows.keys)
            chosen = np.flatnonzero(which >= 0)
            if len(chosen):
                columns = rows.table.select(list(self.reading.shown)).take(pa.array(chosen))
                found.append((to_ipc(columns), which[chosen]))
        return found


class Job(Protocol):
    """Makes something of the rows of a part."""

    @property
    def reading(self) -> Reading:
        """How it gets at rows."""

    def result(self, part: Part, chunks: Iterator[Rows]) -> Any:  # noqa: ANN401 (each has its own)
        """Return what comes of a part."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """Run a job over parts, each of which it reads."""

    job: Job

    def __call__(self, parts: Iterable[Part]) -> Iterator[Outcome]:
        """Yield what came of each part."""
        slim_worker()
        for part in parts:
            yield _guarded(self.job, part, None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunEvaluated:
    """Run a job over one part of the source whose rows Spark's expressions have seen."""

    job: Job
    part: Part

    def __call__(self, chunks: Chunks) -> Outcome:
        """Return what came of it."""
        return _guarded(self.job, self.part, chunks)


def _noting(chunks: Iterable[Rows], left_out: RefusedPart, stale: list[Keys]) -> Iterator[Rows]:
    """Yield rows, and gather what does not fit, and its keys."""
    for rows in chunks:
        left_out.add(rows.rejected)
        if rows.stale is not None:
            stale.append(rows.stale)
        yield rows


def _guarded(job: Job, part: Part, chunks: Chunks | None) -> Outcome:
    left_out, stale = RefusedPart(job.reading.shape.place, "table"), list[Keys]()
    try:
        value = job.result(part, _noting(job.reading.rows(part, chunks), left_out, stale))
        return Outcome(value=value, rejected=left_out.packed(), stale=Keys.concat(stale) if stale else None)
    except KuvaszError as error:
        return Outcome(error=error)
    except FileNotFoundError as error:
        hint = "raise the table's history.expire.max-snapshot-age-ms, or compare table by table"
        return Outcome(error=LakeError(f"a data file went while it was being compared: {error}", hint=hint))
    except OSError as error:
        return Outcome(error=LakeError(f"storage failed: {error}", hint="it may be tried again"))
    except Exception:  # noqa: BLE001 (crosses processes: the driver decides what stops)
        return Outcome(error=InternalError(f"a comparison failed: {traceback.format_exc(limit=8)}"))
