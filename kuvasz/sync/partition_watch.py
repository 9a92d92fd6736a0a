"""Looks now and then which partitions, and members of collapses, came and went: the stream does not tell.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceRefused, TableError
from kuvasz.source import conninfo, partitions
from kuvasz.source.table import SourceTable, TableKind
from kuvasz.state.tables import State
from kuvasz.sync.basis import Basis
from kuvasz.sync.member_watch import MemberWatch
from kuvasz.sync.schema_watch import SchemaWatch

_log = logging.getLogger(__name__)

#: Of tables whose rows are about to be copied, or do not follow: nothing is missed.
_SPARED = frozenset({State.COPYING, State.ERROR, State.PAUSED})


class PartitionWatch:
    """One source's watch.

    Args:
        basis: Of the source.
        members: Those of the source's collapses.
        watch: Told which tables the source has.
        is_streaming: Whether the source streams.
    """

    def __init__(
        self, basis: Basis, members: MemberWatch, watch: SchemaWatch, *, is_streaming: Callable[[], bool]
    ) -> None:
        self._source = basis.source.name
        self._url = basis.url
        self._lake = basis.around.lake
        self._roster = basis.roster
        self._members = members
        self._watch = watch
        self._is_streaming = is_streaming
        self._unread: set[str] = set()  #: partitions that the role may not read

    def look(self) -> None:
        """Look at all partitioned tables that are usable, and for members.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot remember them.
        """
        roots = [(spec, table) for spec, table in self._roster.usable() if table.kind is TableKind.PARTITIONED]
        if not roots and not self._members.has_any:
            return
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            if self._members.has_any:
                self.take_members(connection)
                self._members.forget_gone(self._roster.source)
            self.check(connection, roots)

    def take_members(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Take over which tables the collapses of the map take in now.

        Raises:
            SourceError: The catalog cannot be read.
        """
        roster = self._roster
        before = roster.source
        roster.take(self._members.look(connection))
        self._watch.know(roster.source)
        try:
            self._members.take(before, roster.source, is_streaming=self._is_streaming())
        except BaseException:
            roster.source = before  # else the next look would find nothing new, and nobody take them up
            raise
        present = {spec.key for spec in roster.source.tables}
        for key in [key for key in roster.tables if key not in present]:
            roster.tables.pop(key, None)

    def check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Stop tables that were given partitions with rows in them: those rows are in no stream.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot remember the partitions.
        """
        roster = self._roster
        roots = {
            table.relation.oid: spec
            for spec, table in tables
            if table.kind is TableKind.PARTITIONED
            and roster.position(spec) is not None
            and roster.state(spec) not in _SPARED
        }
        for oid, found in partitions.load(connection, roots).items() if roots else ():
            self._check(connection, roots[oid], found)

    def _check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        found: Sequence[partitions.Partition],
    ) -> None:
        name = self._roster.name(spec)
        known = self._lake.parts(spec.identifier, name)
        now = frozenset(partition.links for partition in found)
        fresh = [partition for partition in found if known is not None and partition.links not in known]
        filled = {part: self._is_filled(connection, spec, part) for part in fresh}
        if any(filled.values()):
            self._stop(spec, [str(part.table) for part, is_filled in filled.items() if is_filled])
            return
        now -= {part.links for part, is_filled in filled.items() if is_filled is None}
        if known is not None and known - now:
            _log.warning("a partition left its table; its rows stay in the lake", extra={
                "event": "partition_left", "source": self._source, "table": str(spec.table),
                "target": spec.identifier, "partitions": len(known - now)})  # fmt: skip
        if known != now:
            self._lake.remember_parts(spec.identifier, name, now)

    def _is_filled(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        partition: partitions.Partition,
    ) -> bool | None:
        """Say whether a new partition was attached with rows in it; None: it cannot be read, and is asked again."""
        try:
            return partitions.has_earlier_rows(connection, partition)
        except SourceRefused as error:
            if partition.links not in self._unread:
                self._unread.add(partition.links)
                _log.warning("a new partition cannot be read; nobody knows whether it was attached with rows", extra={
                    "event": "partition_unread", "source": self._source, "table": str(spec.table),
                    "partition": str(partition.table), "error": str(error)})  # fmt: skip
            return None

    def _stop(self, spec: SourceTableSpec, names: Sequence[str]) -> None:
        message = (
            f"source {self._source}, table {spec.table}: partition {', '.join(names)} was attached with rows in"
            " it, which the stream does not carry"
        )
        error = TableError(message, hint=f"copy the table again: kuvasz resync --table {spec.identifier}")
        # Hold first: what is dropped from now on must come again.
        self._roster.hold(spec)
        self._roster.set(spec, State.ERROR, error)
        _log.error("a table stops", extra={
            "event": "table_failed", "source": self._source, "table": spec.identifier,
            "error": str(error)})  # fmt: skip


__all__ = ["PartitionWatch"]
