"""The data files of one table as the driver knows them: numbers, paths, and which of their rows are dead."""

from __future__ import annotations

import collections
import dataclasses
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kuvasz.index.positions import ABSENT
from kuvasz.lake.files import puffin
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.data_file import DataFile, check_size
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format.layout import Values
from kuvasz.model import NO_OPERATIONS, Int32s, UInt32s

#: Reserved ids of position delete files (Iceberg spec, "Position Delete Files").
_PATH_ID = 2147483546
_POSITION_ID = 2147483545


@dataclasses.dataclass(slots=True, kw_only=True)
class FileEntry:
    """One live data file."""

    number: int
    path: str
    rows: int
    sid: str | None  #: of all rows; None if the table has no sid or the file mixes several
    sids: tuple[str, str] | None = None  #: between which those of all rows lie, both included; None: not known
    size: int = 0  #: bytes
    spec_id: int = 0
    partition: Values = ()
    sequence: int = 0  #: of the commit that brought its newest row; only where the order of rows counts
    delete: str | None = None  #: JSON of the delete file that applies to it
    others: tuple[str, ...] = ()  #: JSON of further ones that other engines wrote (format 2)
    dead: BitMap64 | None = None  #: positions of deleted rows; None if not read yet or there are none

    def may_hold(self, sid: str | None) -> bool:
        """Whether rows of a source may be in the file, as far as one can tell without reading it."""
        return self.sids is None or sid is None or self.sids[0] <= sid <= self.sids[1]

    @property
    def own_deletes(self) -> list[str]:
        """The delete files that are about this data file alone, so that they may be removed with it.

        Another engine's position delete file of format 2 may be about a whole partition.
        """
        return [text for text in self.all_deletes if json.loads(text).get("referenced-data-file") == self.path]

    @property
    def dead_rows(self) -> int:
        """How many rows are deleted, without reading the delete file."""
        if self.dead is not None:
            return len(self.dead)
        return min(self.rows, sum(int(json.loads(text)["record-count"]) for text in self.all_deletes))

    @property
    def all_deletes(self) -> tuple[str, ...]:
        """JSON of every delete file that applies."""
        return self.others if self.delete is None else (self.delete, *self.others)


