"""The two ends of a reader: where its changes come from, and where they go."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.ports import Inbox, Routes
    from kuvasz.state.budget import Budget
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


__all__ = ["Downstream", "Upstream"]
