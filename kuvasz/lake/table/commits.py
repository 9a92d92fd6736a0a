"""The commits of one lake table: made, looked up where the answer was lost, and taken over by index and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown, TableGone
from kuvasz.events import Event, EventLog
from kuvasz.lake.format import source_positions as position_properties
from kuvasz.lake.table.commit_builder import CommitBuilder
from kuvasz.lake.table.notes import COMMIT_PROPERTY, REWRITE_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.files import Changeset, Sent
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.lake.table.past import Past
    from kuvasz.lake.table.table_index import TableIndex
    from kuvasz.lake.table.table_lock import TableLock
    from kuvasz.model import SourcePosition

_log = EventLog(__name__)


def may_be_there(changeset: Changeset, error: BaseException) -> bool:
    """Whether a commit that failed may be in the table all the same, so that its files have to stay.

    What was sent may be there, unless it was refused for sure; whatever else fails, it may fail behind the commit.
    """
    is_refused = isinstance(error, ForeignChange | TableGone)
    return changeset.is_there or (changeset.sent is not None and not is_refused)


class Commits:
    """The commits of one table, whose lock is held.

    A commit makes a `Changeset` visible, and only then lets index and files know.

    Args:
        table: The Iceberg table.
        definition: What it is.
        index: Its index.
        positions: Its sources' positions, which move with a commit.
        past: Says whether someone set the table back.
        lock: The table's.
    """

    def __init__(
        self,
        table: IcebergTable,
        definition: Definition,
        index: TableIndex,
        positions: dict[str, SourcePosition],
        past: Past,
        lock: TableLock,
    ) -> None:
        self._table = table
        self._definition = definition
        self._index = index
        self._positions = positions
        self._past = past
        self._lock = lock
        self.in_flight: set[str] = set()  #: paths that are being written for a commit of the stream
        self.unanswered: set[str] = set()  #: sources whose copy or repair may be there: nobody answered its commit
        self.copies = 0  #: that are on their way
        self.changed_bytes = 0  #: of data files since the start, by the stream and by copies
        self.changed_files = 0  #: those files
        self.rewritten_bytes = 0  #: the same by maintenance

    def make(self, changeset: Changeset, positions: Mapping[str, SourcePosition]) -> int | None:
        """Make a changeset visible together with the positions; returns the snapshot's id.

        Returns None without a commit if no row changes and no source is new. Whoever waits for the lock meanwhile
        does not wait for ever.

        Raises:
            ForeignChange: Another writer changed the table at the same time.
            LakeRewound: Someone set it back, and rows of these sources may be missing.
            OutcomeUnknown, LakeError: See `IcebergTable.commit`.
        """
        with self._lock.doubtful():
            return self._make(changeset, positions)

    def _make(self, changeset: Changeset, positions: Mapping[str, SourcePosition]) -> int | None:
        sent = self.prepare(changeset, positions)
        if sent is None or changeset.is_there:
            return None if sent is None else self._index.snapshot_id
        try:
            failpoints.hit("before_swap" if changeset.is_rewrite else "before_commit", LakeError)
            self._index.snapshot_id, parent = self._table.commit(sent.commit)
            failpoints.hit("after_swap" if changeset.is_rewrite else "after_commit", OutcomeUnknown)
        except (LakeError, ForeignChange):  # refused may be what was sent before, for it has come by now
            if not self._has_landed(sent):
                raise
            parent = self._parent_of(sent)
        return self._accept(changeset, sent, positions, parent)

    # In steps, for commits that others share

    def prepare(self, changeset: Changeset, positions: Mapping[str, SourcePosition]) -> Sent | None:
        """Return what is to be sent for a changeset, put together at the first call; None if nothing is.

        One that was sent before and is there after all is taken over.
        """
        sent = changeset.sent
        self._past.refuse_all(positions)
        while changeset.first:
            changeset.first[0]()
            del changeset.first[0]
        if sent is None:
            builder = CommitBuilder(self._definition, self._index, changeset)
            if builder.is_empty and positions.keys() <= self._positions.keys():
                self._index.places.mark()
                return None
            changeset.sent = sent = builder.finish(positions)
        elif changeset.is_there or self._has_landed(sent):
            self._accept(changeset, sent, positions, self._parent_of(sent))
            return sent
        self._past.expect(positions)
        return sent

    def shown(self, changeset: Changeset, sent: Sent, positions: Mapping[str, SourcePosition]) -> None:
        """Take over a commit that was shown with those of other tables."""
        now = self._table.look()
        self._index.snapshot_id = now.snapshot_id
        self._accept(changeset, sent, positions, now.parent_id)

    def _has_landed(self, sent: Sent) -> bool:
        """Look whether a commit that seemed to fail is there after all.

        Raises:
            LakeError: The catalog does not answer: nobody knows, and nothing may be repeated or removed.
            LakeRewound: Someone set the table back meanwhile.
        """
        self._table.refresh()
        if sent.commit_id not in map(self._table.properties.get, (COMMIT_PROPERTY, REWRITE_PROPERTY)):
            return False
        self._past.check()  # it may have been, and someone has set the table back since
        _log.tell(Event.COMMIT_FOUND, table=self._definition.name)
        self._index.snapshot_id = self._table.snapshots.current_id
        return True

    def _parent_of(self, sent: Sent) -> int | None:
        """Return upon which snapshot a commit stands that was found; another one if someone else's came after it."""
        return (
            self._index.snapshot_id
            if self._index.snapshot_id == sent.commit.snapshot_id
            else self._table.snapshots.parent_id
        )

    def _accept(
        self, changeset: Changeset, sent: Sent, positions: Mapping[str, SourcePosition], parent: int | None
    ) -> int | None:
        """Take a commit over that is there; if that fails it may be tried again."""
        if not changeset.is_there:
            changeset.is_there = True
            self._remember(changeset, sent, positions)
        if not self._index.is_open:
            self._index.read()
        elif parent not in {sent.commit.snapshot_id, self._index.snapshot_id}:
            self._index.catch_up()
        return self._index.snapshot_id

    def _remember(self, changeset: Changeset, sent: Sent, positions: Mapping[str, SourcePosition]) -> None:
        sequence = 0
        if self._definition.keeps_order and changeset.added:
            sequence = changeset.sequence or self._table.snapshots.sequence
        self._index.files.accept(changeset, sent, sequence)
        self._index.follow_open(changeset)
        size = sum(file.size for file, _ in changeset.added.values())
        if changeset.is_rewrite:
            self.rewritten_bytes += size
        else:
            self.changed_bytes += size
            self.changed_files += len(changeset.added)
        self._positions.update(positions)
        self._past.note()
        self._definition.remove(changeset.obsolete)
        with self._lock.certain():  # it may merge what there is of a large index, and make it durable
            self._index.places.mark()
            self._index.note(sum(file.rows for file, _ in changeset.added.values()), len(changeset.added))

    def advance(self, positions: Mapping[str, SourcePosition]) -> None:
        """Store positions in a commit of their own, when no row changed with them."""
        self._past.expect(positions)
        self._table.set_properties(
            {position_properties.PREFIX + source: position_properties.render(p) for source, p in positions.items()}
        )
        self._positions.update(positions)
        self._past.note()

    def discard(self, changeset: Changeset, keep: Iterable[str] = ()) -> None:
        """Remove the files of a changeset that will not be committed, except those of the paths to `keep`.

        If nobody knows whether it was committed, they stay: a table that lacks a file cannot be read, an orphan harms
        nobody.
        """
        if changeset.is_outcome_unknown:
            return
        paths = {*changeset.paths()} | {file.path for file in (changeset.sent.delete_files if changeset.sent else ())}
        self._definition.remove(paths.difference(keep))


__all__ = ["Commits"]
