"""The two ends of a reader, where its changes come from and where they go, and who else it has to do with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kuvasz.model import Applied, SourcePosition
    from kuvasz.ports import Inbox, Routes
    from kuvasz.route.assembler import Follow, OnAstray, OnTruncate
    from kuvasz.route.row_limit import RowLimit
    from kuvasz.state.budget import Budget
    from kuvasz.state.ports import StoredRecord
    from kuvasz.state.progress import Progress


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where a reader's changes come from."""

    source: str  #: name of the source
    conninfo: str = dataclasses.field(repr=False)  #: libpq's, of a replication session (`kuvasz.source.conninfo`)
    slot: str
    publications: Sequence[str]
    system_id: str | None = None  #: the cluster the lake's positions belong to; None accepts any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """Where they go."""

    routes: Routes  #: says which worker applies a relation; may be called from a thread
    inboxes: Sequence[Inbox]  #: one per worker
    progress: Progress  #: where deliveries are registered and what may be confirmed is read
    budget: Budget  #: bytes in flight; the reader adds each delivery's bytes, the worker removes them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """From where the stream goes on, and what proves then that nothing is missing before it."""

    record: StoredRecord | None = None  #: what is known from earlier connections; None: nothing is compared
    applied_lsn: Callable[[], int] = lambda: 0  #: tells how far the source is in the lake
    copied: Callable[[], Iterable[SourcePosition]] = list  #: tells the copies there that no transaction has followed
    applied: Callable[[], Iterable[Applied]] = list  #: tells the last transaction that each table has in the lake
    #: told up to where a standby that took over is known to have what the old primary had
    on_rewound: Callable[[int], None] = lambda _: None


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


__all__ = ["Downstream", "StreamStart", "StreamWatch", "Upstream"]
