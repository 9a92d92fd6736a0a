"""First stage of a mini-transaction in memory: decoded and folded, and seen by nobody."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.errors import KuvaszError
from kuvasz.fold.keys import Keys
from kuvasz.lake.commit import chunks
from kuvasz.lake.format.binding import placed
from kuvasz.model import TableType, Truncation
from kuvasz.modes import changelog, dispatch
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.shape import RefusedValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.lake.commit.chunks import Chunk, Cut
    from kuvasz.lake.format.binding import Feeds
    from kuvasz.lake.memory.table import MemoryTable
    from kuvasz.lake.table.write_era import WriteEra
    from kuvasz.ports import TableWork


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWritten:
    """One target's part of a mini-transaction between its two stages."""

    work: TableWork
    cut: Cut
    applied: tuple[ChunkOutcome | None, ...]  #: one per step, None for a truncation
    era: WriteEra
    position_resets: Mapping[str, int]  #: those of the era when it was written
    refused: Mapping[str, KuvaszError]  #: sources that are left out, and why


class MemoryWriteStage:
    """The first stage.

    Args:
        tables: Every prepared table by its name.
        feeds: What feeds them.
        chunk_bytes: Raw bytes of a chunk.
    """

    def __init__(self, tables: Mapping[str, MemoryTable], feeds: Feeds, chunk_bytes: int) -> None:
        self._tables = tables
        self._feeds = feeds
        self._chunk_bytes = chunk_bytes

    def write(self, works: Sequence[TableWork]) -> list[MemoryWritten]:
        """See `kuvasz.ports.Lake.write`."""
        written = [self._write(work) for work in works]
        return [one for one in written if one is not None]

    def _write(self, work: TableWork) -> MemoryWritten | None:
        table = self._tables[work.target]
        era = table.era
        work = work.without(era.refused)
        if era.error is not None or (era.refused and work.is_empty):
            return None
        resets = dict(era.position_resets)
        events = {key: value for key, value in era.events.items() if key[0] not in work.abandoned}
        cut = chunks.cut(
            work.changes, dict(era.accepted), self._chunk_bytes, table.target.type, events,
            counts=table.target.rejects or table.target.is_soft, is_soft=table.target.is_soft,
        )  # fmt: skip
        applied: list[ChunkOutcome | None] = []
        refused: dict[str, KuvaszError] = {}
        for step in cut.steps:
            try:
                applied.append(
                    self._truncated(table, step) if isinstance(step, Truncation) else self._apply(table, step)
                )
            except KuvaszError as error:
                refused.setdefault(step.source, error)
                applied.append(None)
        left = [one for step, one in zip(cut.steps, applied, strict=True) if step.source not in refused]
        work, cut = work.without(refused), cut.without(refused)
        era.accept(work.through)
        era.events = cut.events
        era.refuse(refused)
        return MemoryWritten(
            work=work, cut=cut, applied=tuple(left), era=era, position_resets=resets, refused=refused
        )

    def _truncated(self, table: MemoryTable, step: Truncation) -> ChunkOutcome | None:
        if table.target.type is not TableType.CHANGELOG:
            return None
        feed = self._feeds.find(table.target.name, step.source, step.relation)
        rows = changelog.apply_truncations(table.shape(feed, step.relation), chunks.facts_of(step))
        return ChunkOutcome(rows=rows, keys=Keys.empty(), written=np.empty(0, np.int32), aside=None, deleted=0)

    def _apply(self, table: MemoryTable, chunk: Chunk) -> ChunkOutcome:
        feed = self._feeds.find(table.target.name, chunk.source, chunk.relation)
        data = np.frombuffer(b"".join(chunk.parts), np.uint8)
        try:
            shape = table.shape(feed, chunk.relation)
            return dispatch.apply_changes(shape, data, np.concatenate(chunk.lengths), chunk.facts)
        except KuvaszError as error:
            row = error.row if isinstance(error, RefusedValue) else 0
            raise placed(error, chunk.commit_lsn_of(max(row, 0))) from error


__all__ = ["MemoryWriteStage", "MemoryWritten"]
