"""A stretch of one source's stream: whole transactions, or a part of one that is large, and what it rests on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from kuvasz.model import UInt32s
from kuvasz.staging.stream_messages import Description, heard_at_most

#: Bytes of memory that a stretch takes beside what is in it.
_BESIDE: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch. It is understood by itself: a stream describes a relation once, and here that may lie before it."""

    number: int  #: grows by one
    data: bytes  #: CopyData payloads, one after another
    lengths: UInt32s  #: bytes of each
    lsn: int  #: everything before it has been received as a whole, with this stretch
    ended: int  #: end LSN of the last whole transaction by then
    open_lsn: int = 0  #: commit LSN of the one transaction that this is a part of, and that goes on; 0: all are whole
    #: of relations whose rows come before it describes them, if it does
    needs: Mapping[int, Description] = dataclasses.field(default_factory=dict)
    #: relations that it describes itself, as it leaves them
    describes: Mapping[int, Description] = dataclasses.field(default_factory=dict)
    has_rows: bool = True  #: there is more in it than keepalives

    @property
    def through(self) -> int:
        """LSN before which nothing of it is needed any more by who has everything up to there."""
        return self.open_lsn + 1 if self.open_lsn else self.ended

    @property
    def weight(self) -> int:
        """Bytes of memory that it takes: of the smallest ones not the data does."""
        return len(self.data) + self.lengths.nbytes + _BESIDE

    @property
    def only_moves(self) -> bool:
        """Whether it only says how far the server is."""
        return not self.has_rows and not self.open_lsn

    def until(self, lsn: int) -> Stretch:
        """Return it as if nothing had been heard behind an LSN at which the last transaction had ended."""
        if self.lsn <= lsn:
            return self
        return dataclasses.replace(self, lsn=lsn, data=heard_at_most(self.data, self.lengths, lsn))


__all__ = ["Stretch"]
