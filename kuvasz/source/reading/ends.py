"""The two ends of a reader, where its changes come from and where they go, and who else it has to do with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kuvasz.model import Applied, SourcePosition
    from kuvasz.ports import Inbox, Routes
    from kuvasz.route.assembler import Follow, OnAstray, OnTruncate
    from kuvasz.route.row_limit import RowLimit
    from kuvasz.source.reading.rest.rounds import Rounds
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.state.budget import Budget
    from kuvasz.state.ports import StoredRecord
    from kuvasz.state.progress import Progress


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where a reader's changes come from."""

    source: str  #: name of the source
    #: returns that of a replication session as it is now (`kuvasz.source.conninfo`): what the map has in a file may
    #: have changed since the last connection; called in threads
    conninfo: Callable[[], str]
    slot: str
    publications: Sequence[str]
    system_id: str | None = None  #: the cluster the lake's positions belong to; None accepts any
    staged: StagedLog | None = None  #: what they are staged in before the source lets go of them; None: nothing is
    is_own_alone: bool = False  #: without changes that came to the source by replication

    @property
    def options(self) -> Mapping[str, str]:
        """What pgoutput is asked for beside the publications."""
        return {"origin": "none"} if self.is_own_alone else {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """Where they go."""

    routes: Routes  #: says which worker applies a relation; may be called from a thread
    inboxes: Sequence[Inbox]  #: one per worker
    progress: Progress  #: where deliveries are registered and what may be confirmed is read
    budget: Budget  #: bytes in flight; the reader adds each delivery's bytes, the worker removes them
    rounds: Rounds | None = None  #: looks at sources that bring little, together; None: each by itself


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """From where the stream goes on, and what proves then that nothing is missing before it."""

    record: StoredRecord | None = None  #: what is known from earlier connections; None: nothing is compared
    applied_lsn: Callable[[], int] = lambda: 0  #: tells how far the source is in the lake
    copied: Callable[[], Iterable[SourcePosition]] = list  #: tells the copies there that no transaction has followed
    applied: Callable[[], Iterable[Applied]] = list  #: tells the last transaction that each table has in the lake
    #: told up to where a standby that took over is known to have what the old primary had
    on_rewound: Callable[[int], None] = lambda _: None


class Durability(Protocol):
    """How far a source may let go of its changes; see `kuvasz.state.progress.Progress`."""

    def confirmable(self, source: str) -> int:
        """Return the LSN that may be confirmed."""

    def routed_lsn(self, source: str) -> int:
        """Return the end of the last transaction that is on its way."""

    def begin_anew(self, source: str, lsn: int) -> None:
        """Note that a source's stream begins at an LSN, whatever was before."""


class StreamProof(Protocol):
    """What was heard on a connection, and what has yet to be; see `kuvasz.route.assembler.Assembler`."""

    @property
    def received_lsn(self) -> int:
        """LSN up to which the source has been heard out."""

    @property
    def unproven_lsn(self) -> int | None:
        """LSN of the first transaction that is still to come and prove itself; None: none is."""

    def expect(self, applied: Iterable[Applied]) -> None:
        """Have transactions come on this connection, or refuse whatever comes behind."""


class StatusSink(Protocol):
    """Who is told how far all is durable: a connection to the source, or the log in its place."""

    def send_status(self, *, written: int, flushed: int, is_reply_wanted: bool = False) -> None:
        """Send a status update.

        Raises:
            SourceError: The connection is broken.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamWatch:
    """Who looks at what the stream brings, in the threads that route it; see `kuvasz.route.assembler.Assembler`."""

    follow: Follow | None = None  #: told of every Relation message
    on_truncate: OnTruncate | None = None  #: told of every TRUNCATE
    on_astray: OnAstray | None = None  #: told of relations whose rows come as those of another
    row_limit: RowLimit | None = None  #: looks at the rows that go out
    #: told, before a gulp is routed, of the OIDs of all Relation messages in it
    on_describing: Callable[[Sequence[int]], None] = lambda _: None
    on_described: Callable[[], None] = lambda: None  #: called when all Relation messages of a gulp were taken


__all__ = ["Downstream", "Durability", "StatusSink", "StreamProof", "StreamStart", "StreamWatch", "Upstream"]
