"""The copy of one source table: ranges in parallel on executors, one commit at the end.

Until that commit nothing is visible; a crash leaves data files that no snapshot knows.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
import uuid
from typing import TYPE_CHECKING

from kuvasz.errors import ForeignChange, InternalError, LakeError, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.copies.copied_files import CopiedFiles
from kuvasz.lake.copies.recopy import Recopy
from kuvasz.lake.files.files import Changeset
from kuvasz.model import TableType
from kuvasz.ports import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kuvasz.lake.copies.order import Order
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.model import SourcePosition
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import CopyRequest

_log = EventLog(__name__)

#: Attempts at a commit that meets another writer's before the copy fails.
_CONFLICT_ATTEMPTS = 5


class CopyJob:
    """One copy. Use once.

    Args:
        order: What is copied.
        on_read: Called when all of it is read, before the commit.
    """

    def __init__(self, order: Order, on_read: Callable[[], None]) -> None:
        self._order = order
        self._on_read = on_read
        self._table = order.table
        self._source = order.feed.source
        self._shape = order.shape()
        self._folder = order.folder / uuid.uuid4().hex

    def run(
        self, requests: Sequence[CopyRequest], position: SourcePosition, on_progress: Callable[[int, int], None]
    ) -> Receipt:
        """Copy all ranges and commit."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return self._copy(requests, position, on_progress)
        except OSError as error:
            message = (
                f"{place_of(table=self._table.name)}: its copy cannot be kept below {self._folder.parent}: {error}"
            )
            raise LakeError(message, hint="make room; it is tried again") from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(
        self, requests: Sequence[CopyRequest], position: SourcePosition, on_progress: Callable[[int, int], None]
    ) -> Receipt:
        self._shape = self._shape_at(position)
        copied = CopiedFiles(self._order, self._shape, self._folder)
        try:
            copied.read(requests, position.lsn, on_progress)
            self._on_read()
            return self._commit(copied, position)
        except BaseException:
            copied.remove()
            raise

    def _shape_at(self, position: SourcePosition) -> Shape:
        """Have a history that has versions of this source go on where the snapshot was taken."""
        table, sid = self._table, self._order.sid
        if table.target.type is not TableType.HISTORY:
            return self._shape
        with table.lock:
            table.follow()
            has_versions = bool(table.index.sources.numbers(self._source, sid))
        return dataclasses.replace(self._shape, copied_us=position.taken_us) if has_versions else self._shape

    def _commit(self, copied: CopiedFiles, position: SourcePosition) -> Receipt:
        table = self._table
        begin = time.monotonic()
        with table.lock:
            snapshot_id = self._replace_repeatedly(copied, position)
            table.era.accept({self._source: position.lsn})
        return Receipt(
            target=table.name,
            positions={self._source: position},
            rows=copied.rows,
            snapshot_id=snapshot_id,
            seconds=time.monotonic() - begin,
        )

    def _replace_repeatedly(self, copied: CopiedFiles, position: SourcePosition) -> int | None:
        for attempt in range(_CONFLICT_ATTEMPTS):
            changeset = self._order.changeset()
            try:
                return self._replace(copied, changeset, position)
            except BaseException as error:
                self._take_back(copied, changeset, error)
                if not isinstance(error, ForeignChange) or changeset.is_there or attempt == _CONFLICT_ATTEMPTS - 1:
                    raise
        raise InternalError("unreachable")

    def _replace(self, copied: CopiedFiles, changeset: Changeset, position: SourcePosition) -> int | None:
        """Put the copy in the place of the source's rows, and commit."""
        table, source = self._table, self._source
        table.follow()
        table.open.abandon(source)
        numbered = [(table.index.files.reserve(), file) for file in copied.files]
        if self._shape.copied_us is not None:
            self._end_versions(copied, numbered, changeset, self._shape.copied_us)
            table.notes.close_gap(changeset, source, position.lsn, self._shape.copied_us)
            return table.commits.make(changeset, {source: position})
        if source in table.positions or len(table.index.files):
            table.index.sources.truncate(source, self._order.sid, changeset)
            files = len(changeset.dropped) + len(changeset.deletes)
            if files and table.target.type is not TableType.CLONE:
                # What the source holds now is all that is known from here on: a gap within the rows would be worse.
                _log.tell(Event.COPIED_OVER, table=table.name, source=source, files=files)
        resolution = Resolution(table, changeset)
        if copied.is_sorted:
            records = (copied.keys.records(file.path) for file in copied.files)
            resolution.adopt_sorted(numbered, records, self._order.sid)
        else:
            keys = (copied.keys.keys(file.path) for file in copied.files)
            resolution.adopt(numbered, keys, self._order.sid)
        return table.commits.make(changeset, {source: position})

    def _end_versions(
        self, copied: CopiedFiles, numbered: Sequence[tuple[int, DataFile]], changeset: Changeset, us: int
    ) -> None:
        """Have versions of a history go on in the copy, or end."""
        order, table = self._order, self._table
        again = Recopy(table, order.jobs, order.properties, changeset, source=self._source, sid=order.sid, us=us)
        for number, file in numbered:
            again.adopt(number, file, copied.keys.keys(file.path))
        again.finish()

    def _take_back(self, copied: CopiedFiles, changeset: Changeset, error: BaseException) -> None:
        """Undo a commit that failed, touching neither other sources' open transactions nor what they have written."""
        is_unknown = changeset.sent is not None and isinstance(error, LakeError)
        changeset.is_outcome_unknown = is_unknown or changeset.is_there  # the index may fail behind a commit
        if changeset.is_outcome_unknown:
            copied.keep()
        else:
            self._table.commits.discard(changeset, keep=[file.path for file in copied.files])
        self._table.index.undo()


__all__ = ["CopyJob"]
