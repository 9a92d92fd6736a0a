"""Copies become visible: each in the place of its source's rows, those of one table that are ready in one commit.

A commit costs the same for one source and for a hundred. So one of those that are ready leads: it waits for the
table's lock, and commits whatever is ready by then; the others sleep until that is done, or one of them is to lead.
Where a commit fails for something that is one source's alone, each is tried by itself.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.errors import ForeignChange, InternalError, KuvaszError, LakeError, TableError, TableStuck, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.copies.recopy import Recopy
from kuvasz.lake.files import snapshot_origin
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.files.snapshot_origin import SnapshotOrigin
from kuvasz.lake.table.commits import may_be_there
from kuvasz.model import Operations, TableType
from kuvasz.ports import Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from kuvasz.lake.copies.copied_files import CopiedFiles
    from kuvasz.lake.copies.order import Order
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.model import SourcePosition, UInt64s
    from kuvasz.modes.shape import Shape

_log = EventLog(__name__)

#: Attempts at a commit that meets another writer's before the copy fails.
_CONFLICT_ATTEMPTS = 5

#: How long a copy that is ready waits for others of its table that are under way.
_GATHER_S = 0.3

#: How long whoever is being committed waits for a commit that does not return, once nobody waits for the lock.
_LEAVE_S = 10.0


@dataclasses.dataclass(eq=False, kw_only=True)
class CopiedTable:
    """A copy whose rows are in files, and what becomes of it."""

    order: Order
    shape: Shape
    files: CopiedFiles
    position: SourcePosition
    ready_at: float = dataclasses.field(default_factory=time.monotonic)  #: monotonic seconds
    receipt: Receipt | None = None
    error: BaseException | None = None
    traceback: TracebackType | None = None  #: where it was raised first
    has_left: bool = False  #: nobody waits for what becomes of it
    told: threading.Event = dataclasses.field(default_factory=threading.Event)  #: it is over, or is to lead

    @property
    def source(self) -> str:
        """What was copied."""
        return self.order.feed.source

    @property
    def is_over(self) -> bool:
        """Whether it is visible, or has failed."""
        return self.receipt is not None or self.error is not None

    def succeed(self, receipt: Receipt) -> None:
        """Have it be visible."""
        self.receipt = receipt
        self.told.set()

    def fail(self, error: BaseException) -> None:
        """Have its commit be given up."""
        self.error, self.traceback = error, error.__traceback__
        self.told.set()


class CopyCommits:
    """The commits of all copies. Safe to use from any thread.

    Args:
        tells: Whether snapshots say how they came about; see `kuvasz.lake.files.snapshot_origin`.
    """

    def __init__(self, *, tells: bool = False) -> None:
        self._tells = tells
        self._waiting: list[CopiedTable] = []
        self._leading: dict[LakeTable, CopiedTable] = {}
        self._ready = threading.Condition()  # for those that lead; guards both

    def commit(self, copied: CopiedTable) -> Receipt:
        """Make a copy visible together with its position.

        Raises:
            TableStuck: Catalog or store do not answer. It may become visible in the end, with its position.
            KuvaszError: It failed. Its files are the caller's, unless they are to be kept (`CopiedFiles.keep`).
        """
        table = copied.order.table
        self._begin(table, copied)
        try:
            while not copied.told.wait(table.lock.patience_s()):
                table.lock.check()
            if not copied.is_over:
                self._lead(table, copied)
        except TableStuck:
            if self._leave(copied):
                raise
            if not copied.is_over:
                message = f"{place_of(table=table.name)}: catalog or store have not answered the commit of its copy"
                hint = "see what they wait for; it is copied again, and other tables go on"
                raise TableStuck(message, hint=hint) from None
        finally:
            self._hand_over(table, copied)
        if copied.error is not None:
            # Each of a thousand raises the same one, which would come to know where all of them did.
            raise copied.error.with_traceback(copied.traceback)
        assert copied.receipt is not None
        return copied.receipt

    def _begin(self, table: LakeTable, copied: CopiedTable) -> None:
        with self._ready:
            self._waiting.append(copied)
            if self._leading.setdefault(table, copied) is copied:
                copied.told.set()
            self._ready.notify_all()

    def _lead(self, table: LakeTable, copied: CopiedTable) -> None:
        """Commit all copies of a table that are ready."""
        with self._ready:
            # A commit keeps all others from the table for as long as it takes: one for many is worth a moment.
            self._ready.wait_for(
                lambda: self._are_all_here(table), max(0.0, copied.ready_at + _GATHER_S - time.monotonic())
            )
        with table.lock:
            _commit(table, self._take(table), tells=self._tells)

    def _hand_over(self, table: LakeTable, copied: CopiedTable) -> None:
        """Have another one lead, if this one does."""
        with self._ready:
            if self._leading.get(table) is not copied:
                return
            del self._leading[table]
            for one in self._waiting:
                if one.order.table is table:
                    self._leading[table] = one
                    one.told.set()
                    return

    def _are_all_here(self, table: LakeTable) -> bool:
        """Whether every copy of a table that is under way waits to be committed."""
        return sum(one.order.table is table for one in self._waiting) >= table.commits.copies

    def _take(self, table: LakeTable) -> list[CopiedTable]:
        with self._ready:
            mine = [one for one in self._waiting if one.order.table is table]
            self._waiting = [one for one in self._waiting if one.order.table is not table]
        return mine

    def _leave(self, copied: CopiedTable) -> bool:
        """Be committed by nobody; returns whether that is so.

        Whoever is being committed already waits for how that ends, but not for ever: its source has other tables.
        """
        with self._ready:
            if copied in self._waiting:
                self._waiting.remove(copied)
                return True
        if not copied.told.wait(_LEAVE_S):
            copied.files.keep()  # that commit names them
            copied.has_left = True
        return False


def _commit(table: LakeTable, copies: Sequence[CopiedTable], *, tells: bool) -> None:
    """Commit copies of one table, whose lock is held; each one says how it went."""
    together = [one for one in copies if one.shape.copied_us is None]
    for group in (together, *([one] for one in copies if one.shape.copied_us is not None)):
        if group:
            _commit_group(table, group, tells=tells)


def _commit_group(table: LakeTable, group: Sequence[CopiedTable], *, tells: bool) -> None:
    begin = time.monotonic()
    try:
        committed, snapshot_id = _replace_repeatedly(table, group, tells=tells)
    except BaseException as error:  # noqa: BLE001 (each of them raises it)
        here = _here(group)
        if len(group) > 1 and _is_of_one(error) and not any(one.files.is_kept for one in here):
            for one in here:
                _commit_group(table, [one], tells=tells)
            return
        for one in group:
            one.fail(error)
        return
    for one in committed:
        table.era.accept({one.source: one.position.lsn})
        one.succeed(
            Receipt(
                target=table.name,
                positions={one.source: one.position},
                rows=one.files.rows,
                snapshot_id=snapshot_id,
                rejected=one.files.rejected,
                seconds=time.monotonic() - begin,
            )
        )


def _is_of_one(error: BaseException) -> bool:
    """Whether an error may be of one source alone: not that of catalog or store, or of another writer's commit."""
    return isinstance(error, KuvaszError) and not isinstance(error, LakeError | ForeignChange)


