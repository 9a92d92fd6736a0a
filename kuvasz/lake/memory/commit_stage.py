"""Second stage of a mini-transaction in memory: earlier versions found, and all of it visible at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kuvasz.decode import tuples
from kuvasz.errors import KuvaszError, LakeError
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.chunks import Chunk
from kuvasz.lake.commit.failures import failed, told
from kuvasz.lake.executors.refused_rows import by_source
from kuvasz.model import NO_OPERATIONS, POSTGRES_EPOCH_US, TableType, Truncation
from kuvasz.ports import Failure, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kuvasz.lake.commit.chunks import Cut
    from kuvasz.lake.format.binding import Feeds
    from kuvasz.lake.memory.table import MemoryTable
    from kuvasz.lake.memory.write_stage import MemoryWritten
    from kuvasz.model import Operations


class MemoryCommitStage:
    """The second stage.

    Args:
        tables: Every prepared table by its name.
        feeds: What feeds them.
        keep_rejected: See `kuvasz.ports.About.keep_rejected`.
    """

    def __init__(
        self, tables: Mapping[str, MemoryTable], feeds: Feeds, keep_rejected: Callable[[str, pa.Table], None]
    ) -> None:
        self._tables = tables
        self._feeds = feeds
        self._keep_rejected = keep_rejected

    def commit(self, written: Sequence[MemoryWritten]) -> list[Receipt | Failure]:
        """See `kuvasz.ports.Lake.commit`."""
        return [outcome for one in written for outcome in self._commit(one)]

    def _commit(self, written: MemoryWritten) -> tuple[Receipt | Failure, ...]:
        table = self._tables[written.work.target]
        with table.lock:
            if table.era is not written.era or written.era.error is not None:
                return ()
            for source in (*written.work.abandoned, *written.refused):
                table.rows.abandon(source)
            table.rows.begin()
            try:
                resets, before = written.era.position_resets, written.position_resets
                if any(before.get(step.source, 0) != resets.get(step.source, 0) for step in written.cut.steps):
                    raise LakeError("what was written before its position was forgotten is not taken")
                return told(written.refused, self._make_visible(table, written))
            except KuvaszError as error:
                failures = failed(table.target.name, error, table.positions.keys())
                table.fail(failures[-1].error)
                return failures

    def _make_visible(self, table: MemoryTable, written: MemoryWritten) -> Receipt:
        begin = time.monotonic()
        work, cut = written.work, written.cut
        rejected = [one.rejected for one in written.applied if one is not None and one.rejected is not None]
        for one in rejected:
            self._keep_rejected(work.target, one)
        for step, applied in zip(cut.steps, written.applied, strict=True):
            layer = table.rows.layer_of(step.source, chunks.open_lsn(step))
            sid = table.sid(self._feeds.find(work.target, step.source, step.relation))
            if applied is None and table.target.type is TableType.APPEND:
                continue
            if applied is None and table.target.is_soft:
                assert isinstance(step, Truncation)
                table.rows.delete_all(sid, step.commit_us + POSTGRES_EPOCH_US, layer)
            elif applied is None:
                layer.truncate(sid)
            else:
                table.rows.resolve(step.source, sid, applied, layer)
        table.rows.close_whole(work.through.keys() - work.open_sources)
        positions = chunks.reached(cut, work.through, table.positions)
        return Receipt(
            target=work.target,
            positions=positions,
            rows=cut.rows,
            snapshot_id=table.make_visible(positions),
            rows_of=cut.rows_of,
            bytes_of=cut.bytes_of,
            operations_of=_operations_of(cut),
            commit_us=cut.commit_us,
            rejected=by_source(pa.concat_tables(rejected)) if rejected else {},
            seconds=time.monotonic() - begin,
        )


def _operations_of(cut: Cut) -> dict[str, Operations]:
    found: dict[str, Operations] = {}
    for step in cut.steps:
        if isinstance(step, Chunk):
            data = np.frombuffer(b"".join(step.parts), np.uint8)
            counted = tuples.operations(data, np.concatenate(step.lengths))
            found[step.source] = found.get(step.source, NO_OPERATIONS).plus(counted)
    return found


__all__ = ["MemoryCommitStage"]
