"""The replication slot of one source: whether the stream goes on in it from where the lake stands, and new ones.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kuvasz import failpoints
from kuvasz.config import names
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SlotLost, SourceError, SourceRefused, SourceReplaced, TableStuck, place_of, start_over
from kuvasz.events import Event, EventLog
from kuvasz.model import NOTHING, Applied, SourcePosition
from kuvasz.ports import Lake
from kuvasz.source import conninfo, continuity, publication, slots
from kuvasz.source.catalog import introspect
from kuvasz.staging.staged_past import StagedPast
from kuvasz.state.ports import SourceRecord, StoredRecord
from kuvasz.state.tables import State
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import identity, keyless

_log = EventLog(__name__)

#: The first version of servers that keep slots of theirs on standbys. Without a standby that changes nothing.
_FAILOVER_SINCE = 170000


class Slot:
    """One source's slot.

    Large because all that a source may have become is told by one look at it.

    Args:
        context: The context of the source.
        standing: What was confirmed.
        parked_lsn: Target -> commit LSN of the newest transaction that is parked of it; 0 for none.
    """

    def __init__(self, context: SourceContext, standing: StoredRecord, *, parked_lsn: Callable[[str], int]) -> None:
        self.name = context.source.object_name
        self._context = context
        self._source = context.source.name
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._staged = StagedPast(context.shared.staged, context.source.name, context.shared.progress)
        self.history = 0  #: number of the source's past that the slot belongs to; see `SourcePosition.history`
        self.stale: frozenset[str] = NOTHING  #: tables with rows of an earlier one, by `SourceTableSpec.key`
        self.is_replaced = False  #: what answered the last time is another source than the lake has rows of
        self._standing = standing
        self._parked_lsn = parked_lsn

    @property
    def timeline(self) -> int:
        """The timeline of the server that was compared last."""
        return self._standing.standing.timeline

    def is_of_now(self, taken: slots.ExportedSnapshot | SourcePosition) -> bool:
        """Whether a snapshot, or a copy, is of the server that was compared last, and not started anew since."""
        return self._standing.standing.started_us in {0, taken.started_us}

    def check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        facts: introspect.ServerFacts,
        *,
        is_once: bool = False,
    ) -> bool:
        """Return whether there is a slot that the lake's positions can go on from; False: nothing was copied yet.

        Asked before anything of the source's tables is looked at or changed in the lake. Tables that are about to
        be copied again need nothing of the old stream; but if what answers is another source, `is_replaced` says so.

        Args:
            connection: To the source.
            facts: What the server says of itself.
            is_once: No stream goes on: tables are copied once, and those that are paused stay as they are.

        Raises:
            SourceReplaced: What answers lacks some of what the lake has.
            SlotLost: The source does not go on from where the lake stands.
            SourceRefused: It is of another database.
            SourceError: It is in use.
            LakeError: The lake cannot be reached.
        """
        known = self._known()
        needed = [(spec, position) for spec, position, is_needed in known if is_needed and not is_once]
        state = slots.describe(connection, self.name)
        is_ours = self._staged.is_read_elsewhere
        self._staged.look()
        if state is not None and state.active_pid is not None and self._context.shared.holds_lease and not is_ours:
            # The one before was killed, or sleeps: its server may not notice for a minute.
            _log.tell(Event.READER_ENDED, source=self._source, pid=state.active_pid)
            self._end_reader(connection)
            state = slots.describe(connection, self.name)
        server = self._server(connection, state, facts)
        error = self._replaced(known, server)
        self.is_replaced = error is not None
        if error is not None and needed:
            raise error
        if state is not None and state.database not in {None, facts.database}:
            raise SourceRefused(  # whatever `on_slot_lost` says: it may be dropped from here, and is somebody else's
                f"{place_of(self._source)}: slot {self.name} is of database {state.database}",
                hint="give this database another name or `sid` in the map, for a server has each name of a slot once;"
                " or drop the slot, if nobody reads it",
            )
        if state is not None and state.why_foreign:
            raise slots.foreign(state, place_of(self._source))  # whatever `on_slot_lost` says
        if needed:
            if self._staged.group is not None and not self._staged.is_known:
                raise _unheard(self._source, self._staged.group)
            self._compare(connection, [position for _, position in needed], server)
        else:
            self._context.pasts.give_up(0)
            if self._staged.group is None and state is not None and (state.why_lost or self.is_replaced):
                self._drop(connection)
                return False
        if self._staged.group is not None and (state is None or state.why_lost):
            raise _not_ready(self._source, self.name, state)
        if state is None:
            return False
        if state.active_pid is not None and not is_ours:
            user = slots.user(connection, state.active_pid)
            raise SourceError(
                f"{place_of(self._source)}: slot {self.name} is in use by {user}",
                hint="stop that process, if it is another kuvasz with the same map; this one waits for the slot",
            )
        if not needed and self._staged.release():  # it is confirmed further by whoever reads, until that has ended
            self._end_reader(connection)
            state = slots.describe(connection, self.name) or state
        self._go_on(server, state, is_known=bool(needed))
        return True

    def _known(self) -> list[tuple[SourceTableSpec, SourcePosition, bool]]:
        """Return how far the source is in the lake: table, position, and whether the stream goes on from it.

        Of collapses those of all members count, also of those that are gone. What belongs to an earlier past of the
        source, because its table was not in the map when that ended, is copied again and counts for nothing.

        Raises:
            TableStuck: What can be read of the lake does not tell where the stream goes on.
        """
        found: list[tuple[SourceTableSpec, SourcePosition, bool]] = []
        tables = self._source_tables.source.tables
        recorded, stuck = _recorded(self._lake, {spec.identifier for spec in tables})
        for spec in tables:
            mine = recorded[spec.identifier].get(self._source_tables.name(spec))
            look = self._source_tables.look(spec)
            if mine is not None:
                found.append((spec, mine, not look.is_resync_due or look.is_paused))
            elif spec.member:
                found += [
                    (spec, position, False)
                    for name, position in recorded[spec.identifier].items()
                    if names.source_of(name) == self._source
                ]
        self.history = max([self._standing.standing.history, *(position.history for _, position, _ in found)])
        stale = {spec.key: spec for spec, position, _ in found if position.history < self.history}
        for spec in stale.values():
            self._source_tables.resync(spec, is_due=True)
            _log.tell(Event.COPIED_AGAIN_REWOUND, source=self._source, table=spec.identifier)
        self.stale = frozenset(stale) or NOTHING
        known = [entry for entry in found if entry[1].history == self.history]
        if stuck is not None and not any(is_needed for _, _, is_needed in known):
            raise stuck
        return known

    def _server(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        slot: slots.SlotState | None,
        facts: introspect.ServerFacts,
    ) -> continuity.ServerState:
        is_later = 0 < self._standing.standing.timeline < facts.timeline
        return continuity.ServerState(
            system_id=str(facts.system_identifier),
            timeline=facts.timeline,
            wal_lsn=introspect.wal_end(connection),
            slot_name=self.name,
            slot=slot,
            switches=self._switches(facts.timeline) if is_later else None,
            started_us=facts.started_us,
        )

    def _switches(self, timeline: int) -> Mapping[int, int]:
        return continuity.switches(slots.timeline_history(self._context.replication_url(), timeline))

    def _replaced(
        self, known: Sequence[tuple[SourceTableSpec, SourcePosition, bool]], server: continuity.ServerState
    ) -> SourceReplaced | None:
        """Return the error of a source that is another one than the lake has rows of; None if it is not."""
        if not known:
            return None
        positions = [(spec.identifier, position) for spec, position, _ in known]
        if (error := identity.stranger(self._source, server.system_id, positions)) is not None:
            return error
        standing, applied_lsn = self._agreed(server)
        why = continuity.why_replaced(standing, max(applied_lsn, *(one.lsn for _, one, _ in known)), server)
        return (
            None if why is None else SourceReplaced(f"{place_of(self._source)}: {why}", hint=start_over(self._source))
        )

    def _compare(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        positions: Sequence[SourcePosition],
        server: continuity.ServerState,
    ) -> None:
        """Make sure that the source goes on from where the lake stands; the reader does so at each connection."""
        standing, applied_lsn = self._agreed(server)
        applied_lsn = max(applied_lsn, *(position.lsn for position in positions))
        error = continuity.lost(self._source, standing, applied_lsn, server, self._standing.place)
        if error is None and not publication.exists(connection, self.name):
            error = continuity.without_publication(self._source, self.name, standing, applied_lsn)
        # A record may be from before the log: then what was confirmed is in the lake.
        is_nothing_known = self._staged.is_forgotten and (standing.is_staged or not standing.system_id)
        if error is None and is_nothing_known and server.slot is not None:
            error = continuity.without_record(self._source, server.slot, self._standing.place)
        if error is not None:
            raise error
        if self._staged.group is not None and not continuity.is_rewound(standing, server):
            # Who has the slot proves at each connection what is staged, and what is in the first group's lake.
            confirmed_lsn = 0 if server.slot is None else server.slot.confirmed_flush_lsn or 0
            for spec, position in self._positions():
                is_proved = position.commit_lsn or position.lsn <= confirmed_lsn
                if not is_proved and position.started_us not in {0, server.started_us}:
                    # A repair keeps rows of tables that cannot be compared, and a copy would have no others.
                    is_repair = spec.config.type.is_comparable or self._source_tables.look(spec).is_repair
                    self._source_tables.resync(spec, is_due=True, is_repair=is_repair)

    def _agreed(self, server: continuity.ServerState) -> tuple[SourceRecord, int]:
        """Return what was confirmed, and how far the lake is, as far as a server has to agree with that.

        Of one that took over, a group of the log may find staged what the first one has received of it since: that is
        none of what the group's lake has of the one before, nor was that told of it.
        """
        standing = self._standing.standing
        if self._staged.group is not None and continuity.is_rewound(standing, server):
            return dataclasses.replace(standing, confirmed_lsn=0), self.applied_lsn(is_staged_counted=False)
        return self._staged.standing(standing), self.applied_lsn()

    def _go_on(self, server: continuity.ServerState, slot: slots.SlotState, *, is_known: bool) -> None:
        """Note that the stream goes on in a slot, from there alone if nothing earlier counts any more."""
        standing, confirmed_lsn = self._standing.standing, slot.confirmed_flush_lsn or 0
        if not is_known:  # a kill may have come between a new slot and its note
            self.history += 1
        starts, tables = self._source_tables.gap_starts, self._source_tables
        starts.begin(standing.looked_lsn, [spec for spec in tables.source.tables if tables.look(spec).is_repair])
        if not is_known or continuity.is_rewound(standing, server):
            # A timeline that left the old one behind the lake's positions has all of that.
            proved_lsn = self._agreed(server)[1] if is_known else 0
            self._context.pasts.give_up(proved_lsn)
            standing = SourceRecord(
                confirmed_lsn=confirmed_lsn, started_us=server.started_us, proved_lsn=proved_lsn,
                looked_lsn=min(standing.looked_lsn, proved_lsn),
            )  # fmt: skip
            (self._staged.set_back if is_known else self._staged.begin_anew)(confirmed_lsn)
        else:
            self._staged.take_up(confirmed_lsn)
            if self._staged.group is not None and standing.started_us != server.started_us:
                standing = dataclasses.replace(standing, started_us=server.started_us)
        self._standing.update(
            dataclasses.replace(
                standing, system_id=server.system_id, timeline=server.timeline, history=self.history,
                confirmed_lsn=max(standing.confirmed_lsn, confirmed_lsn), is_staged=self._staged.is_there,
            )
        )  # fmt: skip

    def applied_lsn(self, *, is_staged_counted: bool = True) -> int:
        """Return how far the source is in the lake, or in what is parked or staged."""
        parked = (self._parked_lsn(spec.identifier) for spec in self._source_tables.source.tables)
        staged = self._staged.ended_lsn if is_staged_counted else 0
        return max([staged, *(position.lsn for _, position in self._positions()), *parked])

    def copied(self) -> list[SourcePosition]:
        """Return the copies in the lake that no transaction of their table has followed, and that are to stay."""
        return [
            position
            for spec, position in self._positions()
            if not position.commit_lsn and not self._source_tables.look(spec).is_resync_due
        ]

    def applied(self, *, with_inserts: bool = False) -> list[Applied]:
        """Return the last transaction of each table in the lake, or in what is parked, as far as it is known.

        Args:
            with_inserts: Whether the stream has the tables of which only INSERTs are published.
        """
        found = []
        for spec, position in self._positions():
            table = self._source_tables.tables.get(spec.key)
            if table is None or (keyless.has_only_inserts(table) and not with_inserts):
                continue
            if position.commit_lsn:
                found.append(Applied(position.commit_lsn, position.xid, position.commit_us))
            if not spec.member and (parked := self._parked_lsn(spec.identifier)):
                found.append(Applied(parked))
        return sorted(found)  # of two at one place the one of which more is known counts

    def _positions(self) -> list[tuple[SourceTableSpec, SourcePosition]]:
        """Return how far each table is in the lake, of those with rows of the source's past that goes on."""
        found = [(spec, self._source_tables.position(spec)) for spec in self._source_tables.source.tables]
        return [(spec, p) for spec, p in found if p is not None and p.history == self.history]

    def refuse(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Make sure that there is no slot, which somebody would go on from.

        Raises:
            SourceRefused: There is one.
        """
        if slots.exists(connection, self.name):
            message = f"{place_of(self._source)}: slot {self.name} is there: this source is replicated"
            raise SourceRefused(
                message,
                hint="start kuvasz without --snapshot-only; or, if nobody is to replicate it any more:"
                f" SELECT pg_drop_replication_slot('{self.name}')",
            )

    def create(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        facts: introspect.ServerFacts,
        *,
        temporary: bool = False,
    ) -> slots.ExportedSnapshot:
        """Create the slot; what is received and confirmed begins with it, whatever was before.

        Args:
            connection: An ordinary session.
            facts: What the server says of itself.
            temporary: It goes with its snapshot, and nothing is received.

        Raises:
            SourceError: It cannot be created now.
        """
        can_fail_over = facts.version >= _FAILOVER_SINCE and not facts.is_in_recovery and not temporary
        tables = [spec for spec in self._source_tables.source.tables if self._source_tables.state(spec) is State.NEW]
        self._staged.release()  # who reads would end the session that makes it
        taken = self._new(self.name, tables, temporary=temporary, failover=can_fail_over, beside=connection)
        system_id = str(facts.system_identifier)
        point = taken.consistent_point
        self._staged.begin_anew(point)
        self.history += 1
        self._source_tables.gap_starts.looked_lsn = 0  # what this process proved a moment ago stays true
        self._standing.update(
            SourceRecord(
                system_id=system_id, timeline=facts.timeline, history=self.history, confirmed_lsn=point,
                started_us=taken.started_us, is_staged=self._staged.is_there,
            )
        )  # fmt: skip
        return taken

    def looked(self, at_lsn: int) -> None:
        """Note up to which tables missed nothing, for a gap that another process finds. On the event loop."""
        self._standing.update_soon(dataclasses.replace(self._standing.standing, looked_lsn=at_lsn))

    def drop(self) -> None:
        """Drop the slot, if there is one, and it is ours: a group of the log has none.

        Raises:
            SourceError: It cannot be dropped now.
        """
        if self._staged.group is not None:
            return
        with contextlib.closing(conninfo.connect(self._context.url())) as connection:
            self._drop(connection)
        failpoints.hit("slot_dropped", SourceError)

    def _drop(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        is_read = self._staged.release()
        with self._context.slot_session(connection) as session:
            if is_read:
                slots.end_reader(session, self.name)
            slots.drop(session, self.name)

    def _end_reader(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        with self._context.slot_session(connection) as session:
            slots.end_reader(session, self.name)

    def snapshot(self, spec: SourceTableSpec) -> slots.ExportedSnapshot:
        """Return a snapshot for one table, that of a temporary slot beside this one.

        Raises:
            SourceError: There is none to be had now.
        """
        name = f"{self.name[:50]}_copy_{random.getrandbits(24):06x}"
        _log.tell(Event.SNAPSHOT, source=self._source, table=str(spec.table))
        return self._new(name, [spec], temporary=True)

    def _new(
        self,
        name: str,
        tables: Sequence[SourceTableSpec],
        *,
        temporary: bool,
        failover: bool = False,
        beside: Any = None,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    ) -> slots.ExportedSnapshot:
        def waiting(blockers: tuple[slots.Blocker, ...]) -> None:
            told = [blocker.describe() for blocker in blockers]
            _log.tell(Event.SLOT_WAITS, source=self._source, blockers=told)
            for spec in tables:
                self._source_tables.note(spec, waits_for="; ".join(told))
            if self._context.lifetime.is_ending:
                raise SourceError("stopped while the slot was being created")

        failpoints.hit("before_slot", SourceError)
        try:
            taken = slots.create(
                conninfo.replication_conninfo(self._context.replication_url()), name, temporary=temporary,
                failover=failover, on_waiting=waiting, beside=beside,
            )  # fmt: skip
        finally:
            for spec in tables:
                self._source_tables.note(spec, waits_for="")
        failpoints.hit("slot_created", SourceError)
        return taken


def _unheard(source: str, group: str) -> SlotLost:
    """Return the error of a group of the log that cannot go on from where its lake is."""
    return SlotLost(
        f"{place_of(source)}: the log has not all that follows on what the lake of group {group} has: the source"
        " began anew where its slot is, or left a map, or the group was retired",
        hint=start_over(source),
    )


def _not_ready(source: str, name: str, state: slots.SlotState | None) -> SourceError:
    """Return the error of a source whose slot is another group's, and cannot be used."""
    why = "is not there" if state is None else f"cannot be used: {state.why_lost}"
    return SourceError(
        f"{place_of(source)}: slot {name} {why}",
        hint="the processes without a group make it, from a map with this source under this name, and start over with"
        " one that is lost; it is tried again",
    )


def _recorded(
    lake: Lake, targets: Collection[str]
) -> tuple[Mapping[str, Mapping[str, SourcePosition]], TableStuck | None]:
    """Return target -> how far each source is in it, and why that is nothing of one that the lake cannot read."""
    found: dict[str, Mapping[str, SourcePosition]] = {target: {} for target in targets}
    stuck: TableStuck | None = None
    for target in targets:
        try:
            found[target] = lake.recorded(target)
        except TableStuck as error:
            stuck = error
    return found, stuck


__all__ = ["Slot"]
