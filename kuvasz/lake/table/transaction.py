"""A source transaction that comes in parts, because it outgrew the memory budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.index.positions import PositionIndex
from kuvasz.lake.files.files import Changeset

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
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
