"""What a source's targets remember of its tables' partitions, for all threads that look, copy or read the stream."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Iterable

from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import partition_memory
from kuvasz.sync.rules.partition_memory import KnownPartitions


class PartitionNotes:
    """The notes on one source's partitions. From any thread.

    Args:
        context: The context of the source.
    """

    def __init__(self, context: SourceContext) -> None:
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._lock = threading.Lock()
        self._oids: dict[str, frozenset[int]] = {}  #: known ones by `SourceTableSpec.key`
        self._settled: dict[str, set[str]] = {}  #: links that `settled` was told of, by `SourceTableSpec.key`

    def known(self, spec: SourceTableSpec) -> KnownPartitions | None:
        """Return what is remembered of a table's partitions; None: nothing yet."""
        texts = self._lake.notes.partitions(spec.identifier, self._source_tables.name(spec))
        return None if texts is None else partition_memory.parse(texts)

    def has_told(self, spec: SourceTableSpec) -> bool:
        """Whether the stream has told of partitions that no look has accounted for."""
        known = self.known(spec)
        return known is not None and bool(known.seen or known.astray)

    def _put_off(self, spec: SourceTableSpec) -> None:
        """Have a job wait for the look that says what became of what the stream has told."""
        self._source_tables.put_off[Evidence.PARTITIONS].add(spec.key)

    def looked(self, spec: SourceTableSpec, before: KnownPartitions | None, now: KnownPartitions) -> None:
        """Remember what a look has shown, and what the stream told beside it.

        Args:
            spec: The table.
            before: What was known when the look began.
            now: What it comes to.

        Raises:
            LakeError: Catalog or storage failed.
        """
        with self._lock:
            current, told = self.known(spec), frozenset(() if before is None else before.seen)
            for seen in () if current is None else current.seen:
                if seen not in told:
                    now = now.told(seen.oid, seen.name, seen.lsn)
            if current is not None:
                astray = () if before is not None and current.astray == before.astray else current.astray
                now = dataclasses.replace(now, truncated=current.truncated, astray=astray)
            if current is None or not partition_memory.is_same(current, now):
                self._store(spec, now)

    def left(self, spec: SourceTableSpec, at_lsn: int, timeline: int) -> None:
        """Keep what counts on a timeline that left the one that it was remembered on; see `KnownPartitions.left`.

        Raises:
            LakeError: Catalog or storage failed.
        """
        with self._lock:
            before = self.known(spec)
            if before is not None:
                self._store(spec, before.left(at_lsn, timeline))

    def settled(self, spec: SourceTableSpec, links: set[str]) -> None:
        """Take note that each connection to come begins behind the transactions that made these links."""
        self._settled[spec.key] = links

    def unsettle(self) -> None:
        """Forget which those are: their transactions may be others of another past."""
        self._settled.clear()

    def copied(
        self,
        spec: SourceTableSpec,
        found: Iterable[Partition],
        horizon: int,
        at: int,
        *,
        unsettled: Collection[str] = (),
        types: str = "",
    ) -> None:
        """Remember the partitions that a snapshot knows whose rows are about to be taken over.

        Args:
            spec: The table.
            found: The partitions.
            horizon: See `parts.Known`.
            at: LSN of the snapshot.
            unsettled: Links of partitions that are not known by that alone, see `partitions.unsettled`.
            types: The types of its columns there, see `partitions.types`; empty: unknown.

        Raises:
            LakeError: Catalog or storage failed.
        """
        with self._lock:
            before = self.known(spec)
            known = {part.links for part in before.parts} if before else set()
            left = set(unsettled) - known - self._settled.get(spec.key, set())
            sure = [partition for partition in found if partition.links not in left]
            self._store(spec, partition_memory.copied(before, sure, horizon, at, types))

    def told(self, spec: SourceTableSpec, oid: int, name: str, commit_lsn: int) -> None:
        """Remember a partition that the stream tells of, before its rows are applied: it may be gone by now.

        Raises:
            LakeError: Catalog or storage failed.
        """
        if oid in self._oids.get(spec.key, ()):
            return
        with self._lock:
            before = self.known(spec)
            if before is None:
                return  # the first look comes before the first row
            now = before.told(oid, name, commit_lsn)
            if now is not before:
                self._store(spec, now)
                self._put_off(spec)
            elif oid in before.oids:
                self._oids[spec.key] = before.oids

    def strayed(self, spec: SourceTableSpec, oid: int, name: str, commit_lsn: int) -> None:
        """Remember that rows of a partition come under its own name, and are not applied.

        Raises:
            LakeError: Catalog or storage failed.
        """
        with self._lock:
            before = self.known(spec)
            if before is not None and (now := before.strayed(oid, name, commit_lsn)) is not before:
                self._store(spec, now)
                self._put_off(spec)

    def truncated(self, spec: SourceTableSpec, xid: int, commit_lsn: int) -> None:
        """Remember that the stream brings a TRUNCATE of the table itself.

        Raises:
            LakeError: Catalog or storage failed.
        """
        with self._lock:
            before = self.known(spec)
            if before is not None and (now := before.truncated_by(xid, commit_lsn)) is not before:
                self._store(spec, now)

    def _store(self, spec: SourceTableSpec, now: KnownPartitions) -> None:
        self._lake.notes.remember_partitions(
            spec.identifier, self._source_tables.name(spec), partition_memory.render(now)
        )
        self._oids[spec.key] = now.oids


__all__ = ["PartitionNotes"]
