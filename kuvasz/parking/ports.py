"""What is parked, and what its keeper owes: the port behind which the logs of all tables lie.

A log has the changes of one table of one source from the table's position in the lake on. They are confirmed to the
source, so nobody else has them: what is appended outlives process and machine before `append` returns, and a log that
is not whole says so instead of giving less. The next process finds it by the id that the lake's table holds
(`kuvasz.ports.SourceNotes.park`). A log has one writer, who owns the store or holds the table; where several
processes share a store, it refuses whoever has lost the table, with `StateError`.

A store that keeps the whole stream for all tables need not keep a table's changes twice: its `append` may note where
they are, and `read` fetch them there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kuvasz.route.parts import Change


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionGroup:
    """What a delivery held for the table."""

    changes: tuple[Change, ...]
    through: int  #: LSN up to which the table has everything with it
    is_open: bool  #: its last transaction goes on in the next group
    end: int  #: offset behind it
    bytes: int


class LogDamaged(Exception):
    """A log is not what was written."""


class TableLog(Protocol):
    """The log of one table of one source. One thread appends, another one may read; calls block.

    Offsets only grow, and mean nothing to who asks but "from there on"; 0 is before everything.
    """

    id: str  #: what tells it from every other log: 32 characters of ASCII
    since: float  #: unix seconds of its beginning
    first_lsn: int  #: commit LSN of the oldest transaction; 0: there is none
    last_lsn: int  #: commit LSN of the newest whole one; 0: there is none
    is_finished: bool  #: as `finish` has noted

    @property
    def place(self) -> str:
        """Where it is, for people."""

    @property
    def size(self) -> int:
        """Bytes that count against its bound."""

    @property
    def is_there(self) -> bool:
        """Whether the next process would find it."""

    def append(self, changes: Sequence[Change], through: int, *, is_open: bool, most_bytes: int) -> bool:
        """Add what a delivery held for the table; it is durable when this returns.

        Transactions that are here already are left out, so the same stretch of the stream may be appended twice.

        Args:
            changes: In stream order; none, if a transaction that was begun here has ended with nothing more.
            through: As `Delivery.through`.
            is_open: As `Delivery.is_open`.
            most_bytes: What the log may grow to.

        Returns:
            False if there is no room for it: nothing was added, and parts of an unfinished transaction are gone.

        Raises:
            StateError: It cannot be kept; what was there before still is.
        """

    def abandon_open(self) -> None:
        """Forget the parts of a transaction that begins again.

        Raises:
            StateError: They cannot be removed.
        """

    def read(self, offset: int, most_bytes: int) -> list[TransactionGroup]:
        """Return groups of whole transactions from an offset on, in the order of `append`.

        At least one, if there is any, and no more than it takes to reach so many bytes.

        Raises:
            LogDamaged: They are not what was written.
            StateError: They cannot be read now.
        """

    def finish(self) -> None:
        """Note that everything in it is in the lake, until more is appended; it is durable when this returns.

        Raises:
            StateError: It cannot be noted.
        """

    def close(self) -> None:
        """Let go of it; it stays where it is."""


class LogStore(Protocol):
    """All logs. Tables are used side by side, from any thread."""

    def create(self, target: str, source: str) -> TableLog:
        """Make an empty log under an id of its own, in place of whatever is there; it is durable.

        Raises:
            StateError: It cannot be made.
        """

    def load(self, target: str, source: str, log_id: str) -> TableLog:
        """Find the log that an earlier process wrote, without what a crash left unfinished.

        Raises:
            LogDamaged: It is not there, not whole, or another one.
            StateError: It cannot be had now.
        """

    def unfinished_lsn(self, target: str, source: str) -> int:
        """Return `TableLog.last_lsn` of whatever log is there; 0 if there is none, or it is finished.

        Raises:
            LogDamaged: It is not whole.
            StateError: It cannot be had now.
        """

    def remove(self, target: str, source: str) -> None:
        """Remove a log, if there is one.

        Raises:
            StateError: It cannot be removed.
        """


__all__ = ["LogDamaged", "LogStore", "TableLog", "TransactionGroup"]
