"""What Spark runs to compare a source table with its lake table: rows in, buckets, listings or wanted rows out.

Both sides meet as Arrow tables in the lake's schema: the source's through the decoder of the copy, the lake's from
the data files by field id with their dead rows left out. Memory of a task is a chunk of rows and what it returns.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kuvasz.errors import InternalError, KuvaszError, LakeError
from kuvasz.fold.difference import Listing, find
from kuvasz.fold.digest import Buckets, bucket_of, fingerprints
from kuvasz.fold.keys import Keys
from kuvasz.lake.datafile import DataFile, field_id, file_io, remove, write_rows
from kuvasz.lake.layout import Layout
from kuvasz.lake.schema import SID
from kuvasz.lake.tasks import slim_worker, to_ipc
from kuvasz.model import Int32s
from kuvasz.modes import clone, defaults, history
from kuvasz.modes.shape import NO_COLUMN, OWN_COLUMN, SID_COLUMN, Shape
from kuvasz.ports import CopyRequest

#: Rows of a lake file that are in memory at a time.
_BATCH_ROWS = 64 * 1024

#: Fetched rows after which the next data file begins.
_PORTION_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """A data file as one snapshot has it."""

    number: int
    path: str
    rows: int
    dead: bytes | None  #: serialized bitmap of its deleted rows
    is_mixed: bool  #: it may hold rows of other sources


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """Data files that are read one after another: many are small."""

    files: tuple[LakeFile, ...]


Part: TypeAlias = CopyRequest | LakeFiles


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of one side, in the lake's schema, with their keys."""

    table: pa.Table
    keys: Keys
    file: int = 0
    places: np.ndarray | None = None  #: of the lake's rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one task."""

    value: Any = None
    error: KuvaszError | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a task gets at the rows of either side."""

    shape: Shape
    properties: Mapping[str, str]
    chunk_bytes: int
    at_us: int | None = None  #: of a history: the open versions count, and what the source has begins then

    def rows(self, part: Part) -> Iterator[Rows]:
        """Yield all rows of a part, a chunk at a time."""
        if isinstance(part, LakeFiles):
            for file in part.files:
                yield from self._lake_rows(file)
            return
        for data in part.read(self.chunk_bytes):
            copied = clone.apply_copy(self.shape, data)
            table = copied.rows if self.at_us is None else history.opened(self.shape, copied.rows, self.at_us)
            yield Rows(table=table, keys=copied.keys)

    def _lake_rows(self, part: LakeFile) -> Iterator[Rows]:
        stored = pq.ParquetFile(file_io(self.properties, part.path).new_input(part.path).open())
        name_of = {field_id(field): field.name for field in stored.schema_arrow if field.metadata}
        wanted = [name_of.get(field_id(field)) for field in self.shape.schema]
        dead = np.zeros(part.rows, np.bool_)
        if part.dead is not None:
            gone = BitMap64.deserialize(part.dead)
            dead[np.fromiter(gone, np.int64, len(gone))] = True
        start = 0
        for batch in stored.iter_batches(_BATCH_ROWS, columns=[name for name in wanted if name is not None]):
            count = batch.num_rows
            alive = np.flatnonzero(~dead[start : start + count])
            columns = [
                _plain(batch.column(name)) if name is not None else defaults.column(field, count)
                for name, field in zip(wanted, self.shape.schema, strict=True)
            ]
            table = pa.Table.from_arrays([column.take(pa.array(alive)) for column in columns], names=self._names)
            places = (alive + start).astype(np.uint32)
            start += count
            if part.is_mixed:
                mine = self._mine(table)
                table, places = table.take(pa.array(mine)), places[mine]
            if self.at_us is not None:
                is_open = np.flatnonzero(history.is_open(table))
                table, places = table.take(pa.array(is_open)), places[is_open]
            if table.num_rows:
                yield Rows(table=table, keys=self._keys(table), file=part.number, places=places)

    @property
    def _names(self) -> list[str]:
        return [binding.name for binding in self.shape.bindings]

    def _mine(self, table: pa.Table) -> np.ndarray:
        sids = table.column(SID).to_numpy()
        return np.flatnonzero(sids == self.shape.sid)

    def _keys(self, table: pa.Table) -> Keys:
        columns = [table.column(index) for index in self.shape.key]
        return self.shape.hash(columns, table.num_rows)

    def prints(self, rows: Rows) -> Keys:
        """Return the rows' fingerprints."""
        return prints(self.shape, rows.table)


