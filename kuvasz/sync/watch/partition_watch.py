"""Looks now and then which partitions, and members of collapses, came and went: the stream does not tell.

The stream has a partitioned table's changes as its root's, and of its partitions alone no TRUNCATE, ATTACH, DETACH or
DROP; no row says which partition it is from. So what a look finds is mended by a comparison of the table with a
snapshot, which is right whatever else happened before that. A table that keeps what was follows until it is its turn
(`kuvasz.sync.tables.approach`).

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kuvasz.config.model import Deletes
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceLocked, SourceRefused, TableError, VersionLost
from kuvasz.events import Event, EventLog
from kuvasz.model import TableType
from kuvasz.source import conninfo, continuity, slots
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.look import wal_end
from kuvasz.source.catalog.partitions import Partition
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import partition_memory
from kuvasz.sync.rules.few_keys import FewKeys
from kuvasz.sync.rules.partition_memory import KnownPartitions, PartitionChange
from kuvasz.sync.watch.member_watch import MemberWatch
from kuvasz.sync.watch.partition_messages import PartitionMessages
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.partition_suspects import PartitionSuspects
from kuvasz.sync.watch.stale_stream import StaleStream

_log = EventLog(__name__)

#: Of tables whose rows are about to be copied, or do not follow: nothing is missed.
_SPARED = frozenset({State.COPYING, State.ERROR, State.PAUSED})


class PartitionWatch:
    """The watch over one source's partitions.

    Args:
        context: The context of the source.
        members: The members of the source's collapses.
        messages: What the stream tells of partitions.
        notes: What the lake remembers.
        approvals: What a person has agreed to.
        forget: Has a table copied again, of which nothing is under way.
    """

    def __init__(
        self,
        context: SourceContext,
        members: MemberWatch,
        messages: PartitionMessages,
        notes: PartitionNotes,
        approvals: Approvals,
        *,
        forget: Callable[[SourceTableSpec], None],
    ) -> None:
        self._context = context
        self._source = context.source.name
        self._source_tables = context.source_tables
        self._members = members
        self._messages = messages
        self._notes = notes
        self._approvals = approvals
        self._forget = forget
        self._suspects = PartitionSuspects(context.current, self._durable_lsn)
        self._stale = StaleStream(context, notes)
        self._unread: FewKeys[str] = FewKeys()  #: partitions that the role may not read
        self._horizons: dict[str, int] = {}  #: `SourceTableSpec.key` -> of the last look that found nothing
        context.pasts.whenever_given_up(self._give_up)

    def _durable_lsn(self, spec: SourceTableSpec) -> int:
        shared = self._context.shared
        durable = shared.progress.durable_in(self._source)
        return durable.through(spec.key, shared.routes.worker_of_target(spec.identifier))

    def _give_up(self, _: int) -> None:
        self._horizons.clear()
        self._suspects.clear()
        self._stale.clear()

    @property
    def proved_lsn(self) -> int | None:
        """Where the WAL ended before a look found that no table had missed changes; 0: unknown, None: it has none."""
        roots = [spec for spec, _ in self._roots()]
        return self._source_tables.gap_starts.proved_lsn(Evidence.PARTITIONS, roots) if roots else None

    @property
    def has_any(self) -> bool:
        """Whether there may be anything to be looked at."""
        tables = list(self._source_tables.tables.values())  # others look at the source, too
        return self._members.has_any or any(table.kind is TableKind.PARTITIONED for table in tables)

    @property
    def is_stream_stale(self) -> bool:
        """Whether the stream has to go on in another connection, once for each time that it is asked."""
        return self._stale.take()

    def _roots(self) -> list[tuple[SourceTableSpec, SourceTable]]:
        usable = self._source_tables.usable()
        return [(spec, table) for spec, table in usable if table.kind is TableKind.PARTITIONED]

    def look(self) -> None:
        """Look at all partitioned tables that are usable, and for members.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot remember them.
        """
        if not self.has_any:
            return
        with contextlib.closing(conninfo.connect(self._context.url())) as connection:
            if self._members.has_any:
                self._members.refresh(connection)
                self._members.forget_gone()
            self.check(connection, self._roots(), is_following=True)

    def check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
        *,
        is_following: bool = False,
    ) -> set[str]:
        """Have tables follow what became of their partitions and is in no stream.

        Args:
            connection: To the source.
            tables: The tables that are looked at.
            is_following: Whether they follow the stream now; else nothing of them is under way.

        Returns:
            The tables that cannot follow yet, by `SourceTableSpec.key`: somebody has locked a partition that has to
            be looked into. They are in error; one that follows is left to the next look.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot remember the partitions.
        """
        source_tables = self._source_tables
        partitioned = [(spec, table) for spec, table in tables if table.kind is TableKind.PARTITIONED]
        self._messages.know_roots(_by_oid(partitioned))
        for spec, _ in partitioned:
            if source_tables.position(spec) is None:  # it is about to be copied
                source_tables.gap_starts.disprove(Evidence.PARTITIONS, spec)
                self._horizons.pop(spec.key, None)
                self._settle(spec)
            elif spec.key in source_tables.gap_starts.following:
                self._follow_no_more(spec)
        roots = _by_oid(
            (spec, table)
            for spec, table in partitioned
            if source_tables.position(spec) is not None
            and (source_tables.is_streaming(spec) if is_following else source_tables.state(spec) not in _SPARED)
        )
        locked: set[str] = set()
        if not partitioned:
            return locked
        lsn, horizon = wal_end(connection), partitions.horizon(connection)  # before the look
        self._leave_timelines([spec for spec, _ in partitioned], partitions.timeline_of(horizon))
        if not roots:
            return locked
        types = partitions.types(connection, [oid for oid in roots if not roots[oid][0].config.type.is_comparable])
        trees = partitions.load(connection, roots)
        start = _LookTime(lsn=lsn, until_lsn=wal_end(connection), horizon=horizon)
        self._messages.know_leaves(roots, {oid: [leaf.oid for leaf in found] for oid, found in trees.items()})
        following = source_tables.gap_starts.following
        for oid, spec in ((root, spec) for root in trees for spec in roots[root] if spec.key not in following):
            try:
                begun = dataclasses.replace(start, root=oid, types=types.get(oid, ""))
                if self._check(connection, spec, trees[oid], begun, is_following=is_following):
                    self._settle(spec)
                else:
                    source_tables.put_off[Evidence.PARTITIONS].add(spec.key)
            except SourceLocked as error:
                if is_following:
                    _log.tell(Event.PARTITIONS_UNSEEN, source=self._source, error=str(error))
                else:
                    self._context.troubles.refuse(spec, error)
                    locked.add(spec.key)
        return locked

    def _leave_timelines(self, specs: Sequence[SourceTableSpec], timeline: int) -> None:
        """Have what was remembered on another timeline count as far as this one has it, too."""
        for spec in specs:
            known = self._notes.known(spec)
            if known is not None and known.timeline not in {0, timeline}:
                self._notes.left(spec, self._left_at(known.timeline, timeline), timeline)

    def _left_at(self, before: int, timeline: int) -> int:
        """Return where a timeline was left for the source's own; 0: it does not come from there."""
        if before > timeline:
            return 0
        history = slots.timeline_history(self._context.replication_url(), timeline)
        return continuity.switches(history).get(before, 0)

    def _check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        found: Sequence[Partition],
        start: _LookTime,
        *,
        is_following: bool,
    ) -> bool:
        """Have one table follow; returns whether a later look has nothing to add to what this one has found."""
        known = self._notes.known(spec)
        if known is None:
            first = KnownPartitions(types=start.types)
            self._notes.looked(spec, None, first.looked(found, start.horizon, start.until_lsn))
            return True
        horizon_before = self._horizons.get(spec.key) or known.horizon
        look = _Look(connection, known, horizon_before, start, is_comparable=spec.config.type.is_comparable)
        waits = self._suspects.waits(spec, known, found) if is_following else ()
        change = partition_memory.compare(
            known, found, is_filled=look.is_filled, has_stayed=look.has_stayed, was_unlogged=look.was_unlogged,
            waits=waits,
        )  # fmt: skip
        self._tell_unread(spec, look.unread)
        is_urgent = partition_memory.is_urgent(spec, known)
        told = _may_be_told(spec, known, change, found, is_urgent=is_urgent)
        if self._stale.may_be_stale(connection, spec, known, found):
            return False
        if told and (is_following or not is_urgent) and self._suspects.may_be_told(connection, spec, told):
            return False
        try:
            is_accepted = self._approvals.is_gap_accepted(spec)
            if partition_memory.needs_comparison(self._source, spec, known, change, is_accepted=is_accepted):
                self._compare(spec, change, is_following=is_following)
                return spec.key not in self._source_tables.gap_starts.following
        except TableError as error:
            self._stop(spec, error)
            return True
        if change:
            _log.tell(
                Event.PARTITIONS_KEPT,
                source=self._source,
                table=str(spec.table),
                target=spec.identifier,
                change=str(change),
            )
        if change.emptied:
            self._approvals.closed(spec)
        whole = [part for part in found if part not in look.unread]
        now = known.looked(whole, start.horizon, start.until_lsn, waits=waits)
        has_kept = known.has_kept or bool(change.gone)
        self._notes.looked(spec, known, dataclasses.replace(now, types=start.types, has_kept=has_kept))
        self._horizons[spec.key] = start.horizon
        if not waits and not look.unread:
            self._source_tables.gap_starts.prove(Evidence.PARTITIONS, spec, start.lsn)
        return True

    def _settle(self, spec: SourceTableSpec) -> None:
        """Have a job wait for no later look at a table, unless the stream has told of its partitions since."""
        put_off = self._source_tables.put_off[Evidence.PARTITIONS]
        if not self._notes.has_told(spec):  # else a job might end in between
            put_off.discard(spec.key)
        if self._notes.has_told(spec):
            put_off.add(spec.key)

    def _compare(self, spec: SourceTableSpec, change: PartitionChange, *, is_following: bool) -> None:
        """Have a table compared with its source: no row of it says which partition it is from.

        One that cannot be compared has a gap then. One that shows what was follows until it is compared.
        """
        _log.tell(
            Event.PARTITIONS_CHANGED,
            source=self._source,
            table=str(spec.table),
            target=spec.identifier,
            change=str(change) or "rows of partitions that are gone were kept, and the map says so no more",
        )
        position = self._source_tables.position(spec)
        if _keeps_past(spec) and position is not None and not self._source_tables.look(spec).is_resync_due:
            self._source_tables.gap_starts.note(Evidence.PARTITIONS, spec)
            self._source_tables.gap_starts.follow(spec, position.lsn)
            self._context.requests.send(spec.key)
            return
        if is_following:
            self._source_tables.hold(spec)  # first: what is dropped from now on must come again
        self._source_tables.gap_starts.note(Evidence.PARTITIONS, spec)
        if not self._source_tables.look(spec).is_resync_due:  # else it is copied, which is as good
            self._source_tables.resync(spec, is_due=True, is_repair=True)
        if is_following:
            self._source_tables.set(spec, State.NEW)
            self._context.requests.send(spec.key)
        else:
            self._forget(spec)

    def _follow_no_more(self, spec: SourceTableSpec) -> None:
        """Have a table compared from where it is that failed on its way for want of what it is compared for."""
        look = self._source_tables.look(spec)
        if look.state is State.ERROR and isinstance(look.error, VersionLost):
            self._source_tables.gap_starts.following.discard(spec.key)
            self._source_tables.resync(spec, is_due=True, is_repair=True)
            self._context.requests.send(spec.key)

    def _tell_unread(self, spec: SourceTableSpec, unread: dict[Partition, SourceRefused]) -> None:
        """Say once which new partitions cannot be read; they are asked again."""
        for partition, error in unread.items():
            if partition.links not in self._unread:
                self._unread.add(partition.links)
                _log.tell(
                    Event.PARTITION_UNREAD,
                    source=self._source,
                    table=str(spec.table),
                    partition=str(partition.table),
                    error=str(error),
                )

    def _stop(self, spec: SourceTableSpec, error: TableError) -> None:
        # Hold first: what is dropped from now on must come again.
        self._source_tables.hold(spec)
        self._context.troubles.fail(spec, error)


