"""The replication slot of one source: whether the stream goes on in it from where the lake stands, and new ones.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from kuvasz import failpoints, lsn
from kuvasz.config import names
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SlotLost, SourceError
from kuvasz.model import Position
from kuvasz.source import conninfo, continuity, introspect, publication, slots
from kuvasz.state.standing import Standing, StandingFile
from kuvasz.sync.basis import Basis

_log = logging.getLogger(__name__)

#: The first version of servers that keep slots of theirs on standbys. Without a standby that changes nothing.
_FAILOVER_SINCE = 170000


class Slot:
    """One source's slot.

    Args:
        basis: Of the source.
        standing: What was confirmed.
        parked_lsn: Target -> commit LSN of the newest transaction that is parked of it; 0 for none.
    """

    def __init__(self, basis: Basis, standing: StandingFile, *, parked_lsn: Callable[[str], int]) -> None:
        self.name = basis.source.object_name
        self._source = basis.source.name
        self._url = basis.url
        self._lake = basis.around.lake
        self._roster = basis.roster
        self._lifetime = basis.lifetime
        self._standing = standing
        self._parked_lsn = parked_lsn

    def check(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Sequence[SourceTableSpec],
        facts: introspect.ServerFacts,
    ) -> bool:
        """Return whether there is a slot that the lake's positions can go on from; False: nothing was copied yet.

        Raises:
            SlotLost: The source does not go on from where the lake stands.
            SourceError: It is in use.
        """
        system_id = str(facts.system_identifier)
        known = [(spec, position) for spec in specs if (position := self._roster.position(spec)) is not None]
        self._check_cluster(system_id, [*known, *self._positions_of_members(specs)])
        state = slots.describe(connection, self.name)
        if state is not None and state.why_foreign:
            raise SlotLost(
                f"source {self._source}: slot {self.name} cannot be used: {state.why_foreign}",
                hint=f"drop it (SELECT pg_drop_replication_slot('{self.name}')) and start again",
            )
        if known:
            self._compare(connection, state, facts)
        elif state is not None and state.why_lost:
            slots.drop(connection, self.name)
            return False
        if state is None:
            return False
        if state.active_pid is not None:
            user = slots.user(connection, state.active_pid)
            raise SourceError(
                f"source {self._source}: slot {self.name} is in use by {user}",
                hint="stop that process, if it is another kuvasz with the same map; this one waits for the slot",
            )
        standing = self._standing.standing if known else Standing()
        confirmed_lsn = max(standing.confirmed_lsn, state.confirmed_flush_lsn or 0)
        self._standing.update(dataclasses.replace(standing, system_id=system_id, confirmed_lsn=confirmed_lsn))
        return True

    def _check_cluster(self, system_id: str, positions: Sequence[tuple[SourceTableSpec, Position]]) -> None:
        for spec, position in positions:
            if position.system_id and position.system_id != system_id:
                raise SlotLost(
                    f"source {self._source}: cluster {system_id} answers, but table {spec.identifier} holds rows"
                    f" of cluster {position.system_id}",
                    hint=f"check the url; if the cluster was replaced: {continuity.RESYNC_HINT}",
                )

    def _positions_of_members(self, specs: Sequence[SourceTableSpec]) -> list[tuple[SourceTableSpec, Position]]:
        """Return the positions of all members of collapses, those that are gone as well."""
        return [
            (spec, position)
            for spec in specs
            if spec.member
            for name, position in self._lake.positions(spec.identifier).items()
            if names.source_of(name) == self._source
        ]

    def _compare(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        slot: slots.SlotState | None,
        facts: introspect.ServerFacts,
    ) -> None:
        """Make sure that the source goes on from where the lake stands; the reader does so at each connection."""
        standing, applied_lsn = self._standing.standing, self.applied_lsn()
        server = continuity.Server(
            system_id=str(facts.system_identifier),
            timeline=facts.timeline,
            wal_lsn=introspect.wal_end(connection),
            slot_name=self.name,
            slot=slot,
        )
        why = continuity.why_lost(standing, applied_lsn, server)
        if why is None and publication.load(connection, self.name) is None:
            since = lsn.render(standing.confirmed_lsn or applied_lsn)
            why = f"publication {self.name} was dropped: changes after {since} may be missing"
        if why is not None:
            raise SlotLost(f"source {self._source}: {why}", hint=continuity.hint(why, self._standing.path))

    def applied_lsn(self) -> int:
        """Return how far the source is in the lake, or in what is parked."""
        tables = self._roster.source.tables
        positions = (self._roster.position(spec) for spec in tables)
        applied = (position.lsn for position in positions if position is not None)
        return max([0, *applied, *(self._parked_lsn(spec.identifier) for spec in tables)])

    def create(self, facts: introspect.ServerFacts) -> slots.ExportedSnapshot:
        """Create the slot; what is confirmed begins with it.

        Raises:
            SourceError: It cannot be created now.
        """
        can_fail_over = facts.version >= _FAILOVER_SINCE and not facts.is_in_recovery
        taken = self._new(self.name, temporary=False, failover=can_fail_over)
        system_id = str(facts.system_identifier)
        self._standing.update(Standing(system_id=system_id, confirmed_lsn=taken.consistent_point))
        return taken

    def drop(self) -> None:
        """Drop the slot, if there is one.

        Raises:
            SourceError: It cannot be dropped now.
        """
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            slots.drop(connection, self.name)
        failpoints.hit("slot_dropped", SourceError)

    def snapshot(self, spec: SourceTableSpec) -> slots.ExportedSnapshot:
        """Return a snapshot for one table, that of a temporary slot beside this one.

        Raises:
            SourceError: There is none to be had now.
        """
        name = f"{self.name[:50]}_copy_{random.getrandbits(24):06x}"
        _log.info("snapshot for a new table", extra={"event": "snapshot", "source": self._source,
                                                     "table": str(spec.table)})  # fmt: skip
        return self._new(name, temporary=True)

    def _new(self, name: str, *, temporary: bool, failover: bool = False) -> slots.ExportedSnapshot:
        def waiting(blockers: tuple[slots.Blocker, ...]) -> None:
            _log.warning("the slot waits for transactions to end", extra={
                "event": "slot_waits", "source": self._source,
                "blockers": [blocker.describe() for blocker in blockers]})  # fmt: skip
            if self._lifetime.is_ending:
                raise SourceError("stopped while the slot was being created")

        failpoints.hit("before_slot", SourceError)
        taken = slots.create(
            conninfo.replication_conninfo(self._url), name, temporary=temporary, failover=failover,
            on_waiting=waiting,
        )  # fmt: skip
        failpoints.hit("slot_created", SourceError)
        return taken


__all__ = ["Slot"]
