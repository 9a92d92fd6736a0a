"""Which files of a table hold whose rows, and what becomes of all rows of one source at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.files.data_file import rows_of
from kuvasz.lake.format import member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kuvasz.index.positions import PositionIndex
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.files import Changeset, FileEntry, FileTable
    from kuvasz.lake.table.open_transactions import OpenTransactions
    from kuvasz.model import UInt32s


class SourceFiles:
    """The files of each source of one table, whose lock is held.

    Args:
        definition: The table's.
        files: All of its files.
        open_transactions: The open transactions of its sources.
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
            sid: The sid of the source.
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
        self._delete_shared(source, sid, changeset)
        added = changeset.added.items()
        for number in [number for number, (file, owner) in added if self.is_of(file.path, owner, source, sid)]:
            gone.append(number)
            self._definition.remove([changeset.added.pop(number)[0].path])
            changeset.deletes.pop(number, None)
        self._places().drop_files([*gone, *reserved])

    def _delete_shared(self, source: str, sid: str | None, changeset: Changeset) -> None:
        """Delete the rows of one source in files that hold others', too. Their sids are read: that is rare.

        Raises:
            LakeError: A file could not be read.
        """
        shared = [(entry.number, entry.path) for entry in self.shared(source, sid)]
        added = changeset.added.items()
        shared += [(number, file.path) for number, (file, owner) in added if self.is_shared(file.path, owner, source)]
        for number, path in shared:
            rows = self.rows_in(path, sid)
            changeset.delete(np.full(len(rows), number, np.uint32), rows)

    def shared(self, source: str, sid: str | None) -> list[FileEntry]:
        """Return the files that hold rows of several sources, and perhaps of one of them; see `is_shared`."""
        if self._definition.sid_id is None:
            return []
        return [e for e in self._files if e.sid is None and self._is_of_member(e.path, source) and e.may_hold(sid)]

    def is_shared(self, path: str, owner: str | None, source: str) -> bool:
        """Whether the rows of a file of some owner may be of a source and of others: they alone say whose they are.

        kuvasz writes such files itself, but of a history. Other engines write them of any table.
        """
        return owner is None and self._is_of_member(path, source) and self._definition.sid_id is not None

    def rows_in(self, path: str, sid: str | None) -> UInt32s:
        """Return the positions of a source's rows in a file that it shares with others.

        Raises:
            LakeError: The file could not be read.
        """
        assert self._definition.sid_id is not None
        try:
            return rows_of(self._definition.io_properties, path, self._definition.sid_id, sid)
        except OSError as error:
            message = f"{place_of(table=self._definition.name)}: file {path} cannot be read: {error}"
            raise LakeError(message, hint="check the warehouse; it is tried again") from error

    def numbers(self, source: str, sid: str | None) -> list[int]:
        """Return the numbers of the files that hold a source's rows and no others."""
        return [entry.number for entry in self._files if self.is_of(entry.path, entry.sid, source, sid)]

    def is_of(self, path: str, owner: str | None, source: str, sid: str | None) -> bool:
        """Whether all rows of a file of some owner are of a source, or of one of its tables."""
        is_same = not self._definition.target.has_sid or owner == sid
        return is_same and self._is_of_member(path, source)

    def _is_of_member(self, path: str, source: str) -> bool:
        return not self._definition.target.has_members or member.in_path(path) == member.of(source)

    def conclude(self, source: str, changeset: Changeset, reserved: Iterable[int] = ()) -> None:
        """Take the parts of a transaction that is now whole into a commit; `reserved` as for `truncate`."""
        pending = self._open.pop(source)
        if pending.truncates is not None:
            self._truncate(source, pending.truncates[0], changeset, reserved)
        pending.changeset.follow(changeset.moved)
        changeset.merge(pending.changeset)
        for keys, files, rows in pending.entries:
            self._places().insert(keys, files, rows)


__all__ = ["SourceFiles"]