def _here(group: Sequence[CopiedTable]) -> list[CopiedTable]:
    """Return the copies that somebody still waits for: what others need to be committed anew is gone with them."""
    return [one for one in group if not one.has_left]


def _replace_repeatedly(
    table: LakeTable, group: Sequence[CopiedTable], *, tells: bool
) -> tuple[list[CopiedTable], int | None]:
    """Return which copies became visible, and by which snapshot."""
    for attempt in range(_CONFLICT_ATTEMPTS):
        changeset, here = Changeset(), _here(group)
        if not here:
            return [], None
        if tells:
            copied = Operations(inserts=sum(one.files.rows for one in here))
            changeset.summary = SnapshotOrigin(by=snapshot_origin.COPY, operations=copied).entry()
        try:
            return here, _replace(table, here, changeset)
        except BaseException as error:
            _take_back(table, here, changeset, error)
            if not isinstance(error, ForeignChange) or changeset.is_there or attempt == _CONFLICT_ATTEMPTS - 1:
                raise
    raise InternalError("unreachable")


def _replace(table: LakeTable, group: Sequence[CopiedTable], changeset: Changeset) -> int | None:
    """Put copies in the places of their sources' rows, and commit."""
    table.follow()
    loaded: list[tuple[int, UInt64s]] = []
    with table.table.unchanged():
        for one in group:
            changeset.properties |= table.columns.made_by(one.source)
            table.notes.begin(changeset, one.source, one.position)
            loaded += _adopt(table, one, changeset)
    if loaded:
        table.index.places.load(loaded)
    return table.commits.make(changeset, {one.source: one.position for one in group})


