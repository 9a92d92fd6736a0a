"""One lake table at work: schema, files, positions and index, from results of a job to a commit.

`resolve` turns the results of one chunk into a `Changeset` with the help of the position index; `commit` makes a
changeset visible and only then lets the index and the file table know.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from pyroaring import BitMap64

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown, SchemaError, TableError
from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT, PositionIndex
from kuvasz.lake import layout, source_columns
from kuvasz.lake import positions as position_properties
from kuvasz.lake.binding import bind, no_earlier_version
from kuvasz.lake.catalog import Commit, IcebergTable
from kuvasz.lake.datafile import DataFile, file_io, remove
from kuvasz.lake.era import Era
from kuvasz.lake.expressions import Expressions, Projection
from kuvasz.lake.files import (
    Changeset,
    DeleteFile,
    FileEntry,
    FileTable,
    Sent,
    entry_of,
    entry_of_new,
    write_position_deletes,
    write_vectors,
)
from kuvasz.lake.layout import Layout
from kuvasz.lake.schema import SID, LakeSchema
from kuvasz.lake.tasks import ChunkDone
from kuvasz.model import Int32s, Position, Relation, UInt32s
from kuvasz.modes.shape import Shape
from kuvasz.ports import Feed, Target

_log = logging.getLogger(__name__)

#: Table property that holds the id of the last commit: how a lost answer is looked up.
COMMIT_PROPERTY = "kuvasz.commit"
SEED_PROPERTY = "kuvasz.seed"
KEY_PROPERTY = "kuvasz.key"

#: The same for commits that only rewrite files: they may be another process's than the stream's.
REWRITE_PROPERTY = "kuvasz.rewrite"

#: The first format version with deletion vectors.
_VECTOR_FORMAT = 3

#: Entries after which the index is made durable although nobody stops.
CHECKPOINT_ENTRIES = 1 << 20

ReadKeys = Callable[[Sequence[tuple[int, str]]], Iterable[tuple[int, Keys]]]


class OpenTransaction:
    """Parts of a source transaction that outgrew the memory budget; visible only with its last part.

    Args:
        commit_lsn: Which transaction.
    """

    def __init__(self, commit_lsn: int) -> None:
        self.commit_lsn = commit_lsn
        self.truncates: tuple[str | None] | None = None  #: sid whose rows from before the transaction go with it
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.changeset = Changeset()
        self.overlay = PositionIndex.in_memory()
        self.entries: list[tuple[Keys, UInt32s, UInt32s]] = []


class LakeTable:
    """A table that kuvasz writes. One thread at a time, guarded by `lock`.

    Args:
        table: The Iceberg table.
        target: What the map says of it.
        properties: Of the FileIO.
        index_folder: Where indexes live.
        read_keys: Reads the keys of data files again, on executors.
        expressions: Checks those of the map.
    """

    def __init__(
        self,
        table: IcebergTable,
        target: Target,
        properties: Mapping[str, str],
        index_folder: Path,
        read_keys: Callable[[LakeTable], ReadKeys],
        expressions: Expressions,
    ) -> None:
        self._expressions = expressions
        self.lock = threading.RLock()
        self.table = table
        self.target = target
        self.name = target.name
        self._properties = properties
        self.uuid = table.uuid
        self.location = table.location
        self.format_version = table.format_version
        self.schema: LakeSchema = table.schema()
        found = table.properties
        if SEED_PROPERTY not in found or KEY_PROPERTY not in found:
            message = f"table {target.name} exists in the lake and was not made by kuvasz"
            raise SchemaError(message, hint="choose another `target`, or drop the table from the lake")
        self.layout = self._settle_layout()
        self.seed = bytes.fromhex(found[SEED_PROPERTY])
        self.key: tuple[str, ...] = tuple(json.loads(found[KEY_PROPERTY]))
        if (self.schema.by_name(SID) is not None) != target.has_sid and SID not in self.key:
            message = f"table {target.name} was made {'without' if target.has_sid else 'with'} a column sid"
            raise SchemaError(message, hint="keep the map's sids as they were, or choose another `target`")
        self.positions: dict[str, Position] = position_properties.parse(found, target.name)
        self.source_columns = source_columns.parse(found, target.name)
        self.snapshot_id: int | None = None
        self.files = FileTable(properties)
        self.open: dict[str, OpenTransaction] = {}
        self._shapes: dict[tuple[str, Relation], Shape] = {}
        self._read_keys = read_keys(self)
        self._index_folder = index_folder / self.uuid
        self._index: PositionIndex | None = None
        self._unsaved = 0
        self.in_flight: set[str] = set()  #: paths that are being written for a commit of the stream
        self.copies = 0  #: that are on their way
        self.changed_bytes = 0  #: of data files written by the stream and by copies, since the start
        self.rewritten_bytes = 0  #: of data files written by maintenance, since the start
        self.era = Era.begin(self.positions)

    def _settle_layout(self) -> Layout:
        """Return the layout that files to come are to have: the map's; files that are there keep their own."""
        asked = layout.wanted(self.target, self.schema.fields)
        now = self.table.layout()
        if set(asked.partition) == set(now.partition) and asked.order == now.order:
            return now
        self.table.replace_layout(now, asked)
        _log.info("the layout of a table changed", extra={
            "event": "layout_changed", "table": self.name, "partition_by": list(self.target.partition_by),
            "sort_by": list(self.target.sort_by)})  # fmt: skip
        return self.table.layout()

    # Opening

    @property
    def index(self) -> PositionIndex:
        """The position index, brought up to the table's current snapshot at the first use."""
        if self._index is None:
            self._index = PositionIndex.open(self._index_folder)
            tag = self._index.tag
            if tag is not None:
                self._recall(tag)
            self._catch_up()
        return self._index

    def _recall(self, tag: Mapping[str, object]) -> None:
        numbers = tag["files"]
        assert isinstance(numbers, dict)
        for number, path in numbers.items():
            self.files.add(FileEntry(number=int(number), path=path, rows=0, sid=None))
        self.files.next_number = max(self.files.next_number, int(str(tag["next"])))

    def _catch_up(self) -> None:
        """Make files and index describe the current snapshot, reading only what is new to them.

        Raises:
            ForeignChange: An open transaction replaces rows of files that someone else removed.
        """
        assert self._index is not None
        sid = self.schema.by_name(SID)
        sid_id = sid.field_id if sid is not None and self.target.has_sid else None
        live = {file.data["file-path"]: file for file in self.table.live_files()}
        gone = [entry.number for entry in self.files if entry.path not in live]
        if gone:
            self._check_open(gone)
            self._index.drop_files(gone)
        for number in gone:
            self.files.remove(number)
        fresh = []
        for path, file in live.items():
            known = self.files.find(path)
            entry = entry_of(file, known.number if known else self.files.reserve(), sid_id)
            if known is None:
                fresh.append((entry.number, path))
            elif known.all_deletes == entry.all_deletes:
                entry.dead = known.dead
            self.files.add(entry)
        if fresh:
            _log.info("reading keys of files", extra={"event": "index_read", "table": self.name, "files": len(fresh)})
        for number, keys in self._read_keys(fresh) if fresh else ():
            alive = np.ones(len(keys), np.bool_)
            dead = self.files.dead(number)
            if len(dead):
                alive[np.fromiter(dead, np.int64, len(dead))] = False
            rows = np.flatnonzero(alive).astype(np.uint32)
            self._index.insert(keys.take(rows), number, rows)
        self._index.mark()
        self.snapshot_id = self.table.snapshot_id

    def _check_open(self, gone: Sequence[int]) -> None:
        for source, pending in self.open.items():
            if not pending.changeset.deletes.keys().isdisjoint(gone):
                message = (
                    f"table {self.name}: someone else rewrote files in the lake while a large transaction of source"
                    f" {source} was being applied"
                )
                raise ForeignChange(message, hint=f"begin the transaction again: kuvasz retry --table {self.name}")

    def checkpoint(self) -> None:
        """Make the index durable, so that the next start need not read keys."""
        if self._index is None:
            return
        files = {str(entry.number): entry.path for entry in self.files}
        failpoints.hit("before_checkpoint")
        self._index.checkpoint({"snapshot": self.snapshot_id, "files": files, "next": self.files.next_number})
        failpoints.hit("after_checkpoint")
        self._unsaved = 0

    def close(self) -> None:
        """Save the index and remove what was written and not committed."""
        with self.lock:
            for source in list(self.open):
                self.abandon(source)
            if self._index is not None:
                self.checkpoint()
                self._index.close()
                self._index = None

    # Shapes

    def shape(self, feed: Feed, relation: Relation) -> Shape:
        """Return how a relation's columns meet the table's fields.

        Raises:
            SchemaError: The table cannot hold them.
        """
        cached = self._shapes.get((feed.source, relation))
        if cached is None:
            known = self.source_columns.get(feed.source)
            if known is not None:
                source_columns.check_table(known, relation, _place(feed), self.name)
            view = self.project(feed, relation)
            cached = view.apply(bind(self.target, self.schema, self.key, self.seed, feed, view.relation), relation)
            self._shapes[feed.source, relation] = cached
        return cached

    def project(self, feed: Feed, relation: Relation) -> Projection:
        """Return how a relation looks from this table.

        Raises:
            ExpressionRefused: An expression of the map does not fit it.
        """
        return self._expressions.project(self.target, relation, _place(feed), self.key)

    def check_columns(self, feed: Feed, relation: Relation) -> None:
        """Refuse what happened to a source table that the rows already here do not show; see `source_columns`.

        Raises:
            SchemaError: The table has to be copied again.
        """
        known = self.source_columns.get(feed.source)
        if known is not None and feed.source in self.positions:
            source_columns.check(known, relation, _place(feed), self.target)

    def remember_columns(self, feed: Feed, relation: Relation) -> None:
        """Store a source table's columns, now that the lake agrees with them."""
        now = source_columns.of(self.target, relation)
        if self.source_columns.get(feed.source) != now:
            self.table.set_properties({source_columns.PREFIX + feed.source: now.render()})
            self.source_columns[feed.source] = now

    def forget_position(self, source: str) -> None:
        """Drop a source's position."""
        self.table.remove_properties([position_properties.PREFIX + source])
        self.positions.pop(source, None)
        self.era = Era.begin(self.positions)

    @property
    def io_properties(self) -> Mapping[str, str]:
        """Of the FileIO."""
        return self._properties

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns whose bounds are kept: the key's, sid included."""
        return ((SID,) if self.target.has_sid else ()) + self.key

    def reload_schema(self) -> None:
        """Read the schema again after it was changed."""
        self.schema = self.table.schema()
        self.layout = self.table.layout()
        self._shapes.clear()

    # Resolving

    def resolve(
        self, done: ChunkDone, source: str, waiting: int, changeset: Changeset, sid: str | None
    ) -> tuple[UInt32s, UInt32s] | None:
        """Take the results of one chunk: earlier versions die, new rows enter the index.

        Args:
            done: The results.
            source: Of the chunk; its open transaction is looked at first.
            waiting: File number reserved for its rows that wait for earlier versions.
            changeset: Takes the outcome.
            sid: Of the chunk's rows.

        Returns:
            For rows that wait: file number and position of each one's earlier version, else None.

        Raises:
            TableError: A row waits for an earlier version that is not there.
        """
        assert done.keys is not None
        assert done.written is not None
        pending = self.open.get(source)
        earlier = None
        if done.sources is not None:
            earlier = self._lookup(done.sources, pending)
            self._check_found(earlier, source)
        files, rows = self._lookup(done.keys, pending)
        found = files != ABSENT
        changeset.delete(files[found], rows[found])
        numbers = [*self._add(done.files, changeset, sid), waiting]
        kept = np.flatnonzero(done.written >= 0)
        file, position = _place_in(done.files, numbers, done.written[kept])
        self._insert(done.keys.take(kept.astype(np.int32)), file, position, pending)
        return earlier

    def _add(self, files: Sequence[DataFile], changeset: Changeset, sid: str | None) -> list[int]:
        numbers = []
        for file in files:
            numbers.append(self.files.reserve())
            changeset.add(numbers[-1], file, sid)
        return numbers

    def settle(
        self,
        waiting: int,
        done: ChunkDone,
        completed: ChunkDone,
        source: str,
        layers: tuple[Changeset, Changeset],
        sid: str | None,
    ) -> tuple[UInt32s, UInt32s]:
        """Take rows that waited for their earlier versions to the files they turned out to belong to.

        Until now they stood under one number, because nobody could know their partitions.

        Args:
            waiting: That number.
            done: The results of their chunk.
            completed: Where they are.
            source: Of the chunk.
            layers: The changeset they belong to, and the commit's own.
            sid: Of the rows.

        Returns:
            File number and position of each row that waited.
        """
        assert done.keys is not None
        assert done.written is not None
        layer, outer = layers
        numbers = self._add(completed.files, layer, sid)
        count = sum(file.rows for file in completed.files)
        rows = np.arange(count, dtype=np.int32) if completed.written is None else completed.written
        file, position = _place_in(completed.files, numbers, rows)
        gone = layer.deletes.get(waiting)
        for changeset in {id(one): one for one in (outer, *(o.changeset for o in self.open.values()))}.values():
            if (dead := changeset.deletes.pop(waiting, None)) is not None:
                which = np.fromiter(dead, np.int64, len(dead))
                changeset.delete(file[which], position[which])
        # Keys that a later chunk took over stay as that chunk left them.
        begin = sum(one.rows for one in done.files)
        mine = np.flatnonzero(done.written >= begin)
        row = done.written[mine].astype(np.int64) - begin
        if gone is not None:
            lives = ~np.isin(row, np.fromiter(gone, np.int64, len(gone)))
            mine, row = mine[lives], row[lives]
        pending = self.open[source] if layer is not outer else None
        self._insert(done.keys.take(mine.astype(np.int32)), file[row], position[row], pending)
        return file, position

    def _check_found(self, earlier: tuple[UInt32s, UInt32s], source: str) -> None:
        lost = int(np.count_nonzero(earlier[0] == ABSENT))
        for number in np.unique(earlier[0]).tolist():
            # The index does not forget deleted rows; their files do not know them any more.
            if number in self.files and len(dead := self.files.dead(number)):
                lost += sum(int(row) in dead for row in earlier[1][earlier[0] == number])
        if lost:
            raise no_earlier_version(source, self.name, lost)

    def _lookup(self, keys: Keys, pending: OpenTransaction | None) -> tuple[UInt32s, UInt32s]:
        if pending is None:
            return self.index.lookup(keys)
        newer_files, newer_rows = pending.overlay.lookup(keys)
        if pending.truncates is not None:
            return newer_files, newer_rows
        files, rows = self.index.lookup(keys)
        newer = newer_files != ABSENT
        return np.where(newer, newer_files, files), np.where(newer, newer_rows, rows)

    def _insert(self, keys: Keys, files: UInt32s, rows: UInt32s, pending: OpenTransaction | None) -> None:
        if pending is None:
            self.index.insert(keys, files, rows)
        else:
            pending.overlay.insert(keys, files, rows)
            pending.entries.append((keys, files, rows))

    def truncate(self, source: str, sid: str | None, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        """Drop every row of one source: whole files, no row is looked at.

        Args:
            source: The source. If it has an open transaction, the TRUNCATE is part of that and shows with its end.
            sid: Its identifier.
            changeset: Takes the outcome.
            reserved: Numbers of files for rows of the source that wait for their earlier versions.

        Raises:
            TableError: A file holds rows of several sources.
        """
        pending = self.open.get(source)
        if pending is None:
            self._truncate(source, sid, changeset, reserved)
            return
        remove(file_io(self._properties, self.location), pending.changeset.paths())
        pending.truncates = (sid,)
        pending.clear()

    def _truncate(self, source: str, sid: str | None, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        gone = [entry.number for entry in self.files if self._is_of(entry.sid, sid)]
        mixed = [entry.path for entry in self.files if self.target.has_sid and entry.sid is None]
        if mixed:
            message = f"table {self.name}: a TRUNCATE at source {source} meets files that hold several sources' rows"
            raise TableError(message, hint=f"copy the table again: kuvasz resync --table {self.name}")
        changeset.dropped.update(gone)
        for number in [number for number, (_, owner) in changeset.added.items() if self._is_of(owner, sid)]:
            gone.append(number)
            remove(file_io(self._properties, self.location), [changeset.added.pop(number)[0].path])
            changeset.deletes.pop(number, None)
        self.index.drop_files([*gone, *reserved])

    def _is_of(self, owner: str | None, sid: str | None) -> bool:
        return not self.target.has_sid or owner == sid

    def abandon(self, source: str) -> None:
        """Forget the parts of a transaction that begins again after a reconnect."""
        pending = self.open.pop(source, None)
        if pending is not None:
            remove(file_io(self._properties, self.location), pending.changeset.paths())

    def close_open(self, source: str, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        """Take the parts of a transaction that is now whole into a commit; `reserved` as for `truncate`."""
        pending = self.open.pop(source)
        if pending.truncates is not None:
            self._truncate(source, pending.truncates[0], changeset, reserved)
        changeset.merge(pending.changeset)
        for keys, files, rows in pending.entries:
            self.index.insert(keys, files, rows)

    # Committing

    def commit(self, changeset: Changeset, positions: Mapping[str, Position]) -> int | None:
        """Make a changeset visible together with the positions; returns the snapshot's id.

        Returns None without a commit if no row changes and no source is new.

        Raises:
            ForeignChange: Another writer changed the table at the same time.
            OutcomeUnknown, LakeError: See `IcebergTable.commit`.
        """
        sent = changeset.sent
        if sent is None:
            sent = self._plan_commit(changeset, positions)
            if sent is None:
                self.index.mark()
                return None
            changeset.sent = sent
        elif self._has_landed(sent):
            return self._accept(changeset, sent, positions, self.table.snapshot_id)
        try:
            failpoints.hit("before_swap" if changeset.is_rewrite else "before_commit", LakeError)
            self.snapshot_id, parent = self.table.commit(sent.commit)
            failpoints.hit("after_swap" if changeset.is_rewrite else "after_commit", OutcomeUnknown)
        except LakeError:
            if not self._has_landed(sent):
                raise
            parent = self.table.snapshot_id
        return self._accept(changeset, sent, positions, parent)

    def _has_landed(self, sent: Sent) -> bool:
        """Look whether a commit that seemed to fail is there after all.

        Raises:
            LakeError: The catalog does not answer: nobody knows, and nothing may be repeated or removed.
        """
        self.table.refresh()
        if sent.commit_id not in map(self.table.properties.get, (COMMIT_PROPERTY, REWRITE_PROPERTY)):
            return False
        _log.warning("the answer of a commit was lost, but it is there",
                     extra={"event": "commit_found", "table": self.name})  # fmt: skip
        self.snapshot_id = self.table.snapshot_id
        return True

    def _accept(
        self, changeset: Changeset, sent: Sent, positions: Mapping[str, Position], parent: int | None
    ) -> int | None:
        self._remember(changeset, sent.deletes, sent.delete_files, positions)
        if parent not in {sent.commit.snapshot_id, self.snapshot_id}:
            self._catch_up()
        return self.snapshot_id

    def _plan_commit(self, changeset: Changeset, positions: Mapping[str, Position]) -> Sent | None:
        """Write the delete files and put the commit together; None if there is nothing to commit."""
        deletes = self._deletes(changeset)
        is_known = positions.keys() <= self.positions.keys()
        if not changeset.added and not deletes and not changeset.dropped and is_known:
            return None
        delete_files = self._write_deletes(deletes, changeset)
        commit_id = uuid.uuid4().hex
        commit = self._commit_of(changeset, delete_files, positions, commit_id)
        return Sent(commit_id=commit_id, commit=commit, deletes=deletes, delete_files=delete_files)

    def _deletes(self, changeset: Changeset) -> dict[int, BitMap64]:
        """Return the positions of each file that die by this commit and were alive before.

        A file of which no row is left alive is dropped instead: what is updated often takes itself away.
        """
        deletes = {}
        for number, positions in changeset.deletes.items():
            if number in changeset.added:
                deletes[number] = positions
                continue
            if number in changeset.dropped or number not in self.files:
                continue  # the index does not forget the rows of a file that went because all of them were dead
            dead = self.files.dead(number)
            fresh = positions - dead
            if len(dead) + len(fresh) == self.files[number].rows:
                changeset.dropped.add(number)
            elif len(fresh):
                deletes[number] = fresh
        return deletes

    def _entry(self, number: int, changeset: Changeset) -> FileEntry:
        if number in changeset.added:
            file, sid = changeset.added[number]
            return entry_of_new(number, file, sid)
        return self.files[number]

    def _write_deletes(self, deletes: Mapping[int, BitMap64], changeset: Changeset) -> list[DeleteFile]:
        if not deletes:
            return []
        cumulative = []
        for number, fresh in deletes.items():
            entry = self._entry(number, changeset)
            cumulative.append((entry, fresh if number in changeset.added else self.files.dead(number) | fresh))
        write = write_vectors if self.format_version >= _VECTOR_FORMAT else write_position_deletes
        try:
            failpoints.hit("before_delete_files", OSError)
            written = write(self._properties, self.location, cumulative)
            failpoints.hit("after_delete_files", OSError)
        except Exception as error:  # each store fails with errors of its own
            message = f"table {self.name}: cannot write delete files below {self.location}: {error}"
            raise LakeError(message, hint="check the warehouse; it is tried again") from error
        return written

    def _commit_of(
        self,
        changeset: Changeset,
        delete_files: Sequence[DeleteFile],
        positions: Mapping[str, Position],
        commit_id: str,
    ) -> Commit:
        properties = {REWRITE_PROPERTY if changeset.is_rewrite else COMMIT_PROPERTY: commit_id}
        for source, position in positions.items():
            properties[position_properties.PREFIX + source] = position_properties.render(position)
        known = [self.files[file.number] for file in delete_files if file.number in self.files]
        dropped = [self.files[number] for number in sorted(changeset.dropped)]
        return Commit(
            snapshot_id=self.snapshot_id,
            properties=properties,
            summary=properties | changeset.summary,
            data_files=[file.json for file, _ in changeset.added.values()],
            added_deletes=[file.json for file in delete_files],
            removed_deletes=[text for entry in (*known, *dropped) for text in entry.own_deletes],
            removed_files=[self.data_json(entry) for entry in dropped],
            is_rewrite=changeset.is_rewrite,
        )

    def data_json(self, entry: FileEntry) -> str:
        """Return what a commit needs of a data file to remove it."""
        return json.dumps(
            {
                "spec-id": entry.spec_id, "content": "data", "file-path": entry.path, "file-format": "parquet",
                "partition": entry.partition, "file-size-in-bytes": 1, "record-count": entry.rows,
            }
        )  # fmt: skip

    def _remember(
        self,
        changeset: Changeset,
        deletes: Mapping[int, BitMap64],
        delete_files: Sequence[DeleteFile],
        positions: Mapping[str, Position],
    ) -> None:
        for number in changeset.dropped:
            self.files.remove(number)
        for number, (file, sid) in changeset.added.items():
            self.files.add(entry_of_new(number, file, sid))
        for delete_file in delete_files:
            entry = self.files[delete_file.number]
            entry.dead = self.files.dead(entry.number) | deletes[entry.number]
            entry.others = tuple(text for text in entry.others if text not in entry.own_deletes)
            entry.delete = delete_file.json
        size = sum(file.size for file, _ in changeset.added.values())
        if changeset.is_rewrite:
            self.rewritten_bytes += size
        else:
            self.changed_bytes += size
        self.positions.update(positions)
        self.index.mark()
        self._unsaved += sum(file.rows for file, _ in changeset.added.values())
        if self._unsaved >= CHECKPOINT_ENTRIES:
            self.checkpoint()

    def forget(self, changeset: Changeset) -> None:
        """Undo what a failed commit left: in memory, in the index, and in the store."""
        self.discard(changeset)
        for source in list(self.open):
            pending = self.open.pop(source)
            remove(file_io(self._properties, self.location), pending.changeset.paths())
        self.reset_index()

    def discard(self, changeset: Changeset, keep: Iterable[str] = ()) -> None:
        """Remove the files of a changeset that will not be committed, except those of the paths to `keep`.

        If nobody knows whether it was committed, they stay: a table that lacks a file cannot be read, an orphan harms
        nobody.
        """
        if changeset.is_outcome_unknown:
            return
        paths = {*changeset.paths()} | {file.path for file in (changeset.sent.delete_files if changeset.sent else ())}
        remove(file_io(self._properties, self.location), paths.difference(keep))

    def undo(self) -> None:
        """Take back what was told to the index since the last commit; open transactions stay as they are."""
        if self._index is not None:
            self._index.rollback()

    def reset_index(self) -> None:
        """Go back to the last checkpoint of the index; what is newer is read from the table at the next use."""
        if self._index is not None:
            self._index.close()
            self._index = None
        self.files = FileTable(self._properties)

    def follow(self) -> bool:
        """Look whether someone else committed, and bring files and index up to date if so."""
        if self._index is None:
            return self.index is None  # opening reads what is current
        self.table.refresh()
        if self.table.schema_id != self.schema.schema_id:
            self._follow_schema()
        if self.table.snapshot_id == self.snapshot_id:
            return False
        _log.warning("someone else changed the table", extra={"event": "foreign_commit", "table": self.name})
        self._catch_up()
        return True

    def _follow_schema(self) -> None:
        """Take over a schema that someone else changed, if every column of ours is still there."""
        fresh = {field.field_id: field for field in self.table.schema().fields}
        for field in self.schema.fields:
            found = fresh.get(field.field_id)
            if found is None or found.name != field.name:
                what = "dropped" if found is None else f"renamed to {found.name}"
                message = f"table {self.name}: column {field.name} was {what} in the lake by someone else"
                raise SchemaError(message, hint=f"copy the table again: kuvasz resync --table {self.name}")
        self.reload_schema()

    def adopt(
        self, files: Sequence[tuple[int, DataFile]], keys: Iterable[Keys], sid: str | None, changeset: Changeset
    ) -> None:
        """Take copied files into a changeset."""
        for (number, file), file_keys in zip(files, keys, strict=True):
            changeset.add(number, file, sid)
            self.index.insert(file_keys, number, np.arange(file.rows, dtype=np.uint32))


def _place_in(files: Sequence[DataFile], numbers: Sequence[int], rows: Int32s) -> tuple[UInt32s, UInt32s]:
    """Return file number and position of rows that are counted through several files.

    Args:
        files: One behind another.
        numbers: Theirs, and perhaps one for the rows behind them.
        rows: Row numbers.
    """
    if len(files) == 1 and len(numbers) == 2:
        is_first = rows < files[0].rows
        file = np.where(is_first, numbers[0], numbers[1])
        return file.astype(np.uint32), np.where(is_first, rows, rows - files[0].rows).astype(np.uint32)
    ends = np.cumsum([file.rows for file in files], dtype=np.int64)
    which = np.searchsorted(ends, rows, side="right")
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    return np.asarray(numbers, np.uint32)[which], (rows - begins[which]).astype(np.uint32)


def _place(feed: Feed) -> str:
    return f"source {feed.source}, table {feed.table}"
