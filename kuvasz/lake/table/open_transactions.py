"""Source transactions that come in parts, because they outgrew the memory budget."""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING

from kuvasz.errors import LakeError, place_of
from kuvasz.index.positions import PositionIndex
from kuvasz.lake.files.files import Changeset

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.model import UInt32s


class OpenTransaction:
    """Parts of a source transaction that outgrew the memory budget; visible only with its last part.

    Args:
        commit_lsn: Which transaction.
    """

    def __init__(self, commit_lsn: int) -> None:
        self.commit_lsn = commit_lsn
        self.truncates: tuple[str | None] | None = None  #: sid whose rows from before the transaction go with it
        self.us = 0  #: commit time in µs since 1970, of a history
        self.sid: str | None = None  #: of a history
        self.is_void = False  #: what it found in the index is no longer there: it has to begin again
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.changeset = Changeset()
        self.overlay = PositionIndex.in_memory()
        self.entries: list[tuple[Keys, UInt32s, UInt32s]] = []  #: `ABSENT`, in a history, for keys that are gone


class OpenTransactions(UserDict[str, OpenTransaction]):
    """The open transactions of one table, by source.

    Args:
        definition: The table's.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self._definition = definition

    def abandon(self, source: str) -> None:
        """Forget the parts of a transaction that begins again after a reconnect, and remove their files."""
        pending = self.pop(source, None)
        if pending is not None:
            self._definition.remove(pending.changeset.paths())

    def abandon_all(self) -> None:
        """Do the same for every source."""
        for source in list(self):
            self.abandon(source)

    def void(self, *, is_set_back: bool = False) -> None:
        """Have transactions begin again for which copies of a row are numbered anew: those of rows without a key.

        Where the table was set back it is all of them: they know nothing of rows that are there again.
        """
        for pending in self.values() if self._definition.is_bag or is_set_back else ():
            pending.is_void = True

    def check(self) -> None:
        """Refuse to go on with transactions that have to begin again.

        Raises:
            LakeError: There are some.
        """
        void = sorted(source for source, pending in self.items() if pending.is_void)
        if void:
            what = f"other rows are there now than a large transaction of {', '.join(void)} began with"
            message = f"{place_of(table=self._definition.name)}: {what}"
            raise LakeError(message, hint="kuvasz begins the transaction again by itself")


__all__ = ["OpenTransaction", "OpenTransactions"]
