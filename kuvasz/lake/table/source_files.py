"""Which files of a table hold whose rows, and what becomes of all rows of one source at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kuvasz.config import names
from kuvasz.errors import LakeError, TableError, place_of, resync_of
from kuvasz.lake.files.data_file import rows_of
from kuvasz.lake.format import member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kuvasz.index.positions import PositionIndex
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.files import Changeset, FileTable
    from kuvasz.lake.table.open_transactions import OpenTransactions
    from kuvasz.model import UInt32s


class SourceFiles:
    """The files of each source of one table, whose lock is held.

    Args:
        definition: The table's.
        files: All of its files.
        open_transactions: Those of its sources.
        places: Gives the index; errors as for `TableIndex.places`.
    """

    def __init__(
        self,
        definition: Definition,
        files: FileTable,
        open_transactions: OpenTransactions,
        places: Callable[[], PositionIndex],
    ) -> None:
        self._definition = definition
        self._files = files
        self._open = open_transactions
        self._places = places

    def truncate(self, source: str, sid: str | None, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        """Drop every row of one source: whole files, and rows of those that it shares with others.

        Args:
            source: The source. If it has an open transaction, the TRUNCATE is part of that and shows with its end.
            sid: Its identifier.
            changeset: Takes the outcome.
            reserved: Numbers of files for rows of the source that wait for their earlier versions.

        Raises:
            LakeError: A file that it shares with others could not be read.
        """
        pending = self._open.get(source)
        if pending is None:
            self._truncate(source, sid, changeset, reserved)
            return
        self._definition.remove(pending.changeset.paths())
        pending.truncates = (sid,)
        pending.clear()

    def _truncate(self, source: str, sid: str | None, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        gone = self.numbers(source, sid)
        changeset.dropped.update(gone)
        self._delete_shared(sid, changeset)
        added = changeset.added.items()
        for number in [number for number, (file, owner) in added if self.is_of(file.path, owner, source, sid)]:
            gone.append(number)
            self._definition.remove([changeset.added.pop(number)[0].path])
            changeset.deletes.pop(number, None)
        self._places().drop_files([*gone, *reserved])

    def _delete_shared(self, sid: str | None, changeset: Changeset) -> None:
        """Delete the rows of one source in files that hold others', too. Their sids are read: that is rare.

        Raises:
            LakeError: A file could not be read.
        """
        if self._definition.sid_id is None or self._definition.target.has_members:
            return
        shared = [(entry.number, entry.path) for entry in self._files if entry.sid is None and entry.may_hold(sid)]
        shared += [(number, file.path) for number, (file, owner) in changeset.added.items() if owner is None]
        for number, path in shared:
            rows = self._rows_of(path, self._definition.sid_id, sid)
            changeset.delete(np.full(len(rows), number, np.uint32), rows)

    def _rows_of(self, path: str, sid_id: int, sid: str | None) -> UInt32s:
        try:
            return rows_of(self._definition.io_properties, path, sid_id, sid)
        except OSError as error:
            message = f"{place_of(table=self._definition.name)}: file {path} cannot be read: {error}"
            raise LakeError(message, hint="check the warehouse; it is tried again") from error

    def check_owners(self, source: str) -> None:
        """Refuse a TRUNCATE at a source of a history, whose files are written anew, if nobody knows which are whose.

        Raises:
            TableError: A file holds rows of several sources.
        """
        if any(self._definition.target.has_sid and entry.sid is None for entry in self._files):
            name = self._definition.name
            message = (
                f"{place_of(table=name)}: a TRUNCATE at source {source} meets files that hold several sources' rows"
            )
            raise TableError(message, hint=f"copy the table again: {resync_of(name)}")

    def numbers(self, source: str, sid: str | None) -> list[int]:
        """Return the numbers of the files that hold a source's rows."""
        return [entry.number for entry in self._files if self.is_of(entry.path, entry.sid, source, sid)]

    def is_of(self, path: str, owner: str | None, source: str, sid: str | None) -> bool:
        """Whether a file of some owner holds rows of a source, or of one of its tables."""
        target = self._definition.target
        is_same = not target.has_sid or owner == sid
        return is_same and (not target.has_members or member.in_path(path) == names.member_of(source))

    def conclude(self, source: str, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        """Take the parts of a transaction that is now whole into a commit; `reserved` as for `truncate`."""
        pending = self._open.pop(source)
        if pending.truncates is not None:
            self._truncate(source, pending.truncates[0], changeset, reserved)
        changeset.merge(pending.changeset)
        for keys, files, rows in pending.entries:
            self._places().insert(keys, files, rows)


__all__ = ["SourceFiles"]
