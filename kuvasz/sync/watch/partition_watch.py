"""Looks now and then which partitions, and members of collapses, came and went: the stream does not tell.

The stream has a partitioned table's changes as its root's, and of its partitions alone no TRUNCATE, ATTACH, DETACH or
DROP; no row says which partition it is from. So what a look finds is mended by a comparison of the table with a
snapshot, which is right whatever else happened before that.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceRefused, TableError
from kuvasz.model import Relation, TableType
from kuvasz.source import conninfo
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.look import wal_end
from kuvasz.source.catalog.partitions import Partition
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import partition_memory
from kuvasz.sync.rules.partition_memory import KnownPartitions, PartitionChange, SeenPartition
from kuvasz.sync.watch.member_watch import MemberWatch
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.schema_watch import SchemaWatch

_log = logging.getLogger(__name__)

#: Of tables whose rows are about to be copied, or do not follow: nothing is missed.
_SPARED = frozenset({State.COPYING, State.ERROR, State.PAUSED})


class PartitionWatch:
    """One source's watch.

    Args:
        context: Of the source.
        members: Those of the source's collapses.
        watch: Told which tables the source has.
        notes: What the lake remembers.
        approvals: What a person has agreed to.
        forget: Has a table copied again, of which nothing is under way.
        is_streaming: Whether the source streams.
        heard_lsn: Up to where its stream has been heard out.
    """

    def __init__(
        self,
        context: SourceContext,
        members: MemberWatch,
        watch: SchemaWatch,
        notes: PartitionNotes,
        approvals: Approvals,
        *,
        forget: Callable[[SourceTableSpec], None],
        is_streaming: Callable[[], bool],
        heard_lsn: Callable[[], int],
    ) -> None:
        self._source = context.source.name
        self._url = context.url
        self._source_tables = context.source_tables
        self._requests = context.requests
        self._members = members
        self._watch = watch
        self._notes = notes
        self._approvals = approvals
        self._forget = forget
        self._is_streaming = is_streaming
        self._heard_lsn = heard_lsn
        self._roots: dict[int, SourceTableSpec] = {}  #: partitioned tables by OID
        self._leaves: dict[int, SourceTableSpec] = {}  #: their partitions by OID
        self._described: Relation | None = None  #: the root that the stream described last, if nothing else since
        self._unread: set[str] = set()  #: partitions that the role may not read
        # By `SourceTableSpec.key`.
        self._missing: dict[str, set[int]] = {}  #: partitions that the stream told of and the last look did not show
        self._suspects: dict[str, tuple[set[tuple[int, int]], int]] = {}  #: emptied partitions, and where that was
        self._horizons: dict[str, int] = {}  #: of the last look at which all was as it is remembered

    def look(self) -> None:
        """Look at all partitioned tables that are usable, and for members.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot remember them.
        """
        roots = [(spec, table) for spec, table in self._source_tables.usable() if table.kind is TableKind.PARTITIONED]
        if not roots and not self._members.has_any:
            return
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            if self._members.has_any:
                self.take_members(connection)
                self._members.forget_gone(self._source_tables.source)
            self.check(connection, roots, is_following=True)

    def take_members(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Take over which tables the collapses of the map take in now.

        Raises:
            SourceError: The catalog cannot be read.
        """
        source_tables = self._source_tables
        before = source_tables.source
        source_tables.take(self._members.look(connection))
        self._watch.know(source_tables.source)
        try:
            self._members.take(before, source_tables.source, is_streaming=self._is_streaming())
        except BaseException:
            source_tables.source = before  # else the next look would find nothing new, and nobody take them up
            raise
        present = {spec.key for spec in source_tables.source.tables}
        for key in [key for key in source_tables.tables if key not in present]:
            source_tables.tables.pop(key, None)

    def check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
        *,
        is_following: bool = False,
    ) -> None:
        """Have tables follow what became of their partitions and is in no stream.

        Args:
            connection: To the source.
            tables: Those that are looked at.
            is_following: Whether they follow the stream now; else nothing of them is under way.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot remember the partitions.
        """
        source_tables = self._source_tables
        partitioned = [(spec, table) for spec, table in tables if table.kind is TableKind.PARTITIONED]
        self._roots.update({table.relation.oid: spec for spec, table in partitioned})
        roots = {
            table.relation.oid: spec
            for spec, table in partitioned
            if source_tables.position(spec) is not None
            and (source_tables.is_streaming(spec) if is_following else source_tables.state(spec) not in _SPARED)
        }
        if not roots:
            return
        horizon = partitions.horizon(connection)  # before the look: see `partitions.has_rows_from_before`
        trees = partitions.load(connection, roots)
        keys = {spec.key for spec in roots.values()}
        others = {oid: spec for oid, spec in self._leaves.items() if spec.key not in keys}
        self._leaves = others | {leaf.oid: roots[oid] for oid, found in trees.items() for leaf in found}
        for oid, found in trees.items():
            self._check(connection, roots[oid], found, horizon, is_following=is_following)

    def _check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        found: Sequence[Partition],
        horizon: int,
        *,
        is_following: bool,
    ) -> None:
        known = self._notes.known(spec)
        if known is None:
            self._notes.looked(spec, None, KnownPartitions().looked(found, horizon))
            return
        horizon_before = self._horizons.get(spec.key) or known.horizon
        is_changelog = spec.config.type is TableType.CHANGELOG
        look = _Look(connection, known, horizon_before, is_changelog=is_changelog)
        waits = self._waits(spec, known, found) if is_following else ()
        change = partition_memory.compare(
            known, found, is_filled=look.is_filled, has_stayed=look.has_stayed, waits=waits
        )
        self._tell_unread(spec, look.unread)
        is_urgent = partition_memory.is_urgent(spec, known)
        emptied = {
            (part.oid, 0 if is_urgent else part.file_xid) for part in found if str(part.table) in change.emptied
        }
        if emptied and (self._may_be_told(connection, spec, emptied) if is_following else not is_urgent):
            return
        try:
            is_accepted = self._approvals.is_gap_accepted(spec)
            if partition_memory.needs_comparison(self._source, spec, known, change, is_accepted=is_accepted):
                self._compare(spec, change, is_following=is_following)
                return
        except TableError as error:
            self._stop(spec, error)
            return
        if change:
            _log.warning("partitions of a table changed; its rows stay as they are", extra={
                "event": "partitions_kept", "source": self._source, "table": str(spec.table),
                "target": spec.identifier, "change": str(change)})  # fmt: skip
        if change.emptied:
            self._approvals.closed(spec)
        now = known.looked((part for part in found if part not in look.unread), horizon, waits=waits)
        has_kept = known.has_kept or bool(change.gone)
        self._notes.looked(spec, known, dataclasses.replace(now, has_kept=has_kept))
        self._horizons[spec.key] = horizon

    def _may_be_told(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        emptied: set[tuple[int, int]],
    ) -> bool:
        """Whether the stream may yet say that the table itself was truncated; it is looked at again then."""
        suspected, suspected_at = self._suspects.get(spec.key, (set(), 0))
        if not emptied <= suspected:
            self._suspects[spec.key] = emptied, wal_end(connection)
            return True
        if self._heard_lsn() < suspected_at:
            return True
        del self._suspects[spec.key]
        return False

    def _waits(
        self, spec: SourceTableSpec, known: KnownPartitions, found: Sequence[Partition]
    ) -> tuple[SeenPartition, ...]:
        """Return partitions that the stream told of and the catalog does not show, if it may show them yet.

        The walsender is ahead of other sessions by a moment: what is not there at two looks is gone.
        """
        present = {partition.oid for partition in found}
        missing = {seen.oid for seen in known.seen if seen.oid not in present}
        fresh = missing - self._missing.get(spec.key, set())
        self._missing[spec.key] = missing
        return tuple(seen for seen in known.seen if seen.oid in fresh)

    def follow(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        """Take note of partitions that the stream tells of, then follow the relation as `SchemaWatch` does.

        Under the root's identity the server describes a partition right behind its root, before its first row.

        Raises:
            SourceError: The catalog cannot be read: the stream has to begin again.
            LakeError: The lake cannot be changed now.
        """
        root, self._described = self._described, None
        if relation.oid in self._roots:
            self._described = relation
        elif root is None and relation.oid in self._leaves:
            # The publication was changed: `publish_via_partition_root` is off, or its root was taken out.
            spec = self._leaves[relation.oid]
            if self._is_applied_from(spec, commit_lsn):
                self._notes.strayed(spec, relation.oid, str(relation.table), commit_lsn)
        elif root is not None and {column.name for column in root.columns} == {
            column.name for column in relation.columns
        }:
            spec = self._roots[root.oid]
            if self._is_applied_from(spec, commit_lsn):
                self._notes.told(spec, relation.oid, str(relation.table), commit_lsn)
        return self._watch.follow(relation, commit_lsn, xid)

    def truncated(self, relation: Relation, commit_lsn: int, xid: int) -> None:
        """Take note of a TRUNCATE of a partitioned table, which gives each of its partitions another file.

        Raises:
            LakeError: The lake cannot be changed now.
        """
        spec = self._roots.get(relation.oid)
        if spec is not None and self._is_applied_from(spec, commit_lsn):
            self._notes.truncated(spec, xid, commit_lsn)

    def _is_applied_from(self, spec: SourceTableSpec, commit_lsn: int) -> bool:
        """Whether a transaction's rows may not be in the target yet."""
        position = self._source_tables.position(spec)
        return position is None or commit_lsn >= position.lsn

    def _compare(self, spec: SourceTableSpec, change: PartitionChange, *, is_following: bool) -> None:
        """Have a table compared with its source: no row of it says which partition it is from."""
        _log.warning("partitions of a table changed: it is compared with its source", extra={
            "event": "partitions_changed", "source": self._source, "table": str(spec.table),
            "target": spec.identifier, "change": str(change)})  # fmt: skip
        if is_following:
            self._source_tables.hold(spec)  # first: what is dropped from now on must come again
        if not self._source_tables.look(spec).is_resync_due:  # else it is copied, which is as good
            self._source_tables.resync(spec, is_due=True, is_repair=True)
        if is_following:
            self._source_tables.set(spec, State.NEW)
            self._requests.send(spec.key)
        else:
            self._forget(spec)

    def _tell_unread(self, spec: SourceTableSpec, unread: dict[Partition, SourceRefused]) -> None:
        """Say once which new partitions cannot be read; they are asked again."""
        for partition, error in unread.items():
            if partition.links not in self._unread:
                self._unread.add(partition.links)
                _log.warning("a new partition cannot be read; nobody knows whether it was attached with rows", extra={
                    "event": "partition_unread", "source": self._source, "table": str(spec.table),
                    "partition": str(partition.table), "error": str(error)})  # fmt: skip

    def _stop(self, spec: SourceTableSpec, error: TableError) -> None:
        # Hold first: what is dropped from now on must come again.
        self._source_tables.hold(spec)
        self._source_tables.fail(spec, error)


class _Look:
    """Looks into partitions.

    Args:
        connection: To the source.
        known: What is remembered.
        horizon: Of the look before; 0: unknown.
        is_changelog: Whether the target is one.
    """

    def __init__(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        known: KnownPartitions,
        horizon: int,
        *,
        is_changelog: bool,
    ) -> None:
        self._connection = connection
        self._is_changelog = is_changelog
        self._known = known
        self._horizon = horizon
        self.unread: dict[Partition, SourceRefused] = {}  #: new ones that the role may not read

    def is_filled(self, partition: Partition) -> bool:
        """Say whether a new partition was attached with rows in it, as far as it can be read."""
        try:
            return partitions.has_earlier_rows(self._connection, partition)
        except SourceRefused as error:
            self.unread[partition] = error
            return False

    def has_stayed(self, partition: Partition) -> bool:
        """Say whether a partition has another file for another reason than a TRUNCATE that the stream does not bring.

        What cannot be read says nothing.
        """
        if self._known.is_emptied_by_stream(partition):
            return True
        if self._is_changelog and partitions.was_altered(self._connection, partition):
            return True  # a rewrite changes no row there; others are compared to have what it wrote
        if not self._horizon:
            return False
        try:
            return partitions.has_rows_from_before(self._connection, partition, self._horizon)
        except SourceRefused:
            return False


__all__ = ["PartitionWatch"]
