"""What an observer sees of a running kuvasz, at one moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kuvasz.state.progress import Durable

if TYPE_CHECKING:
    from kuvasz.parking.logs import ParkedView
    from kuvasz.ports import Upkeep
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.state.ports import TableKey
    from kuvasz.state.progress import Progress
    from kuvasz.state.staged.ports import LogGroup
    from kuvasz.state.tables import TableState
    from kuvasz.state.verdicts.verdict import Verdict
    from kuvasz.sync.source_sync import SourceSync


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """What an observer sees of a source."""

    name: str
    state: str
    error: str | None
    received_lsn: int
    confirmed_lsn: int
    confirmable_lsn: int  #: everything before it is in the lake
    rows: int
    epoch: int
    commit_us: int | None  #: commit time of the last transaction handed to the workers
    last_message_at: float | None  #: monotonic seconds
    is_pending: bool  #: something was handed to the workers that is not in the lake yet
    is_paused: bool  #: it is not read now, because too much waits already
    retry_at: float | None = None  #: monotonic seconds of the next attempt after a failure
    durable: Durable = dataclasses.field(
        default_factory=Durable
    )  #: what each table has of it; older than the states in the same `View`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedView:
    """What an observer sees of the staged log."""

    waiting_bytes: int  #: in memory, and not staged yet
    is_full: bool  #: so much waits that no source is read
    objects: int  #: that the lake does not have all of, or that are not removed yet
    staged_at: float | None  #: monotonic seconds at which something was staged last
    error: str | None  #: why nothing can be staged just now
    lsns: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: source -> before which all of it is staged
    groups: Sequence[LogGroup] = ()  #: other deployments that hear it, as they were seen last


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What an observer sees of everything, at one moment."""

    phase: str  #: starting, running, stopping
    sources: tuple[SourceView, ...]
    tables: tuple[TableState, ...]
    waiting_bytes: int
    commit_conflicts: int  #: commits made again because another writer was faster
    upkeep: tuple[Upkeep, ...] = ()  #: of the lake's tables, as far as maintenance has looked at them
    workers: int = 1  #: among which the targets are shared out
    own_workers: Sequence[str] = ()  #: what routes targets to a worker of their own
    routed_by: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: target -> what by, if not its name
    parked: Mapping[tuple[str, str], ParkedView] = dataclasses.field(default_factory=dict)  #: (target, source) -> it
    released: tuple[str, ...] = ()  #: sources that left the map since the start, whose slots are there still
    verdicts: Mapping[TableKey, Verdict] = dataclasses.field(default_factory=dict)  #: of the tables compared so far
    staged: StagedView | None = None  #: the staged log; None: there is none

    def tables_of(self) -> Mapping[str, list[TableState]]:
        """Return the tables of each source, by its name."""
        found: dict[str, list[TableState]] = {source.name: [] for source in self.sources}
        for table in self.tables:
            found.setdefault(table.database, []).append(table)
        return found


def source_view(sync: SourceSync, progress: Progress, *, is_ended: bool) -> SourceView:
    """Return what is to be seen of a source.

    Args:
        sync: What keeps it replicated.
        progress: What of it may be confirmed.
        is_ended: Whether it waits for a person, or has ended.
    """
    reader, name = sync.reader, sync.source.name
    durable = progress.durable_in(name)
    # The reader goes on meanwhile. In this order the commit ended at or before the LSN, unless the epoch is new.
    commit_us = None if reader is None else reader.commit_us
    received_lsn = 0 if reader is None else reader.received_lsn
    epoch = 0 if reader is None else reader.epoch
    state = "starting" if reader is None else reader.facts.state.value
    error = sync.error or (reader.error if reader is not None else None)
    return SourceView(
        name=name,
        state="error" if is_ended else "waiting" if reader is None and error else state,
        error=None if error is None else str(error),
        received_lsn=received_lsn,
        confirmed_lsn=0 if reader is None else reader.facts.confirmed_lsn,
        confirmable_lsn=durable.confirmable,
        rows=0 if reader is None else reader.rows,
        epoch=epoch,
        commit_us=commit_us,
        last_message_at=None if reader is None else reader.facts.last_message_at,
        is_pending=durable.is_pending,
        is_paused=reader is not None and reader.facts.is_paused,
        retry_at=sync.retry_at if reader is None else reader.facts.retry_at,
        durable=durable,
    )


def staged_view(log: StagedLog | None) -> StagedView | None:
    """Return what is to be seen of the staged log; None: there is none."""
    if log is None:
        return None
    writer = log.writer
    return StagedView(
        waiting_bytes=log.room.bytes,
        is_full=not log.room.is_there,
        objects=writer.removal.objects,
        staged_at=writer.staged_at,
        error=None if writer.error is None else str(writer.error),
        lsns=log.staged(),
        groups=writer.removal.groups,
    )


__all__ = ["SourceView", "StagedView", "View", "source_view", "staged_view"]
