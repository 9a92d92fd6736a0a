"""One lake table at work: schema, files, positions and index, from results of a job to a commit.

`lookup` and `insert` are the position index, with what open transactions have changed; `commit` makes a `Changeset`
visible and only then lets the index and the file table know. How rows get into a changeset, and what else a table
needs, is done by objects around it, each of which works on one table.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from pyroaring import BitMap64

from kuvasz import failpoints
from kuvasz.config import names
from kuvasz.errors import LakeError, LateCommit, OutcomeUnknown, TableError
from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT, PositionIndex
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.files.data_file import DataFile, file_io, remove
from kuvasz.lake.files.files import Changeset, FileTable, Sent
from kuvasz.lake.format import layout, member, table_identity
from kuvasz.lake.format import source_positions as position_properties
from kuvasz.lake.format.binding import no_earlier_version
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import SID, LakeSchema, bounded
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table.checkpoints import Checkpoints
from kuvasz.lake.table.columns import Columns
from kuvasz.lake.table.commit_builder import COMMIT_PROPERTY, REWRITE_PROPERTY, CommitBuilder
from kuvasz.lake.table.commit_yield import CommitYield
from kuvasz.lake.table.notes import Notes
from kuvasz.lake.table.past import Past
from kuvasz.lake.table.recovery import ReadKeys, ReadVersions, Recovery
from kuvasz.lake.table.table_lock import TableLock
from kuvasz.lake.table.transaction import OpenTransaction
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition, TableType, UInt32s
from kuvasz.modes import keyless
from kuvasz.ports import Target
from kuvasz.state.witness import Witness

_log = logging.getLogger(__name__)

#: Table property that is written to find out whether one can be.
_PROOF_PROPERTY = "kuvasz.proof"

#: Table types in which several rows have one key, the newest of which the index knows.
_GROWING = frozenset({TableType.APPEND, TableType.CHANGELOG})


class LakeTable:
    """A table that kuvasz writes. One thread at a time, guarded by `lock`.

    Args:
        table: The Iceberg table.
        target: What the map says of it.
        properties: Of the FileIO.
        index_folder: Where indexes live.
        read_keys: Reads the keys of data files again, on executors.
        expressions: Checks those of the map.
        read_versions: The same for a history: the open versions, or those that ended deleted. None for who works
            without the index.
        witness: Of the positions; None for who does not write the stream.
    """

    def __init__(
        self,
        table: IcebergTable,
        target: Target,
        properties: Mapping[str, str],
        index_folder: Path,
        read_keys: Callable[[LakeTable], ReadKeys],
        expressions: Expressions,
        read_versions: Callable[[LakeTable], ReadVersions] | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.lock = TableLock(target.name)
        self.table = table
        self.notes = Notes(table)
        self.target = target
        self.name = target.name
        self._properties = properties
        self.uuid = table.uuid
        self.location = table.location
        self.format_version = table.format_version
        self.schema: LakeSchema = table.schema()
        made = table_identity.parse(table.properties, target, self.schema)
        self.seed = made.seed
        self.key = made.key
        self.layout = table.layout()
        self.definition = threading.RLock()  #: held while schema, key, layout and shapes change together
        self.positions: dict[str, SourcePosition] = position_properties.parse(table.properties, target.name)
        self.columns = Columns(self, expressions)
        self.generations: dict[str, int] = {}  #: source -> how often its position was forgotten
        self.identities = 0  #: how often other columns came to tell rows without a key apart
        self.snapshot_id: int | None = None
        self.files = FileTable(properties)
        self.open: dict[str, OpenTransaction] = {}
        self._read_keys = read_keys(self)
        self._read_versions = read_versions(self) if read_versions is not None else None
        self._index_folder = index_folder / self.uuid
        self._index: PositionIndex | None = None
        self._checkpoints = Checkpoints(self)
        self.in_flight: set[str] = set()  #: paths that are being written for a commit of the stream
        self.copies = 0  #: that are on their way
        self.changed_bytes = 0  #: of data files written by the stream and by copies, since the start
        self.rewritten_bytes = 0  #: of data files written by maintenance, since the start
        self.turn = CommitYield(table)
        self.past = Past(self, witness)
        self.era = WriteEra.begin(self.positions)

    # What it is

    @property
    def is_bag(self) -> bool:
        """Whether it clones a table without a key, whose rows are matched as a whole."""
        return self.target.type is TableType.CLONE and not self.key

    @property
    def has_unique_keys(self) -> bool:
        """Whether a key has one live row at most, so that reading live rows tells where the newest is."""
        return self.target.type is TableType.CLONE and not self.is_bag

    @property
    def is_growing(self) -> bool:
        """Whether several rows may have one key, of which the one written last is the newest."""
        return self.target.type in _GROWING

    @property
    def keeps_order(self) -> bool:
        """Whether the order of its rows counts, and the files can say what it is."""
        return self.is_growing and self.layout.is_plain

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns, without sid, whose values the index knows rows by; empty if it knows none."""
        if not self.is_bag:
            return self.key
        return tuple(keyless.hashed_columns(self.schema.arrow(), has_sid=self.target.has_sid))

    @property
    def sid_id(self) -> int | None:
        """Id of the field with the source's identifier; None if there is none, or it is a source's own column."""
        sid = self.schema.by_name(SID)
        return sid.field_id if sid is not None and self.target.has_sid else None

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns whose bounds are kept: the key's, sid included, and some of kuvasz's own."""
        return bounded(self.target, self.key)

    @property
    def io_properties(self) -> Mapping[str, str]:
        """Of the FileIO."""
        return self._properties

    def reload_schema(self, key: tuple[str, ...] | None = None) -> None:
        """Read the schema again after it was changed; the key may have changed with it."""
        with self.definition:
            before = self._hashed()
            if key is not None:
                self.key = key
            self.schema = self.table.schema()
            self.layout = self.table.layout()
            self.columns.forget_shapes()
            if self.is_bag and self._hashed() != before:
                self.identities += 1
                self.reset_index()

    def _hashed(self) -> tuple[tuple[int, str], ...] | None:
        """Return id and type of the fields by which the index knows rows without a key; None if they have one."""
        fields = (self.schema.by_name(name) for name in self.identity) if self.is_bag else None
        return None if fields is None else tuple((field.field_id, str(field.type)) for field in fields if field)

    def settle_layout(self) -> None:
        """Take over the layout that the map asks for; files that are there keep their own.

        Raises:
            SchemaError: It names a column that is not there.
        """
        with self.definition:
            self.layout = self._settle_layout()

    def _settle_layout(self) -> Layout:
        asked = layout.wanted(self.target, self.schema.fields, self.columns.former_names())
        now = self.table.layout()
        if set(asked.partition) == set(now.partition) and asked.order == now.order:
            return now
        self.table.replace_layout(now, asked)
        _log.info("the layout of a table changed", extra={
            "event": "layout_changed", "table": self.name, "partition_by": list(self.target.partition_by),
            "sort_by": list(self.target.sort_by)})  # fmt: skip
        return self.table.layout()

    def forget_position(self, source: str, *, to_repair: bool = False, is_gone: bool = False) -> None:
        """Drop a source's position; what was written of it and is not committed yet never will be.

        With `is_gone` its columns are forgotten, too.
        """
        self.past.forget(source)
        self.notes.drop_position(source, to_repair=to_repair, is_gone=is_gone)
        if is_gone:
            self.columns.forget(source)
        self.abandon(source)
        self.positions.pop(source, None)
        self.era.accepted.pop(source, None)
        self.generations[source] = self.generations.get(source, 0) + 1

    # The index

    @property
    def index(self) -> PositionIndex:
        """The position index, brought up to the table's current snapshot at the first use."""
        if self._index is None:
            self._index = PositionIndex.open(self._index_folder)
            self._checkpoints.recall(self._index)
            self.catch_up()
        return self._index

    def catch_up(self) -> None:
        """Make files and index describe the current snapshot; errors as for `Recovery.run`."""
        assert self._index is not None
        try:
            Recovery(self, self._index, self._read_keys, self._read_versions).run()
            self._index.mark()
            self.snapshot_id = self.table.snapshot_id
            self.turn.note()
        except BaseException:
            self.reset_index()  # files without their keys must not be taken for known the next time
            raise

    def checkpoint(self) -> None:
        """Make the index durable, so that the next start need not read keys."""
        if self._index is not None:
            self._checkpoints.save(self._index)

    def undo(self) -> None:
        """Take back what was told to the index since the last commit; open transactions stay as they are."""
        if self._index is not None:
            self._index.rollback()

    def reset_index(self) -> None:
        """Go back to the last checkpoint of the index; what is newer is read from the table at the next use."""
        if self._index is not None:
            self._index.close()
            self._index = None
        self.files.let_go()
        self.void_open()

    def clear_index(self) -> None:
        """Have the index read anew from nothing at the next use."""
        index = self._index or PositionIndex.open(self._index_folder)
        index.clear()
        index.close()
        self._index = None
        self.reset_index()

    def void_open(self) -> None:
        """Have open transactions begin again whose rows have no key: copies of a row are numbered anew."""
        for pending in self.open.values() if self.is_bag else ():
            pending.is_void = True

    def check_open(self) -> None:
        """Refuse to go on with open transactions that have to begin again.

        Raises:
            LakeError: There are some.
        """
        void = sorted(source for source, pending in self.open.items() if pending.is_void)
        if void:
            message = f"table {self.name}: rows were numbered anew within a large transaction of {', '.join(void)}"
            raise LakeError(message, hint="kuvasz begins the transaction again by itself")

    def close(self) -> None:
        """Save the index and remove what was written and not committed."""
        with self.lock:
            for source in list(self.open):
                self.abandon(source)
            if self._index is not None:
                self.checkpoint()
                self._index.close()
                self._index = None

    # Resolving

    def lookup(self, keys: Keys, pending: OpenTransaction | None) -> tuple[UInt32s, UInt32s]:
        """Return where the newest row of each key is; an open transaction sees its own rows first."""
        if pending is None:
            return self.index.lookup(keys)
        newer_files, newer_rows = pending.overlay.lookup(keys)
        if pending.truncates is not None:
            return newer_files, newer_rows
        files, rows = self.index.lookup(keys)
        newer = newer_files != ABSENT
        return np.where(newer, newer_files, files), np.where(newer, newer_rows, rows)

    def insert(self, keys: Keys, files: UInt32s, rows: UInt32s, pending: OpenTransaction | None) -> None:
        """Note where the newest row of each key is now."""
        if pending is None:
            self.index.insert(keys, files, rows)
        else:
            pending.overlay.insert(keys, files, rows)
            pending.entries.append((keys, files, rows))

    def alive(self, files: UInt32s, rows: UInt32s, changeset: Changeset | None = None) -> tuple[UInt32s, UInt32s]:
        """Return places with those made `ABSENT` whose rows were deleted, or whose files went as a whole.

        What a changeset adds is there; what it deletes is looked at by whoever asks.
        """
        files = files.copy()
        for number in np.unique(files[files != ABSENT]).tolist():
            mine = np.flatnonzero(files == number)
            if number not in self.files:
                if changeset is None or number not in changeset.added:
                    files[mine] = ABSENT
                continue
            dead = self.files.dead(number) & BitMap64(rows[mine].astype(np.uint64))
            if len(dead):
                files[mine[np.isin(rows[mine], np.fromiter(dead, np.uint32, len(dead)))]] = ABSENT
        return files, rows

    def find_earlier(self, sources: Keys, source: str) -> tuple[UInt32s, UInt32s]:
        """Return file number and position of the earlier versions that rows of a source wait for.

        Raises:
            TableError: One is not there.
        """
        earlier = self.lookup(sources, self.open.get(source))
        self._check_found(earlier, source)
        return earlier

    def _check_found(self, earlier: tuple[UInt32s, UInt32s], source: str) -> None:
        lost = int(np.count_nonzero(earlier[0] == ABSENT))
        for number in np.unique(earlier[0]).tolist():
            # The index does not forget deleted rows; their files do not know them any more.
            if number in self.files and len(dead := self.files.dead(number)):
                lost += sum(int(row) in dead for row in earlier[1][earlier[0] == number])
        if lost:
            raise no_earlier_version(source, self.name, lost)

    def add_files(self, files: Sequence[DataFile], changeset: Changeset, sid: str | None) -> list[int]:
        """Take new files into a changeset; return their numbers."""
        numbers = []
        for file in files:
            numbers.append(self.files.reserve())
            changeset.add(numbers[-1], file, sid)
        return numbers

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
        gone = [entry.number for entry in self.files if self.is_of(entry.path, entry.sid, source, sid)]
        mixed = [entry.path for entry in self.files if self.target.has_sid and entry.sid is None]
        if mixed:
            message = f"table {self.name}: a TRUNCATE at source {source} meets files that hold several sources' rows"
            raise TableError(message, hint=f"copy the table again: kuvasz resync --table {self.name}")
        changeset.dropped.update(gone)
        added = changeset.added.items()
        for number in [number for number, (file, owner) in added if self.is_of(file.path, owner, source, sid)]:
            gone.append(number)
            remove(file_io(self._properties, self.location), [changeset.added.pop(number)[0].path])
            changeset.deletes.pop(number, None)
        self.index.drop_files([*gone, *reserved])

    def is_of(self, path: str, owner: str | None, source: str, sid: str | None) -> bool:
        """Whether a file of some owner holds rows of a source, or of one of its tables."""
        is_same = not self.target.has_sid or owner == sid
        return is_same and (not self.target.has_members or member.in_path(path) == names.member_of(source))

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

    def commit(self, changeset: Changeset, positions: Mapping[str, SourcePosition]) -> int | None:
        """Make a changeset visible together with the positions; returns the snapshot's id.

        Returns None without a commit if no row changes and no source is new. Whoever waits for the lock meanwhile
        does not wait for ever.

        Raises:
            ForeignChange: Another writer changed the table at the same time.
            OutcomeUnknown, LakeError: See `IcebergTable.commit`.
        """
        with self.lock.doubtful():
            return self._commit(changeset, positions)

    def _commit(self, changeset: Changeset, positions: Mapping[str, SourcePosition]) -> int | None:
        sent = changeset.sent
        if sent is None:
            draft = CommitBuilder(self, changeset)
            if draft.is_empty and positions.keys() <= self.positions.keys():
                self.index.mark()
                return None
            changeset.sent = sent = draft.finish(positions)
        elif changeset.is_there or self._has_landed(sent):
            return self._accept(changeset, sent, positions, self._parent_of(sent))
        try:
            failpoints.hit("before_swap" if changeset.is_rewrite else "before_commit", LakeError)
            self.snapshot_id, parent = self.table.commit(sent.commit)
            failpoints.hit("after_swap" if changeset.is_rewrite else "after_commit", OutcomeUnknown)
        except LakeError:
            if not self._has_landed(sent):
                raise
            parent = self._parent_of(sent)
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

    def _parent_of(self, sent: Sent) -> int | None:
        """Return upon which snapshot a commit stands that was found; another one if someone else's came after it."""
        return self.snapshot_id if self.snapshot_id == sent.commit.snapshot_id else self.table.parent_id

    def _accept(
        self, changeset: Changeset, sent: Sent, positions: Mapping[str, SourcePosition], parent: int | None
    ) -> int | None:
        """Take a commit over that is there; if that fails it may be tried again."""
        if not changeset.is_there:
            changeset.is_there = True
            self._remember(changeset, sent, positions)
        if self._index is None:
            self.index  # noqa: B018 (opening reads what is current)
        elif parent not in {sent.commit.snapshot_id, self.snapshot_id}:
            self.catch_up()
        return self.snapshot_id

    def _remember(self, changeset: Changeset, sent: Sent, positions: Mapping[str, SourcePosition]) -> None:
        sequence = 0
        if self.keeps_order and changeset.added:
            sequence = changeset.sequence or self.table.sequence
        self.files.take(changeset, sent, sequence)
        size = sum(file.size for file, _ in changeset.added.values())
        if changeset.is_rewrite:
            self.rewritten_bytes += size
        else:
            self.changed_bytes += size
        self.positions.update(positions)
        self.past.note()
        remove(file_io(self._properties, self.location), changeset.obsolete)
        self.index.mark()
        self._checkpoints.count(self.index, sum(file.rows for file, _ in changeset.added.values()))

    def prove(self) -> None:
        """Find out whether catalog and store take anything of this table.

        Raises:
            LakeError: They do not.
        """
        with self.lock, self.lock.doubtful():
            path = f"{self.location}/data/kvsz-{uuid.uuid4().hex}-proof"
            try:
                io = file_io(self._properties, path)
                with io.new_output(path).create() as stream:
                    stream.write(b"kuvasz")
                io.delete(path)
            except Exception as error:  # each store fails with errors of its own
                message = f"table {self.name}: {self.location}/data cannot be written: {error}"
                raise LakeError(message, hint="check the permissions there; it is tried again") from error
            self.table.set_properties({_PROOF_PROPERTY: uuid.uuid4().hex})
            if self._index is None:  # else nothing is unknown: a commit that failed lets go of the index
                self.positions.update(position_properties.parse(self.table.properties, self.name))

    def advance(self, positions: Mapping[str, SourcePosition]) -> None:
        """Store positions in a commit of their own, when no row changed with them."""
        self.table.set_properties(
            {position_properties.PREFIX + source: position_properties.render(p) for source, p in positions.items()}
        )
        self.positions.update(positions)
        self.past.note()

    def forget(self, changeset: Changeset) -> None:
        """Undo what a failed commit left: in memory, in the index, and in the store."""
        self.discard(changeset)
        for source in list(self.open):
            self.abandon(source)
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

    # Commits of others

    def follow(self) -> bool:
        """Look whether someone else committed, and bring files and index up to date if so.

        Raises:
            LakeRewound: Someone set the table back.
        """
        if self._index is None:
            self.table.look()
            self.past.check()
            return self.index is None  # opening reads what is current
        now = self.table.look()
        if self.turn.give():
            now = self.table.look()
        if now.snapshot_id != self.snapshot_id:
            self.past.check()
        if now.schema_id != self.schema.schema_id:
            self.columns.follow()
        if now.snapshot_id == self.snapshot_id:
            return False
        self._check_positions()
        self.turn.note()
        self.turn.give()
        _log.warning("someone else changed the table", extra={"event": "foreign_commit", "table": self.name})
        self.catch_up()
        return True

    def _check_positions(self) -> None:
        """Find out that it was a kuvasz that committed: one that was killed, or runs with the same map elsewhere.

        Raises:
            LateCommit: A source is further in the table than we brought it; our own changes would be applied twice.
        """
        found = position_properties.parse(self.table.properties, self.name)
        ahead = [s for s, known in self.positions.items() if s in found and found[s].lsn > known.lsn]
        if ahead:
            self.positions.update({source: found[source] for source in ahead})
            message = f"table {self.name}: another process has committed changes of source {', '.join(sorted(ahead))}"
            raise LateCommit(message, hint="it begins again behind them; run one kuvasz per map")