def _may_be_told(
    spec: SourceTableSpec,
    known: KnownPartitions,
    change: PartitionChange,
    found: Sequence[Partition],
    *,
    is_urgent: bool,
) -> set[tuple[int, int]]:
    """Return the partitions, and the transactions that gave them their files, of which the stream is heard out first.

    It may tell that the table itself was truncated. And a history has the times of the source's transactions only of
    what the stream brings before the comparison, also where a partition was attached with rows, or has gone.
    """
    is_history = spec.config.type is TableType.HISTORY
    unsure = change.emptied + change.unlogged + (change.attached if is_history else ())
    told = {(part.oid, 0 if is_urgent else part.file_xid) for part in found if str(part.table) in unsure}
    if is_history and not partition_memory.is_keeping(spec) and (change.gone or known.has_kept):
        oids = {part.oid for part in known.parts} | {seen.oid for seen in known.seen}
        oids -= {part.oid for part in found}
        told |= {(oid, 0) for oid in (oids or {0})}  # 0: rows of partitions that went earlier are to stay no more
    return told


def _keeps_past(spec: SourceTableSpec) -> bool:
    """Whether the lake shows more of a table than what its source has now, and yet can be compared with that."""
    return spec.config.type is TableType.HISTORY or spec.config.deletes is Deletes.SOFT


