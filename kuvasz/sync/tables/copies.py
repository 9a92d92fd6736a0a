"""Copies tables of one source, each under a snapshot; of a table that missed something, only what differs.

Methods are called on the loop, and what takes long runs in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kuvasz import failpoints, lsn
from kuvasz.backoff import FIRST_S, Backoff
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import InternalError, KuvaszError, LakeError, SourceError, TableError
from kuvasz.model import Seen, SourcePosition
from kuvasz.source import conninfo, slots, snapshot
from kuvasz.source.catalog import introspect, partitions
from kuvasz.source.catalog.look import as_seen
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility, lost
from kuvasz.sync.rules.containment import unforeseen
from kuvasz.sync.rules.copy_plan import copy_ranges
from kuvasz.sync.rules.targets import feed_of, narrowed
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.schema_watch import SchemaWatch, publications_of, tell

_log = logging.getLogger(__name__)


#: Bytes at the source of one range of a copy: some seconds of work, so that progress shows and load spreads.
_RANGE_BYTES = 64 << 20

#: (parts done, rows)
OnProgress = Callable[[int, int], None]


class Copies:
    """One source's copies.

    Args:
        context: Of the source.
        slot: Makes snapshots for single tables.
        watch: Told what a snapshot has.
        approvals: What a person has agreed to.
        notes: What the lake remembers of partitions.
        look: Looks at a table anew; in threads.
        published: Returns by which catalog rows a table was published at its last look.
    """

    def __init__(
        self,
        context: SourceContext,
        slot: Slot,
        watch: SchemaWatch,
        approvals: Approvals,
        notes: PartitionNotes,
        *,
        look: Callable[[SourceTableSpec], bool],
        published: Callable[[SourceTableSpec], str],
    ) -> None:
        self._source = context.source
        self._url = context.url
        self._shared = context.shared
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._lifetime = context.lifetime
        self._slot = slot
        self._watch = watch
        self._approvals = approvals
        self._notes = notes
        self._look = look
        self._published = published

    async def first(self, spec: SourceTableSpec, taken: slots.ExportedSnapshot, system_id: str) -> None:
        """Copy a table with the snapshot of the slot that the stream begins with.

        Raises:
            SourceError: It has to be tried again; what is wrong with the table itself puts it into error.
        """
        async with self._shared.copies:
            await self._copy(spec, taken, system_id)

    async def beside(self, spec: SourceTableSpec, system_id: str) -> None:
        """Copy a table beside the running stream, with a snapshot of its own.

        Not if it has its rows, is paused or in error; connections that fail are tried again.
        """
        source_tables = self._source_tables
        backoff = Backoff(FIRST_S)
        while source_tables.position(spec) is None and source_tables.state(spec) not in {State.PAUSED, State.ERROR}:
            try:
                async with self._shared.copies:
                    source_tables.hold(spec)
                    with await asyncio.to_thread(self._slot.snapshot, spec) as taken:
                        await self._copy(spec, taken, system_id)
            except SourceError as error:
                _log.warning("a copy failed and is tried again", extra={
                    "event": "copy_retry", "source": source_tables.name(spec), "table": str(spec.table),
                    "error": str(error)})  # fmt: skip
                wait = backoff.next_s()
                source_tables.retry_at(spec, time.monotonic() + wait)
                await asyncio.sleep(wait)
                with contextlib.suppress(SourceError, LakeError):  # its columns may be what changed
                    await asyncio.to_thread(self._look, spec)
        if source_tables.position(spec) is None:
            source_tables.release(spec)

    async def _copy(self, spec: SourceTableSpec, taken: slots.ExportedSnapshot, system_id: str) -> None:
        if self._lifetime.is_ending:
            raise SourceError(f"source {self._source.name}: stopped while copying")
        self._source_tables.set(spec, State.COPYING)
        abandoned = threading.Event()
        copying = asyncio.get_running_loop().run_in_executor(None, self._copy_now, spec, taken, system_id, abandoned)
        try:
            await asyncio.shield(copying)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: were it left alone, it might replace rows that are newer by then.
            abandoned.set()
            await asyncio.wait([copying])
            copying.exception()
            raise
        except (TableError, InternalError) as error:
            self._source_tables.fail(spec, error)
        except LakeError as error:
            raise SourceError(error.message, hint=error.hint) from error
        except KuvaszError:
            raise
        except Exception as error:
            if self._lifetime.is_ending:  # the lake may have been closed under it
                raise SourceError(f"source {self._source.name}: stopped while copying") from error
            self._source_tables.fail(spec, unforeseen(self._source.name, spec, error, is_ending=False))

    # In threads

    def _copy_now(
        self, spec: SourceTableSpec, taken: slots.ExportedSnapshot, system_id: str, abandoned: threading.Event
    ) -> None:
        plain = taken.pinned(conninfo.conninfo(self._url))
        table = self._seen(spec, plain, taken)
        ranges = copy_ranges(table, conninfo=plain, snapshot_name=taken.snapshot_name, target_bytes=_RANGE_BYTES)
        begin = time.monotonic()
        self._source_tables.note(spec, copy_total=len(ranges), copy_done=0)
        progress = self._progress(spec, len(ranges), abandoned)
        position = SourcePosition(
            lsn=taken.consistent_point, system_id=system_id, history=self._slot.history, taken_us=taken.taken_us,
            published=self._published(spec),
        )  # fmt: skip
        if not self._needs_copy(spec):
            self._repair(spec, table, ranges, position, progress)
            return
        receipt = self._lake.copy(feed_of(self._source, spec), table.relation, ranges, position, progress)
        self._source_tables.note(spec, copies=1)
        _log.info("table copied", extra={
            "event": "copied", "source": self._source.name, "table": spec.identifier, "rows": receipt.rows,
            "seconds": round(time.monotonic() - begin, 3), "lsn": lsn.render(taken.consistent_point)})  # fmt: skip

    def _seen(self, spec: SourceTableSpec, plain: str, taken: slots.ExportedSnapshot) -> SourceTable:
        """Return the table as the snapshot has it, with the columns that the map takes."""
        with snapshot.session(plain, taken.snapshot_name) as connection:
            failpoints.hit("snapshot_taken", SourceError)
            found = introspect.load_relations(connection, [spec.table], publications_of(self._source)).get(spec.table)
            parts, horizon = _partitions_of(connection, found)
        if found is not None:
            found = as_seen(found, Seen(lsn=taken.consistent_point, until=taken.consistent_point))
        now = eligibility.checked(self._source.name, spec, found)
        self._follow(spec, now, taken.consistent_point)
        if now.kind is TableKind.PARTITIONED:
            # The partitions that the snapshot knows, not those of an earlier look.
            self._notes.copied(spec, parts, horizon, taken.consistent_point)
        return dataclasses.replace(now, relation=narrowed(spec, now.relation))

    def _follow(self, spec: SourceTableSpec, now: SourceTable, at: int) -> None:
        """Have the lake follow what the snapshot shows: the last look may have failed before it did."""
        done = self._lake.prepare(self._approvals.target_of(spec), feed_of(self._source, spec), now.relation)
        tell(self._source, spec, done, at)
        self._watch.begin([(spec, now)], at)

    def _progress(self, spec: SourceTableSpec, total: int, abandoned: threading.Event) -> OnProgress:
        def progress(done: int, rows: int) -> None:
            self._source_tables.note(spec, copy_done=done, copied_rows=rows)
            self._shared.on_copy(self._source.name, spec.identifier, done, total, rows)
            if self._lifetime.is_ending or abandoned.is_set():
                raise SourceError(f"source {self._source.name}: stopped while copying")

        return progress

    def _needs_copy(self, spec: SourceTableSpec) -> bool:
        """Whether a table has no rows yet.

        Raises:
            ChangesLost: A person has to say how it goes on.
        """
        gap = self._lake.gap(spec.identifier, self._source_tables.name(spec))
        if gap is None:
            return True
        lost.cure(self._source.name, spec, gap, is_accepted=self._approvals.is_gap_accepted(spec))
        return False

    def _repair(
        self,
        spec: SourceTableSpec,
        table: SourceTable,
        ranges: Sequence[snapshot.CopyRange],
        position: SourcePosition,
        progress: OnProgress,
    ) -> None:
        feed = feed_of(self._source, spec)

        def tell(phase: str, done: int, total: int) -> None:
            del phase
            self._source_tables.note(spec, copy_total=total)
            progress(done, 0)

        receipt = self._lake.repair(feed, table.relation, ranges, position, tell, at_us=position.taken_us)
        self._approvals.closed(spec)
        _log.info("a gap is closed", extra={
            "event": "repaired", "source": feed.source, "table": feed.target, "keys": receipt.rows,
            "snapshot": receipt.snapshot_id, "lsn": lsn.render(position.lsn)})  # fmt: skip


def _partitions_of(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    table: SourceTable | None,
) -> tuple[Sequence[partitions.Partition], int]:
    """Return a table's partitions and the horizon of this look at them."""
    if table is None or table.kind is not TableKind.PARTITIONED:
        return (), 0
    oid = table.relation.oid
    horizon = partitions.horizon(connection)
    return partitions.load(connection, [oid])[oid], horizon


__all__ = ["Copies"]