def _adopt(table: LakeTable, copied: CopiedTable, changeset: Changeset) -> list[tuple[int, UInt64s]]:
    """Take one copy into a changeset; return what the index has to load before that is committed."""
    order, source, files = copied.order, copied.source, copied.files
    table.open.abandon(source)
    numbered = [(table.index.files.reserve(), file) for file in files.files]
    if copied.shape.copied_us is not None:
        _end_versions(copied, numbered, changeset, copied.shape.copied_us)
        table.notes.close_gap(changeset, source, copied.position.lsn, copied.shape.copied_us)
        return []
    if source in table.positions or len(table.index.files):
        before = len(changeset.dropped) + len(changeset.deletes)
        table.index.sources.truncate(source, order.sid, changeset)
        gone = len(changeset.dropped) + len(changeset.deletes) - before
        if gone and copied.position.is_skip:
            raise TableError(
                f"{place_of(source, table=table.name)}: the lake has rows of it, which nothing would replace",
                hint="take `initial: skip` out of the map: it is copied then",
            )
        if gone and table.target.type is not TableType.CLONE and not table.notes.is_former(source):
            # What the source holds now is all that is known from here on: a gap within the rows would be worse.
            _log.tell(Event.COPIED_OVER, table=table.name, source=source, files=gone)
    if files.keys.is_sorted:
        for number, file in numbered:
            changeset.add(number, file, order.sid)
            if (dead := files.dead.get(file.path)) is not None:
                changeset.delete(np.full(len(dead), number, np.uint32), dead)
        return [(number, files.keys.records(file.path)) for number, file in numbered]
    keys = (files.keys.keys(file.path) for file in files.files)
    Resolution(table.rows, changeset).adopt(numbered, keys, order.sid)
    return []


def _end_versions(
    copied: CopiedTable, numbered: Sequence[tuple[int, DataFile]], changeset: Changeset, us: int
) -> None:
    """Have versions of a history go on in the copy, or end."""
    order = copied.order
    again = Recopy(
        order.table.rows, order.jobs, order.properties, changeset, source=copied.source, sid=order.sid, us=us
    )
    for number, file in numbered:
        again.adopt(number, file, copied.files.keys.keys(file.path))
    again.finish()


def _take_back(table: LakeTable, group: Sequence[CopiedTable], changeset: Changeset, error: BaseException) -> None:
    """Undo a commit that failed, touching neither other sources' open transactions nor what they have written."""
    changeset.is_outcome_unknown = may_be_there(changeset, error)
    if changeset.is_outcome_unknown:
        for one in group:
            one.files.keep()
            table.commits.unanswered.add(one.source)
    else:
        table.commits.discard(changeset, keep=[file.path for one in _here(group) for file in one.files.files])
    table.index.undo()


__all__ = ["CopiedTable", "CopyCommits"]