def _by_oid(tables: Iterable[tuple[SourceTableSpec, SourceTable]]) -> dict[int, tuple[SourceTableSpec, ...]]:
    """Return the entries of each table: several, where it has routes."""
    found: dict[int, tuple[SourceTableSpec, ...]] = {}
    for spec, table in tables:
        found[table.relation.oid] = (*found.get(table.relation.oid, ()), spec)
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _LookTime:
    """When a look was, and at what."""

    lsn: int  #: where the WAL ended before
    until_lsn: int  #: and behind it
    horizon: int  #: see `partitions.has_rows_from_before`
    root: int = 0  #: OID of the partitioned table
    types: str = ""  #: of its columns, if it cannot be compared: see `partitions.types`


class _Look:
    """Looks into partitions.

    Args:
        connection: To the source.
        known: What is remembered.
        horizon: The horizon of the look before; 0: unknown.
        start: The start of this look.
        is_comparable: Whether the target is.
    """

    def __init__(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        known: KnownPartitions,
        horizon: int,
        start: _LookTime,
        *,
        is_comparable: bool,
    ) -> None:
        self._connection = connection
        self._is_comparable = is_comparable
        self._start = start
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
        is_emptied = self._known.is_emptied_by_stream(partition)
        if is_emptied and not self._has_rewritten_rows(partition, if_unread=self._is_comparable):
            return True
        if not self._is_comparable and self._is_retyped(partition):
            return True  # a rewrite changes no row there; others are compared to have what it wrote
        if not self._horizon:
            return False
        try:
            return partitions.has_rows_from_before(self._connection, partition.table, self._horizon)
        except SourceRefused:
            return False

    def was_unlogged(self, partition: Partition) -> bool:
        """Say whether a partition with another file may have rows that no stream has; what is compared is right."""
        return not self._is_comparable and self._has_rewritten_rows(partition, if_unread=True)

    def _is_retyped(self, partition: Partition) -> bool:
        altered = partitions.altered(self._connection, self._start.root, partition)
        return self._known.is_retyped(self._start.types, altered)

    def _has_rewritten_rows(self, partition: Partition, *, if_unread: bool) -> bool:
        if self._known.has_toast_of(partition):
            return False
        try:
            return partitions.has_rewritten_rows(self._connection, partition)
        except SourceRefused:
            return if_unread


__all__ = ["PartitionWatch"]