class FileTable:
    """Number <-> file. Numbers are given once and never used again in this process or the index's life."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._by_number: dict[int, FileEntry] = {}
        self._by_path: dict[str, FileEntry] = {}
        self._earlier: dict[str, int] = {}  # path -> number, of files that were let go of and may be found again
        self.next_number = 0

    def __iter__(self) -> Iterator[FileEntry]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def __getitem__(self, number: int) -> FileEntry:
        return self._by_number[number]

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def find(self, path: str) -> FileEntry | None:
        """Return the entry of a path."""
        return self._by_path.get(path)

    def reserve(self) -> int:
        """Return a fresh number."""
        number = self.next_number
        self.next_number += 1
        return number

    def number_of(self, path: str) -> int:
        """Return the number of a file that is found in the table: the one it had, or a fresh one."""
        known = self._by_path.get(path)
        if known is not None:
            return known.number
        number = self._earlier.get(path)
        return self.reserve() if number is None else number

    def numbers(self) -> dict[str, int]:
        """Return path -> number of all files, those included that were let go of."""
        return self._earlier | {path: entry.number for path, entry in self._by_path.items()}

    def let_go(self) -> None:
        """Forget every file until it is found again. It keeps its number, by which open transactions know it."""
        self._earlier = self.numbers()
        self._by_number.clear()
        self._by_path.clear()

    def all_found(self) -> None:
        """Note that every file of the table is here: what else was let go of does not come back."""
        self._earlier.clear()

    def add(self, entry: FileEntry) -> None:
        """Take a file."""
        self._by_number[entry.number] = entry
        self._by_path[entry.path] = entry
        self.next_number = max(self.next_number, entry.number + 1)

    def remove(self, number: int) -> None:
        """Forget a file that is no longer live."""
        entry = self._by_number.pop(number)
        del self._by_path[entry.path]

    def accept(self, changeset: Changeset, sent: Sent, sequence: int) -> None:
        """Take over what a commit changed; `sequence` is that of its files, where it counts."""
        for number in changeset.dropped:
            self.remove(number)
        for number, (file, sid) in changeset.added.items():
            self.add(dataclasses.replace(entry_of_new(number, file, sid), sequence=sequence))
        for delete_file in sent.delete_files:
            entry = self[delete_file.number]
            entry.dead = self.dead(entry.number) | sent.deletes[entry.number]
            entry.others = tuple(text for text in entry.others if text not in entry.own_deletes)
            entry.delete = delete_file.json

    def dead(self, number: int) -> BitMap64:
        """Return the deleted positions of a file, reading its delete file at the first call."""
        entry = self._by_number[number]
        if entry.dead is None:
            entry.dead = read_dead(self._properties, entry.path, entry.all_deletes)
        return entry.dead

    def alive(self, files: UInt32s, rows: UInt32s, changeset: Changeset | None = None) -> tuple[UInt32s, UInt32s]:
        """Return places with those made `ABSENT` whose rows were deleted, or whose files went as a whole.

        What a changeset adds is there; what it deletes is looked at by whoever asks.
        """
        files = files.copy()
        for number in np.unique(files[files != ABSENT]).tolist():
            mine = np.flatnonzero(files == number)
            if number not in self:
                if changeset is None or number not in changeset.added:
                    files[mine] = ABSENT
                continue
            dead = self.dead(number) & BitMap64(rows[mine].astype(np.uint64))
            if len(dead):
                files[mine[np.isin(rows[mine], np.fromiter(dead, np.uint32, len(dead)))]] = ABSENT
        return files, rows


def entry_of_new(number: int, file: DataFile, sid: str | None) -> FileEntry:
    """Return the entry of a file that was just written."""
    return FileEntry(
        number=number, path=file.path, rows=file.rows, size=file.size, sid=sid, sids=file.sids,
        spec_id=file.spec_id, partition=file.partition,
    )  # fmt: skip


def entry_of(live: LiveFile, number: int, sid_id: int | None) -> FileEntry:
    """Return the entry of a file found in the table."""
    path = live.data["file-path"]
    # Of several that apply, which only another engine can leave behind, the one that is about this file is ours.
    deletes = sorted(live.deletes, key=lambda delete: delete.get("referenced-data-file") != path)
    sids = _sids(live.data, sid_id)
    return FileEntry(
        number=number,
        path=path,
        rows=live.data["record-count"],
        size=live.data["file-size-in-bytes"],
        sid=sids[0] if sids is not None and sids[0] == sids[1] else None,
        sids=sids,
        spec_id=live.data["spec-id"],
        partition=tuple(live.data["partition"]),
        sequence=live.sequence,
        delete=json.dumps(deletes[0]) if deletes else None,
        others=tuple(json.dumps(delete) for delete in deletes[1:]),
    )


def _sids(data: Mapping[str, Any], sid_id: int | None) -> tuple[str, str] | None:
    if sid_id is None:
        return None
    bounds = []
    for side in ("lower-bounds", "upper-bounds"):
        values = data.get(side) or {"keys": [], "values": []}
        bounds.append(dict(zip(values["keys"], values["values"], strict=True)).get(sid_id))
    low, high = bounds
    if low is None or high is None:
        return None
    # Most files are of one source, which has many.
    return sys.intern(bytes.fromhex(low).decode()), sys.intern(bytes.fromhex(high).decode())


def read_dead(properties: Mapping[str, str], data_path: str, deletes: Iterable[str]) -> BitMap64:
    """Return the deleted positions of a data file by all of its delete files, given as JSON."""
    dead = BitMap64()
    for text in deletes:
        dead |= read_deletes(properties, data_path, text)
    return dead


def read_deletes(properties: Mapping[str, str], data_path: str, delete: str) -> BitMap64:
    """Return the positions that a delete file, given as JSON, lists of a data file."""
    facts = json.loads(delete)
    path = facts["file-path"]
    with file_io(properties, path).new_input(path).open() as stream:
        if facts["file-format"] == "puffin":
            stream.seek(facts["content-offset"])
            return puffin.decode(bytes(stream.read(facts["content-size-in-bytes"])))
        table = pq.read_table(pa.BufferReader(stream.read()), columns=["file_path", "pos"])
    mine = np.asarray(table.column("file_path").to_numpy(zero_copy_only=False) == data_path)
    return BitMap64(table.column("pos").to_numpy()[mine].astype(np.uint64))


class Changeset:
    """What one commit will change, while it is being worked out. New files are not in the `FileTable` yet.

    Large because a commit is sent as a whole: whoever puts it together needs all of it.
    """

    def __init__(self) -> None:
        self.added: dict[int, tuple[DataFile, str | None]] = {}  #: number -> file, sid
        self.deletes: dict[int, BitMap64] = {}  #: number -> positions deleted by this commit
        self.dropped: set[int] = set()  #: whole files
        self.moved: dict[int, tuple[int, Int32s]] = {}  #: file -> that which took its rows, and where each is, or -1
        self.obsolete: list[str] = []  #: new files that others took the place of, needed until the commit is there
        self.operations = NO_OPERATIONS  #: of the sources' rows that it is made of
        self.newest_us: dict[str, int] = {}  #: source -> newest commit time among its transactions, µs since 2000 UTC
        self.sent: Sent | None = None  #: the commit, once it was sent
        self.is_there = False  #: it is committed, and the table knows
        self.is_outcome_unknown = False  #: it was sent, and nobody knows whether it is there
        self.is_rewrite = False  #: only files change, no row does
        self.sequence: int | None = None  #: that its files get; None: the next one
        self.summary: dict[str, str] = {}  #: for the snapshot, besides the positions
        self.properties: dict[str, str] = {}  #: of the table, besides the positions
        self.rejected: collections.Counter[str] = collections.Counter()  #: source -> rows that were left out
        self.first: list[Callable[[], None]] = []  #: makes durable what has to be so before a position passes it

    def add(self, number: int, file: DataFile, sid: str | None) -> None:
        """Add a data file."""
        self.added[number] = (file, sid)

    def delete(self, files: UInt32s, positions: UInt32s) -> None:
        """Delete rows; a row may be named again."""
        if len(files) == 0:
            return
        order = np.argsort(files, kind="stable")
        numbers, starts = np.unique(files[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        sorted_positions = positions[order].astype(np.uint64)
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            fresh = BitMap64(sorted_positions[start:end])
            if number in self.deletes:
                self.deletes[number] |= fresh
            else:
                self.deletes[number] = fresh

    def follow(self, moved: Mapping[int, tuple[int, Int32s]]) -> None:
        """Delete rows where another commit has put them; `moved` as that one's."""
        for number, (fresh, places) in moved.items():
            named = self.deletes.pop(number, None)
            if named is not None:
                rows = places[np.fromiter(named, np.int64, len(named))]
                rows = rows[rows >= 0]
                self.delete(np.full(len(rows), fresh, np.uint32), rows.astype(np.uint32))

    def merge(self, other: Changeset) -> None:
        """Take over everything of another one."""
        self.added |= other.added
        self.dropped |= other.dropped
        self.obsolete += other.obsolete
        self.operations = self.operations.plus(other.operations)
        for number, positions in other.deletes.items():
            if number in self.deletes:
                self.deletes[number] |= positions
            else:
                self.deletes[number] = positions

    def paths(self) -> list[str]:
        """Return the paths of the data files that nobody will know if the commit fails."""
        return [*(file.path for file, _ in self.added.values()), *self.obsolete]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A commit that was put together and sent, perhaps more than once."""

    commit_id: str
    commit: TableCommit
    deletes: Mapping[int, BitMap64]
    delete_files: Sequence[DeleteFile]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A written delete file for one data file, as ContentFileParser's JSON."""

    number: int
    json: str
    path: str


