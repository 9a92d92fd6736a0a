"""The copy of one source table: ranges in parallel on executors, one commit at the end.

Until that commit nothing is visible; a crash leaves data files that no snapshot knows.
"""

from __future__ import annotations

import dataclasses
import shutil
import uuid
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.copies.copied_files import CopiedFiles
from kuvasz.lake.copies.copy_commits import CopiedTable
from kuvasz.lake.copies.resumption import Resumption, can_resume
from kuvasz.model import TableType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kuvasz.lake.copies.copy_commits import CopyCommits
    from kuvasz.lake.copies.order import Order
    from kuvasz.model import SourcePosition
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import CopyLedger, CopyRequest, Receipt


class CopyJob:
    """One copy. Use once.

    Args:
        order: What is copied.
        commits: Make it visible.
        on_read: Called when all of it is read, before the commit.
        ledger: Keeps what is finished of it; None: nothing does.
        known_files: Returns the names of all files that any snapshot of the table knows.
    """

    def __init__(
        self,
        order: Order,
        commits: CopyCommits,
        on_read: Callable[[], None],
        ledger: CopyLedger | None = None,
        known_files: Callable[[], set[str]] = set,
    ) -> None:
        self._order = order
        self._commits = commits
        self._on_read = on_read
        self._ledger = ledger
        self._known_files = known_files
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
            if self._ledger is not None and copied.keys.is_sorted and can_resume(self._shape):
                resumption = Resumption(self._order, self._shape, copied.keys, self._known_files)
                copied.resume(self._ledger, resumption.begin(self._ledger))
            copied.read(requests, position.lsn, on_progress)
            self._on_read()
            copied.settle()
            return self._commit(copied, position)
        except BaseException as error:
            copied.remove(error)
            raise

    def _commit(self, copied: CopiedFiles, position: SourcePosition) -> Receipt:
        """Commit a copy. From here on nobody is to take its files for finished ones: they may be in the table."""
        ledger = copied.ledger
        if ledger is not None:
            ledger.close()
        try:
            return self._commits.commit(
                CopiedTable(order=self._order, shape=self._shape, files=copied, position=position)
            )
        except BaseException:
            if ledger is not None and not copied.is_kept:
                ledger.reopen()
            raise

    def _shape_at(self, position: SourcePosition) -> Shape:
        """Have a history that has versions of this source go on where the snapshot was taken."""
        table, sid = self._table, self._order.sid
        if table.target.type is not TableType.HISTORY:
            return self._shape
        with table.lock:
            table.follow()
            if table.notes.is_former(self._source):
                return self._shape  # rows of a type from before: the copy takes their place
            sources = table.index.sources
            is_known = bool(sources.numbers(self._source, sid))
            shared = [] if is_known else sources.shared(self._source, sid)
            places = [(entry.path, BitMap64(table.index.files.dead(entry.number))) for entry in shared]
        # Their sids are read without the lock: no more versions of this source can come before its copy is there.
        is_known = is_known or any(BitMap64(sources.rows_in(path, sid)) - dead for path, dead in places)
        return dataclasses.replace(self._shape, copied_us=position.taken_us) if is_known else self._shape


__all__ = ["CopyJob"]