def prints(shape: Shape, rows: pa.Table) -> Keys:
    """Return the fingerprints of rows in the lake's schema.

    Columns that the source does not have are left out: one that it dropped keeps its old values in the lake, and
    kuvasz's own are not the source's to tell.
    """
    columns = [rows.column(index) for index, binding in enumerate(shape.bindings)
               if binding.column not in {NO_COLUMN, SID_COLUMN, OWN_COLUMN}]  # fmt: skip
    return fingerprints(columns, shape.seed)


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summarize:
    """Count and sum up the rows of each part by bucket of their key."""

    reading: Reading
    buckets: int

    def __call__(self, parts: Iterable[Part]) -> Iterator[Outcome]:
        """Yield the buckets of each part."""
        return _each(self._one, parts)

    def _one(self, part: Part) -> Buckets:
        buckets = Buckets.empty(self.buckets)
        for rows in self.reading.rows(part):
            buckets.add(rows.keys, self.reading.prints(rows))
        return buckets


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """List the rows of some buckets, by groups of buckets; or, without `group_of`, the rows of some keys."""

    reading: Reading
    group_of: Int32s | None = None  #: per bucket: number of its group, -1: not wanted
    wanted: Keys | None = None  #: ascending

    def __call__(self, parts: Iterable[Part]) -> Iterator[Outcome]:
        """Yield group -> listing of each part."""
        return _each(self._one, parts)

    def _one(self, part: Part) -> dict[int, Listing]:
        found: dict[int, list[Listing]] = {}
        for rows in self.reading.rows(part):
            groups = self._groups(rows.keys)
            chosen = np.flatnonzero(groups >= 0)
            if len(chosen) == 0:
                continue
            few = Rows(table=rows.table.take(pa.array(chosen)), keys=rows.keys.take(chosen))
            places = np.zeros(len(chosen), np.uint32) if rows.places is None else rows.places[chosen]
            listing = Listing(
                keys=few.keys, prints=self.reading.prints(few), files=np.full(len(chosen), rows.file, np.uint32),
                places=places,
            )  # fmt: skip
            for group in np.unique(groups[chosen]).tolist():
                found.setdefault(group, []).append(listing.take(groups[chosen] == group))
        return {group: Listing.concat(listings) for group, listings in found.items()}

    def _groups(self, keys: Keys) -> np.ndarray:
        if self.group_of is not None:
            groups: np.ndarray = self.group_of[bucket_of(keys, len(self.group_of))]
            return groups
        assert self.wanted is not None
        return np.where(find(self.wanted, keys) >= 0, 0, -1)


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

    def __call__(self, parts: Iterable[tuple[int, CopyRequest]]) -> Iterator[Outcome]:
        """Yield what was found in each part."""
        return _each(self._one, parts)

    def _one(self, part: tuple[int, CopyRequest]) -> Fetched:
        number, request = part
        files: list[DataFile] = []
        keys: list[Keys] = []
        waiting: list[Rows] = []
        try:
            for rows in self.reading.rows(request):
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
    """Return the key columns of some rows, for people."""

    reading: Reading
    wanted: Keys  #: ascending

    def __call__(self, parts: Iterable[Part]) -> Iterator[Outcome]:
        """Yield Arrow IPC of the key columns, and which wanted keys they are, per part."""
        return _each(self._one, parts)

    def _one(self, part: Part) -> list[tuple[bytes, np.ndarray]]:
        found = []
        for rows in self.reading.rows(part):
            which = find(self.wanted, rows.keys)
            chosen = np.flatnonzero(which >= 0)
            if len(chosen):
                columns = rows.table.select(list(self.reading.shape.key)).take(pa.array(chosen))
                found.append((to_ipc(columns), which[chosen]))
        return found


def _each(run: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Outcome]:
    slim_worker()
    for part in parts:
        yield _guarded(run, part)


def _guarded(run: Callable[[Any], Any], part: Any) -> Outcome:  # noqa: ANN401 (a part of either side)
    try:
        return Outcome(value=run(part))
    except KuvaszError as error:
        return Outcome(error=error)
    except FileNotFoundError as error:
        hint = "raise the table's history.expire.max-snapshot-age-ms, or compare table by table"
        return Outcome(error=LakeError(f"a data file went while it was being compared: {error}", hint=hint))
    except OSError as error:
        return Outcome(error=LakeError(f"storage failed: {error}", hint="it may be tried again"))
    except Exception:  # noqa: BLE001 (crosses processes: the driver decides what stops)
        return Outcome(error=InternalError(f"a comparison failed: {traceback.format_exc(limit=8)}"))