def write_vectors(
    properties: Mapping[str, str], location: str, dead: Iterable[tuple[FileEntry, BitMap64]]
) -> list[DeleteFile]:
    """Write all deletion vectors of a commit into one Puffin file (format version 3)."""
    entries = list(dead)
    content, vectors = puffin.encode([(entry.path, positions) for entry, positions in entries])
    path = f"{location}/data/kvsz-{uuid.uuid4().hex}-dv.puffin"
    io = file_io(properties, path)
    with io.new_output(path).create(overwrite=True) as stream:
        stream.write(content)
    check_size(io, path, len(content))
    return [
        DeleteFile(
            number=entry.number,
            path=path,
            json=json.dumps(
                {
                    "spec-id": entry.spec_id, "content": "position-deletes", "file-path": path,
                    "file-format": "puffin", "partition": entry.partition,
                    "file-size-in-bytes": len(content), "record-count": vector.cardinality,
                    "referenced-data-file": entry.path, "content-offset": vector.offset,
                    "content-size-in-bytes": vector.size,
                }
            ),
        )
        for (entry, _), vector in zip(entries, vectors, strict=True)
    ]  # fmt: skip


def write_position_deletes(
    properties: Mapping[str, str], location: str, dead: Iterable[tuple[FileEntry, BitMap64]]
) -> list[DeleteFile]:
    """Write one position delete file per data file, holding all of its deleted positions (format version 2)."""
    written = []
    for entry, positions in dead:
        path = f"{location}/data/kvsz-{uuid.uuid4().hex}-deletes.parquet"
        rows = np.asarray(positions.to_array() if hasattr(positions, "to_array") else list(positions), np.int64)
        schema = pa.schema(
            [
                pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": str(_PATH_ID)}),
                pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": str(_POSITION_ID)}),
            ]
        )
        table = pa.Table.from_arrays([pa.repeat(entry.path, len(rows)), pa.array(rows)], schema=schema)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", store_schema=False)
        content = sink.getvalue()
        io = file_io(properties, path)
        with io.new_output(path).create(overwrite=True) as stream:
            stream.write(content.to_pybytes())
        check_size(io, path, len(content))
        bound = entry.path.encode().hex().upper()
        written.append(
            DeleteFile(
                number=entry.number,
                path=path,
                json=json.dumps(
                    {
                        "spec-id": entry.spec_id, "content": "position-deletes", "file-path": path,
                        "file-format": "parquet", "partition": entry.partition,
                        "file-size-in-bytes": content.size, "record-count": len(rows),
                        # Equal and whole bounds make every reader treat the file as scoped to this data file.
                        "lower-bounds": {"keys": [_PATH_ID], "values": [bound]},
                        "upper-bounds": {"keys": [_PATH_ID], "values": [bound]},
                        "referenced-data-file": entry.path,
                    }
                ),
            )
        )  # fmt: skip
    return written
