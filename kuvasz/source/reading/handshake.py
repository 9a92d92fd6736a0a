"""What is made sure of on a new connection before its stream begins: the right cluster, and no gap."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from kuvasz import errors
from kuvasz.own_thread import in_thread
from kuvasz.source import continuity
from kuvasz.state.ports import NONE

if TYPE_CHECKING:
    from kuvasz.source.reading.connection import Connection, SystemIdentity
    from kuvasz.source.reading.ends import Durability, StreamProof, StreamStart, Upstream
    from kuvasz.source.reading.facts import ReaderFacts
    from kuvasz.state.ports import StoredRecord


class Handshake:
    """The beginning of each connection of one reader.

    Args:
        upstream: Where its changes come from.
        progress: What may be confirmed, and what is on its way.
        assembler: Told which transactions have to come.
        facts: Told what is confirmed where that is less than it was.
        start: From where the stream goes on, and what proves that nothing is missing.
    """

    def __init__(
        self, upstream: Upstream, progress: Durability, assembler: StreamProof, facts: ReaderFacts, start: StreamStart
    ) -> None:
        self._upstream = upstream
        self._source = upstream.source
        self._progress = progress
        self._assembler = assembler
        self._facts = facts
        self._start = start

    async def check(self, connection: Connection) -> None:
        """Make sure that the source is the one that is meant, and goes on from where it was left.

        Raises:
            SourceReplaced: It is another one.
            SlotLost: It does not go on.
        """
        identity = await connection.identify_system()
        expected = self._upstream.system_id
        if expected is not None and identity.system_id != expected:
            raise errors.SourceReplaced(
                f"{errors.place_of(self._source)}: cluster {identity.system_id} answers, not {expected}",
                hint=errors.another_cluster(self._source),
            )
        if self._start.record is not None:
            await self._compare(connection, identity, self._start.record)

    async def _compare(self, connection: Connection, identity: SystemIdentity, record: StoredRecord) -> None:
        known = record.standing
        # What is about to be confirmed counts as well.
        confirmable = max(known.confirmed_lsn, self._progress.confirmable(self._source))
        is_later = 0 < known.timeline < identity.timeline
        server = continuity.ServerState(
            system_id=identity.system_id,
            timeline=identity.timeline,
            wal_lsn=identity.flush_lsn,
            slot_name=self._upstream.slot,
            slot=await connection.slot(self._upstream.slot),
            switches=await connection.timeline_switches(identity.timeline) if is_later else None,
            started_us=await connection.started_us(),
        )
        # What is on its way to the lake counts as there: it will be.
        applied_lsn = max(self._start.applied_lsn(), self._progress.routed_lsn(self._source))
        compared = dataclasses.replace(known, confirmed_lsn=confirmable)
        lost = continuity.lost(self._source, compared, applied_lsn, server, record.place)
        if lost is not None:
            raise lost
        applied = list(self._start.applied())
        witness = continuity.witness(self._source, known, self._start.copied(), applied, server)
        # What the slot was not told comes again, so the source can prove that it still has what the lake has.
        from_lsn = 0 if server.slot is None else server.slot.confirmed_flush_lsn or 0
        expected = [one for one in applied if one.commit_lsn >= from_lsn]
        self._assembler.expect(expected if witness is None else [witness, *expected])
        proved_lsn = known.proved_lsn if server.started_us == known.started_us else 0
        if continuity.is_rewound(known, server):
            proved_lsn = applied_lsn
            self._start.on_rewound(applied_lsn)
            known = dataclasses.replace(known, looked_lsn=min(known.looked_lsn, applied_lsn))
            if server.slot is not None:
                # What was confirmed to the old primary may lie beyond the WAL of this one.
                known = dataclasses.replace(known, confirmed_lsn=from_lsn)
                self._progress.begin_anew(self._source, known.confirmed_lsn)
                self._facts.confirmed_lsn = known.confirmed_lsn
        record.update_soon(
            dataclasses.replace(
                known, system_id=identity.system_id, timeline=identity.timeline, started_us=server.started_us,
                proved_lsn=proved_lsn, witness=witness or NONE,
                rest_xid=known.rest_xid if server.started_us == known.started_us else 0,
            )
        )  # fmt: skip
        # Of a server that took over nothing is applied before that is known: it would be taken for another source.
        if not record.is_settled:
            await asyncio.wrap_future(in_thread(record.settle))


__all__ = ["Handshake"]
